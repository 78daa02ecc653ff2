"""`trtllm-serve`, main branch of 2026 (tensorrt_llm/commands/serve.py, llmapi/llm_args.py), its PyTorch backend.

`--config FILE` (`--extra_llm_api_options`) holds arguments of the LLM under their own names, which override the flags; what decides
bytes of the cache stands in its `kv_cache_config`. A key that stands in no table is named in a warning, as a flag is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.config_file import with_file
from kvcalc.engines.base.flags import (
    IDLE,
    Syntax,
    apply,
    asks,
    doubted,
    go_through,
    idle_flags,
    keeps,
    mappings,
    refused,
    settings,
    switches,
    values,
    weights,
)
from kvcalc.engines.base.reading import Reading, name, whole

if TYPE_CHECKING:
    from kvcalc.engines.base.launcher import Found

_TRANSLATED = {
    **values(keeps("revision", name), "--revision/--hf_revision"),
    **values(asks("context", whole), "--max_seq_len"),
    **values(asks("kv_dtype", name), "--kv_cache_dtype"),
    **values(asks("tensor_parallel", whole), "--tensor_parallel_size/--tp_size"),
    **values(asks("pipeline_parallel", whole), "--pipeline_parallel_size/--pp_size"),
}
_SETTINGS = settings("tensorrt-llm", shorts={"free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction"}, joint="_")
_REFUSED = {
    **values(refused("names more than one file"), "--config/--extra_llm_api_options"),
    **values(refused("starts a backend with other rules", unless=("pytorch",)), "--backend"),
    **values(refused("keeps a cache a beam", unless=("1",)), "--max_beam_width"),
    **values(refused("splits attention over contexts", unless=("1",)), "--context_parallel_size/--cp_size"),
    **values(refused("splits the work of a server over several"), "--server_role --disagg_cluster_uri --metadata_server_config_file"),
    **values(refused("loads code of its own"), "--custom_module_dirs"),
}
_EXPERTS = "spreads experts over ranks"
_DOUBTED = {
    **values(weights(_EXPERTS, unless=("1",)), "--moe_expert_parallel_size/--ep_size --moe_cluster_parallel_size/--cluster_size"),
}
_IDLE = idle_flags(__file__)
_CACHE = "--kv_cache_config"
#: Keys of the file alone: those of `kv_cache_config`, and arguments of the LLM that have no flag.
_FILE = {
    **mappings(IDLE, _CACHE),
    **values(asks("kv_dtype", name), f"{_CACHE}.dtype"),
    **{f"{_CACHE}.{setting}": _SETTINGS[f"--{setting}"] for setting in
       ("free_gpu_memory_fraction", "tokens_per_block", "max_attention_window", "max_tokens", "mamba_ssm_cache_dtype")},
    **values(doubted("adds a tier of the cache in host memory"), f"{_CACHE}.host_cache_size"),
    **values(refused("divides a card in another way"), f"{_CACHE}.max_gpu_total_bytes"),
    **switches(IDLE, f"{_CACHE}.enable_block_reuse {_CACHE}.enable_partial_reuse {_CACHE}.copy_on_partial_reuse {_CACHE}.onboard_blocks"),
    **values(IDLE, f"{_CACHE}.event_buffer_max_size {_CACHE}.secondary_offload_min_priority {_CACHE}.attention_dp_events_gather_period_ms"),
    **values(refused("speculates"), "--speculative_config"),
    **values(refused("keeps another cache"), "--sparse_attention_config --cache_transceiver_config --kv_connector_config"),
    **values(weights("names how the weights are quantised"), "--quant_config"),
    **values(weights("keeps adapters in the memory of the card"), "--lora_config --peft_cache_config"),
    **values(IDLE, """
        --cuda_graph_config --moe_config --torch_compile_config --scheduler_config --attn_backend --sampler_type --stream_interval
        --allreduce_strategy --guided_decoding_backend --batch_wait_timeout_ms --batch_wait_timeout_iters --attention_dp_config
        --iter_stats_max_iterations --max_stats_len --load_format --dtype --nvfp4_gemm_config --perf_metrics_max_requests
    """),
    **switches(IDLE, """
        --print_iter_log --enable_iter_perf_stats --enable_iter_req_stats --disable_overlap_scheduler --enable_autotuner
        --return_perf_metrics --enable_layerwise_nvtx_marker --enable_min_latency --skip_tokenizer_init --use_torch_sampler
    """),
}  # fmt: skip
_FLAGS = {**_FILE, **_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED}
_SYNTAX = Syntax(_FLAGS, greedy=True)
_OTHERS = ("disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")


#: Remedies of `fit` in the words of the command.
_WORDS = {
    "context": "--max_seq_len {}",
    "kv_dtype": "--kv_cache_dtype {}",
    "tensor_parallel": "--tp_size {}",
    "utilization": "--free_gpu_memory_fraction {}",
}


def read(found: Found) -> Reading:
    """What the server is told. Raises UsageError for what it would refuse, or what kvcalc has no rule for."""
    words = found.words[1:] if found.words[:1] == ["serve"] else found.words
    if words and words[0] in _OTHERS:
        raise UsageError(f"trtllm-serve {words[0]} starts no server with a cache of its own", "kvcalc reads trtllm-serve MODEL")
    words = with_file(found._replace(words=words), _SYNTAX, ("--config", "--extra_llm_api_options"), last=True)
    given = go_through(words, _SYNTAX, positionals=1)
    reading = Reading("tensorrt-llm", words=_WORDS)
    apply(given, reading)
    return reading
