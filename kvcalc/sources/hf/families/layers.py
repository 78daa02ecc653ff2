"""What a family hands back, and the few ways in which config.json files say which layer is what.

    uniform(config, states)                every layer alike
    by_type(config, rule, builders)        a name a layer: `layer_types` of the file, else the family's rule

A builder turns a config into the states of one kind of layer; only the kinds that occur are built.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.architecture import MOST_LAYERS
from kvcalc.core.errors import InvalidConfigError, nearest
from kvcalc.core.states import Nothing
from kvcalc.core.units import clean
from kvcalc.sources.hf.families import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcalc.core.states import AnyState
    from kvcalc.sources.hf.config import Config

    States = tuple[AnyState, ...]
    Builder = Callable[[Config], States]
    Rule = Callable[[Config, int], Sequence[str]]
    Reader = Callable[[Config], "Layers"]

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LINEAR, INDEXED, CONV = "linear_attention", "indexed_attention", "conv"
HYBRID, HYBRID_SLIDING = "hybrid", "hybrid_sliding"

#: Layer types that keep nothing.
EMPTY_TYPES = ("mlp", "moe")

#: Older spellings of layer types, in files and in transformers' own history.
TYPE_ALIASES = {
    "mamba": LINEAR,
    "attention": FULL,
    "global_attention": FULL,
    "local_attention": SLIDING,
    "deepseek_sparse_attention": INDEXED,
    "qwen_sparse_attention": INDEXED,
}


class Layers(NamedTuple):
    """The layers of a model: a name each, in order, and the states behind each name.

    draft    names of the layers kept for speculation (MTP, NextN), which are not part of the model's own layers
    traits   facts of this family that an engine needs and that are no state
    notes    what the family assumed, a sentence each
    """

    order: Sequence[str]
    states: Mapping[str, States]
    draft: Sequence[str] = ()
    traits: Mapping[str, Any] = {}
    notes: tuple[str, ...] = ()


def layer_count(config: Config, *names: str) -> int:
    """Layers of the model, bounded. Raises InvalidConfigError."""
    return bounded(config.integer(*(names or fields.LAYERS)), (names or fields.LAYERS)[0])


def bounded(count: int, name: str) -> int:
    """`count` if it is no more than kvcalc reads. Raises InvalidConfigError."""
    if count > MOST_LAYERS:
        raise InvalidConfigError(f"config.json: '{name}' makes {count} layers, and kvcalc reads at most {MOST_LAYERS}")
    return count


def draft_count(config: Config) -> int:
    """Layers for speculation that the file itself declares; 0 where it says nothing."""
    for name in fields.DRAFT_LAYERS:
        if config.raw.get(name) is not None:
            return bounded(config.checked(config.raw[name], name, least=0), name)
    return 0


def uniform(config: Config, states: States, name: str = "full") -> Layers:
    """Every layer keeps `states`, the draft layers too."""
    return Layers([name] * layer_count(config), {name: states}, [name] * draft_count(config))


def named(order: Sequence[str], states: Mapping[str, States], draft: Sequence[str] = ()) -> Layers:
    """The layers by name, without the states that no layer uses."""
    used = {*order, *draft}
    return Layers(order, {name: kept for name, kept in states.items() if name in used}, draft)


def listed_types(config: Config, count: int, *names: str) -> list[str] | None:
    """The layer types that the file lists, at least `count` of them, in today's spelling; None where it lists none."""
    config.sequence(*(names or ("layer_types",)), length=count)
    listed = config.sequence(*(names or ("layer_types",)))
    if listed is None:
        return None
    for item in listed:
        if not isinstance(item, str):
            raise InvalidConfigError(
                f"config.json: '{(names or ('layer_types',))[0]}' holds {clean(repr(item), 40)}, and must hold names of layer types"
            )
    return [TYPE_ALIASES.get(item, item) for item in listed]


def cache_windows(config: Config, count: int) -> int | list[int]:
    """The window of every layer's cache by the file's words, or one a layer; 0 for none.

    `layer_types` counts, else `sliding_window`, else `attention_chunk_size`: of files whose class has no notion of windows.
    """
    said = {SLIDING: config.raw.get("sliding_window"), CHUNKED: config.raw.get("attention_chunk_size")}
    windows = {kind: value for kind, value in said.items() if isinstance(value, int) and not isinstance(value, bool) and value > 0}
    types = config.raw.get("layer_types")
    if isinstance(types, list) and len(types) == count:
        found = [windows.get(TYPE_ALIASES.get(kind, kind), 0) for kind in types if isinstance(kind, str)]
        return found if any(found) and len(found) == count else 0
    return windows.get(SLIDING, windows.get(CHUNKED, 0))


def short(kind: str) -> str:
    """`sliding_attention` → `sliding`: the name that a layer has in kvcalc's own files."""
    return kind.removesuffix("_attention").replace("-", "_")


def by_type(config: Config, rule: Rule, builders: Mapping[str, Builder], *, draft: str | None = None, key: str = "layer_types") -> Layers:
    """The layers by type: listed in the file under `key`, else after the family's `rule`.

    A list longer than the model has its draft layers at the end; draft layers that no list names are of type `draft`.
    """
    count = layer_count(config)
    listed = listed_types(config, count, key)
    drafts = draft_count(config) if draft else 0
    tail = listed[count : count + drafts] if listed else []
    return built(config, listed[:count] if listed else rule(config, count), builders, tail or [draft or FULL] * drafts)


def built(config: Config, types: Sequence[str], builders: Mapping[str, Builder], drafts: Sequence[str] = ()) -> Layers:
    """The layers of these types, each type built once. Raises InvalidConfigError for a type that the family does not know.

    `per_layer_config` (layer number → fields) makes layers of one type differ; each variant then has a name of its own.
    """
    variants = config.raw.get("per_layer_config")
    if variants:
        return _varied(config, types, builders, drafts, _overrides(variants))
    kinds = dict.fromkeys([*types, *drafts])
    states = {short(kind): _states_of(config, kind, builders) for kind in kinds}
    names = {kind: short(kind) for kind in kinds}
    return Layers([names[kind] for kind in types], states, [names[kind] for kind in drafts])


def _states_of(config: Config, kind: str, builders: Mapping[str, Builder]) -> States:
    builder = builders.get(kind)
    if builder is not None:
        return builder(config)
    if kind in EMPTY_TYPES:
        return (Nothing(),)
    known = [*builders, *EMPTY_TYPES]
    raise InvalidConfigError(
        f"config.json: a {config.model_type} model has no layers of type '{clean(kind, 40)}'",
        nearest(kind, known) or "known types: " + ", ".join(known),
    )


def _overrides(variants: object) -> Mapping[str, Mapping[str, Any]]:
    if not isinstance(variants, Mapping) or not all(isinstance(value, Mapping) for value in variants.values()):
        raise InvalidConfigError("config.json: 'per_layer_config' must map layer numbers to fields")
    return {str(key).lstrip("0") or "0": value for key, value in variants.items()}


def _varied(
    config: Config, types: Sequence[str], builders: Mapping[str, Builder], drafts: Sequence[str], overrides: Mapping[str, Mapping[str, Any]]
) -> Layers:
    names: dict[tuple[str, str], str] = {}
    states: dict[str, States] = {}
    order: list[str] = []
    for i, kind in enumerate([*types, *drafts]):
        override = overrides.get(str(i), {}) if i < len(types) else {}
        variant = (kind, json.dumps(override, sort_keys=True, default=str))
        if variant not in names:
            seen = sum(1 for known, _ in names if known == kind)
            names[variant] = short(kind) if not seen else f"{short(kind)}_{seen + 1}"
            states[names[variant]] = _states_of(config.overlaid(override), kind, builders)
        order.append(names[variant])
    return Layers(order[: len(types)], states, order[len(types) :])
