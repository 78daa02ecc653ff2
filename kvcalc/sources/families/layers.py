"""What a family hands back, and the few ways in which config.json files say which layer is what.

    uniform(config, states)                every layer alike
    by_type(config, rule, builders)        a name a layer: `layer_types` of the file, else the family's rule

A builder turns a config into the states of one kind of layer; only the kinds that occur are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.architecture import MOST_LAYERS
from kvcalc.errors import InvalidConfigError, nearest
from kvcalc.sources.families import fields
from kvcalc.states import Nothing, State
from kvcalc.units import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvcalc.sources.config import Config



class Layers(NamedTuple):
    """The layers of a model: a name each, in order, and the states behind each name.

    draft    names of the layers kept for speculation (MTP, NextN), which are not part of the model's own layers
    traits   facts of this family that an engine needs and that are no state
    """

    order: Sequence[str]
    states: Mapping[str, tuple[State, ...]]
    draft: Sequence[str] = ()
    traits: Mapping[str, Any] = {}


if TYPE_CHECKING:
    Builder = Callable[[Config], tuple[State, ...]]
    Rule = Callable[[Config, int], Sequence[str]]
    Reader = Callable[[Config], Layers]

#: Older spellings of layer types, in files and in transformers' own history.
TYPE_ALIASES = {
    "mamba": "linear_attention",
    "attention": "full_attention",
    "deepseek_sparse_attention": "indexed_attention",
    "qwen_sparse_attention": "indexed_attention",
}

#: Layer types that keep nothing.
EMPTY_TYPES = ("mlp", "moe")


def layer_count(config: Config, *names: str) -> int:
    """Layers of the model, bounded. Raises InvalidConfigError."""
    count = config.integer(*(names or fields.LAYERS))
    if count > MOST_LAYERS:
        raise InvalidConfigError(f"config.json: '{(names or fields.LAYERS)[0]}' is {count}, and kvcalc reads at most {MOST_LAYERS} layers")
    return count


def draft_count(config: Config) -> int:
    """Layers for speculation that the file declares; 0 where it says nothing."""
    value = next((config.raw[name] for name in fields.DRAFT_LAYERS if config.raw.get(name) is not None), 0)
    count = config.checked(value, fields.DRAFT_LAYERS[0], least=0)
    return min(count, MOST_LAYERS)


def uniform(config: Config, states: tuple[State, ...], name: str = "full") -> Layers:
    """Every layer keeps `states`, the draft layers too."""
    return Layers([name] * layer_count(config), {name: states}, [name] * draft_count(config))


def listed_types(config: Config, count: int, *names: str) -> list[str] | None:
    """The layer types that the file lists, cut to `count` and in today's spelling; None where it lists none."""
    listed = config.sequence(*(names or ("layer_types",)), length=count)
    if listed is None:
        return None
    for item in listed:
        if not isinstance(item, str):
            raise InvalidConfigError(f"config.json: '{(names or ('layer_types',))[0]}' holds {clean(repr(item), 40)}, and must hold names of layer types")
    return [TYPE_ALIASES.get(item, item) for item in listed]


def build(config: Config, types: Sequence[str], builders: Mapping[str, Builder]) -> dict[str, tuple[State, ...]]:
    """The states of every type that occurs. Raises InvalidConfigError for a type that the family does not know."""
    states: dict[str, tuple[State, ...]] = {}
    for kind in dict.fromkeys(types):
        builder = builders.get(kind)
        if builder is not None:
            states[short(kind)] = builder(config)
        elif kind in EMPTY_TYPES:
            states[short(kind)] = (Nothing(),)
        else:
            known = [*builders, *EMPTY_TYPES]
            raise InvalidConfigError(
                f"config.json: a {config.model_type} model has no layers of type '{clean(kind, 40)}'",
                nearest(kind, known) or "known types: " + ", ".join(known),
            )
    return states


def short(kind: str) -> str:
    """`sliding_attention` → `sliding`: the name that a layer has in kvcalc's own files."""
    return kind.removesuffix("_attention").replace("-", "_")


def by_type(config: Config, rule: Rule, builders: Mapping[str, Builder], *, draft: str | None = None, key: str = "layer_types") -> Layers:
    """The layers by type: listed in the file under `key`, else after the family's `rule`; draft layers are of type `draft`."""
    count = layer_count(config)
    types = listed_types(config, count, key) or rule(config, count)
    drafts = [draft] * draft_count(config) if draft else []
    states = build(config, [*types, *drafts], builders)
    return Layers([short(kind) for kind in types], states, [short(kind) for kind in drafts])
