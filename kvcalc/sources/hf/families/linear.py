"""Linear attention with a matrix state, between layers of softmax attention: gated DeltaNet, KDA, lightning attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Fixed, GatedDeltaNet, Index, Kda, Lightning
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.indexed import OWN, read_index, scheduled
from kvcalc.sources.hf.families.latent import mla, read_latent
from kvcalc.sources.hf.families.layers import FULL, INDEXED, LINEAR, SLIDING, Layers, built, by_type, layer_count, listed_types, named
from kvcalc.sources.hf.families.windows import BUILDERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import Builder, States


def gated_deltanet(config: Config) -> States:
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


def kda(config: Config) -> States:
    """Kimi's mixer: fields in `linear_attn_config`, or flat in transformers' own files."""
    nested = config.child("linear_attn_config")
    return (
        Kda(
            heads=nested.optional("num_heads", least=1)
            or config.optional("linear_num_heads", least=1)
            or config.integer(*fields.QUERY_HEADS),
            head_dim=nested.optional("head_dim", least=1) or config.optional("linear_head_dim", least=1) or config.integer("head_dim"),
            conv_kernel=nested.optional("short_conv_kernel_size", least=1)
            or config.integer("linear_conv_kernel_dim", "short_conv_kernel_size"),
            state_dtype=config.state_dtype(),
        ),
    )


def lightning(config: Config) -> States:
    """MiniMax's mixer: a square matrix a query head."""
    heads = fields.read_heads(config)
    return (Lightning(heads=heads.query, head_dim=heads.dim, state_dtype=config.state_dtype()),)


# Gated DeltaNet.


def qwen3_next(config: Config) -> Layers:
    """Gated DeltaNet; the last of each `full_attention_interval` (4) layers is full."""
    return by_type(config, _interval, BUILDERS | {LINEAR: gated_deltanet}, draft=FULL)


def _interval(config: Config, count: int) -> list[str]:
    every = config.integer("full_attention_interval", default=4)
    return [LINEAR if (i + 1) % every else FULL for i in range(count)]


def olmo_hybrid(config: Config) -> Layers:
    """Gated DeltaNet; the last of each four layers is full. Linear heads default to the query heads, 3/4 of their width for keys, twice that for values."""
    heads = config.integer("linear_num_key_heads", *fields.QUERY_HEADS)
    key_dim = config.optional("linear_key_head_dim", least=1) or config.checked(
        3 * config.integer(*fields.HIDDEN) // (4 * heads), "linear_key_head_dim"
    )
    derived = {
        "linear_num_key_heads": heads,
        "linear_num_value_heads": config.integer("linear_num_value_heads", *fields.QUERY_HEADS),
        "linear_key_head_dim": key_dim,
        "linear_value_head_dim": config.optional("linear_value_head_dim", least=1) or 2 * key_dim,
    }
    return by_type(config.overlaid(derived), _olmo_rule, BUILDERS | {LINEAR: gated_deltanet})


def _olmo_rule(_config: Config, count: int) -> list[str]:
    types = [FULL if i % 4 == 3 else LINEAR for i in range(count)]
    return types if FULL in types else [*types[:-1], FULL]


def lara_mini(config: Config) -> Layers:
    """Gated DeltaNet, window, gated DeltaNet, full, window, and again."""
    period = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
    return by_type(config, lambda _, count: [period[i % 5] for i in range(count)], BUILDERS | {LINEAR: gated_deltanet})


def qwen4_exp(config: Config) -> Layers:
    """Gated DeltaNet; the last of each `full_attention_interval` (4) layers is GQA with an index key for `indexer_compress_ratio` tokens.

    Layers in `ple_layer_ids` (n-gram embeddings, counted from 1) also keep the last inputs of a convolution and the last `ngram_size` - 1 token ids.
    """
    count = layer_count(config)
    types = listed_types(config, count) or _interval(config, count)
    embedded = config.indices("ple_layer_ids", count, first=1) or frozenset()
    memory = _ngram_memory(config) if embedded else ()
    mixers = {"linear": gated_deltanet(config), "indexed": _qsa(config)}
    kinds = ["linear" if kind == LINEAR else "indexed" for kind in types[:count]]
    order = [f"{kind}_ngram" if i in embedded else kind for i, kind in enumerate(kinds)]
    return named(order, mixers | {f"{kind}_ngram": (*kept, *memory) for kind, kept in mixers.items()})


def _qsa(config: Config) -> States:
    attention = fields.read_heads(config).full()
    if config.get("indexer_head_dim") is None:
        return (attention,)
    index = Index(
        index_dim=config.integer("indexer_head_dim"),
        vectors=config.integer("indexer_kv_heads", default=1),
        ratio=config.integer("indexer_compress_ratio", default=1),
        format="bf16",
    )
    return (attention, index)


def _ngram_memory(config: Config) -> States:
    ngram = config.integer("ngram_size")
    width = config.integer("hc_count") * config.integer(*fields.HIDDEN)
    columns = (config.integer("ple_conv_kernel_size") - 1) * ngram
    kept: list[Fixed] = []
    if columns:
        kept.append(Fixed(name="ngram_conv", elements=width * columns, state_dtype="model"))
    if ngram > 1:
        # Token ids are 8-byte integers: two 4-byte elements each.
        kept.append(Fixed(name="ngram_ids", elements=2 * (ngram - 1), state_dtype="fp32"))
    return tuple(kept)


def gigachat(config: Config) -> Layers:
    """Gated DeltaNet; layers in `full_attention_layers`, or those that `layer_types` lists, are latent."""
    return by_type(config, _gigachat_rule, {FULL: mla, LINEAR: gated_deltanet}, draft=FULL)


def _gigachat_rule(config: Config, count: int) -> list[str]:
    full = config.indices("full_attention_layers", count) or frozenset()
    return [FULL if i in full else LINEAR for i in range(count)]


def jet_nemotron(config: Config) -> Layers:
    """Gated DeltaNet (`jet`), full attention (`attn`) and windows (`swa`) as `layer_types` lists them; their fields in `efficient_attention_config`."""
    names = {"jet": LINEAR, "attn": FULL, "swa": SLIDING}
    count = layer_count(config)
    types = listed_types(config, count)
    if types is None:
        raise InvalidConfigError(f"config.json of a {config.model_type} model has no 'layer_types'")
    efficient = config.child("efficient_attention_config")
    renamed = [names.get(kind, kind) for kind in types[:count]]
    return built(
        config, renamed, BUILDERS | {LINEAR: lambda _: _jet_block(efficient.child("jet")), SLIDING: lambda c: _jet_window(c, efficient)}
    )


def _jet_block(jet: Config) -> States:
    heads, key_dim = jet.integer("num_heads"), jet.integer("head_dim")
    factor = jet.get("expand_v")
    value_dim = int(key_dim * factor) if isinstance(factor, int | float) and 0 < factor <= 64 else key_dim
    return (
        GatedDeltaNet(
            key_heads=heads,
            value_heads=heads,
            key_head_dim=key_dim,
            value_head_dim=jet.checked(value_dim, "expand_v"),
            conv_kernel=jet.integer("conv_size"),
        ),
    )


def _jet_window(config: Config, efficient: Config) -> States:
    return (fields.read_heads(config).sliding(fields.read_window(efficient.child("swa"), "window_size")),)


# Kimi delta attention.


def kimi_linear(config: Config) -> Layers:
    """KDA; `linear_attn_config.full_attn_layers` are latent and count from 1, else every 4th layer but the first."""
    return by_type(config, _kimi_rule, {FULL: mla, LINEAR: kda}, draft=FULL)


def _kimi_rule(config: Config, count: int) -> list[str]:
    said = config.child("linear_attn_config")
    full = said.indices("full_attn_layers", count, first=1)
    linear = said.indices("kda_layers", count, first=1)
    if full is None and linear is not None:
        full = frozenset(range(count)) - linear
    if full is None:
        full = frozenset(range(4, count, 4))
    return [FULL if i in full else LINEAR for i in range(count)]


def bailing_hybrid(config: Config) -> Layers:
    """KDA (Ling 3) or lightning attention (Ling 2.5, 2.6); the last of each `layer_group_size` layers and an incomplete last group are latent.

    `layer_group_size` may also list 1 for linear layers and 0 for the others.
    """
    attention: Builder = mla if config.get("full_attention_type") in (None, "mla") else fields.full
    mixer: Builder = linear_heads if _is_lightning(config) else kda
    layers = by_type(config, grouped, {FULL: attention, LINEAR: mixer}, draft=FULL)
    group, listed = config.get("layer_group_size"), config.has("layer_types")
    tail = 0 if listed or not isinstance(group, int) else len(layers.order) % group
    return layers._replace(traits={"incomplete_group": tail}) if tail else layers


def _is_lightning(config: Config) -> bool:
    """Ling 2.5 and 2.6 have the same model_type, another class, and no short convolution."""
    if "short_conv_kernel_size" in config.raw or "V3" in config.class_name:
        return False
    return "V2_5" in config.class_name or config.has("group_norm_size", "linear_silu", "num_linear_key_value_heads")


def linear_heads(config: Config) -> States:
    """Lightning attention with the common heads, or its own count of them."""
    heads = config.integer("num_linear_key_value_heads", *fields.QUERY_HEADS)
    width = config.optional("head_dim", least=1) or fields.derived_width(config, config.integer(*fields.QUERY_HEADS))
    return (Lightning(heads=heads, head_dim=width, state_dtype=config.state_dtype()),)


def grouped(config: Config, count: int) -> Sequence[str]:
    """The last of each `layer_group_size` layers is full, and so is an incomplete last group."""
    if isinstance(config.get("layer_group_size"), list):
        flags = config.sequence("layer_group_size", length=count) or ()
        return [LINEAR if config.checked(item, "layer_group_size", least=0) == 1 else FULL for item in flags]
    group = config.integer("layer_group_size")
    complete = count // group * group
    return [FULL if (i + 1) % group == 0 or i >= complete else LINEAR for i in range(count)]


def glm5_next(config: Config) -> Layers:
    """KDA on three of four layers; the 4th is latent without a rotary part, with an index key where it owns an indexer."""
    count = layer_count(config)
    types = listed_types(config, count) or [LINEAR if i % 4 != 3 else INDEXED for i in range(count)]
    kinds = scheduled(config, count)
    latent, index = read_latent(config), read_index(config, pool=config.integer("index_kpool", default=1))
    states: dict[str, States] = {"linear": kda(config), "indexed": (latent, index), "latent": (latent,)}
    order = ["linear" if kind == LINEAR else "indexed" if kinds[i] == OWN else "latent" for i, kind in enumerate(types[:count])]
    return named(order, states)


# Lightning attention.


def minimax(config: Config) -> Layers:
    """Lightning attention on odd layers, full on even ones; `attn_type_list` of the original checkpoints is not read by this class."""
    return by_type(config, lambda _, count: [LINEAR if i % 2 else FULL for i in range(count)], BUILDERS | {LINEAR: lightning})


def minimax_original(config: Config) -> Layers:
    """Lightning attention where `attn_type_list` has 0, full where it has 1."""
    count = layer_count(config)
    flags = config.sequence("attn_type_list", length=count)
    if flags is None:
        raise InvalidConfigError(f"config.json of a {config.model_type} model has no 'attn_type_list'")
    order = ["full" if config.checked(item, "attn_type_list", least=0) else "linear" for item in flags]
    return named(order, {"full": fields.full(config), "linear": lightning(config)})


def minicpm_sala(config: Config) -> Layers:
    """Lightning attention and full attention as `mixer_types` repeats them."""
    types = config.sequence("mixer_types") or ("minicpm4",)
    count = layer_count(config)
    order = ["linear" if "lightning" in str(types[i % len(types)]) else "full" for i in range(count)]
    heads = fields.read_heads(config, query=("lightning_nh", *fields.QUERY_HEADS), dim=("lightning_head_dim", "head_dim"))
    mixer = Lightning(heads=heads.query, head_dim=heads.dim, state_dtype=config.state_dtype())
    return named(order, {"full": fields.full(config), "linear": (mixer,)})
