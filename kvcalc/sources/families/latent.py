"""Multi-head latent attention on every layer: DeepSeek-V2 and V3 and the models built like them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.sources.families import fields
from kvcalc.sources.families.layers import Layers, draft_count, layer_count, uniform
from kvcalc.states import Latent

if TYPE_CHECKING:
    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Reader


def read_latent(config: Config, window: int | None = None) -> Latent:
    """The latent of one attention. `head_dim` and `num_key_value_heads` mean nothing here."""
    return Latent(
        latent_dim=config.integer("kv_lora_rank"),
        rope_dim=config.integer("qk_rope_head_dim", least=0),
        window=window,
        query_heads=config.integer(*fields.QUERY_HEADS),
        nope_dim=config.optional("qk_nope_head_dim", least=1),
        value_head_dim=config.optional("v_head_dim", least=1),
    )


def latent(config: Config) -> Layers:
    """One latent a layer."""
    return uniform(config, (read_latent(config),), "latent")


def double(config: Config) -> Layers:
    """LongCat: two attentions, and so two latents, in every layer; the draft layer has one."""
    state = read_latent(config)
    draft = ["draft"] * draft_count(config)
    states = {"double": (state, state)} | ({"draft": (state,)} if draft else {})
    return Layers(["double"] * layer_count(config), states, draft)


READERS: dict[str, Reader] = {
    **dict.fromkeys("deepseek_v2 deepseek_v3 kimi_k2 glm4_moe_lite".split(), latent),
    "longcat_flash": double,
}
