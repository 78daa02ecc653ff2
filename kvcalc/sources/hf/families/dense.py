"""Full attention on every layer: MHA, GQA or MQA, whatever the rest of the block does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Nothing, Shared
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.fields import Heads
from kvcalc.sources.hf.families.layers import Layers, layer_count, named, uniform

if TYPE_CHECKING:
    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import States


def plain(config: Config) -> Layers:
    """Full attention, KV heads and widths under the common names."""
    return uniform(config, fields.full(config))


def every_head(config: Config) -> Layers:
    """Full attention with one KV head a query head: the classes from before grouped queries, which know no `head_dim`."""
    query = config.integer(*fields.QUERY_HEADS)
    width = config.optional("attention_head_size", "dim_head", "d_head", least=1) or fields.derived_width(config, query)
    return uniform(config, (Heads(query, query, width).full(),))


def derived(config: Config) -> Layers:
    """Full attention, each head hidden // query heads wide whatever `head_dim` says."""
    return _derived(config, config.optional(*fields.KV_HEADS, least=1))


def big_bird(config: Config) -> Layers:
    """Full attention with one KV head a query head; block-sparse attention caches nothing of a prefill that it is used for.

    It is used beyond (5 + 2 x `num_random_blocks`) x `block_size` tokens, and not with cross-attention.
    """
    layers = every_head(config)
    if config.get("attention_type") == "original_full" or config.flag("add_cross_attention"):
        return layers
    blocks = 5 + 2 * config.integer("num_random_blocks", default=3, least=0)
    return layers._replace(traits={"longest_dense_prefill": blocks * config.integer("block_size", default=64)})


def cpmant(config: Config) -> Layers:
    """Full attention with one KV head a query head; a soft prompt of `prompt_length` tokens stands before every sequence."""
    return every_head(config)._replace(traits={"soft_prompt": config.integer("prompt_length", default=32, least=0)})


def jetmoe(config: Config) -> Layers:
    """Full attention with `num_key_value_heads` KV heads, `kv_channels` wide; each expert chosen for a token has a query head for each."""
    kv_heads = config.integer("num_key_value_heads")
    query = config.optional("num_attention_heads", least=1) or kv_heads * config.integer("num_experts_per_tok", default=2)
    return uniform(config, (Heads(query, kv_heads, config.integer("head_dim", "kv_channels")).full(),))


def nested(config: Config) -> Layers:
    """Full attention with KV heads in `attn_config.kv_n_heads`; DBRX's class default is 1, MPT's one a query head."""
    given = config.child("attn_config").optional("kv_n_heads", least=1)
    return _derived(config, given or (1 if config.model_type == "dbrx" else None))


def multi_query(config: Config) -> Layers:
    """Full attention with one KV head where `multi_query` (the default), else one a query head, hidden // query heads wide."""
    return _derived(config, 1 if config.flag("multi_query", default=True) else None)


def falcon(config: Config) -> Layers:
    """Full attention: `num_kv_heads` of the new decoder; of the old one 1 where `multi_query`, else one a query head."""
    if config.flag("new_decoder_architecture"):
        return _derived(config, config.optional("num_kv_heads", "n_head_kv", least=1))
    return _derived(config, 1 if config.flag("multi_query", default=True) else None)


def grouped(config: Config) -> Layers:
    """Full attention with `multi_query_group_num` KV heads where `multi_query_attention`, `kv_channels` wide (ChatGLM)."""
    groups = config.integer("multi_query_group_num") if config.flag("multi_query_attention") else None
    query = config.integer(*fields.QUERY_HEADS)
    width = config.optional("kv_channels", least=1) or fields.derived_width(config, query)
    return uniform(config, (Heads(query, groups or query, width).full(),))


def _derived(config: Config, kv_heads: int | None) -> Layers:
    query = config.integer(*fields.QUERY_HEADS)
    return uniform(config, (Heads(query, kv_heads or query, fields.derived_width(config, query)).full(),))


def pruned(config: Config) -> Layers:
    """Full attention searched for per layer: `block_configs[i].attention` has query heads per KV head, or is a `no_op`."""
    count = layer_count(config)
    blocks = config.sequence("block_configs", length=count)
    if blocks is None:
        return plain(config)
    query = config.integer(*fields.QUERY_HEADS)
    width = config.optional("head_dim", least=1) or fields.derived_width(config, query)
    order: list[str] = []
    states: dict[str, States] = {}
    for block in blocks:
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise InvalidConfigError("config.json: every entry of 'block_configs' needs an 'attention' mapping")
        if attention.get("no_op") or attention.get("replace_with_linear"):
            order.append("pruned")
            states.setdefault("pruned", (Nothing(),))
            continue
        group = config.checked(attention.get("n_heads_in_group"), "n_heads_in_group")
        heads = Heads(query, config.checked(query // group, "n_heads_in_group"), width)
        order.append(f"full_{heads.kv}")
        states.setdefault(order[-1], (heads.full(),))
    return Layers(order, states)


def layered_heads(config: Config) -> Layers:
    """Full attention with KV heads listed a layer: `num_kv_heads` of OpenELM, `num_key_value_heads_per_layer` of pruned Llamas."""
    count = layer_count(config, "num_transformer_layers", *fields.LAYERS)
    heads = config.sequence("num_kv_heads", "num_key_value_heads_per_layer", length=count)
    queries = config.sequence("num_query_heads", "num_attention_heads_per_layer", length=count)
    if heads is None:
        return plain(config)
    order: list[str] = []
    states: dict[str, States] = {}
    for i, value in enumerate(heads):
        kv = config.checked(value, "num_kv_heads")
        query = config.checked(queries[i], "num_query_heads") if queries else config.integer(*fields.QUERY_HEADS)
        width = config.optional("head_dim", least=1) or fields.derived_width(config, query)
        order.append(f"full_{kv}_{query}")
        states[order[-1]] = (Heads(query, kv, width).full(),)
    return Layers(order, states)


def paired(config: Config) -> Layers:
    """Full attention; where `use_cla`, only the first of each `cla_share_factor` layers keeps its own (Hunyuan)."""
    count = layer_count(config)
    factor = config.integer("cla_share_factor", default=2) if config.flag("use_cla") else 1
    states: dict[str, States] = {"full": fields.full(config)}
    order = ["full" if i % factor == 0 else f"shared_{i - i % factor}" for i in range(count)]
    states |= {name: (Shared(shares_with=int(name.removeprefix("shared_"))),) for name in order if name != "full"}
    return named(order, states)
