"""`trtllm-serve`, main branch of 2026 (tensorrt_llm/commands/serve.py), its PyTorch backend.

`--config FILE` (`--extra_llm_api_options`) overrides the flags, and holds what has none: it is refused by name, so that nothing in it
goes unread. What of it decides bytes can be said to `kvcalc fit` as engine settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.errors import UsageError
from kvcalc.launch.flags import IDLE, Syntax, apply, asks, go_through, keeps, refused, settings, switches, values, weights
from kvcalc.launch.reading import Reading, model, name, whole

if TYPE_CHECKING:
    from kvcalc.launch.launchers import Found

_TRANSLATED = {
    **values(keeps("revision", name), "--revision/--hf_revision"),
    **values(asks("context", whole), "--max_seq_len"),
    **values(asks("kv_dtype", name), "--kv_cache_dtype"),
    **values(asks("tensor_parallel", whole), "--tensor_parallel_size/--tp_size"),
    **values(asks("pipeline_parallel", whole), "--pipeline_parallel_size/--pp_size"),
}
_SETTINGS = settings("tensorrt-llm", shorts={"free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction"}, joint="_")
_REFUSED = {
    **values(refused("holds further settings in a file"), "--config/--extra_llm_api_options"),
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
_IDLE = {
    **values(IDLE, """
        --tokenizer --custom_tokenizer --host --port --log_level --max_num_tokens --gpus_per_node --num_postprocess_workers
        --reasoning_parser --tool_parser --otlp_traces_endpoint --media_io_kwargs --chat_template --served_model_name
    """),
    **switches(IDLE, """
        --trust_remote_code --fail_fast_on_attention_window_too_large --enable_chunked_prefill --grpc --telemetry --no-telemetry --help/-h
    """),
}  # fmt: skip
_FLAGS = {**_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED}
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
    given = go_through(words, _SYNTAX, positionals=1)
    reading = Reading("tensorrt-llm", words=_WORDS)
    apply(given, reading)
    if given.others:
        reading.model = model("the model", given.others[0])
    return reading
