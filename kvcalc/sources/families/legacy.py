"""Full attention under older names: GPT-J, BLOOM, MPT, DBRX, Falcon, StarCoder, pruned Llamas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.errors import InvalidConfigError
from kvcalc.sources.families import fields
from kvcalc.sources.families.dense import plain
from kvcalc.sources.families.fields import Heads
from kvcalc.sources.families.layers import Layers, layer_count, uniform
from kvcalc.states import Nothing, State

if TYPE_CHECKING:
    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Reader


def _heads(config: Config, kv_heads: int | None) -> Layers:
    query = config.integer(*fields.QUERY_HEADS)
    return uniform(config, (Heads(query, kv_heads or query, fields.derived_width(config, query)).full(),))


def nested(config: Config) -> Layers:
    """DBRX, MPT: KV heads in `attn_config.kv_n_heads`; DBRX's class default is 1, MPT's one a query head."""
    given = config.child("attn_config").optional("kv_n_heads", "num_key_value_heads", least=1)
    return _heads(config, given or (1 if config.model_type == "dbrx" else None))


def multi_query(config: Config) -> Layers:
    """GPT-BigCode: one KV head where `multi_query` (the default), else one a query head."""
    return _heads(config, 1 if config.flag("multi_query", default=True) else None)


def falcon(config: Config) -> Layers:
    """Falcon: `num_kv_heads` of the new decoder; of the old one 1 where `multi_query`, else one a query head."""
    if config.flag("new_decoder_architecture"):
        return _heads(config, config.optional("num_kv_heads", "n_head_kv", least=1))
    return _heads(config, 1 if config.flag("multi_query", default=True) else None)


def pruned(config: Config) -> Layers:
    """Llama-Nemotron (NAS): `block_configs[i].attention` has query heads per KV head, or `no_op`."""
    count = layer_count(config)
    blocks = config.sequence("block_configs", length=count)
    if blocks is None:
        return plain(config)
    query = config.integer(*fields.QUERY_HEADS)
    width = config.optional("head_dim", least=1) or fields.derived_width(config, query)
    order: list[str] = []
    states: dict[str, tuple[State, ...]] = {}
    for block in blocks:
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise InvalidConfigError("config.json: every entry of 'block_configs' needs an 'attention' mapping")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            name, state = "pruned", (Nothing(),)
        else:
            group = config.checked(attention.get("n_heads_in_group"), "n_heads_in_group")
            kv_heads = config.checked(query // group, "n_heads_in_group")
            name, state = f"full_{kv_heads}", (Heads(query, kv_heads, width).full(),)
        order.append(name)
        states.setdefault(name, state)
    return Layers(order, states)


READERS: dict[str, Reader] = {
    **dict.fromkeys(("gptj", "bloom", "gpt2"), plain),
    **dict.fromkeys(("mpt", "dbrx"), nested),
    **dict.fromkeys(("falcon", "RefinedWeb", "RefinedWebModel"), falcon),
    "gpt_bigcode": multi_query,
    "nemotron-nas": pruned,
}
