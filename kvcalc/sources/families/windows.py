"""Sliding windows and chunks: which layers see only the last tokens.

`layer_types` of the file wins; each family has its own rule for files without it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcalc.sources.families import fields
from kvcalc.sources.families.layers import Layers, by_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.sources.config import Config
    from kvcalc.sources.families.layers import Builder, Reader, Rule
    from kvcalc.states import State

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"

BUILDERS: dict[str, Builder] = {FULL: fields.full, SLIDING: fields.sliding, CHUNKED: fields.chunked}


def where(is_full: Callable[[int], bool], other: str = SLIDING) -> Rule:
    """A rule that depends on the layer's number alone."""
    return lambda _config, count: [FULL if is_full(i) else other for i in range(count)]


def every(period: int) -> Rule:
    """Layer `period` - 1 of each `period` is full."""
    return where(lambda i: (i + 1) % period == 0)


def all_or_none(config: Config, count: int) -> list[str]:
    """Mistral, Mixtral, Phi-3, StarCoder2: every layer slides where `sliding_window` is not null."""
    return [FULL if config.get("sliding_window") is None else SLIDING] * count


def switched(config: Config, count: int) -> list[str]:
    """Qwen2, Qwen3: layers from `max_window_layers` on slide, where `use_sliding_window` says so."""
    first = config.integer("max_window_layers", least=0) if _switch(config) else count
    return [SLIDING if i >= first else FULL for i in range(count)]


def switched_before(config: Config, count: int) -> list[str]:
    """Qwen2-MoE: even layers before `max_window_layers` slide, where `use_sliding_window` says so."""
    last = config.integer("max_window_layers", least=0) if _switch(config) else 0
    return [SLIDING if i < last and (i + 1) % 2 else FULL for i in range(count)]


def _switch(config: Config) -> bool:
    return config.flag("use_sliding_window") and config.get("sliding_window") is not None


def periodic(config: Config, count: int, *, default: int = 6) -> list[str]:
    """Gemma 3, Cohere 2, EXAONE 4: `sliding_window_pattern` is a period whose last layer is full, or letters (L local, G global)."""
    if config.get("sliding_window") is None:
        return [FULL] * count
    pattern = config.get("sliding_window_pattern", "_sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= set("LG"):
        types = [FULL if pattern[i % len(pattern)] == "G" else SLIDING for i in range(count)]
        types[-1] = FULL
        return types
    period = default if pattern is None else config.checked(pattern, "sliding_window_pattern")
    return [SLIDING if (i + 1) % period else FULL for i in range(count)]


def beyond_reach(config: Config) -> tuple[State, ...]:
    """A window at least as long as the trained context never closes: it is nominal (Ministral-8B, Phi-3.5)."""
    window = fields.read_window(config)
    longest = config.optional("max_position_embeddings", least=1)
    return (fields.read_heads(config).sliding(window, nominal=longest is not None and window >= longest),)


def nominal(config: Config) -> tuple[State, ...]:
    """StarCoder2: the file's window is not part of the released model."""
    return (fields.read_heads(config).sliding(fields.read_window(config), nominal=True),)


def defaulted(config: Config) -> tuple[State, ...]:
    """EXAONE 4: the 1.2B has no window, and a file of it that leaves the key out gets one from the class."""
    return (fields.read_heads(config).sliding(fields.read_window(config), nominal="sliding_window" not in config.raw),)


def llama4(config: Config, count: int) -> list[str]:
    """Llama 4: layers with rotary embedding are chunked; every 4th has none and is full."""
    if config.get("attention_chunk_size") is None:
        return [FULL] * count
    listed = config.sequence("no_rope_layers")
    if listed:
        rotary = [bool(item) for item in config.sequence("no_rope_layers", length=count) or ()]
    else:
        interval = config.integer("no_rope_layer_interval", default=4)
        rotary = [bool((i + 1) % interval) for i in range(count)]
    return [CHUNKED if turned else FULL for turned in rotary]


def mimo(config: Config) -> Layers:
    """MiMo-V2: 0/1 `hybrid_layer_pattern` (1 = window), V narrower than K, and window layers with KV heads of their own.

    transformers' own files have no `swa_*` fields: there the window layers have twice the KV heads.
    """
    full_heads = fields.read_heads(config, value=("v_head_dim",))
    window_heads = fields.read_heads(
        config,
        query=("swa_num_attention_heads", *fields.QUERY_HEADS),
        kv=("swa_num_key_value_heads",),
        dim=("swa_head_dim", "head_dim"),
        value=("swa_v_head_dim", "v_head_dim"),
    )
    if not config.has("swa_num_key_value_heads"):
        window_heads = window_heads._replace(kv=2 * full_heads.kv)
    window = fields.read_window(config, *fields.WINDOW)
    builders: dict[str, Builder] = {FULL: lambda _: (full_heads.full(),), SLIDING: lambda _: (window_heads.sliding(window),)}
    return by_type(config, _mimo_rule, builders, draft=SLIDING)


def _mimo_rule(config: Config, count: int) -> list[str]:
    pattern = config.sequence("hybrid_layer_pattern", length=count)
    if pattern is not None:
        return [SLIDING if config.checked(item, "hybrid_layer_pattern", least=0) else FULL for item in pattern]
    return [FULL if i == 0 or (i + 1) % 6 == 0 else SLIDING for i in range(count)]


def _family(rule: Rule, sliding: Builder = fields.sliding) -> Reader:
    return partial(by_type, rule=rule, builders=BUILDERS | {SLIDING: sliding}, draft=FULL)


READERS: dict[str, Reader] = {
    **dict.fromkeys("mistral mixtral ministral ministral3 phi3 phimoe".split(), _family(all_or_none, beyond_reach)),
    "starcoder2": _family(all_or_none, nominal),
    **dict.fromkeys("qwen2 qwen3".split(), _family(switched)),
    "qwen2_moe": _family(switched_before),
    **dict.fromkeys("gemma2 gpt_oss".split(), _family(where(lambda i: i % 2 == 1))),
    "gemma3_text": _family(periodic),
    "cohere2": _family(partial(periodic, default=4)),
    "exaone4": _family(partial(periodic, default=4), defaulted),
    "olmo3": _family(every(4)),
    "llama4_text": _family(llama4),
    "mimo_v2_flash": mimo,
}
