"""From a config.json to the part of it that describes the language model.

{"model_type": "gemma3", "text_config": {…}}   →   the inner mapping, "gemma3_text"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcalc.errors import InvalidConfigError
from kvcalc.sources.families.defaults import text_type
from kvcalc.units import clean

#: Where wrapped models keep their language model, in the order in which the names are tried.
INNER = ("text_config", "language_config", "llm_config", "thinker_config", "decoder", "generator", "vlm_config")

#: How often a language model may be wrapped.
DEEPEST = 4

#: Drafts that wrap a config of the model they draft for: the wrapper's own rule holds, with the inner fields.
_DRAFTS = ("gemma4_assistant", "gemma4_unified_assistant")


def descend(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The language model's part of a config.json, and its model_type. Raises InvalidConfigError."""
    config, model_type = raw, _own_type(raw)
    outermost = model_type
    for _ in range(DEEPEST):
        inner = next((config[name] for name in INNER if isinstance(config.get(name), Mapping) and config[name]), None)
        if inner is None:
            break
        own = _own_type(inner)
        model_type = own if own and own not in INNER else text_type(model_type) or model_type
        config = inner
    if not model_type:
        raise InvalidConfigError("config.json has no 'model_type'", "give the config.json as the model publishes it")
    if outermost in _DRAFTS:
        return config, outermost
    return config, text_type(model_type) or model_type


def _own_type(config: Mapping[str, Any]) -> str:
    value = config.get("model_type")
    if value is not None and not isinstance(value, str):
        raise InvalidConfigError(f"config.json: 'model_type' is {clean(repr(value), 40)}, and must be text")
    return value or ""
