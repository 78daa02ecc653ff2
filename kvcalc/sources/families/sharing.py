"""Layers that read another layer's keys and values: Gemma 3n, Gemma 4.

The last `num_kv_shared_layers` layers own nothing and read the last owning layer of their own type.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcalc.errors import InvalidConfigError
from kvcalc.sources.families import fields
from kvcalc.sources.families.layers import Layers, by_type
from kvcalc.sources.families.windows import BUILDERS, FULL, SLIDING, every
from kvcalc.states import Shared, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Builder, Reader

#: `global_head_dim` where a Gemma 4 file does not say it.
GLOBAL_HEAD_DIM = 512


def share_tail(config: Config, layers: Layers) -> Layers:
    """`layers` with the last `num_kv_shared_layers` reading the last owner of their type."""
    shared = config.optional("num_kv_shared_layers") or 0
    owners = len(layers.order) - shared
    if shared and owners < 1:
        raise InvalidConfigError(f"config.json: 'num_kv_shared_layers' is {shared}, and the model has {len(layers.order)} layers")
    order: list[str] = list(layers.order)
    last = {name: i for i, name in enumerate(order[:owners])}
    states: dict[str, tuple[State, ...]] = dict(layers.states)
    for i in range(owners, len(order)):
        name = f"shared_{order[i]}"
        states[name] = (Shared(shares_with=last.get(order[i])),)
        order[i] = name
    used = {*order, *layers.draft}
    return layers._replace(order=order, states={name: state for name, state in states.items() if name in used})


def gemma3n(config: Config) -> Layers:
    """Gemma 3n: every 5th layer is full."""
    return share_tail(config, by_type(config, every(5), BUILDERS))


def gemma4(config: Config) -> Layers:
    """Gemma 4: every 6th layer and the last are full, with heads `global_head_dim` wide, and with KV heads of their own if K = V."""
    layers = by_type(config, _gemma4_rule, {SLIDING: fields.sliding, FULL: _gemma4_full})
    return share_tail(config, layers)


def _gemma4_rule(_config: Config, count: int) -> Sequence[str]:
    return [SLIDING if (i + 1) % 6 and i + 1 < count else FULL for i in range(count)]


def _gemma4_full(config: Config) -> tuple[State, ...]:
    heads = fields.read_heads(config)
    own = config.optional("num_global_key_value_heads", least=1) if _own_global_heads(config) else None
    width = config.optional("global_head_dim", least=1) or GLOBAL_HEAD_DIM
    return (heads._replace(kv=own or heads.kv, dim=width).full(),)


def _own_global_heads(config: Config) -> bool:
    return config.flag("attention_k_eq_v")


READERS: dict[str, Reader] = {
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "gemma4_unified_text": gemma4,
}
