"""Sparse attention: a small index key a token beside the cache, so that each step reads only the best tokens.

Everything is still stored; the index is what it costs. Index keys are fp8 with one fp32 scale per 128 unless the family departs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.errors import InvalidConfigError
from kvcalc.sources.families import fields
from kvcalc.sources.families.latent import read_latent
from kvcalc.sources.families.layers import Layers, draft_count, layer_count
from kvcalc.states import Index, State
from kvcalc.units import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Reader

FULL, SHARED = "full", "shared"


def read_index(config: Config) -> Index:
    """DeepSeek's indexer: one key of `index_head_dim` a token."""
    return Index(index_dim=config.integer("index_head_dim"), top_k=config.optional("index_topk", least=1))


def indexer_types(config: Config, count: int) -> Sequence[str]:
    """Which layers own an indexer: listed, or as letters (F full, S shared), or every `index_topk_freq`-th after an offset."""
    listed = config.sequence("indexer_types", length=count)
    if listed is not None:
        return [_known_type(item) for item in listed]
    pattern = config.get("index_topk_pattern")
    if isinstance(pattern, str) and pattern:
        if len(pattern) < count or not set(pattern) <= set("FS"):
            raise InvalidConfigError(f"config.json: 'index_topk_pattern' is '{clean(pattern, 20)}', and needs one F or S for each of {count} layers")
        return [FULL if letter == "F" else SHARED for letter in pattern[:count]]
    every = config.integer("index_topk_freq", default=1)
    offset = config.integer("index_skip_topk_offset", default=2, least=0)
    return [FULL if max(i - offset + 1, 0) % every == 0 else SHARED for i in range(count)]


def _known_type(value: object) -> str:
    if value not in (FULL, SHARED):
        raise InvalidConfigError(f"config.json: 'indexer_types' holds {clean(repr(value), 40)}, and must hold 'full' or 'shared'")
    return str(value)


def indexed_latent(config: Config) -> Layers:
    """DeepSeek-V3.2, GLM-5: a latent on every layer, index keys where the layer owns an indexer."""
    latent, index = read_latent(config), read_index(config)
    count = layer_count(config)
    kinds = indexer_types(config, count)
    order = ["indexed" if kind == FULL else "latent" for kind in kinds]
    draft = ["indexed"] * draft_count(config)
    all_states: dict[str, tuple[State, ...]] = {"indexed": (latent, index), "latent": (latent,)}
    used = {*order, *draft}
    return Layers(order, {name: states for name, states in all_states.items() if name in used}, draft)


def minimax_m3(config: Config) -> Layers:
    """MiniMax-M3: GQA everywhere, and on most layers one index key a token in bf16."""
    count = layer_count(config)
    sparse = config.child("sparse_attention_config")
    attention = fields.read_heads(config).full()
    width = sparse.optional("sparse_index_dim", least=1) or config.integer("index_head_dim")
    index = Index(index_dim=width, format="bf16")
    flags = sparse.sequence("sparse_attention_freq", length=count)
    if flags is not None:
        order = ["sparse" if sparse.checked(item, "sparse_attention_freq", least=0) else "full" for item in flags]
    else:
        types = config.sequence("layer_types", length=count)
        order = ["sparse" if item == "minimax_m3_sparse" else "full" for item in types] if types else ["full" if i < 3 else "sparse" for i in range(count)]
    all_states: dict[str, tuple[State, ...]] = {"full": (attention,), "sparse": (attention, index)}
    draft = ["sparse"] * draft_count(config)
    used = {*order, *draft}
    return Layers(order, {name: states for name, states in all_states.items() if name in used}, draft)


READERS: dict[str, Reader] = {
    "deepseek_v32": indexed_latent,
    "glm_moe_dsa": indexed_latent,
    "minimax_m3_vl_text": minimax_m3,
}
