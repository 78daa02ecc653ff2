"""Multi-head latent attention on every layer: DeepSeek-V2 and V3 and the models built like them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.states import Latent
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.layers import Layers, draft_count, layer_count, named, uniform

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import States


def read_latent(config: Config, *, prefix: str = "", window: int | None = None) -> Latent:
    """The latent of one attention, its fields under `prefix`. `head_dim` and `num_key_value_heads` mean nothing here."""
    return Latent(
        latent_dim=config.integer(f"{prefix}kv_lora_rank"),
        # Files of GLM-4.7-Flash may call it `head_dim`, which that class reads as the same field.
        rope_dim=config.integer(*(("head_dim",) if config.model_type == "glm4_moe_lite" else ()), f"{prefix}qk_rope_head_dim", least=0),
        window=window,
        query_heads=config.integer(f"{prefix}num_attention_heads") if prefix else config.integer(*fields.QUERY_HEADS),
        nope_dim=config.optional(f"{prefix}qk_nope_head_dim", least=1),
        value_head_dim=config.optional(f"{prefix}v_head_dim", least=1),
    )


def mla(config: Config) -> States:
    """One latent a layer."""
    return (read_latent(config),)


def latent(config: Config) -> Layers:
    """One latent of `kv_lora_rank` and one rotary key of `qk_rope_head_dim` a layer."""
    return uniform(config, mla(config), "latent")


def deepseek_v2(config: Config) -> Layers:
    """One latent a layer; small models without one (`use_mla` false, or no `kv_lora_rank`) have full attention."""
    if config.get("use_mla") is False or config.get("kv_lora_rank") is None:
        return uniform(config, fields.full(config))
    return latent(config)


def double(config: Config) -> Layers:
    """Two attentions, and so two latents, in each of `num_layers` layers; a draft layer has one. `num_hidden_layers` counts attentions."""
    state = read_latent(config)
    count = max(layer_count(config, "num_hidden_layers") // 2, 1) if _counts_attentions(config) else layer_count(config, "num_layers")
    return named(["double"] * count, {"double": (state, state), "latent": (state,)}, ["latent"] * draft_count(config))


def _counts_attentions(config: Config) -> bool:
    return config.has("num_hidden_layers") and not config.has("num_layers")
