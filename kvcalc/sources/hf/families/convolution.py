"""Layers with short convolutions beside or instead of attention, and other states of fixed size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.states import AnyState, Fixed, RgLru, Rwkv, ShortConv
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.layers import (
    CONV,
    FULL,
    HYBRID,
    HYBRID_SLIDING,
    LINEAR,
    SLIDING,
    Layers,
    bounded,
    by_type,
    layer_count,
    uniform,
)
from kvcalc.sources.hf.families.windows import BUILDERS

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.fields import Heads
    from kvcalc.sources.hf.families.layers import States


def _short_conv(config: Config) -> States:
    return (ShortConv(channels=config.integer(*fields.HIDDEN), conv_kernel=config.integer("conv_L_cache")),)


def lfm2(config: Config) -> Layers:
    """Short convolutions; layers in `full_attn_idxs` are attention, all of them in a file without it."""
    return by_type(config, _lfm2_rule, BUILDERS | {CONV: _short_conv})


def _lfm2_rule(config: Config, count: int) -> list[str]:
    full = config.indices("full_attn_idxs", count)
    return [FULL if full is None or i in full else CONV for i in range(count)]


def lfm3(config: Config) -> Layers:
    """Short convolutions on odd layers; of the even ones every other is full, the rest slide, and the first is a convolution."""
    return by_type(config, _lfm3_rule, BUILDERS | {CONV: _short_conv})


def _lfm3_rule(_config: Config, count: int) -> list[str]:
    return [FULL if i % 4 == 2 else SLIDING if i and i % 4 == 0 else CONV for i in range(count)]


def recurrent_gemma(config: Config) -> Layers:
    """Linear recurrences and windows as `block_types` repeats them (two recurrent, one attention)."""
    width = config.optional("lru_width", least=1) or config.integer(*fields.HIDDEN)
    mixer = RgLru(lru_dim=width, conv_kernel=config.integer("conv1d_width"), state_dtype=config.state_dtype())
    return by_type(config, _griffin_rule, {LINEAR: lambda _: (mixer,), SLIDING: _griffin_window})


def _griffin_rule(config: Config, count: int) -> list[str]:
    types = config.sequence("block_types", "_block_types") or ("recurrent", "recurrent", "attention")
    return [LINEAR if types[i % len(types)] == "recurrent" else SLIDING for i in range(count)]


def _griffin_window(config: Config) -> States:
    return (fields.read_heads(config).sliding(fields.read_window(config, "sliding_window", "attention_window_size")),)


def inkling(config: Config) -> Layers:
    """Attention and four short convolutions (fp32) in every layer: over K, over V and twice over the hidden width.

    Layers in `local_layer_ids`, else all but every 6th, have a window and heads of their own (`swa_*`).
    """
    return by_type(config, _inkling_rule, {HYBRID: _inkling_full, HYBRID_SLIDING: _inkling_window})


def inkling_loop(config: Config) -> Layers:
    """As Inkling 2; the layers from `loop_layer_index_start` to `loop_layer_index_end` run `loop_num_passes` times, each pass with its own cache."""
    once = inkling(config)
    loop = config.child("loop_config")
    start = loop.optional("core_start") or config.integer("loop_layer_index_start", least=0)
    end = loop.optional("core_end") or config.integer("loop_layer_index_end", least=start)
    passes = loop.optional("num_passes", least=1) or config.integer("loop_num_passes")
    core = list(once.order[start:end])
    bounded(len(once.order) + len(core) * (passes - 1), "loop_num_passes")
    return once._replace(order=[*once.order[:start], *core * passes, *once.order[end:]])


def _inkling_rule(config: Config, count: int) -> list[str]:
    local = config.indices("local_layer_ids", count)
    if local is None:
        local = frozenset(i for i in range(count) if (i + 1) % 6)
    return [HYBRID_SLIDING if i in local else HYBRID for i in range(count)]


def _inkling_full(config: Config) -> States:
    heads = fields.read_heads(config)
    return (heads.full(), *_inkling_convs(config, heads))


def _inkling_window(config: Config) -> States:
    dim = ("swa_head_dim",) if config.get("swa_head_dim") is not None else fields.HEAD_DIM
    heads = fields.read_heads(config, query=("swa_num_attention_heads",), kv=("swa_num_key_value_heads",), dim=dim)
    return (heads.sliding(fields.read_window(config, "sliding_window", "sliding_window_size")), *_inkling_convs(config, heads))


def _inkling_convs(config: Config, heads: Heads) -> tuple[AnyState, ...]:
    kernel = config.integer("conv_kernel_size", "sconv_kernel_size")
    attention = ShortConv(channels=heads.kv * heads.dim, conv_kernel=kernel, conv_dtype="fp32")
    hidden = ShortConv(channels=config.integer(*fields.HIDDEN), conv_kernel=kernel, conv_dtype="fp32")
    return (attention, attention, hidden, hidden)


def zaya(config: Config) -> Layers:
    """Attention whose queries, keys and values are mixed with the tokens before (two convolutions, and half a V), in every layer."""
    return by_type(config, lambda _, count: [HYBRID] * count, {HYBRID: _zaya_full, HYBRID_SLIDING: _zaya_window})


def _zaya_full(config: Config) -> States:
    heads = fields.read_heads(config)
    return (heads.full(), *_zaya_mixing(config, heads))


def _zaya_window(config: Config) -> States:
    heads = fields.read_heads(config)
    return (heads.sliding(fields.read_window(config)), *_zaya_mixing(config, heads))


def _zaya_mixing(config: Config, heads: Heads) -> tuple[AnyState, ...]:
    columns = config.integer("cca_time0") + config.integer("cca_time1") - 2
    half = heads.kv * heads.dim // 2
    convolutions = Fixed(name="cca_conv", elements=(heads.query + heads.kv) * heads.dim * columns, state_dtype="model") if columns else None
    value = Fixed(name="cca_value", elements=config.checked(half, "head_dim"), state_dtype="model")
    return (convolutions, value) if convolutions else (value,)


def rwkv4(config: Config) -> Layers:
    """RWKV-4: two last inputs in the model's type, and numerator, denominator and maximum in fp32."""
    hidden = config.integer(*fields.HIDDEN)
    attention = config.optional("attention_hidden_size", least=1) or hidden
    states = (
        Fixed(name="shift", elements=2 * hidden, state_dtype="model"),
        Fixed(name="wkv", elements=3 * attention, state_dtype="fp32"),
    )
    return uniform(config, states, "rwkv")


def rwkv7(config: Config) -> Layers:
    """RWKV-5, 6 and 7: a square matrix a head, and the last inputs of two token shifts."""
    hidden = config.integer(*fields.HIDDEN)
    attention = config.optional("attention_hidden_size", "dim_att", least=1) or hidden
    width = config.integer("head_dim", "head_size", "head_size_a", default=64)
    state = Rwkv(heads=config.checked(attention // width, "head_dim"), head_dim=width, hidden_dim=hidden, state_dtype=config.state_dtype())
    return uniform(config, (state,), "rwkv")


def xlstm(config: Config) -> Layers:
    """mLSTM: a matrix, a vector and a number a head, in the model's type."""
    heads, hidden = config.integer("num_heads"), config.integer(*fields.HIDDEN)
    multiple = 64
    key = _rounded(hidden, config.get("qk_dim_factor"), 0.5, multiple) // heads
    value = _rounded(hidden, config.get("v_dim_factor"), 1.0, multiple) // heads
    state = Fixed(name="mlstm", elements=config.checked(heads * (key * value + key + 1), "num_heads"), state_dtype="model")
    return Layers(["mlstm"] * layer_count(config, "num_blocks", "num_hidden_layers"), {"mlstm": (state,)})


def _rounded(hidden: int, factor: object, default: float, multiple: int) -> int:
    scale = factor if isinstance(factor, int | float) and 0 < factor <= 64 else default
    return -(-int(hidden * scale) // multiple) * multiple
