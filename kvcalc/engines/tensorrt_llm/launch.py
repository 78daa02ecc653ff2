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

#: Requests at once where the command says none (trtllm-serve's max_batch_size).
DEFAULT_BATCH = 2048
#: Kinds of sparse attention whose caches kvcalc plans by the model's family, and one that changes no cache.
_KNOWN_SPARSE = ("dsa", "deepseek_v4", "skip_softmax")


def _sparse(reading: Reading, flag: str, value: str) -> None:
    """`sparse_attention_config: {algorithm: …}`. Raises UsageError for a kind that keeps a cache of its own."""
    del reading
    if str(value).lower() not in _KNOWN_SPARSE:
        raise UsageError(f"{flag} keeps another cache, and kvcalc has no rule for that", "it knows " + ", ".join(_KNOWN_SPARSE))


_TRANSLATED = {
    **values(keeps("revision", name), "--revision/--hf_revision"),
    **values(asks("context", whole), "--max_seq_len"),
    **values(asks("kv_dtype", name), "--kv_cache_dtype"),
    **values(asks("tensor_parallel", whole), "--tensor_parallel_size/--tp_size"),
    **values(asks("pipeline_parallel", whole), "--pipeline_parallel_size/--pp_size"),
}
_SETTINGS = settings(
    "tensorrt-llm", shorts={"free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction"}, without=("version",), joint="_"
)
_MANAGER = "--use_kv_cache_manager_v2"
_SETTINGS[_MANAGER] = _SETTINGS[_MANAGER]._replace(takes="word")
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
       ("free_gpu_memory_fraction", "tokens_per_block", "max_attention_window", "max_tokens", "mamba_ssm_cache_dtype",
        "use_kv_cache_manager_v2", "max_gpu_total_bytes", "avg_seq_len", "pool_ratio", "max_util_for_resume", "mamba_state_cache_interval")},
    **mappings(IDLE, f"{_CACHE}.mamba_state_config"),
    f"{_CACHE}.mamba_state_config.periodic_snapshot_interval": _SETTINGS["--mamba_state_cache_interval"],
    **values(doubted("keeps recurrent state of every request at further places, which kvcalc does not count"), f"""
        {_CACHE}.mamba_state_config.additional_snapshot_offsets_from_start {_CACHE}.mamba_state_config.additional_snapshot_offsets_from_end
    """),
    **values(doubted("adds a tier of the cache in host memory"), f"{_CACHE}.host_cache_size"),
    **values(doubted("changes what kvcalc counts of the cache, and was not read"), f"""
        {_CACHE}.sink_token_length {_CACHE}.cross_kv_cache_fraction {_CACHE}.fp8_context_mla_kv_len_cap {_CACHE}.kv_cache_compression_config
        --multimodal_config --dkv_config
    """),
    **switches(doubted("changes how the second cache manager divides memory, and was not read"), f"""
        {_CACHE}.enable_swa_scratch_reuse {_CACHE}.enable_kv_pool_rebalance
    """),
    **values(refused("cuts the pipeline's stages"), "--pp_partition"),
    **values(refused("splits attention over contexts"), "--cp_config"),
    **values(IDLE, f"""
        {_CACHE}.disk_cache_size {_CACHE}.disk_cache_path {_CACHE}.disk_prefetch_num_reqs {_CACHE}.block_reuse_config
        {_CACHE}.kv_events_config {_CACHE}.kv_cache_event_hash_algo {_CACHE}.iteration_stats_interval
    """),
    **switches(IDLE, f"{_CACHE}.enable_block_reuse {_CACHE}.enable_partial_reuse {_CACHE}.copy_on_partial_reuse {_CACHE}.onboard_blocks"),
    **values(IDLE, f"{_CACHE}.event_buffer_max_size {_CACHE}.secondary_offload_min_priority {_CACHE}.attention_dp_events_gather_period_ms"),
    **values(refused("speculates"), "--speculative_config"),
    **mappings(IDLE, "--sparse_attention_config"),
    **values(_sparse, "--sparse_attention_config.algorithm"),
    **values(IDLE, """
        --sparse_attention_config.index_topk --sparse_attention_config.index_head_dim --sparse_attention_config.index_n_heads
    """),
    **values(refused("keeps another cache"), "--cache_transceiver_config --kv_connector_config"),
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
    if "max_batch_size" not in reading.settings:
        reading.settings["max_batch_size"] = DEFAULT_BATCH
        reading.implied.add("max_batch_size")
    return reading
