"""SGLang's server flags that change a byte of its pools, under their own names with `_`."""

from __future__ import annotations

from kvcalc.engines.base.engine import Setting

#: The backends of `--attention-backend` for NVIDIA cards (arg_groups/choices.py).
ATTENTION_BACKENDS = (
    "triton",
    "torch_native",
    "flex_attention",
    "dsa",
    "dsv4",
    "fa3",
    "fa4",
    "flashinfer",
    "flashmla",
    "trtllm_mla",
    "cutedsl_mla",
    "trtllm_mha",
    "hpc_ops",
)

SETTINGS = (
    Setting("page_size", "int", None, "tokens of a page; default by attention backend and model", least=1),
    Setting("mem_fraction_static", "float", None, "share of the free memory for weights and cache; default by card", least=0.0, most=1.0),
    Setting("max_total_tokens", "int", None, "most tokens in the pool", least=1),
    Setting("max_running_requests", "int", None, "most requests at once; default by pool size, 48 with speculation", least=1),
    Setting("chunked_prefill_size", "int", None, "tokens of a prefill chunk; default by card", least=-1),
    Setting("swa_full_tokens_ratio", "float", None, "tokens of the sliding pool for one of the full pool; 0.8, DeepSeek-V4 0.1", least=0.0),
    Setting("swa_prefix_tails", "int", None, "DeepSeek-V4.1: cached prefixes that the sliding pool keeps room for", least=0),
    Setting("disable_hybrid_swa_memory", "bool", default=False, about="store sliding layers in full length"),
    Setting("disable_radix_cache", "bool", default=False, about="no prefix cache"),
    Setting("disable_overlap_schedule", "bool", default=False, about="no overlap of the scheduler with the model"),
    Setting("attention_backend", "str", None, "attention kernels; they decide the page size", ATTENTION_BACKENDS),
    Setting("max_mamba_cache_size", "int", None, "slots of recurrent state", least=1),
    Setting("mamba_full_memory_ratio", "float", 0.9, "memory for recurrent state for one of the key and value pool", least=0.0),
    Setting("mamba_ssm_dtype", "str", None, "type of the recurrent state", ("float32", "bfloat16", "float16")),
    Setting(
        "mamba_radix_cache_strategy",
        "str",
        "auto",
        "how cached prefixes keep recurrent state",
        ("auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"),
    ),
    Setting("mamba_track_interval", "int", 256, "tokens between two snapshots of recurrent state, in whole pages", least=1),
    Setting("speculative_algorithm", "str", None, "speculation with the model's own next-token layers", ("EAGLE", "NEXTN")),
    Setting("speculative_num_draft_tokens", "int", None, "tokens verified at once; turns speculation on", least=1),
    Setting("speculative_draft_model_path", "str", None, "the model itself, by its name: its next-token layers are then read as a draft"),
    Setting("dp_size", "int", 1, "with enable_dp_attention: groups of ranks that serve their own requests", least=1),
    Setting("enable_dp_attention", "bool", default=False, about="attention data parallelism over dp_size groups"),
    Setting("attn_dp_size", "int", 1, "the same in one flag", least=1),
    Setting("enable_hierarchical_cache", "bool", default=False, about="a second tier of the cache in host memory"),
    Setting("hicache_ratio", "float", None, "host tokens for one device token; 2.0", least=0.0),
    Setting("hicache_size", "int", 0, "gigabytes (10^9 B) of host cache a rank, instead of hicache_ratio", least=0),
)

#: A setting of kvcalc → the flag of the server that has the same values.
SERVER_FLAGS = {
    "context": "--context-length",
    "tensor_parallel": "--tp-size",
    "pipeline_parallel": "--pp-size",
    "utilization": "--mem-fraction-static",
}
