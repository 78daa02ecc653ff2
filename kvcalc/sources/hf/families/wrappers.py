"""From a config.json to the part of it that describes the language model.

{"model_type": "gemma3", "text_config": {…}}   →   the inner mapping, "gemma3_text"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.units import clean
from kvcalc.sources.hf.families.defaults import text_type

#: Where wrapped models keep their language model, in the order in which the names are tried.
INNER = ("text_config", "language_config", "llm_config", "thinker_config", "decoder", "generator", "vlm_config")

#: Names that a whole model may use for a part that is no language model: followed only where the model has no layers of its own.
_PARTS = ("decoder", "generator", "vlm_config")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")

#: How often a language model may be wrapped.
DEEPEST = 4

#: Drafts that wrap a config of the model they draft for: the wrapper's own rule holds, with the inner fields.
_DRAFTS = ("gemma4_assistant", "gemma4_unified_assistant")


def descend(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The language model's part of a config.json, and its model_type. Raises InvalidConfigError."""
    config, model_type = raw, _own_type(raw)
    outermost = model_type
    for depth in range(DEEPEST + 1):
        inner = _inner(config)
        if inner is None:
            break
        if depth == DEEPEST:
            raise InvalidConfigError(f"config.json wraps its language model more than {DEEPEST} times", "give the innermost part by itself")
        own = _own_type(inner)
        model_type = own if own and own not in INNER else text_type(model_type) or model_type
        config = inner
    if not model_type:
        raise InvalidConfigError("config.json has no 'model_type'", "give the config.json as the model publishes it")
    if outermost in _DRAFTS:
        return config, outermost
    return config, text_type(model_type) or model_type


def _inner(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The wrapped config, if there is one."""
    whole = any(config.get(name) is not None for name in _LAYERS)
    for name in INNER:
        if whole and name in _PARTS:
            continue
        value = config.get(name)
        if isinstance(value, Mapping):
            if value:
                return value
        elif value is not None and name.endswith("_config"):
            raise InvalidConfigError(f"config.json: '{name}' is {clean(repr(value), 40)}, and must be a mapping")
    return None


def _own_type(config: Mapping[str, Any]) -> str:
    value = config.get("model_type")
    if value is not None and not isinstance(value, str):
        raise InvalidConfigError(f"config.json: 'model_type' is {clean(repr(value), 40)}, and must be text")
    return value or ""
