"""Who the model is: class, type of numbers, longest context, and the facts that engines key their rules on."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.formats import ALIASES
from kvcalc.core.traits import Traits
from kvcalc.core.units import clean
from kvcalc.sources.hf.families import fields
from kvcalc.sources.schema import read
from kvcalc.sources.validation import sentences

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config

#: Facts that engines need, under the config's own names.
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
    "is_encoder_decoder",
    "is_decoder",
    "new_decoder_architecture",
    "multi_query",
    "index_topk",
    "sliding_window",
    "sliding_window_size",
    "use_sliding_window",
    "attention_chunk_size",
    "add_swa_attention_sink_bias",
    "add_full_attention_sink_bias",
    "swa_attention_sink_enabled",
    "attention_sinks",
    "use_bidirectional_attention",
    "learnable_sink",
    "encoder_layers",
    "index_kpool_compress",
    "use_mla_nope",
    "vocab_size",
)

#: Fields that change no byte, on which engines refuse to load a class all the same.
DECLARED = (
    "hidden_act",
    "hidden_activation",
    "n_group",
    "topk_group",
    "num_expert_group",
    "norm_topk_prob",
    "scoring_func",
    "score_func",
    "score_function",
    "topk_method",
    "moe_gate_act",
    "moe_layer_interval",
    "hidden_size_per_layer_input",
    "mhc",
    "rope_interleave",
    "indexer_rope_interleave",
    "residual_multiplier",
    "moe_router_use_sigmoid",
    "moe_router_enable_expert_bias",
    "route_norm",
    "mla_use_nope",
    "moe_router_activation_func",
    "moe_renormalize",
    "gating",
    "decoder_sparse_step",
    "moe_apply_router_weight_on_input",
    "attention_projection_layout",
    "n_shared_experts",
    "qk_norm_type",
    "mamba_hidden_act",
    "mlp_hidden_act",
    "norm_expert_weight",
    "use_moe_router_bias",
)
#: Lists of which only matters that they are there.
DECLARED_LISTS = ("indexer_types", "full_attn_idxs")
#: Of names that mean something else to some models: kept where they are of the type that engines read.
PATTERNS: Mapping[str, tuple[type, ...]] = {"sliding_window_pattern": (int, str), "window_size": (int,)}
#: Layers that a file lists for an engine's rule.
LISTS = ("index_source_layer_ids", "engram_layer_ids")

#: Parts of a wrapper that make it multimodal.
_SENSES = ("vision_config", "audio_config", "visual", "vision_tower_config", "speech_config", "vit_config", "audio_encoder_config")

_NO_ID = re.compile(r"[^A-Za-z0-9._/@-]+")


def class_name(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> str:
    """The first of `architectures`, of the wrapper where it has one."""
    for config in (raw, inner):
        names = config.get("architectures")
        if isinstance(names, list | tuple) and names and isinstance(names[0], str):
            return clean(names[0], 100)
    return ""


#: Types that a checkpoint is in before anything is quantised.
_NUMBERS = ("fp32", "bf16", "fp16", "fp8")


def own_name(raw: Mapping[str, Any], model_type: str) -> str:
    """What the file calls itself, else its model_type."""
    name = raw.get("_name_or_path")
    return (_NO_ID.sub("-", name)[:120] if isinstance(name, str) else "") or model_type


def dtype(raw: Mapping[str, Any], inner: Mapping[str, Any]) -> str | None:
    """The checkpoint's own type: the wrapper's word first, as engines do. Raises InvalidConfigError."""
    for config in (raw, inner):
        for key in ("dtype", "torch_dtype"):
            value = config.get(key)
            if value is None or value == "auto":
                continue
            name = value.removeprefix("torch.") if isinstance(value, str) else ""
            if ALIASES.get(name, name) not in _NUMBERS:
                raise InvalidConfigError(
                    f"config.json: '{key}' is {clean(repr(value), 40)}, and must name a floating-point type such as bfloat16",
                    "what the weights are quantised to stands under quantization_config",
                )
            return name
    return None


def max_context(raw: Mapping[str, Any], config: Config) -> int | None:
    """The longest context that the file, or else its class, speaks of. Raises InvalidConfigError."""
    for known in (config.raw, raw, config.defaults):
        for name in fields.MAX_CONTEXT:
            if known.get(name) is not None:
                return config.checked(known[name], name)
    return None


def traits(raw: Mapping[str, Any], inner: Mapping[str, Any], model_type: str, of_family: Mapping[str, Any]) -> Traits:
    """The facts of TRAITS that the file states, the wrapper's model_type, what its quantization says about the cache, and its family's.

    Raises InvalidConfigError naming the field whose value is of another type.
    """
    found = {name: _loosened(inner[name]) for name in TRAITS if inner.get(name) is not None}
    found |= {
        name: inner[name] for name, kinds in PATTERNS.items() if isinstance(inner.get(name), kinds) and not isinstance(inner[name], bool)
    }
    types = inner.get("layer_types")
    if isinstance(types, list | tuple) and all(isinstance(item, str) for item in types):
        found["layer_types"] = tuple(types)
    for name in LISTS:
        if isinstance(inner.get(name), list | tuple):
            found[name] = tuple(item for item in inner[name] if isinstance(item, int))
    if raw.get("model_type") not in (None, model_type):
        found["outer_model_type"] = raw["model_type"]
    declared = {name: inner[name] for name in DECLARED if isinstance(inner.get(name), bool | int | str)}
    declared |= {name: True for name in DECLARED_LISTS if isinstance(inner.get(name), list)}
    if declared:
        found["declared"] = declared
    if any(raw.get(name) for name in _SENSES):
        found["is_multimodal"] = True
    for config in (raw, inner):
        quantization = config.get("quantization_config") or config.get("compression_config")
        if isinstance(quantization, Mapping):
            found["quantization"] = str(quantization.get("quant_method", ""))
            found |= {key: quantization[key] for key in ("kv_cache_quant_algo", "kv_cache_scheme") if quantization.get(key) is not None}
            break
    try:
        return read(Traits, found | dict(of_family))
    except ValidationError as error:
        message, place, _ = next(sentences(error))
        raise InvalidConfigError(f"config.json: '{clean(place[0], 60)}' {message}", "leave the field as the model publishes it") from None


def _loosened(value: Any) -> Any:
    """Whole numbers that a tool wrote as 4.0 are whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
