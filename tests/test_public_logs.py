"""What real engines printed for real models, in public, against kvcalc's figures: a truth that nobody here worked out.

Every row is a figure of a start-up log that somebody published, with the settings printed beside it; the figure is compared at the
resolution of its print. Memory in GiB is the engine's own budget, and stands for the half of a hundredth around it. Settings that the
publication leaves open but the log decides (a card that is no Hopper, blocks of 128 on an NPU) are given, and a log that does not
name its model stands under the one whose dimensions it prints. Where a release printed another meaning of the line (vLLM's tokens up
to 0.20), only the figures that kept theirs are here: the concurrency, the block.

A source is a repository and an issue, or the title of a page; "log" is a start-up log in a public repository that names neither.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import largest_context
from kvcalc.sources import load

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

GIB, MIB = 1024**3, 1024**2

#: Models that the catalogue does not have: the dimensions of their config.json that a cache depends on.
CONFIGS: dict[str, dict[str, Any]] = {
    "chatterbox-t3": {"model_type": "llama", "num_hidden_layers": 30, "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 64},
    "open-llama-3b": {"model_type": "llama", "num_hidden_layers": 26, "hidden_size": 3200, "num_attention_heads": 32},
    "nemotron-3-nano-4b": {
        "model_type": "nemotron_h",
        "num_hidden_layers": 42,
        "hybrid_override_pattern": "M" * 21 + "*" * 4 + "-" * 17,
        "hidden_size": 3136,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "mamba_num_heads": 96,
        "mamba_head_dim": 80,
        "ssm_state_size": 128,
        "n_groups": 8,
        "conv_kernel": 4,
    },
    "falcon-h1-3b": {
        "model_type": "falcon_h1",
        "num_hidden_layers": 32,
        "hidden_size": 2560,
        "num_attention_heads": 10,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "mamba_d_ssm": 4096,
        "mamba_n_heads": 32,
        "mamba_d_head": 128,
        "mamba_d_state": 256,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "falcon-h1-1.5b": {
        "model_type": "falcon_h1",
        "num_hidden_layers": 24,
        "hidden_size": 2048,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "mamba_d_ssm": 3072,
        "mamba_n_heads": 48,
        "mamba_d_head": 64,
        "mamba_d_state": 256,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
    },
    "falcon-h1-34b": {
        "model_type": "falcon_h1",
        "num_hidden_layers": 72,
        "hidden_size": 5120,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "mamba_d_ssm": 4096,
        "mamba_n_heads": 32,
        "mamba_d_head": 128,
        "mamba_d_state": 256,
        "mamba_n_groups": 2,
        "mamba_d_conv": 4,
    },
    "glm-4-32b": {
        "model_type": "glm4",
        "num_hidden_layers": 61,
        "hidden_size": 6144,
        "num_attention_heads": 48,
        "num_key_value_heads": 2,
        "head_dim": 128,
    },
    "granite-4.0-h-micro": {
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 40,
        "layer_types": ["attention" if layer in (5, 15, 25, 35) else "mamba" for layer in range(40)],
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "mamba_n_heads": 64,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
    },
    "trinity-nano": {
        "model_type": "afmoe",
        "num_hidden_layers": 56,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "sliding_window": 2048,
        "global_attn_every_n_layers": 4,
    },
}
#: The keys of the released config.json of Qwen3.8-Flash-Next that a cache depends on.
CONFIGS["qwen3.8-flash-next.json"] = {
    "model_type": "qwen4_exp_text",
    "num_hidden_layers": 48,
    "hidden_size": 2560,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 12,
    "indexer_compress_ratio": 4,
    "indexer_head_dim": 128,
    "indexer_kv_heads": 1,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1,
    "ngram_size": 3,
    "ple_conv_kernel_size": 4,
    "ple_embed_dim": 2560,
    "ple_layer_ids": [2],
    "hc_count": 4,
    "max_position_embeddings": 262144,
}
#: Those of GLM-5.3-Flash.
CONFIGS["glm-5.3-flash.json"] = {
    "model_type": "glm5_next_text",
    "num_hidden_layers": 45,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "layer_types": [*[*["linear_attention"] * 3, "deepseek_sparse_attention"] * 11, "linear_attention"],
    "linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4},
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 256,
    "qk_rope_head_dim": 0,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
    "index_kpool": 4,
    "index_kpool_compress": True,
    "num_nextn_predict_layers": 1,
    "max_position_embeddings": 1048576,
}
#: And of Qwen3.5-0.8B.
CONFIGS["qwen3.5-0.8b.json"] = {
    "model_type": "qwen3_5_text",
    "num_hidden_layers": 24,
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 6,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 16,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1,
}
CONFIGS["laguna"] = {
    "model_type": "laguna",
    "num_hidden_layers": 48,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "sliding_window": 512,
    "layer_types": ["full_attention", *["sliding_attention"] * 3] * 12,
    "max_position_embeddings": 1048576,
}
CONFIGS["qwen3.5-92-layers"] = {
    "model_type": "qwen3_5_moe_text",
    "num_hidden_layers": 92,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "layer_types": [*["linear_attention"] * 3, "full_attention"] * 23,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 128,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "bfloat16",
}
DEEPSEEK_CODER_V2_LITE = {
    "gguf_metadata": {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 27,
        "deepseek2.context_length": 163840,
        "deepseek2.embedding_length": 2048,
        "deepseek2.attention.head_count": 16,
        "deepseek2.attention.head_count_kv": 16,
        "deepseek2.attention.key_length": 192,
        "deepseek2.attention.value_length": 128,
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.rope.dimension_count": 64,
    }
}
_WORKLOAD = ("context", "tensor_parallel", "pipeline_parallel", "kv_dtype", "gpu")


@cache
def architecture(model: str) -> Architecture:
    """A catalogue model, one of CONFIGS, or the GGUF file above."""
    if model == "deepseek-coder-v2-lite.gguf":
        return load(DEEPSEEK_CODER_V2_LITE)
    if model in CONFIGS:
        return load({"hf_config": {"torch_dtype": "bfloat16", "max_position_embeddings": 131072, **CONFIGS[model]}})
    return load(model)


def workload(settings: dict[str, Any]) -> Workload:
    asked = {name: value for name, value in settings.items() if name in _WORKLOAD}
    return Workload(**asked, engine_args={name: value for name, value in settings.items() if name not in _WORKLOAD})


# --- vLLM ------------------------------------------------------------------------------------------------------------------------


class Start(NamedTuple):
    """One start of vLLM: the memory that it printed for the cache, and what it made of it."""

    model: str
    context: int
    memory: float
    settings: dict[str, Any]
    printed: dict[str, float]
    source: str


RTX5090, RTX3090, A100 = {"gpu": "rtx5090-32gb"}, {"gpu": "rtx3090-24gb"}, {"gpu": "a100-80gb"}
FP8, TP2, UNCACHED = {"kv_dtype": "fp8"}, {"tensor_parallel": 2}, {"enable_prefix_caching": False}


def mtp(tokens: int) -> dict[str, Any]:
    return {"speculative_method": "mtp", "num_speculative_tokens": tokens}


STARTS = [
    # full attention in every layer
    Start("llama-3.1-8b", 128_000, 26.54, {}, {"tokens": 217_376, "concurrency": 1.70}, "vLLM, log of 2026-02"),
    Start("llama-3.1-8b", 131_072, 85.79, {}, {"tokens": 702_800, "concurrency": 5.36}, "vLLM, log of 2025-09"),
    Start(
        "llama-3.1-8b",
        131_072,
        51.63,
        {"speculative_method": "eagle", "num_speculative_tokens": 4},
        {"tokens": 410_128, "concurrency": 3.13},
        "vLLM, an issue on speculation with prefix caching, 2025-06",
    ),
    Start("llama-3.1-8b", 20_000, 3.81, {}, {"concurrency": 1.56}, "vllm-project/vllm issue 10517, a first comment, vLLM 0.6"),
    Start("llama-3.1-8b", 29_000, 2.89, {}, {"concurrency": 0.82}, "vllm-project/vllm issue 10517, a first comment, vLLM 0.6"),
    Start("llama-3.1-70b", 8192, 20.16, TP2, {"tokens": 132_128, "concurrency": 16.13}, "vLLM, log of 2026-03"),
    Start("qwen2.5-1.5b", 1024, 0.67, {}, {"tokens": 25_008, "concurrency": 24.42}, "notes on a card of 4 GiB, 2026-09"),
    Start("qwen2.5-1.5b", 8192, 0.20, {}, {"longest": 7440}, "the same notes"),
    Start("qwen2.5-3b", 16_384, 13.48, {}, {"tokens": 392_576, "concurrency": 23.96}, "vLLM under Unsloth, log of 2025-09"),
    Start("qwen2.5-7b", 8192, 11.92, {}, {"tokens": 223_152}, "vLLM 0.24.0, log"),
    Start("qwen2.5-7b", 118_000, 6.11, {}, {"longest": 114_432}, "vLLM for Intel cards, guide to Qwen2.5-VL-7B"),
    Start("qwen2.5-14b", 16_384, 1.87, {}, {"longest": 10_224}, "vLLM, log of 2026-02"),
    Start("qwen2.5-32b", 4096, 0.58, {}, {"longest": 2368}, "vLLM, frontier of Qwen2.5-32B-Instruct-AWQ on one card, 2026-08"),
    Start("qwen3-0.6b", 8192, 8.03, {}, {"tokens": 75_152, "concurrency": 9.17}, "vLLM, log of 2026-04"),
    Start("qwen3-8b", 1024, 8.60, {}, {"tokens": 62_608, "concurrency": 61.14}, "vLLM, log of 2025-09"),
    Start("qwen3-8b", 40_960, 2.40, {}, {"longest": 17_472}, "vLLM, log of 2026-10"),
    Start(
        "qwen3-32b",
        32_768,
        6.92,
        {"pipeline_parallel": 2},
        {"tokens": 56_640, "concurrency": 1.73},
        "a comparison of tensor and pipeline parallelism on two cards",
    ),
    Start("qwen3-30b-a3b", 32_768, 25.91, TP2, {"tokens": 566_016, "concurrency": 17.27}, "vLLM 0.10.2, notes on Qwen3-30B-A3B-FP8"),
    Start("qwen3-30b-a3b", 32_768, 4.04, FP8, {"tokens": 88_176, "concurrency": 2.69}, "vLLM on a DGX Spark, log of 2026-03"),
    Start("qwen3-30b-a3b", 262_144, 3.18, {}, {"longest": 34_736}, "vllm-project/vllm issue 34076"),
    Start("qwen3-30b-a3b", 100_000, 10.55, FP8, {"tokens": 230_528, "concurrency": 2.31}, "vllm-project/vllm issue 25350"),
    Start("qwen3-30b-a3b", 221_000, 5.59, FP8, {"longest": 122_080}, "vllm-project/vllm issue 25350"),
    Start("qwen3-coder-480b-a35b", 262_144, 48.66, {}, {"longest": 205_728}, "vllm-project/recipes pull request 12, vLLM 0.10.1"),
    Start("qwen3-coder-480b-a35b", 262_144, 55.65, {}, {"longest": 235_296}, "vllm-project/recipes pull request 12, vLLM 0.10.1"),
    Start("qwen3-vl-2b", 262_144, 13.69, {}, {"longest": 128_128}, "vLLM on SageMaker HyperPod, notes on Qwen3-VL"),
    Start("qwen3-vl-8b", 65_536, 38.41, {**TP2, "block_size": 128}, {"tokens": 559_232}, "vLLM on Ascend, notes on profiling"),
    Start("qwen3-vl-32b", 262_144, 20.06, {**TP2, "block_size": 128}, {"longest": 164_224}, "vLLM on Ascend, notes"),
    Start("minimax-m2.5", 196_608, 12.57, {}, {"tokens": 53_136}, "guqiong96/Lvllm issue 35"),
    Start("minimax-m2.7", 196_608, 22.50, TP2, {"longest": 190_272}, "eugr/spark-vllm-docker issue 396, vLLM 0.29.1"),
    Start("minimax-m2.7", 204_800, 24.85, {}, {"longest": 105_056}, "an issue on MiniMax-M2.7 with CPU offload, 2026-05"),
    Start("chatterbox-t3", 1200, 11.78, {}, {"tokens": 102_880, "concurrency": 85.73}, "vLLM under Chatterbox, log"),
    # latents and compressed attention
    Start(
        "deepseek-v3", 163_840, 46.80, {"tensor_parallel": 8}, {"tokens": 715_072}, "vLLM on Ascend, guide to decode context parallelism"
    ),
    Start(
        "deepseek-v4-flash",
        131_072,
        77.53,
        FP8,
        {"tokens": 1_513_358, "concurrency": 11.55},
        "reinforcement learning with DeepSeek-V4-Flash at 131k, attempt 3",
    ),
    # windows
    Start("gpt-oss-120b", 131_072, 4.06, {"async_scheduling": False}, {"longest": 109_776}, "vLLM on an H100, notes of 2025"),
    Start(
        "gemma-4-26b-a4b",
        32_768,
        11.67,
        {**FP8, **UNCACHED, "gpu": "l40s-48gb", "max_num_batched_tokens": 16_384, "max_num_seqs": 32, "async_scheduling": False},
        {"tokens": 193_624},
        "vllm-project/vllm issue 41789, vLLM 0.20.2",
    ),
    Start("gemma-3-1b", 2048, 25.39, {}, {"concurrency": 461.21}, "vLLM, log of 2026-01, the dimensions of Gemma-3-1B"),
    # recurrent layers
    Start(
        "qwen3-next-80b-a3b",
        262_144,
        44.59,
        {**TP2, **UNCACHED, "gpu": "h200-141gb"},
        {"concurrency": 14.77},
        "vLLM on two H200, log of 2025-10",
    ),
    Start(
        "qwen3.5-9b", 262_144, 20.27, {"gpu": "l40s-48gb", **UNCACHED}, {"concurrency": 2.52, "block": 528}, "vLLM 0.19.0 on an L40S, notes"
    ),
    Start("qwen3.5-9b", 16_384, 4.24, {**FP8, **RTX5090}, {"concurrency": 11.91}, "vLLM, log of 2026-03"),
    Start("qwen3.5-35b-a3b", 32_768, 5.69, {**FP8, **RTX5090}, {"concurrency": 12.91}, "vLLM, log of 2026-03"),
    Start(
        "qwen3.6-35b-a3b",
        131_072,
        5.98,
        {**FP8, **RTX5090, "max_num_batched_tokens": 8192, "max_num_seqs": 1},
        {"tokens": 567_978, "concurrency": 4.33},
        "noonghunna/club-3090 issue 612, vLLM 0.24.0",
    ),
    Start(
        "qwen3.6-35b-a3b",
        131_072,
        6.01,
        {**FP8, **RTX5090, "max_num_batched_tokens": 8192, "max_num_seqs": 1},
        {"tokens": 569_878, "concurrency": 4.35},
        "noonghunna/club-3090 issue 652, vLLM 0.24.0",
    ),
    Start(
        "qwen3.6-35b-a3b",
        262_144,
        64.69,
        {**FP8, **RTX5090, **mtp(3)},
        {"tokens": 5_463_232, "concurrency": 20.84},
        "vLLM, three draft tokens, log of 2026-05",
    ),
    Start("qwen3.6-27b", 32_768, 6.67, {**FP8, **RTX5090}, {"concurrency": 5.15, "block": 1568}, "vLLM, log of 2026-05"),
    Start("qwen3.6-27b", 65_536, 48.80, RTX5090, {"concurrency": 11.32}, "vLLM, notes on 25 games at once"),
    Start(
        "qwen3.6-27b",
        262_144,
        48.60,
        {**FP8, **RTX5090, **mtp(2)},
        {"tokens": 1_394_129, "concurrency": 5.32},
        "vLLM, two draft tokens, log of 2026-07",
    ),
    # Qwen3.8-27B has the dimensions of Qwen3.6-27B
    Start("qwen3.6-27b", 262_144, 19.54, A100, {"tokens": 313_650, "concurrency": 1.20}, "vLLM validation receipts of Qwen3.8-27B on ROCm"),
    Start(
        "qwen3.6-27b",
        262_144,
        12.29,
        {**TP2, **A100, **mtp(2)},
        {"tokens": 364_688, "concurrency": 1.39, "block": 800},
        "256k-context prefill OOM on Qwen3.8-27B, run 4",
    ),
    Start(
        "qwen3.6-27b", 262_144, 12.93, {**TP2, **A100}, {"tokens": 415_125, "block": 784}, "256k-context prefill OOM on Qwen3.8-27B, run 5"
    ),
    Start(
        "qwen3.6-27b",
        131_072,
        4.99,
        {**FP8, **TP2, **RTX3090, "max_num_batched_tokens": 8192},
        {"tokens": 302_921, "concurrency": 2.31},
        "mitchross/talos-argocd-proxmox pull request 1995",
    ),
    Start(
        "qwen3.6-27b",
        262_144,
        12.52,
        {**FP8, **TP2, **RTX5090, **mtp(3)},
        {"tokens": 705_884, "concurrency": 2.69},
        "noonghunna/club-3090 issue 998",
    ),
    Start(
        "qwen3.6-27b",
        262_144,
        15.52,
        {**FP8, **TP2, **RTX5090, **mtp(3)},
        {"tokens": 875_765, "concurrency": 3.34},
        "noonghunna/club-3090 issue 1026",
    ),
    Start(
        "qwen3.6-27b",
        262_144,
        11.08,
        {**FP8, **TP2, **RTX3090, **mtp(3)},
        {"tokens": 623_873, "concurrency": 2.38},
        "noonghunna/club-3090 issue 142, vLLM 0.20.2",
    ),
    Start(
        "qwen3.6-27b",
        262_144,
        11.05,
        {**FP8, **TP2, **RTX3090, **mtp(3)},
        {"tokens": 623_873, "concurrency": 2.38},
        "noonghunna/club-3090 issue 642, vLLM 0.24.0",
    ),
    Start(
        "qwen3.5-92-layers",
        10_240,
        46.50,
        {**UNCACHED, "gpu": "gb300-288gb"},
        {"tokens": 394_633, "concurrency": 38.54, "block": 1056},
        "vLLM on sixteen GB300, the memory report of a worker, 2026-08",
    ),
    Start(
        "qwen3.6-27b",
        65_536,
        44.57,
        {**FP8, **UNCACHED, **mtp(1), "gpu": "rtxpro6000-96gb"},
        {"concurrency": 18.06},
        "vLLM, 25 games at once with Qwen3.8-27B in FP8",
    ),
    # releases of 2025 aligned the blocks of a hybrid with latents to 64, and so to 960
    Start(
        "kimi-linear-48b-a3b",
        120_000,
        2.30,
        {**TP2, **RTX3090, **UNCACHED, "block_size": 960},
        {"concurrency": 2.48},
        "vllm-project/vllm issue 28228",
    ),
    Start(
        "nemotron-3-nano-4b",
        8192,
        11.15,
        {**FP8, **UNCACHED, "mamba_ssm_cache_dtype": "float16"},
        {"concurrency": 98.20, "block": 992},
        "vLLM 0.13.0 on a DGX Spark, log",
    ),
    Start(
        "falcon-h1-3b",
        2048,
        5.28,
        {**UNCACHED, "max_num_seqs": 8, "gpu": "rtx5060ti-16gb"},
        {"concurrency": 41.50, "block": 2080},
        "vLLM 0.12.0 on an RTX 5060 Ti, local smoke test",
    ),
    Start(
        "zamba2-2.7b",
        2048,
        6.16,
        {**UNCACHED, "max_num_seqs": 8, "gpu": "rtx5060ti-16gb"},
        {"concurrency": 15.27, "block": 48},
        "vLLM 0.12.0 on an RTX 5060 Ti, local smoke test",
    ),
]


@pytest.mark.parametrize("start", STARTS, ids=lambda start: f"{start.model}-{start.memory}")
def test_vllm_makes_of_its_memory_what_it_printed(start: Start) -> None:
    engine, model = get_engine("vllm"), architecture(start.model)
    asked = workload({"context": start.context, **start.settings})
    least, most = (engine.fitting(model, asked, int((start.memory + half) * GIB)) for half in (-0.005, 0.005))
    low, high = least.capacity(start.context), most.capacity(start.context)
    known = {
        "tokens": (low.tokens, high.tokens),
        "concurrency": ((low.concurrency or 0) - 0.005, (high.concurrency or 0) + 0.005),
        "block": (low.block_size, high.block_size),
    }
    if "longest" in start.printed:
        known["longest"] = tuple(largest_context(model, asked, fitting, beyond=True) for fitting in (least, most))
    for figure, printed in start.printed.items():
        assert known[figure][0] <= printed <= known[figure][1], (figure, known[figure], start.source)


#: What one request of full length needs, in GiB, as vLLM's refusal says it.
NEEDED = [
    ("qwen2.5-1.5b", 8192, 0.22, {}, "notes on a card of 4 GiB, 2026-09"),
    ("qwen2.5-7b", 118_000, 6.30, {}, "vLLM for Intel cards, guide to Qwen2.5-VL-7B"),
    ("qwen2.5-14b", 16_384, 3.00, {}, "vLLM, log of 2026-02"),
    ("qwen2.5-32b", 4096, 1.00, {}, "vLLM, frontier of Qwen2.5-32B-Instruct-AWQ on one card, 2026-08"),
    ("qwen3-8b", 40_960, 5.62, {}, "vLLM, log of 2026-10"),
    ("qwen3-32b", 40_960, 10.00, {}, "vLLM, notes on RedHatAI/Qwen3-32B-quantized.w4a16"),
    ("qwen3-30b-a3b", 262_144, 24.00, {}, "vllm-project/vllm issue 34076"),
    ("qwen3-30b-a3b", 221_000, 10.12, FP8, "vllm-project/vllm issue 25350"),
    ("qwen3-coder-480b-a35b", 262_144, 62.00, {}, "vllm-project/recipes pull request 12, vLLM 0.10.1"),
    ("qwen3-vl-2b", 262_144, 28.00, {}, "vLLM on SageMaker HyperPod, notes on Qwen3-VL"),
    ("qwen3-vl-32b", 262_144, 32.00, TP2, "vLLM on Ascend, notes"),
    ("minimax-m2.7", 196_608, 23.25, TP2, "eugr/spark-vllm-docker issue 396, vLLM 0.29.1"),
    ("minimax-m2.7", 204_800, 48.44, {}, "an issue on MiniMax-M2.7 with CPU offload, 2026-05"),
    ("gpt-oss-120b", 131_072, 4.79, {"async_scheduling": False}, "vLLM on an H100, notes of 2025"),
]


@pytest.mark.parametrize(("model", "context", "gib", "settings", "source"), NEEDED, ids=[f"{row[0]}-{row[1]}" for row in NEEDED])
def test_vllm_needs_what_its_refusal_said(model: str, context: int, gib: float, settings: dict[str, Any], source: str) -> None:
    plan = get_engine("vllm").plan(architecture(model), workload({"context": context, **settings}))
    assert abs(plan.per_device / GIB - gib) <= 0.005 + 1e-9, source


#: Tokens that were printed without the memory, and the block size where it was: they are whole blocks at kvcalc's blocks a request.
WHOLE = [
    ("qwen3.8-flash-next.json", 8192, 260_006, 1600, {"gpu": "dgx-spark-128gb", **mtp(2)}, "vllm-project/vllm issue 54458"),
    ("qwen3.8-flash-next.json", 262_144, 1_077_542, 1600, {"gpu": "dgx-spark-128gb", **mtp(2)}, "vllm-project/vllm issue 54426"),
    ("qwen3.8-flash-next.json", 262_144, 780_638, 1600, {"gpu": "dgx-spark-128gb", **mtp(2)}, "vllm-project/vllm issue 54426"),
    ("qwen3.6-27b", 1_048_576, 1_823_372, None, {"kv_dtype": "nvfp4", "gpu": "rtxpro6000-96gb"}, "vllm-project/vllm issue 49011"),
    (
        "qwen3.6-27b",
        262_144,
        619_479,
        None,
        {**TP2, **RTX3090, **mtp(3), "kv_dtype": "fp8_e5m2"},
        "noonghunna/club-3090 issue 91, vLLM 0.20.1",
    ),
    ("qwen3.6-27b", 262_144, 622_408, None, {**TP2, **RTX3090, **mtp(3), "kv_dtype": "fp8_e5m2"}, "noonghunna/club-3090 issue 294"),
    ("qwen3.6-27b", 262_144, 377_456, None, {**TP2, **RTX5090}, "vllm-project/recipes pull request 810, Qwen3.8-27B in FP8"),
    ("qwen3.6-27b", 262_144, 445_875, None, {**TP2, **RTX5090}, "vllm-project/recipes pull request 810, Qwen3.8-27B in NVFP4"),
]


@pytest.mark.parametrize(("model", "context", "tokens", "block", "settings", "source"), WHOLE, ids=[f"{row[0]}-{row[2]}" for row in WHOLE])
def test_vllm_printed_whole_blocks(model: str, context: int, tokens: int, block: int | None, settings: dict[str, Any], source: str) -> None:
    """Tokens are blocks / blocks of a request x length: with another number of blocks a request, no number of blocks gives them."""
    pool = get_engine("vllm").fitting(architecture(model), workload({"context": context, **settings}), 0).pool
    needed = pool.request_blocks(context)
    blocks = -(-tokens * needed // context)
    assert int(blocks / needed * context) == tokens, source
    assert block in (None, pool.block_size), source


#: Tokens of a block, and by how many percent the recurrent page was padded to it.
ALIGNED = [
    ("qwen3.5-27b", RTX3090, 784, 0.13, "Qwen3.5-27B in INT4 on one card, log of 2026-04"),
    ("qwen3.5-35b-a3b", A100, 1056, 0.76, "Qwen3.5 with experts on ROCm, log of 2026-03"),
    ("qwen3.5-9b", A100, 528, None, "block sizes of a plugin that keeps blocks resident"),
    ("qwen3.5-9b", {**FP8, **RTX5090}, 1056, None, "block sizes of a plugin that keeps blocks resident"),
    ("qwen3.5-0.8b.json", RTX3090, 544, 2.64, "vLLM start-up of Qwen3.5-0.8B, line by line"),
    ("qwen3.6-35b-a3b", {**FP8, **RTX5090}, 2096, None, "Qwen3.6-35B-A3B in NVFP4 on one card, log of 2026-05"),
    ("qwen3.8-flash-next.json", {"gpu": "dgx-spark-128gb", **mtp(2)}, 1600, 0.88, "vllm-project/vllm issue 54458"),
    ("qwen3.8-flash-next.json", {"gpu": "dgx-spark-128gb", **TP2}, 1568, 0.13, "Qwen3.8-Flash-Next on two DGX Spark, attempt without MTP"),
    ("nemotron-3-nano-30b-a3b", {**FP8, **UNCACHED}, 4176, 0.19, "Nemotron-Cascade-2-30B-A3B on vLLM 0.19.0, log of 2026-04"),
    ("qwen3.5-92-layers", {**UNCACHED, "gpu": "gb300-288gb"}, 1056, 0.19, "vLLM on sixteen GB300, the memory report of a worker"),
    ("lfm2-1.2b", UNCACHED, 16, 300.00, "LFM2.5-1.2B on a C500, notes"),
]


@pytest.mark.parametrize(
    ("model", "settings", "block", "percent", "source"), ALIGNED, ids=[f"{row[0]}-{row[2]}-{len(row[1])}" for row in ALIGNED]
)
def test_vllm_pads_the_recurrent_page(model: str, settings: dict[str, Any], block: int, percent: float | None, source: str) -> None:
    pool = get_engine("vllm").fitting(architecture(model), workload({"context": 2048, **settings}), 0).pool
    pages = {(spec.row, spec.padded) for group in pool.groups for spec in group.specs if spec.kind == "recurrent"}
    row, padded = max(pages)
    assert pool.block_size == block, source
    if percent is not None:
        assert round(100 * (padded - row) / row, 2) == percent, source


#: Tokens of a block, cached layers, and groups where they were printed, as a cache server beside vLLM registered them.
BLOCKS = [
    (
        "glm-5.3-flash.json",
        {"tensor_parallel": 4},
        1152,
        67,
        6,
        "LMCache/LMCache pull request 5042; its groups: ModelEngine-Group/unified-cache-management pull request 1371",
    ),
    ("qwen3.8-flash-next.json", {"tensor_parallel": 4, **A100}, 784, 73, None, "LMCache/LMCache pull request 5042"),
    ("qwen3.5-0.8b.json", RTX3090, 544, 24, 4, "LMCache/LMCache issue 4094"),
]


@pytest.mark.parametrize(("model", "settings", "block", "layers", "groups", "source"), BLOCKS, ids=[row[0] for row in BLOCKS])
def test_vllm_registered_blocks(model: str, settings: dict[str, Any], block: int, layers: int, groups: int | None, source: str) -> None:
    pool = get_engine("vllm").fitting(architecture(model), workload({"context": 8192, **settings}), 0).pool
    assert (pool.block_size, sum(len(group.layers) for group in pool.groups)) == (block, layers), source
    assert groups in (None, len(pool.groups)), source


# --- llama.cpp and Ollama --------------------------------------------------------------------------------------------------------

ONE, FOUR = {"parallel": 1}, {"parallel": 4, "kv_unified": True}


def cached(form: str) -> dict[str, Any]:
    return {"cache_type_k": form, "cache_type_v": form}


#: Model, settings, MiB of each attention cache, MiB of the recurrent state, source.
CACHES: list[tuple[str, dict[str, Any], list[float], float | None, str]] = [
    ("llama-3.1-8b", {"ctx_size": 4096, **ONE, **cached("q8_0")}, [272.00], None, "llama-cpp-python guide to flash attention"),
    ("llama-3.1-405b", {"ctx_size": 4096, **ONE}, [2016.00], None, "llama.cpp over RPC, log of 2025-08"),
    ("llama-3.2-1b", {"ctx_size": 1024, **ONE}, [32.00], None, "llama.cpp on Android, log of 2025-08"),
    ("llama-3.2-3b", {"ctx_size": 1024, **ONE}, [112.00], None, "llama.cpp on Android, log of 2025-08"),
    ("mistral-7b-v0.3", {"ctx_size": 8192, **ONE}, [1024.00], None, "llama.cpp, log of 2025-05"),
    ("phi-3-mini-4k", {"ctx_size": 4096, **ONE}, [1536.00], None, "llama.cpp, log of 2025-05"),
    ("open-llama-3b", {"ctx_size": 512, **ONE}, [162.50], None, "llama.cpp, log of 2023"),
    ("qwen3-235b-a22b", {"ctx_size": 4096, **ONE}, [752.00], None, "llama.cpp, notes on a quantized cache, 2026"),
    ("qwen3-vl-8b", {"ctx_size": 8192, **ONE}, [1152.00], None, "llama-server, UI-Venus-1.5-8B"),
    ("qwen3-vl-8b", {"ctx_size": 8192, **ONE, **cached("q8_0")}, [612.00], None, "llama-server, UI-Venus-1.5-8B"),
    (
        "deepseek-coder-v2-lite.gguf",
        {"ctx_size": 16_384, "parallel": 8, "kv_unified": False},
        [2592.00, 1728.00],
        None,
        "Ollama, K and V of deepseek-coder-v2:16b in eight slots, 2026-09",
    ),
    ("glm-4-32b", {"ctx_size": 5120, **ONE, **cached("q8_0")}, [162.03], None, "ikawrakow/ik_llama.cpp pull request 344"),
    ("gpt-oss-120b", {"ctx_size": 65_536, **FOUR}, [2304.00, 36.00], None, "llama.cpp, notes on packing layers"),
    ("gpt-oss-20b", {"ctx_size": 8192, **ONE, "ubatch_size": 128, **cached("q8_0")}, [102.00, 3.19], None, "llama.cpp on Hexagon, log"),
    (
        "gpt-oss-20b",
        {"ctx_size": 16_384, "parallel": 8, "kv_unified": False, "ubatch_size": 256},
        [384.00, 96.00],
        None,
        "llama.cpp in eight slots, 2026-09",
    ),
    ("gemma-4-12b", {"ctx_size": 8192, **FOUR, **cached("q8_0")}, [68.00, 765.00], None, "llama-server, where the memory of a card goes"),
    (
        "laguna",
        {"ctx_size": 1_048_576, **ONE, **cached("q4_0")},
        [13824.00, 40.50],
        None,
        "llama.cpp, Laguna at a million tokens, a test of ggrun",
    ),
    ("gemma-4-e2b", {"ctx_size": 8192, **FOUR, "ubatch_size": 2048}, [48.00, 48.00], None, "llama-server with Vulkan, log of 2026-08"),
    ("gemma-4-e4b", {"ctx_size": 32_768, **ONE}, [512.00, 40.00], None, "llama.cpp, notes on windowed layers"),
    ("gemma-4-e4b", {"ctx_size": 32_768, **ONE, "swa_full": True}, [512.00, 1280.00], None, "llama.cpp bindings on a DGX Spark, log"),
    ("trinity-nano", {"ctx_size": 131_072, **ONE}, [1792.00, 105.00], None, "llama-fit-params, Trinity-Nano-Preview"),
    ("falcon-h1-1.5b", {"ctx_size": 32_768, **ONE}, [768.00], 72.98, "GeniePod/genie-claw issue 410"),
    ("falcon-h1-34b", {"ctx_size": 4096, **ONE, **cached("f32")}, [1152.00], 292.22, "tiiuae/llama.cpp-Falcon-H1 issue 2"),
    ("qwen3.5-0.8b", {"ctx_size": 32_768, **ONE}, [384.00], 19.27, "llama.cpp, a comparison of cache types, 2026-10"),
    ("qwen3.5-0.8b", {"ctx_size": 32_768, **ONE, **cached("q8_0")}, [204.00], 19.27, "the same comparison"),
    ("qwen3.5-0.8b", {"ctx_size": 32_768, **ONE, **cached("q4_0")}, [108.00], 19.27, "the same comparison"),
    ("qwen3.5-9b", {"ctx_size": 135_168, **FOUR}, [4224.00], 201.00, "notes on TurboQuant and Qwen3.5, 2026-06"),
    ("qwen3.5-9b", {"ctx_size": 8192, **ONE}, [96.00, 160.00], 50.25, "llama-server over CPU and Vulkan, log of 2026-08"),
    ("qwen3.5-35b-a3b", {"ctx_size": 8192, **FOUR}, [], 251.25, "llama.cpp, notes on recurrent state"),
    ("qwen3.6-27b", {"ctx_size": 131_072, **FOUR, **cached("q8_0")}, [4352.00], 598.50, "llama-server, log of 2026-05"),
    (
        "qwen3.6-27b",
        {"ctx_size": 131_072, **FOUR, **cached("q8_0"), "mtp_context": True},
        [272.00],
        None,
        "the draft context of the same log",
    ),
    ("qwen3-next-80b-a3b", {"ctx_size": 131_072, **FOUR}, [3072.00], 301.50, "llama.cpp b9496 with Vulkan, measured against computed"),
    ("qwen3.6-35b-a3b", {"ctx_size": 65_536, "parallel": 2, "kv_unified": True}, [], 125.62, "llama-server, notes on two unified slots"),
    ("qwen3.6-27b", {"ctx_size": 24_576, **ONE}, [1536.00], 149.62, "Ollama's runner, qwen38-heretic"),
    ("qwen3.6-27b", {"ctx_size": 32_768, **ONE}, [2048.00], 149.62, "llama.cpp b10809, start-up smoke of Qwen3.8-27B"),
    ("qwen3.6-27b", {"ctx_size": 131_072, **ONE}, [8192.00], 149.62, "llama.cpp over CPU and CUDA, log"),
    (
        "qwen3.6-27b",
        {"ctx_size": 262_144, **ONE, "n_rs_seq": 6},
        [16384.00],
        1047.38,
        "llama.cpp with ROCm, Qwythos-27B with six draft tokens",
    ),
    ("qwen3.6-27b", {"ctx_size": 262_144, **ONE, "mtp_context": True}, [1024.00], None, "the draft context of the same log"),
    (
        "qwen3.6-27b",
        {"ctx_size": 8192, **FOUR, "n_rs_seq": 2},
        [512.00],
        1795.50,
        "llama-server with Vulkan, Qwen3.8-27B with two draft tokens",
    ),
    ("qwen3.6-27b", {"ctx_size": 8192, **ONE, "n_rs_seq": 2}, [512.00], 448.88, "llama-server, Qwen3.8-27B with two draft tokens"),
    ("qwen3.6-27b", {"ctx_size": 8192, **FOUR, "n_rs_seq": 12}, [], 7780.50, "llama-server, Qwen3.8-27B with twelve draft tokens"),
    ("qwen3.8-flash-next", {"ctx_size": 262_144, **ONE}, [], 112.57, "waired-ai/waired-agent issue 1192, Ollama 0.33.3"),
]


def sizes(engine: str, model: str, settings: dict[str, Any]) -> tuple[float, float]:
    """MiB of attention caches and of recurrent state."""
    lines = get_engine(engine).plan(architecture(model), workload(settings)).lines
    recurrent = sum(line.bytes for line in lines if line.fixed and line.format == "fp32")
    return (sum(line.bytes for line in lines) - recurrent) / MIB, recurrent / MIB


@pytest.mark.parametrize(
    ("model", "settings", "attention", "recurrent", "source"),
    CACHES,
    ids=[f"{row[0]}-{row[1]['ctx_size']}-{len(row[1])}" for row in CACHES],
)
def test_llama_cpp_allocates_what_it_printed(
    model: str, settings: dict[str, Any], attention: list[float], recurrent: float | None, source: str
) -> None:
    ours, state = sizes("llama.cpp", model, settings)
    if attention:
        assert abs(ours - sum(attention)) <= 0.005 * len(attention) + 1e-9, source
    if recurrent is not None:
        assert abs(state - recurrent) <= 0.005 + 1e-9, source


def test_ollama_allocates_what_its_runner_printed() -> None:
    """Qwen2.5-7B at Ollama's default of 4,096 tokens: 224.00 MiB (log of 2026-05)."""
    assert sizes("ollama", "qwen2.5-7b", {"context": 4096}) == (224.0, 0.0)


# --- SGLang ----------------------------------------------------------------------------------------------------------------------

E4M3 = {"kv_dtype": "fp8_e4m3"}
#: Model, tokens, settings, GiB that one rank prints: key (value is alike), latent, conv, recurrent, both (of two pools); source.
POOLS: list[tuple[str, int, dict[str, Any], dict[str, float], str]] = [
    ("tinyllama-1.1b", 420_200, {}, {"key": 4.41}, "SGLang on a Jetson, log"),
    ("llama-3.1-8b", 444_500, {}, {"key": 27.13}, "SGLang, log of 2025-01"),
    ("qwen2.5-0.5b", 20_480, {}, {"key": 0.12}, "SGLang, log of 2026-02"),
    ("qwen3-32b", 903_439, {"tensor_parallel": 8}, {"key": 13.79}, "SGLang on eight GPUs, log of 2025-09"),
    ("deepseek-v3", 274_934, {}, {"latent": 17.99}, "sgl-project/sglang, an issue on 64k inputs, 2025-05"),
    ("deepseek-v3", 524_288, E4M3, {"latent": 17.16}, "DeepSeek-R1 with attention data parallelism, log of 2025-11"),
    ("kimi-k2", 2_659_072, {**E4M3, "tensor_parallel": 8}, {"latent": 87.01}, "SGLang on eight GPUs, log of 2026-05"),
    ("kimi-k2.5", 2_454_421, {"tensor_parallel": 8}, {"latent": 160.63}, "SGLang on eight GPUs, log of 2026-02"),
    ("kimi-k2.6", 209_413, {"tensor_parallel": 8}, {"latent": 13.71}, "Kimi-K2.6 with LoRA on SGLang, 2026-05"),
    ("glm-4.7-flash", 383_872, {}, {"latent": 19.36}, "GLM-4.7-Flash on two NPUs, guide of 2026-03"),
    ("glm-5", 3_262_823, {**E4M3, "tensor_parallel": 8}, {"latent": 186.77}, "SGLang on eight GPUs, log of 2026-02"),
    ("glm-5", 131_072, E4M3, {"latent": 7.51}, "SGLang, split of DSA's CUDA graphs, 2026-07"),
    ("ling-3.0-flash", 1_912_896, {}, {"latent": 14.37}, "SGLang, guide to a BailingMoeV3 model, 2026-08"),
    ("gemma-4-26b-a4b", 213_761, {"window": 171_008}, {"both": 36.69}, "SGLang on a DGX Spark, notes of 2026-08"),
    ("gemma-4-26b-a4b", 67_840, {"window": 54_272, "page_size": 256}, {"both": 11.70}, "SGLang, DiffusionGemma on a DGX Spark"),
    ("gemma-4-26b-a4b", 37_081, {"window": 29_664, **E4M3}, {"both": 3.18}, "SGLang, notes on retractions, 2026-10"),
    (
        "granite-4.0-h-micro",
        399_740,
        {"max_mamba_cache_size": 38},
        {"key": 1.52, "conv": 0.03, "recurrent": 2.74},
        "sgl-project/sglang, pull request for Granite 4.0, 2026-02",
    ),
    (
        "nemotron-nano-9b-v2",
        2_618_868,
        {"max_mamba_cache_size": 48},
        {"key": 19.98, "conv": 0.09, "recurrent": 6.46},
        "SGLang with multiplexed prefill, log of 2026-09",
    ),
    (
        "nemotron-3-nano-30b-a3b",
        1_557_504,
        {"max_mamba_cache_size": 8, "tensor_parallel": 4},
        {"key": 2.23, "conv": 0.00, "recurrent": 0.10},
        "SGLang on four XPUs, run 3",
    ),
    (
        "nemotron-3-nano-30b-a3b",
        19_644_177,
        {"max_mamba_cache_size": 2211, "tensor_parallel": 4, **E4M3},
        {"key": 14.05, "conv": 0.44, "recurrent": 24.84},
        "SGLang, Nemotron Omni on four GPUs, 2026-10",
    ),
    (
        "qwen3.5-9b",
        327_310,
        {"max_mamba_cache_size": 186, "tensor_parallel": 2},
        {"key": 2.50, "conv": 0.10, "recurrent": 4.38},
        "SGLang on two GPUs, log of 2026-04",
    ),
    (
        "qwen3.5-9b",
        295_950,
        {"max_mamba_cache_size": 64},
        {"key": 4.52, "conv": 0.07, "recurrent": 3.05},
        "SGLang, start-up memory, 2026-10",
    ),
    ("qwen3.5-35b-a3b", 4096, {"max_mamba_cache_size": 32}, {"key": 0.04, "conv": 0.05, "recurrent": 1.93}, "SGLang on Strix Halo, notes"),
    (
        "qwen3.6-27b",
        228_520,
        {"max_mamba_cache_size": 360, **E4M3},
        {"key": 3.49, "conv": 0.99, "recurrent": 50.77},
        "SGLang, Qwen3.8-27B-NVFP4 on a DGX Spark",
    ),
    (
        "qwen3.6-27b",
        171_008,
        {"max_mamba_cache_size": 43, "mamba_ssm_dtype": "bfloat16"},
        {"key": 5.22, "conv": 0.12, "recurrent": 3.09},
        "SGLang 0.5.17 with an EAGLE draft, boot log of 2026-08",
    ),
    (
        "qwen3.8-flash-next",
        240_128,
        {"max_mamba_cache_size": 48, "mamba_ssm_dtype": "bfloat16", **E4M3},
        {"key": 1.37, "conv": 0.10, "recurrent": 2.58},
        "SGLang with a hierarchical cache, log of 2026-10",
    ),
]


@pytest.mark.parametrize(("model", "tokens", "settings", "printed", "source"), POOLS, ids=[f"{row[0]}-{row[1]}" for row in POOLS])
def test_sglang_allocates_what_it_printed(
    model: str, tokens: int, settings: dict[str, Any], printed: dict[str, float], source: str
) -> None:
    """Pools hold a page more than their tokens, and states a slot more, which the print counts."""
    given = {name: value for name, value in settings.items() if name != "window"} | {"context": 1, "max_total_tokens": tokens}
    window = settings.get("window", 0)
    if window:
        given["swa_full_tokens_ratio"] = window / tokens + 1e-9
    asked = workload(given)
    plan = get_engine("sglang").plan(architecture(model), asked)
    page, slots = plan.args["page_size"], settings.get("max_mamba_cache_size", 1)
    found = dict.fromkeys(("key", "latent", "conv", "recurrent", "both"), 0.0)
    for line in plan.lines:
        role = {"index": "latent"}.get(line.buffer, line.buffer)
        held, spare = (
            (slots, 1) if role in ("conv", "recurrent") else (window if line.state == "sliding" else plan.args["max_total_tokens"], page)
        )
        size = line.bytes * (held + spare) / held / asked.devices / GIB if line.state != "padding" else 0.0
        found[role] = found.get(role, 0.0) + size
        found["both"] += size if role in ("key", "value") else 0.0
    for role, gib in printed.items():
        assert abs(found[role] - gib) <= 0.005, (role, found[role], source)


# --- TensorRT-LLM ----------------------------------------------------------------------------------------------------------------

#: Model, tokens, settings, bytes or GiB of the pool, source.
PAGED: list[tuple[str, int, dict[str, Any], int | float, str]] = [
    ("llama-2-7b", 132_608, {}, 69_524_783_104, "NVIDIA/TensorRT-LLM issue 1400, a 7B model, release 0.8"),
    ("llama-3.1-8b", 12_800, {}, 1.56, "a voice assistant on TensorRT-LLM 1.2.1, notes"),
    ("qwen3-0.6b", 643_136, {}, 68.69, "TensorRT-LLM on an H100, Qwen3-Reranker-0.6B"),
    ("tinyllama-1.1b", 3_731_744, {}, 78.30, "triton-inference-server/tutorials pull request 150"),
    ("smollm2-135m", 422_048, {}, 9.06, "TensorRT-LLM as a backend of lm7"),
    ("gpt-oss-120b", 8224, {"version": "1.2"}, 0.56, "TensorRT-LLM, log of 2025-12"),
    ("deepseek-r1", 16_576, {"kv_dtype": "fp8", "tokens_per_block": 64}, 0.54, "DeepSeek-R1 on TensorRT-LLM, log"),
    ("kimi-k2.5", 5_073_376, {"kv_dtype": "fp8"}, 166.02, "TensorRT-LLM at 262,144 tokens, log of 2026"),
]


@pytest.mark.parametrize(("model", "tokens", "settings", "size", "source"), PAGED, ids=[f"{row[0]}-{row[1]}" for row in PAGED])
def test_tensorrt_llm_allocates_what_it_printed(model: str, tokens: int, settings: dict[str, Any], size: float, source: str) -> None:
    plan = get_engine("tensorrt-llm").plan(architecture(model), workload({"context": tokens, **settings}))
    if isinstance(size, int):
        assert plan.per_device == size, source
    else:
        assert abs(plan.per_device / GIB - size) <= 0.005, source
