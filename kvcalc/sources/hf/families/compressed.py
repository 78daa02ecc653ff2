"""Compressed attention: DeepSeek-V4 and V4.1.

Every layer keeps a window of latent rows, K and V at once. Beside it a layer with ratio r keeps one latent row for r tokens;
at ratio 4 (V4), and wherever V4.1 compresses, an indexer chooses among these rows and keeps one key for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import AnyState, Compressed, Index, Latent, Shared
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.layers import Layers, draft_count, layer_count, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.sources.hf.config import Config

#: Rotary part of the latent where a file does not say `qk_rope_head_dim`.
ROPE_DIM = 64
#: The ratio whose rows DeepSeek-V4 indexes.
INDEXED_RATIO = 4
#: Ratios of DeepSeek-V4's own layer types.
_TYPE_RATIOS = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def _window(config: Config) -> Latent:
    width, rope = config.integer("head_dim"), config.integer("qk_rope_head_dim", default=ROPE_DIM, least=0)
    if rope >= width:
        raise InvalidConfigError(f"config.json: 'qk_rope_head_dim' {rope} leaves nothing of 'head_dim' {width}")
    return Latent(
        latent_dim=width - rope, rope_dim=rope, window=fields.read_window(config), query_heads=config.integer(*fields.QUERY_HEADS)
    )


def _compressed(window: Latent, ratio: int) -> Compressed:
    return Compressed(latent_dim=window.latent_dim + window.rope_dim, rope_dim=window.rope_dim, ratio=ratio)


def _index(config: Config, ratio: int) -> Index:
    return Index(index_dim=config.integer("index_head_dim"), top_k=config.optional("index_topk", least=1), ratio=ratio)


def _ratios(config: Config, count: int) -> Sequence[int]:
    """Ratios of the model's layers, then of its draft layers as far as the file lists them."""
    listed = config.sequence("compress_ratios")
    if listed is not None:
        config.sequence("compress_ratios", length=count)
        return [config.checked(item, "compress_ratios", least=0) for item in listed]
    types = config.sequence("layer_types", length=count)
    if types is not None:
        rates = _TYPE_RATIOS | {
            str(key): config.checked(value, "compress_rates") for key, value in config.child("compress_rates").raw.items()
        }
        for item in types:
            if item not in rates:
                raise InvalidConfigError(
                    f"config.json: 'layer_types' holds {str(item)[:40]!r}, and a {config.model_type} model knows: " + ", ".join(rates)
                )
        return [rates[item] for item in types]
    return [128 if i < 2 or i % 2 == 0 else INDEXED_RATIO for i in range(count)]


def v4(config: Config) -> Layers:
    """DeepSeek-V4: `compress_ratios` has one entry a layer, and more for the draft layers."""
    count, window = layer_count(config), _window(config)
    ratios = _ratios(config, count)
    drafts = list(ratios[count:]) or [0]
    states: dict[str, tuple[AnyState, ...]] = {}
    names: list[str] = []
    for ratio in [*ratios[:count], *(drafts[min(i, len(drafts) - 1)] for i in range(draft_count(config)))]:
        name = f"ratio_{ratio}" if ratio else "window"
        names.append(name)
        if name not in states:
            kept: list[AnyState] = [window]
            if ratio:
                kept.append(_compressed(window, ratio))
            if ratio == INDEXED_RATIO:
                kept.append(_index(config, ratio))
            states[name] = tuple(kept)
    return Layers(names[:count], states, names[count:])


def v41(config: Config) -> Layers:
    """DeepSeek-V4.1: only `kv_source_layer_ids` keep compressed rows and index keys; later layers read the last source before them."""
    count, window = layer_count(config), _window(config)
    ratios = _ratios(config, count)
    sources = config.indices("kv_source_layer_ids", count) or frozenset()
    states: dict[str, tuple[AnyState, ...]] = {"window": (window,)}
    order: list[str] = []
    source: int | None = None
    for i, ratio in enumerate(ratios[:count]):
        if ratio and i in sources:
            source = i
            order.append(f"source_{ratio}")
            states.setdefault(order[-1], (window, _compressed(window, ratio), _index(config, ratio)))
        elif ratio:
            if source is None:
                raise InvalidConfigError(f"config.json: layer {i} compresses, and 'kv_source_layer_ids' names no layer before it")
            order.append(f"reader_{source}")
            states.setdefault(order[-1], (window, Shared(shares_with=source)))
        else:
            order.append("window")
    return named(order, states, ["window"] * draft_count(config))
