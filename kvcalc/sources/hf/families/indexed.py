"""Sparse attention: a small index key a token beside the cache, so that each step reads only the best tokens.

Everything is still stored; the index is what it costs. Index keys are fp8 with one fp32 scale per 128 unless the family departs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import AnyState, Index, Shared
from kvcalc.core.units import clean
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.latent import mla, read_latent
from kvcalc.sources.hf.families.layers import FULL, INDEXED, SLIDING, Layers, built, draft_count, layer_count, listed_types, named
from kvcalc.sources.hf.families.windows import rotary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import States

#: The two kinds of `indexer_types`: a layer has an indexer of its own, or takes an earlier layer's choice.
OWN, TAKEN = "full", "shared"
_LETTERS = {"F": OWN, "S": TAKEN}


def read_index(config: Config, **changes: Any) -> Index:
    """DeepSeek's indexer: one key of `index_head_dim` a token."""
    return Index(index_dim=config.integer("index_head_dim"), top_k=config.optional("index_topk", least=1), **changes)


def scheduled(config: Config, count: int) -> Sequence[str]:
    """Which layers own an indexer: listed, or in letters (F own, S taken), or every `index_topk_freq`-th after an offset."""
    kinds = _listed(config, count)
    if kinds is not None:
        return kinds
    every = max(config.integer("index_topk_freq", default=1), 1)
    offset = config.integer("index_skip_topk_offset", default=2, least=0)
    return [OWN if max(i - offset + 1, 0) % every == 0 else TAKEN for i in range(count)]


def _listed(config: Config, count: int) -> list[str] | None:
    for name in ("indexer_types", "index_topk_pattern"):
        value = config.get(name)
        if isinstance(value, str):
            value = [_LETTERS.get(letter, letter) for letter in value]
            if len(value) < count:
                raise InvalidConfigError(f"config.json: '{name}' has {len(value)} letters for {count} layers")
        elif value is not None:
            value = config.sequence(name, length=count)
        if value is None:
            continue
        for item in value[:count]:
            if item not in (OWN, TAKEN):
                raise InvalidConfigError(
                    f"config.json: '{name}' holds {clean(repr(item), 40)}, and must hold 'full' or 'shared', or F or S"
                )
        return list(value[:count])
    return None


def everywhere(config: Config) -> Layers:
    """A latent and an index key on every layer."""
    return _mixed(config, [OWN] * layer_count(config))


def indexed(config: Config) -> Layers:
    """A latent on every layer, an index key where `indexer_types`, `index_topk_pattern` or `index_topk_freq` say the layer owns an indexer."""
    return _mixed(config, scheduled(config, layer_count(config)))


def hunyuan4(config: Config) -> Layers:
    """A latent on every layer, an index key where `indexer_types` says, else on layer 0 and every 4th from layer 1."""
    count = layer_count(config)
    return _mixed(config, _listed(config, count) or [OWN if i == 0 or (i - 1) % 4 == 0 else TAKEN for i in range(count)])


def _mixed(config: Config, kinds: Sequence[str]) -> Layers:
    latent, index = read_latent(config), read_index(config)
    order = ["indexed" if kind == OWN else "latent" for kind in kinds]
    return named(order, {"indexed": (latent, index), "latent": (latent,)}, ["indexed"] * draft_count(config))


def mistral_large4(config: Config) -> Layers:
    """A latent, without its rotary part on layers that turn nothing, unless `kv_source_layers` names another owner; index keys as scheduled."""
    count = layer_count(config)
    sources = config.sequence("kv_source_layers", length=count) or range(count)
    turned, kinds = rotary(config, count), scheduled(config, count)
    latent, index = read_latent(config), read_index(config)
    still = replace(latent, rope_dim=0)
    order: list[str] = []
    states: dict[str, States] = {}
    for i in range(count):
        source = config.checked(sources[i], "kv_source_layers", least=0)
        if source > i:
            raise InvalidConfigError(f"config.json: 'kv_source_layers' lets layer {i} read layer {source}, which comes after it")
        own: AnyState = Shared(shares_with=source) if source != i else latent if turned[i] else still
        name = f"reader_{source}" if source != i else "latent" if turned[i] else "latent_still"
        if kinds[i] == OWN:
            name += "_indexed"
        states.setdefault(name, (own, index) if kinds[i] == OWN else (own,))
        order.append(name)
    return Layers(order, states)


def dots3(config: Config) -> Layers:
    """A latent with an index key (fp32) on the first two layers and one in four, else a window of a wider latent (`swa_*`).

    Released files call their indexed layers full; files with `per_layer_config` mean what they say.
    """
    count = layer_count(config)
    types = (listed_types(config, count) or _dots3_rule(config, count))[:count]
    indexed = config.flag("use_dsa", default="per_layer_config" not in config.raw)
    if indexed:
        types = [INDEXED if kind == FULL else kind for kind in types]
    elif config.has("use_dsa"):
        types = [FULL if kind == INDEXED else kind for kind in types]
    return built(config, types, {INDEXED: _dots3_indexed, FULL: mla, SLIDING: _dots3_window})


def _dots3_rule(config: Config, count: int) -> list[str]:
    slides = config.flag("use_sliding_window", default=True)
    return [INDEXED if not slides or i < 2 or i % 4 == 1 else SLIDING for i in range(count)]


def _dots3_indexed(config: Config) -> States:
    return (read_latent(config), read_index(config, format="fp32"))


#: Window layers of dots3-note where the file does not say: its class's own constants.
_DOTS3_WINDOW = {
    "swa_num_attention_heads": 64,
    "swa_kv_lora_rank": 1024,
    "swa_head_dim": 256,
    "swa_qk_nope_head_dim": 192,
    "swa_v_head_dim": 128,
    "sliding_window": 512,
}


def _dots3_window(config: Config) -> States:
    window = config.integer("sliding_window", "sliding_window_size", default=_DOTS3_WINDOW["sliding_window"])
    if "per_layer_config" in config.raw:
        return (read_latent(config, window=window),)
    own = {name: config.integer(name, default=value, least=0) for name, value in _DOTS3_WINDOW.items() if name.startswith("swa_")}
    own["swa_qk_rope_head_dim"] = config.integer("swa_qk_rope_head_dim", default=own["swa_head_dim"] - own["swa_qk_nope_head_dim"], least=0)
    return (read_latent(config.overlaid(own), prefix="swa_", window=window),)


def minimax_m3(config: Config) -> Layers:
    """GQA everywhere, and one index key (bf16) a token on the layers that `sparse_attention_freq` or `layer_types` call sparse."""
    sparse = config.child("sparse_attention_config")
    attention = fields.read_heads(config).full()
    width = sparse.optional("sparse_index_dim", least=1) or config.integer("index_head_dim")
    states: dict[str, States] = {"full": (attention,), "sparse": (attention, Index(index_dim=width, format="bf16"))}
    return named(_m3_order(config, layer_count(config)), states, ["sparse"] * draft_count(config))


def _m3_order(config: Config, count: int) -> list[str]:
    types = listed_types(config, count)
    if types is not None:
        return ["sparse" if kind == "minimax_m3_sparse" else "full" for kind in types[:count]]
    sparse = config.child("sparse_attention_config")
    flags = sparse.sequence("sparse_attention_freq", length=count)
    if flags is None:
        return ["full"] * count
    return ["sparse" if sparse.checked(item, "sparse_attention_freq", least=0) else "full" for item in flags]
