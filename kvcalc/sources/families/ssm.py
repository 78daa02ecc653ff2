"""State-space models and short convolutions, alone or between layers of attention: Mamba 1 and 2, LFM2."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcalc.errors import InvalidConfigError
from kvcalc.sources.families import fields
from kvcalc.sources.families.layers import Layers, build, by_type, draft_count, layer_count, listed_types, short, uniform
from kvcalc.sources.families.linear import LINEAR
from kvcalc.sources.families.windows import FULL
from kvcalc.states import Mamba1, Mamba2, ShortConv, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Builder, Reader

CONV = "conv"
#: Letters of `hybrid_override_pattern`.
LETTERS = {"M": LINEAR, "*": FULL, "-": "mlp", "E": "moe"}


def mamba1(config: Config) -> tuple[Mamba1]:
    """Mamba, Falcon-Mamba, Jamba: the inner width is `intermediate_size`, else expand x hidden."""
    inner = config.optional("intermediate_size", least=1) if config.model_type != "jamba" else None
    return (
        Mamba1(
            inner_dim=inner or config.integer("expand", "mamba_expand", default=2) * config.integer(*fields.HIDDEN),
            state_dim=config.integer("state_size", "mamba_d_state", default=16),
            conv_kernel=config.integer("conv_kernel", "mamba_d_conv", default=4),
            state_dtype=config.state_dtype(),
        ),
    )


def mamba2(config: Config) -> tuple[Mamba2]:
    """Mamba-2 under the names of Mamba-2, Bamba, Granite, Falcon-H1 and Nemotron-H."""
    return (
        Mamba2(
            heads=config.integer("mamba_num_heads", "mamba_n_heads", "num_heads"),
            head_dim=config.integer("mamba_head_dim", "mamba_d_head", "head_dim"),
            state_dim=config.integer("ssm_state_size", "mamba_d_state", "state_size"),
            groups=config.integer("n_groups", "mamba_n_groups"),
            conv_kernel=config.integer("conv_kernel", "mamba_d_conv"),
            state_dtype=config.state_dtype(),
        ),
    )


def zamba2_mixer(config: Config) -> tuple[Mamba2]:
    """Zamba2: `n_mamba_heads`, else as many heads of `mamba_headdim` as fill expand x hidden."""
    inner = config.integer("mamba_expand", default=2) * config.integer(*fields.HIDDEN)
    if config.has("mamba_headdim") and not config.has("n_mamba_heads"):
        width = config.integer("mamba_headdim")
        heads = config.checked(inner // width, "mamba_headdim")
    else:
        heads = config.integer("n_mamba_heads")
        width = config.checked(inner // heads, "n_mamba_heads")
    return (
        Mamba2(
            heads=heads,
            head_dim=width,
            state_dim=config.integer("mamba_d_state", "state_size"),
            groups=config.integer("mamba_ngroups", "n_groups"),
            conv_kernel=config.integer("mamba_d_conv", "conv_dimension"),
            state_dtype=config.state_dtype(),
        ),
    )


def zamba2(config: Config) -> Layers:
    """Zamba2: a hybrid layer is a Mamba layer with a shared attention before it, whose heads are 2 x hidden / heads wide."""
    query = config.integer(*fields.QUERY_HEADS)
    width = config.optional("attention_head_dim", least=1) or config.checked(2 * config.integer(*fields.HIDDEN) // query, "hidden_size")
    attention = fields.Heads(query, config.optional("num_key_value_heads", least=1) or query, width).full()
    return by_type(config, _zamba2_rule, {LINEAR: zamba2_mixer, "hybrid": lambda c: (attention, *zamba2_mixer(c))}, key="layers_block_type")


def _zamba2_rule(_config: Config, count: int) -> Sequence[str]:
    return ["hybrid" if i and i % 6 == 0 else LINEAR for i in range(count)]


def nemotron_h(config: Config) -> Layers:
    """Nemotron-H, Nemotron-3: letters in `hybrid_override_pattern`, or names in `layers_block_type`; their number is the number of layers."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        types = _letters(pattern, "hybrid_override_pattern")
    else:
        types = listed_types(config, 0, "layers_block_type") or []
        types = listed_types(config, len(config.sequence("layers_block_type") or ()), "layers_block_type") or []
    if not types:
        raise InvalidConfigError("config.json of a nemotron_h model has neither 'hybrid_override_pattern' nor 'layers_block_type'")
    tail = config.get("mtp_hybrid_override_pattern")
    drafts = (_letters(tail, "mtp_hybrid_override_pattern") if isinstance(tail, str) else [FULL]) * draft_count(config)
    states = build(config, [*types, *drafts], {FULL: _nemotron_attention, LINEAR: mamba2})
    return Layers([short(kind) for kind in types], states, [short(kind) for kind in drafts])


def _letters(pattern: str, name: str) -> list[str]:
    for letter in pattern:
        if letter not in LETTERS:
            raise InvalidConfigError(f"config.json: '{name}' holds {letter!r}, and knows M (Mamba), * (attention), - (MLP) and E (experts)")
    return [LETTERS[letter] for letter in pattern]


def _nemotron_attention(config: Config) -> tuple[State, ...]:
    return (fields.read_heads(config, dim=("attention_head_dim", "head_dim")).full(),)


def jamba(config: Config, count: int) -> Sequence[str]:
    """Jamba: one layer in `attn_layer_period` is attention, `attn_layer_offset` from its start."""
    period, offset = config.integer("attn_layer_period"), config.integer("attn_layer_offset", least=0)
    return [FULL if i % period == offset else LINEAR for i in range(count)]


def all_mamba(_config: Config, count: int) -> Sequence[str]:
    """Granite without `layer_types`."""
    return [LINEAR] * count


def pure(config: Config, mixer: Builder) -> Layers:
    """Every layer is the mixer."""
    return uniform(config, mixer(config), "mamba")


def parallel(config: Config) -> Layers:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    return uniform(config, (*fields.full(config), *mamba2(config)), "hybrid")


def short_conv(config: Config) -> tuple[ShortConv]:
    """LFM2's gated convolution over the hidden width."""
    return (ShortConv(channels=config.integer(*fields.HIDDEN), conv_kernel=config.integer("conv_L_cache")),)


def lfm2(config: Config, count: int) -> Sequence[str]:
    """LFM2: `full_attn_idxs`; a file without it has attention on every layer."""
    listed = config.sequence("full_attn_idxs")
    if listed is None:
        return [FULL] * count
    full = {config.checked(item, "full_attn_idxs", least=0) for item in listed}
    return [FULL if i in full else CONV for i in range(count)]


_GRANITE: dict[str, Builder] = {FULL: fields.full, LINEAR: mamba2}
_JAMBA: dict[str, Builder] = {FULL: fields.full, LINEAR: mamba1}
_LFM2: dict[str, Builder] = {FULL: fields.full, CONV: short_conv}

READERS: dict[str, Reader] = {
    **dict.fromkeys(("mamba", "falcon_mamba"), partial(pure, mixer=mamba1)),
    "mamba2": partial(pure, mixer=mamba2),
    "granitemoehybrid": partial(by_type, rule=all_mamba, builders=_GRANITE),
    "jamba": partial(by_type, rule=jamba, builders=_JAMBA),
    "falcon_h1": parallel,
    "nemotron_h": nemotron_h,
    "zamba2": zamba2,
    "lfm2": partial(by_type, rule=lfm2, builders=_LFM2),
}
