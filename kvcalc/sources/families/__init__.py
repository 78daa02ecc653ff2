"""Families of models: how each model_type's config.json lays out its layers.

    config.json ──descend──▶ the language model's part ──index──▶ one module ──reader──▶ Layers ──▶ Architecture

index.py says which module reads a model_type; class_defaults.json holds what a file leaves to its config class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kvcalc.architecture import Architecture, Layout
from kvcalc.errors import InvalidConfigError, UnsupportedArchitectureError, nearest
from kvcalc.formats import ALIASES, FORMATS
from kvcalc.sources.config import Config
from kvcalc.sources.families import fields
from kvcalc.sources.families.index import INDEX
from kvcalc.units import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.architecture import Source
    from kvcalc.sources.families.layers import Layers, Reader

#: Where wrapped models keep their language model, in the order in which the names are tried.
INNER = ("text_config", "language_config", "llm_config", "thinker_config", "decoder", "generator")
#: How often a language model may be wrapped.
_DEEPEST = 4

#: Facts that engines need under the config's own names.
TRAITS = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
    "num_mtp_layers",
    "mamba_ssm_dtype",
    "mamba_ssm_cache_dtype",
    "num_experts",
    "n_routed_experts",
    "num_local_experts",
    "use_mla",
    "is_encoder_decoder",
    "index_topk",
    "new_decoder_architecture",
    "multi_query",
)
#: Parts of a wrapper that make it multimodal.
_SENSES = ("vision_config", "audio_config", "visual", "vision_tower_config", "speech_config", "vit_config")

_ID = re.compile(r"[^A-Za-z0-9._/@-]+")


def read_family(raw: Mapping[str, Any], *, model_id: str = "", source: Source | None = None) -> Architecture:
    """The architecture of a config.json. Raises InvalidConfigError, UnsupportedArchitectureError."""
    inner, model_type = descend(raw)
    reader = find_reader(model_type, inner)
    config = Config(inner, model_type, class_defaults()["defaults"].get(model_type), class_name=_class_name(raw, inner))
    try:
        layers = reader(config)
        return Architecture(
            id=model_id or _own_name(raw, model_type),
            source=source,
            family=model_type,
            class_name=config.class_name,
            dtype=_dtype(raw, inner),
            max_context=_max_context(raw, config),
            hidden_dim=config.optional(*fields.HIDDEN, least=1),
            layers=_layout(layers, layers.order),
            draft=_layout(layers, layers.draft) if layers.draft else None,
            traits=_traits(raw, inner) | dict(layers.traits),
            assumptions=_assumptions(config),
        )
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidConfigError(f"config.json of a {model_type} model: {where + ': ' if where else ''}{clean(first['msg'], 160)}") from None


def descend(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The language model's part of a config.json, and its model_type. Raises InvalidConfigError, UnsupportedArchitectureError."""
    text_types = class_defaults()["text"]
    outer_type = inherited = ""
    config: Mapping[str, Any] = raw
    for _ in range(_DEEPEST):
        own = config.get("model_type")
        if own is not None and not isinstance(own, str):
            raise InvalidConfigError(f"config.json: 'model_type' is {clean(repr(own), 40)}, and must be text")
        outer_type = own or inherited or outer_type
        name = next((name for name in INNER if isinstance(config.get(name), Mapping) and config[name]), None)
        if name is None:
            break
        config, inherited = config[name], text_types.get(outer_type, "")
        if not config.get("model_type") and not inherited:
            inherited = outer_type
    if not outer_type:
        raise InvalidConfigError("config.json has no 'model_type'", "give the config.json as the model publishes it")
    if config is raw and outer_type in text_types:
        config, outer_type = {key: value for key, value in raw.items() if key not in INNER}, text_types[outer_type]
    return config, outer_type


def find_reader(model_type: str, raw: Mapping[str, Any]) -> Reader:
    """The reader of a model_type. Raises UnsupportedArchitectureError naming what the file carries."""
    module = INDEX.get(model_type)
    if module is None:
        carried = sorted(str(key) for key in raw if _bears_on_cache(str(key)))
        text = ", ".join(clean(key, 40) for key in carried[:24]) or "none that kvcalc knows"
        raise UnsupportedArchitectureError(
            f"kvcalc has no rule for model_type '{clean(model_type, 60)}'; its config.json carries: {text}",
            nearest(model_type, INDEX) or "write its layers as a kvcalc YAML, and pass that as the model",
        )
    return import_module(f"kvcalc.sources.families.{module}").READERS[model_type]  # type: ignore[no-any-return]


_BEARING = re.compile(
    r"layer|head|hidden_size|n_embd|d_model|window|chunk|rank|rope_head|index|state|conv|mamba|ssm|linear|pattern|shared|compress|kv|block"
)


def _bears_on_cache(key: str) -> bool:
    return bool(_BEARING.search(key))


@lru_cache(maxsize=1)
def class_defaults() -> dict[str, Any]:
    """What files leave to their config class: `defaults` by model_type, `text` from wrapper to language model."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("class_defaults.json").read_bytes())
    return loaded


def _layout(layers: Layers, names: Sequence[str]) -> Layout:
    """Names in order, folded to the shortest pattern that repeats to them."""
    order = tuple(names)
    count = len(order)
    period = next((p for p in range(1, count) if order[p:] == order[:-p]), count)
    pattern = order[:period]
    return Layout(pattern=pattern, count=count, states={name: layers.states[name] for name in dict.fromkeys(pattern)})


def _class_name(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> str:
    for config in (raw, inner):
        names = config.get("architectures")
        if isinstance(names, list | tuple) and names and isinstance(names[0], str):
            return str(clean(names[0], 100))
    return ""


def _own_name(raw: Mapping[str, Any], model_type: str) -> str:
    name = raw.get("_name_or_path")
    return (_ID.sub("-", name)[:120] if isinstance(name, str) else "") or model_type


def _dtype(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> str | None:
    """The checkpoint's own type: the wrapper's word first, as engines do."""
    for config in (raw, inner):
        for key in ("dtype", "torch_dtype"):
            value = config.get(key)
            if value is None or value == "auto":
                continue
            name = value.removeprefix("torch.") if isinstance(value, str) else ""
            if ALIASES.get(name, name) not in FORMATS:
                raise InvalidConfigError(f"config.json: '{key}' is {clean(repr(value), 40)}, and must name a number type such as bfloat16")
            return name
    return None


def _max_context(raw: Mapping[str, Any], config: Config) -> int | None:
    """The longest context that the file, or else its class, speaks of."""
    for names in (config.raw, raw, config.defaults):
        for name in fields.MAX_CONTEXT:
            if names.get(name) is not None:
                return config.checked(names[name], name)
    return None


def _traits(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: inner[name] for name in TRAITS if isinstance(inner.get(name), bool | int | str)}
    if raw is not inner:
        outer = raw.get("model_type")
        if isinstance(outer, str):
            found["outer_model_type"] = outer
        if any(raw.get(name) for name in _SENSES):
            found["is_multimodal"] = True
    found |= _quantization(raw, inner)
    return found


def _quantization(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """What the checkpoint's quantization says about the cache."""
    for config in (raw, inner):
        quantization = config.get("quantization_config") or config.get("compression_config")
        if isinstance(quantization, Mapping):
            found: dict[str, Any] = {"quantization": str(quantization.get("quant_method", ""))}
            for key in ("kv_cache_quant_algo", "kv_cache_scheme"):
                if quantization.get(key) is not None:
                    found[key] = quantization[key]
            return found
    return {}


def _assumptions(config: Config) -> tuple[str, ...]:
    """One sentence that names the widths and counts that came from the class defaults."""
    taken = {name: value for name, value in config.defaulted.items() if isinstance(value, int) and not isinstance(value, bool) and name not in _SILENT}
    if not taken:
        return ()
    listed = ", ".join(f"{name} = {value}" for name, value in taken.items())
    return (f"not in config.json, taken from the class default of {config.model_type}: {listed}",)


#: Defaults that change nothing by themselves.
_SILENT = frozenset({*fields.MAX_CONTEXT, *fields.HIDDEN, "max_window_layers", "index_topk", "q_lora_rank", "qk_nope_head_dim", "v_head_dim"})
