"""Linear attention with a matrix state, between layers of softmax attention: gated DeltaNet, KDA, lightning attention."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcalc.errors import InvalidConfigError
from kvcalc.sources.families import fields
from kvcalc.sources.families.latent import read_latent
from kvcalc.sources.families.layers import Layers, by_type, layer_count
from kvcalc.sources.families.windows import FULL
from kvcalc.states import GatedDeltaNet, Kda, Lightning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Builder, Reader, Rule
    from kvcalc.states import Latent

LINEAR = "linear_attention"


def gated_deltanet(config: Config) -> tuple[GatedDeltaNet]:
    """Qwen3-Next's mixer."""
    return (
        GatedDeltaNet(
            key_heads=config.integer("linear_num_key_heads"),
            value_heads=config.integer("linear_num_value_heads"),
            key_head_dim=config.integer("linear_key_head_dim"),
            value_head_dim=config.integer("linear_value_head_dim"),
            conv_kernel=config.integer("linear_conv_kernel_dim"),
            state_dtype=config.state_dtype(),
        ),
    )


def interval(config: Config, count: int, *, default: int = 4) -> Sequence[str]:
    """Layer `full_attention_interval` - 1 of each interval is full."""
    every = config.integer("full_attention_interval", default=default)
    return [LINEAR if (i + 1) % every else FULL for i in range(count)]


def latent(config: Config) -> tuple[Latent]:
    """The softmax layers of KDA models."""
    return (read_latent(config),)


def kda(config: Config) -> tuple[Kda]:
    """Kimi's mixer: fields in `linear_attn_config`, or flat in transformers' own files."""
    nested = config.child("linear_attn_config")
    return (
        Kda(
            heads=nested.optional("num_heads", least=1) or config.integer("linear_num_heads", *fields.QUERY_HEADS),
            head_dim=nested.optional("head_dim", least=1) or config.integer("linear_head_dim", "head_dim"),
            conv_kernel=nested.optional("short_conv_kernel_size", least=1) or config.integer("linear_conv_kernel_dim", "short_conv_kernel_size"),
            state_dtype=config.state_dtype(),
        ),
    )


def kimi(config: Config, count: int) -> Sequence[str]:
    """Kimi-Linear: `full_attn_layers` counts from 1; a file without it has every 4th layer full, but not the first."""
    listed = config.child("linear_attn_config").sequence("full_attn_layers")
    if listed is None:
        return [FULL if i and i % 4 == 0 else LINEAR for i in range(count)]
    full = {config.checked(item, "full_attn_layers") for item in listed}
    if max(full, default=0) > count:
        raise InvalidConfigError(f"config.json: 'full_attn_layers' names layer {max(full)} of {count}, counted from 1")
    return [FULL if i + 1 in full else LINEAR for i in range(count)]


def lightning(config: Config) -> tuple[Lightning]:
    """MiniMax's mixer: every query head has a state."""
    heads = fields.read_heads(config)
    return (Lightning(heads=heads.query, head_dim=heads.dim, state_dtype=config.state_dtype()),)


def bailing(config: Config) -> Layers:
    """Ling: the last layer of each group of `layer_group_size` is full, and so is an incomplete last group; the others KDA or lightning."""
    mixer = lightning if _is_lightning(config) else kda
    return by_type(config, _grouped, {FULL: latent, LINEAR: mixer}, draft=FULL)


def _is_lightning(config: Config) -> bool:
    """Ling-2.5 and 2.6 have lightning attention under the same model_type."""
    return "V2_5" in config.class_name or (config.class_name == "" and config.has("group_norm_size", "linear_silu"))


def _grouped(config: Config, count: int) -> Sequence[str]:
    group = config.integer("layer_group_size")
    tail = count // group * group
    return [FULL if (i + 1) % group == 0 or i >= tail else LINEAR for i in range(count)]


def original_minimax(config: Config) -> Layers:
    """MiniMax-Text-01, M1: `attn_type_list` has 1 for softmax, 0 for lightning."""
    flags = config.sequence("attn_type_list", length=layer_count(config))
    if flags is None:
        raise InvalidConfigError(f"config.json of a {config.model_type} model has no 'attn_type_list'")
    types = [FULL if config.checked(item, "attn_type_list", least=0) else LINEAR for item in flags]
    return by_type(config, lambda _config, _count: types, {FULL: fields.full, LINEAR: lightning})


def _family(rule: Rule, attention: Builder, mixer: Builder) -> Reader:
    return partial(by_type, rule=rule, builders={FULL: attention, LINEAR: mixer}, draft=FULL)


READERS: dict[str, Reader] = {
    **dict.fromkeys("qwen3_next qwen3_5_text qwen3_5_moe_text".split(), _family(interval, fields.full, gated_deltanet)),
    "kimi_linear": _family(kimi, latent, kda),
    "bailing_hybrid": bailing,
    **dict.fromkeys("minimax_m1 minimax_text_01".split(), original_minimax),
}
