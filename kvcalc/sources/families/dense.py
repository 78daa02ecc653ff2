"""Every layer is full attention: MHA, GQA or MQA, whatever the rest of the block does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.sources.families import fields
from kvcalc.sources.families.layers import Layers, uniform

if TYPE_CHECKING:
    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Reader


def plain(config: Config) -> Layers:
    """Full attention on every layer."""
    return uniform(config, fields.full(config))


READERS: dict[str, Reader] = dict.fromkeys(
    "llama qwen3_moe qwen3_vl_text qwen3_vl_moe_text gemma cohere olmo2 minimax_m2 opt phi3small".split(), plain
)
