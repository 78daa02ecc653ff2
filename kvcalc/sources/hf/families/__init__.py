"""Families of models: how each model_type's config.json lays out its layers.

    config.json ──descend──▶ the language model's part ──index──▶ one reader of one module ──▶ Layers ──▶ Architecture

index.py names the reader of every model_type; class_defaults.json holds what a file leaves to its config class.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import InvalidConfigError, UnsupportedArchitectureError, nearest
from kvcalc.core.fields import ContradictionError
from kvcalc.core.units import clean
from kvcalc.sources.hf.config import Config
from kvcalc.sources.hf.families import fields, identity
from kvcalc.sources.hf.families.defaults import class_defaults, has_layer_types
from kvcalc.sources.hf.families.index import INDEX
from kvcalc.sources.hf.families.layers import cache_windows
from kvcalc.sources.hf.families.wrappers import descend
from kvcalc.sources.schema import checked
from kvcalc.sources.validation import first

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.core.architecture import Source
    from kvcalc.sources.hf.families.layers import Layers, Reader

#: Fields that change a cache, by what their names hold; an unknown model's own are named in the refusal.
_BEARING = re.compile(
    r"layer|head|hidden_size|n_embd|d_model|window|chunk|rank|index|state|conv|mamba|ssm|linear|pattern|compress|kv|block"
)
#: Facts that decide what lies beside a cache, which the class says where the file is silent.
_BESIDE = ("encoder_layers", "vocab_size")
#: How many of them a refusal names.
_NAMED = 24

#: Defaults that change nothing by themselves, and are not worth a note.
_SILENT = frozenset({
    *fields.MAX_CONTEXT, *fields.HIDDEN, "max_window_layers", "index_topk", "qk_nope_head_dim", "v_head_dim", "num_kv_shared_layers"
})  # fmt: skip


def read_family(raw: Mapping[str, Any], *, model_id: str = "", source: Source | None = None) -> Architecture:
    """The architecture of a config.json. Raises InvalidConfigError, UnsupportedArchitectureError."""
    inner, model_type = descend(raw)
    reader = find_reader(model_type, inner)
    config = Config(inner, model_type, class_defaults(model_type), class_name=identity.class_name(raw, inner))
    try:
        layers = reader(config)
        return checked(
            Architecture(
                id=model_id or identity.own_name(raw, model_type),
                source=source,
                family=model_type,
                class_name=config.class_name,
                dtype=identity.dtype(raw, inner),
                max_context=identity.max_context(raw, config),
                hidden_dim=config.optional(*fields.HIDDEN, least=1),
                layers=_layout(layers, layers.order),
                draft=_layout(layers, layers.draft) if layers.draft else None,
                traits=identity.traits(raw, inner, model_type, _class_traits(config, layers) | dict(layers.traits)),
                assumptions=(*_assumptions(config), *layers.notes),
            )
        )
    except (ContradictionError, ValidationError) as error:
        raise InvalidConfigError(f"config.json of a {model_type} model cannot be: {clean(first(error), 200)}") from None


def find_reader(model_type: str, raw: Mapping[str, Any]) -> Reader:
    """The reader of a model_type. Raises UnsupportedArchitectureError naming what the file carries."""
    found = INDEX.get(model_type)
    if found is None:
        carried = [clean(key, 40) for key in sorted(map(str, raw)) if _BEARING.search(key)]
        more = f" and {len(carried) - _NAMED} more" if len(carried) > _NAMED else ""
        raise UnsupportedArchitectureError(
            f"kvcalc has no rule for model_type '{clean(model_type, 60)}'; its config.json carries "
            + (", ".join(carried[:_NAMED]) + more or "no field that kvcalc knows"),
            nearest(model_type, INDEX) or "write its layers as a kvcalc YAML, and pass that as the model",
        )
    return _imported(*found)


@cache
def _imported(module: str, name: str) -> Reader:
    reader: Reader = getattr(import_module(f"kvcalc.sources.hf.families.{module}"), name)
    return reader


def _layout(layers: Layers, names: Sequence[str]) -> Layout:
    """Names in order, folded to the shortest pattern that repeats to them."""
    order = tuple(names)
    count = len(order)
    period = next((p for p in range(1, count) if order[p:] == order[:-p]), count)
    pattern = order[:period]
    return Layout(pattern=pattern, count=count, states={name: layers.states[name] for name in dict.fromkeys(pattern)})


def _class_traits(config: Config, layers: Layers) -> dict[str, Any]:
    """What the class says where the file is silent, and the windows that the file gives to a class without layer types."""
    found: dict[str, Any] = {}
    widths = tuple(name for name in fields.HEAD_DIM + fields.KV_HEADS + ("attention_head_dim",) if name in config.defaulted)
    if widths:
        found["class_defaults"] = widths
    if "is_encoder_decoder" not in config.raw and config.defaults.get("is_encoder_decoder"):
        found["is_encoder_decoder"] = True
    found |= {name: config.defaults[name] for name in _BESIDE if name not in config.raw and name in config.defaults}
    # Families of windows have said what the words mean to them.
    if not has_layer_types(config.model_type) and INDEX[config.model_type][0] != "windows":
        windows = cache_windows(config, len(layers.order))
        if windows:
            found["cache_windows"] = windows
    return found


def _assumptions(config: Config) -> tuple[str, ...]:
    """One sentence that names the widths and counts that came from the class defaults."""
    taken = [
        f"{name} = {value}"
        for name, value in config.defaulted.items()
        if isinstance(value, int) and not isinstance(value, bool) and name not in _SILENT
    ]
    return (f"not in config.json, taken from the class default of {config.model_type}: " + ", ".join(taken),) if taken else ()
