"""Layers that read another layer's keys and values: Gemma 3n, Gemma 4, and drafts that read the target's.

The last `num_kv_shared_layers` layers own nothing and read the last owning layer of their own type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Shared
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.layers import FULL, SLIDING, Layers, built, by_type, layer_count, listed_types, named
from kvcalc.sources.hf.families.windows import BUILDERS, sixth_and_last, where

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import States

#: `global_head_dim` where a Gemma 4 file does not say it.
GLOBAL_HEAD_DIM = 512


def gemma3n(config: Config) -> Layers:
    """The last of each five layers is full, the others slide; the last `num_kv_shared_layers` read an earlier layer's cache."""
    return share_tail(config, by_type(config, where(lambda i, _: i % 5 == 4), BUILDERS))


def gemma4(config: Config) -> Layers:
    """Every 6th layer and the last are full, `global_head_dim` wide; the last `num_kv_shared_layers` read an earlier layer's cache.

    `num_global_key_value_heads` counts where K = V (`attention_k_eq_v`). K = V removes a weight, not a cache.
    """
    count = layer_count(config)
    types = (listed_types(config, count) or sixth_and_last(config, count))[:count]
    types[-1] = FULL
    return share_tail(config, built(config, types, {SLIDING: _gemma4_sliding, FULL: _gemma4_full}))


def assistant(config: Config) -> Layers:
    """A draft model whose layers all read the target model's cache and keep nothing."""
    return Layers(["shared"] * layer_count(config), {"shared": (Shared(),)})


def share_tail(config: Config, layers: Layers) -> Layers:
    """`layers` with the last `num_kv_shared_layers` reading the last owner of their type."""
    shared = config.optional("num_kv_shared_layers") or 0
    owners = len(layers.order) - shared
    if shared and owners < 1:
        raise InvalidConfigError(f"config.json: 'num_kv_shared_layers' is {shared}, and the model has {len(layers.order)} layers")
    order = list(layers.order)
    last = {name: i for i, name in enumerate(order[:owners])}
    states: dict[str, States] = dict(layers.states)
    for i in range(owners, len(order)):
        name = f"shared_{order[i]}"
        states[name] = (Shared(shares_with=last.get(order[i])),)
        order[i] = name
    return named(order, states, layers.draft)


def _gemma4_sliding(config: Config) -> States:
    window = fields.read_window(config)
    if config.get("use_bidirectional_attention") == "all":
        window = window // 2 + 1
    return (fields.read_heads(config).sliding(window),)


def _gemma4_full(config: Config) -> States:
    heads = fields.read_heads(config)
    if "per_layer_config" in config.raw:
        return (heads.full(),)
    own = config.optional("num_global_key_value_heads", least=1) if _keys_are_values(config) else None
    width = config.optional("global_head_dim", least=1) or GLOBAL_HEAD_DIM
    return (heads._replace(kv=own or heads.kv, dim=width).full(),)


def _keys_are_values(config: Config) -> bool:
    """Models without the field have global KV heads of their own wherever the file counts them (DiffusionGemma)."""
    return config.flag("attention_k_eq_v", default=config.model_type == "diffusion_gemma_text")
