"""Families whose code lives beside their weights, or in MLX-LM only (mlx-lm 0.32.2: models/*.py), and their own spellings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.states import Fixed, Shared, ShortConv
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.fields import Heads
from kvcalc.sources.hf.families.latent import double
from kvcalc.sources.hf.families.layers import FULL, LINEAR, SLIDING, Layers, built, by_type, layer_count, named, uniform
from kvcalc.sources.hf.families.linear import grouped, linear_heads

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import States

#: Gear's layers of short convolutions over K and V.
_MIXER = "conv_mixer"


def plamo(config: Config) -> Layers:
    """Full attention; `n_shared_head` (8) query heads share a KV head (PLaMo)."""
    query = config.integer(*fields.QUERY_HEADS)
    shared = config.integer("n_shared_head", default=8)
    return uniform(config, (Heads(query, -(-query // shared), fields.derived_width(config, query)).full(),))


def lille(config: Config) -> Layers:
    """Full attention with `n_kv_heads` KV heads, hidden // heads wide (Lille)."""
    query = config.integer(*fields.QUERY_HEADS)
    return uniform(config, (Heads(query, config.integer("n_kv_heads"), fields.derived_width(config, query)).full(),))


def talkie(config: Config) -> Layers:
    """Full attention with one KV head a query head, `head_dim` (128) wide (Talkie)."""
    query = config.integer(*fields.QUERY_HEADS)
    return uniform(config, (Heads(query, query, config.integer("head_dim", default=128)).full(),))


def afm7(config: Config) -> Layers:
    """Full attention; the last `num_kv_reuse_layers` read the last layer before them (Apple's AFM 7)."""
    count = layer_count(config, "num_layers")
    reused = config.integer("num_kv_reuse_layers", least=0)
    own = max(count - reused, 1)
    query = config.integer("num_heads")
    width = config.checked(config.integer("hidden_dim") // query, "hidden_dim")
    heads = Heads(query, config.integer("num_kv_heads"), width)
    order = ["full"] * own + ["shared"] * (count - own)
    return named(order, {"full": (heads.full(),), "shared": (Shared(shares_with=own - 1),)})


def baichuan_m1(config: Config) -> Layers:
    """Full attention, a window on `sliding_window_layers`, and in every layer the last K and V before a convolution of two."""
    count = layer_count(config)
    slides = config.indices("sliding_window_layers", count) or frozenset()
    types = [SLIDING if i in slides else FULL for i in range(count)]
    return built(config, types, {FULL: _baichuan_full, SLIDING: _baichuan_window})


def _baichuan_heads(config: Config, prefix: str = "") -> Heads:
    query = config.optional(f"num_{prefix}attention_heads", least=1) or config.integer("num_attention_heads")
    kv = config.optional(f"num_{prefix}key_value_heads", least=1) or config.integer("num_key_value_heads")
    return Heads(query, kv, fields.derived_width(config, query))


def _baichuan_full(config: Config) -> States:
    heads = _baichuan_heads(config)
    return (heads.full(), _last_pair(config, heads))


def _baichuan_window(config: Config) -> States:
    heads = _baichuan_heads(config, "swa_")
    return (heads.sliding(fields.read_window(config)), _last_pair(config, heads))


def _last_pair(config: Config, heads: Heads) -> ShortConv:
    return ShortConv(channels=2 * heads.kv * heads.dim, conv_kernel=config.integer("conv_window", default=2))


def gear(config: Config) -> Layers:
    """`layer_types`: full attention, windows, and short convolutions over K and V (`conv_mixer`, kernel `conv_L_cache`)."""
    return by_type(
        config,
        lambda _, count: [FULL] * count,
        {FULL: fields.full, SLIDING: lambda c: (fields.read_heads(c).sliding(_gear_window(c)),), _MIXER: _gear_mixer},
    )


def _gear_window(config: Config) -> int:
    return config.integer("sliding_window", default=512)


def _gear_mixer(config: Config) -> States:
    heads = fields.read_heads(config)
    return (ShortConv(channels=2 * heads.kv * heads.dim, conv_kernel=config.integer("conv_L_cache", default=3)),)


def plamo2(config: Config) -> Layers:
    """Mamba-2 with a convolution over its inner width alone; one layer in `mamba_step` is attention.

    It has a window unless `full_attention_idx` lists it.
    """
    count = layer_count(config)
    full = config.indices("full_attention_idx", count) or frozenset()
    types = [LINEAR if mixes else FULL if i in full else SLIDING for i, mixes in enumerate(_plamo2_mixers(config, count))]
    return built(config, types, {FULL: _plamo2_full, SLIDING: _plamo2_window, LINEAR: _plamo2_mixer})


def _plamo2_mixers(config: Config, count: int) -> list[bool]:
    if not config.flag("mamba_enabled", default=True):
        return [False] * count
    step = config.integer("mamba_step", default=2, least=2)
    if count <= step // 2:
        return [i != count - 1 for i in range(count)]
    return [i % step != step // 2 for i in range(count)]


def _plamo2_heads(config: Config) -> Heads:
    query = config.integer("num_attention_heads", default=32)
    return Heads(query, config.integer("num_key_value_heads", default=4), config.integer("hidden_size_per_head", default=128))


def _plamo2_full(config: Config) -> States:
    return (_plamo2_heads(config).full(),)


def _plamo2_window(config: Config) -> States:
    return (_plamo2_heads(config).sliding(config.integer("attention_window_size", default=2048)),)


def _plamo2_mixer(config: Config) -> States:
    inner = config.integer("mamba_num_heads", default=64) * config.integer("hidden_size_per_head", default=128)
    columns = config.integer("mamba_d_conv", default=4, least=2) - 1
    matrices = Fixed(name="ssm", elements=inner * config.integer("mamba_d_state", default=64), state_dtype=config.state_dtype() or "fp32")
    return (Fixed(name="conv", elements=inner * columns, state_dtype="model"), matrices)


def longcat_ngram(config: Config) -> Layers:
    """Two latents a layer, as LongCat-Flash; the n-gram embedding looks back `emb_neighbor_num` (4) - 1 tokens."""
    layers = double(config)
    return layers._replace(traits={**layers.traits, "emb_neighbor_num": config.integer("emb_neighbor_num", default=4)})


def bailing_linear(config: Config) -> Layers:
    """Lightning attention; the last of each `layer_group_size` layers and an incomplete last group are full (Ling and Ring linear)."""
    return by_type(config, grouped, {FULL: fields.full, LINEAR: linear_heads})
