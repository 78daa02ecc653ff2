"""Sliding windows and chunks: which layers see only the last tokens.

`layer_types` of the file wins; each family has its own rule for files without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.sources.hf.families import fields
from kvcalc.sources.hf.families.layers import CHUNKED, FULL, SLIDING, Layers, by_type, layer_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.sources.hf.config import Config
    from kvcalc.sources.hf.families.layers import Builder, Rule, States

BUILDERS: dict[str, Builder] = {FULL: fields.full, SLIDING: fields.sliding, CHUNKED: fields.chunked}


def where(is_full: Callable[[int, int], bool], other: str = SLIDING) -> Rule:
    """A rule that depends on the layer's number and the number of layers alone."""
    return lambda _config, count: [FULL if is_full(i, count) else other for i in range(count)]


def all_full(_config: Config, count: int) -> list[str]:
    """The rule of families whose files always list their layers."""
    return [FULL] * count


def _read(config: Config, rule: Rule, sliding: Builder = fields.sliding, draft: str = FULL) -> Layers:
    return by_type(config, rule, BUILDERS | {SLIDING: sliding}, draft=draft)


# Every layer, or none.


def whole(config: Config) -> Layers:
    """Every layer slides where `sliding_window` is not null; a window at least as long as the trained context never closes."""
    return _read(config, _all_or_none, _within_reach)


def nominal(config: Config) -> Layers:
    """Every layer slides by the file's word where `sliding_window` is not null; the released model attends to everything."""
    return _read(config, _all_or_none, lambda c: (fields.read_heads(c).sliding(fields.read_window(c), nominal=True),))


def _all_or_none(config: Config, count: int) -> list[str]:
    return [FULL if config.get("sliding_window") is None else SLIDING] * count


def _within_reach(config: Config) -> States:
    window = fields.read_window(config)
    longest = config.optional("max_position_embeddings", least=1)
    return (fields.read_heads(config).sliding(window, nominal=longest is not None and window >= longest),)


# Switched on by a field.


def switched(config: Config) -> Layers:
    """Layers from `max_window_layers` on slide, where `use_sliding_window` says so."""
    return _read(config, lambda c, count: _from(c, count, on=_switch(c)))


def dots1(config: Config) -> Layers:
    """Layers from `max_window_layers` on slide, where `sliding_window` is not null."""
    return _read(config, lambda c, count: _from(c, count, on=c.get("sliding_window") is not None))


def switched_before(config: Config) -> Layers:
    """Even layers before `max_window_layers` slide, where `use_sliding_window` says so."""
    return _read(config, _before)


def switched_whole(config: Config) -> Layers:
    """Every layer slides, where `use_sliding_window` says so; `max_window_layers` means nothing."""
    return _read(config, lambda c, count: [SLIDING if _switch(c) else FULL] * count)


def smollm3(config: Config) -> Layers:
    """Layers without rotary embedding slide, where `use_sliding_window` says so."""
    return _read(config, lambda c, count: [SLIDING if _switch(c) and not turned else FULL for turned in rotary(c, count)])


def _switch(config: Config) -> bool:
    return config.flag("use_sliding_window") and config.get("sliding_window") is not None


def _from(config: Config, count: int, *, on: bool) -> list[str]:
    first = config.integer("max_window_layers", least=0) if on else count
    return [SLIDING if i >= first else FULL for i in range(count)]


def _before(config: Config, count: int) -> list[str]:
    last = config.integer("max_window_layers", least=0) if _switch(config) else 0
    return [SLIDING if i < last and (i + 1) % 2 else FULL for i in range(count)]


def rotary(config: Config, count: int) -> list[bool]:
    """Which layers turn queries and keys: `no_rope_layers` lists 1 for those that do, else all but every 4th."""
    if config.get("no_rope_layers"):
        listed = config.sequence("no_rope_layers", length=count) or ()
        return [bool(config.checked(item, "no_rope_layers", least=0)) for item in listed]
    interval = config.integer("no_rope_layer_interval", default=4)
    return [bool((i + 1) % interval) for i in range(count)]


# By the layer's number.


def listed(config: Config) -> Layers:
    """As `layer_types` lists them; a file without the list has full attention only."""
    return _read(config, all_full, draft=SLIDING if config.model_type == "mellum" else FULL)


def alternating(config: Config) -> Layers:
    """Even layers slide, odd ones are full."""
    return _read(config, where(lambda i, _: i % 2 == 1))


def fourth(config: Config) -> Layers:
    """The last of each four layers is full."""
    return _read(config, where(lambda i, _: i % 4 == 3))


def first_of_four(config: Config) -> Layers:
    """The first of each four layers is full."""
    return _read(config, where(lambda i, _: i % 4 == 0))


def fifth(config: Config) -> Layers:
    """The last of each five layers is full."""
    return _read(config, where(lambda i, _: i % 5 == 4))


def backward(config: Config) -> Layers:
    """Every 4th layer is full, counted back from the last."""
    return _read(config, where(lambda i, count: (count - 1 - i) % 4 == 0))


def flint(config: Config) -> Layers:
    """The first two layers, the second of each four and the last are full."""
    return _read(config, where(lambda i, count: i < 2 or i % 4 == 1 or i == count - 1))


def beam(config: Config) -> Layers:
    """Every 6th layer and the last are full."""
    return _read(config, sixth_and_last)


def sixth_and_last(_config: Config, count: int) -> list[str]:
    """Gemma 4's rule."""
    return [SLIDING if (i + 1) % 6 and i + 1 < count else FULL for i in range(count)]


# By a period in the file.


def gemma3(config: Config) -> Layers:
    """The last of each `sliding_window_pattern` (6) layers is full."""
    return _read(config, lambda c, count: periodic(c, count, default=6), _causal_window)


def cohere2(config: Config) -> Layers:
    """The last of each `sliding_window_pattern` (4) layers is full."""
    return _read(config, lambda c, count: periodic(c, count, default=4))


def exaone4(config: Config) -> Layers:
    """The last of each `sliding_window_pattern` (4) layers is full, or letters say so (L local, G global).

    EXAONE-4.0-1.2B has no window; a file of it that leaves the key out gets one from its class only.
    """
    return _read(
        config,
        lambda c, count: periodic(c, count, default=4),
        lambda c: (fields.read_heads(c).sliding(fields.read_window(c), nominal="sliding_window" not in c.raw),),
    )


def exaone_moe(config: Config) -> Layers:
    """As EXAONE 4, and the window is always meant."""
    return _read(config, lambda c, count: periodic(c, count, default=4))


def afmoe(config: Config) -> Layers:
    """The last of each `global_attn_every_n_layers` (4) layers is full."""
    return _read(config, lambda c, count: periodic(c, count, "global_attn_every_n_layers", default=4))


def cohere2_moe(config: Config) -> Layers:
    """As Cohere 2; the first `first_k_dense_replace` layers count by themselves, with a period of their own."""
    return _read(config, _prefixed)


def modernbert_decoder(config: Config) -> Layers:
    """The first of each `global_attn_every_n_layers` (3) is full; the window is `sliding_window`, else half of `local_attention`."""
    every = config.integer("global_attn_every_n_layers", default=3)
    window = config.optional("sliding_window", least=1) or config.checked(config.integer("local_attention") // 2, "local_attention")
    heads = fields.read_heads(config, kv=fields.QUERY_HEADS)
    builders: dict[str, Builder] = {FULL: lambda _: (heads.full(),), SLIDING: lambda _: (heads.sliding(window),)}
    return by_type(config, where(lambda i, _: i % every == 0), builders)


def llama4(config: Config) -> Layers:
    """Layers with rotary embedding are chunked by `attention_chunk_size`; every 4th has none and is full."""
    return _read(config, _chunked)


def _causal_window(config: Config) -> States:
    window = fields.read_window(config)
    if config.get("use_bidirectional_attention") is True:
        window = window // 2 + 1
    return (fields.read_heads(config).sliding(window),)


def periodic(config: Config, count: int, name: str = "sliding_window_pattern", *, default: int) -> list[str]:
    """The last of each period is full; the period is a number, or a word of L (local) and G (global) whose last layer is full."""
    if config.get("sliding_window") is None:
        return [FULL] * count
    pattern = config.get(name)
    if isinstance(pattern, str) and pattern and set(pattern) <= set("LG"):
        types = [FULL if pattern[i % len(pattern)] == "G" else SLIDING for i in range(count)]
        types[-1] = FULL
        return types
    period = default if pattern is None else config.checked(pattern, name)
    return [SLIDING if (i + 1) % period else FULL for i in range(count)]


def _prefixed(config: Config, count: int) -> list[str]:
    dense = min(config.optional("first_k_dense_replace") or 0, count)
    prefix = config.integer("prefix_dense_sliding_window_pattern", default=1)
    first = [SLIDING if (i + 1) % prefix else FULL for i in range(dense)]
    return first + periodic(config, count - dense, default=4)


def _chunked(config: Config, count: int) -> list[str]:
    if config.get("attention_chunk_size") is None:
        return [FULL] * count
    return [CHUNKED if turned else FULL for turned in rotary(config, count)]


# Windows with heads of their own.


def mimo(config: Config) -> Layers:
    """0/1 `hybrid_layer_pattern` (1 = window), V narrower than K, and window layers with KV heads of their own.

    transformers' own files have no `swa_*` fields: there the window layers have twice the KV heads.
    """
    full = fields.read_heads(config, value=("v_head_dim",))
    window_heads = fields.read_heads(
        config,
        query=("swa_num_attention_heads", *fields.QUERY_HEADS),
        kv=("swa_num_key_value_heads", *fields.KV_HEADS),
        dim=("swa_head_dim", "head_dim"),
        value=("swa_v_head_dim", "v_head_dim"),
    )
    if not config.has("swa_num_key_value_heads"):
        window_heads = window_heads._replace(kv=2 * full.kv)
    builders: dict[str, Builder] = {
        FULL: lambda _: (full.full(),),
        SLIDING: lambda c: (window_heads.sliding(fields.read_window(c)),),
    }
    return by_type(config, _flagged, builders, draft=SLIDING)


def _flagged(config: Config, count: int) -> list[str]:
    flags = config.sequence("hybrid_layer_pattern", length=count)
    if flags is not None:
        return [SLIDING if config.checked(item, "hybrid_layer_pattern", least=0) else FULL for item in flags]
    return [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(count)]


def step3p5(config: Config) -> Layers:
    """As `layer_types` lists them, draft layers at the end; `attention_other_setting` gives the window layers their own heads."""
    return _read(config, all_full, _step_window)


def _step_window(config: Config) -> States:
    heads = fields.read_heads(config)
    other = config.child("attention_other_setting")
    query = other.optional("num_attention_heads", least=1) or config.optional(
        "num_sliding_attention_heads", "swa_num_attention_heads", least=1
    )
    kv = other.optional("num_attention_groups", "num_key_value_heads", least=1)
    width = other.optional("head_dim", least=1)
    own = heads._replace(query=query or heads.query, kv=kv or heads.kv, dim=width or heads.dim)
    return (own.sliding(fields.read_window(config)),)


def iquest_q1(config: Config) -> Layers:
    """`first_layers_types`, then `hybrid_layers_types_block` repeated `num_hybrid_layers_block` times, then `last_layers_types`."""
    return _read(config, _blocked)


def _blocked(config: Config, count: int) -> list[str]:
    if not config.flag("use_hybrid_layers", default=True) or not config.flag("use_sliding_window", default=True):
        return [FULL] * count
    first = config.sequence("first_layers_types") or (FULL,)
    block = config.sequence("hybrid_layers_types_block") or (FULL, SLIDING, SLIDING, SLIDING)
    last = config.sequence("last_layers_types") or (FULL, FULL, FULL)
    types = [*first, *list(block) * min(config.integer("num_hybrid_layers_block"), count), *last]
    if len(types) != count:
        raise InvalidConfigError(f"config.json: its blocks make {len(types)} layers, and 'num_hidden_layers' is {count}")
    return [str(item) for item in types]


def plamo3(config: Config) -> Layers:
    """A window or null a layer in `interleaved_sliding_window`, else the last of each `sliding_window_pattern` (8) layers is full."""
    name = "interleaved_sliding_window"
    if not config.has(name):
        return _read(config, lambda c, count: periodic(c, count, default=8))
    windows = config.sequence(name, length=layer_count(config)) or ()
    states: dict[str, States] = {}
    order = []
    for item in windows:
        window = None if item is None else config.checked(item, name)
        order.append("full" if window is None else f"sliding_{window}")
        states[order[-1]] = fields.full(config) if window is None else (fields.read_heads(config).sliding(window),)
    return Layers(order, states)


def unlimited_ocr(config: Config) -> Layers:
    """Full attention to the prefill, a window over what is decoded: everything that was read stays. `head_dim` means nothing."""
    width = fields.derived_width(config, config.integer(*fields.QUERY_HEADS))
    return by_type(config.overlaid({"layer_types": None, "head_dim": width}), all_full, BUILDERS)
