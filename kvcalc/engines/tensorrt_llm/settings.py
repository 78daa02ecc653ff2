"""TensorRT-LLM's options that change a byte of its cache: those of `kv_cache_config`, and two of the LLM itself."""

from __future__ import annotations

from kvcalc.engines.base.engine import Setting

VERSION = "main 2026-11 (source read)"

#: Tokens of a block where nothing else is said; DeepSeek-V4 has its own.
TOKENS_PER_BLOCK = 32
#: Share of the free memory that the cache takes (KvCacheConfig.free_gpu_memory_fraction).
FREE_FRACTION = 0.9

SETTINGS = (
    Setting("tokens_per_block", "int", None, "tokens of a block; 32, DeepSeek-V4 128", least=1),
    Setting("free_gpu_memory_fraction", "float", FREE_FRACTION, "share of the free memory that the cache takes", least=0.0),
    Setting("max_attention_window", "list", None, "window of each layer, repeated over the layers; without it all layers are kept in full"),
    Setting("max_tokens", "int", None, "most tokens in the cache", least=1),
    Setting("enable_attention_dp", "bool", default=False, about="every tensor parallel rank attends for its own requests"),
    Setting(
        "mamba_ssm_cache_dtype",
        "str",
        "auto",
        "type of the recurrent state; auto: the config's mamba_ssm_cache_dtype, else the model's type",
        ("auto", "float32", "bfloat16", "float16"),
    ),
    Setting(
        "max_batch_size", "int", None, "requests at once, for which recurrent state is kept; default: the sequences asked for", least=1
    ),
)
