"""Decoders that also attend to an encoder: self-attention grows, cross-attention is written once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.sources.families import fields
from kvcalc.sources.families.fields import Heads
from kvcalc.sources.families.layers import Layers, layer_count
from kvcalc.states import Cross

if TYPE_CHECKING:
    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Reader


def whisper(config: Config) -> Layers:
    """Whisper: the encoder always has `max_source_positions` tokens."""
    query = config.integer("decoder_attention_heads")
    heads = Heads(query, query, fields.derived_width(config, query))
    cross = Cross(kv_heads=heads.kv, head_dim=heads.dim, query_heads=heads.query, source_tokens=config.integer("max_source_positions"))
    return Layers(["decoder"] * layer_count(config, "decoder_layers"), {"decoder": (heads.full(), cross)})


READERS: dict[str, Reader] = {"whisper": whisper}
