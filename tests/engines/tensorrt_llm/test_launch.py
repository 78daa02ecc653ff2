"""trtllm-serve's options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.engines.tensorrt_llm.launch import _FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    from kvcalc.engines.base.reading import Reading

#: Options → keys of the request and settings.
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "": ({}, {}),
    "--max_seq_len 8192 --tp_size 8 --pp_size 2": ({"context": 8192, "tensor_parallel": 8, "pipeline_parallel": 2}, {}),
    "--tensor_parallel_size=4": ({"tensor_parallel": 4}, {}),
    "--kv_cache_free_gpu_memory_fraction 0.9": ({}, {"free_gpu_memory_fraction": 0.9}),
    "--free_gpu_memory_fraction 0.8 --kv_cache_free_gpu_memory_fraction 0.7": ({}, {"free_gpu_memory_fraction": 0.7}),
    "--kv_cache_dtype fp8 --max_batch_size 64": ({"kv_dtype": "fp8"}, {"max_batch_size": 64}),
    "--enable_attention_dp": ({}, {"enable_attention_dp": True}),
    "--host 0.0.0.0 --port 8000 --max_num_tokens 4096 --trust_remote_code --backend pytorch --max_beam_width 1": (
        {},
        {"max_num_tokens": 4096},
    ),
}


@pytest.mark.parametrize("flags", READ)
def test_options_are_read(read: Callable[[str], Reading], flags: str) -> None:
    for command in ("trtllm-serve", "trtllm-serve serve", "mpirun -n 1 trtllm-serve"):
        found = read(f"{command} org/name {flags}")
        own = {name: value for name, value in found.settings.items() if name not in found.implied}
        assert (found.keys, own) == READ[flags]
        assert found.settings["max_batch_size"] == READ[flags][1].get("max_batch_size", 2048)
        assert (found.engine, found.model, found.warnings) == ("tensorrt-llm", "org/name", [])


REFUSED = {
    "--config x.yaml": "--config: the file that it names is not here",
    "--extra_llm_api_options x.yaml": "--extra_llm_api_options: the file that it names is not here",
    "--backend tensorrt": "--backend starts a backend with other rules",
    "--max_beam_width 4": "--max_beam_width keeps a cache a beam",
    "--cp_size 2": "--context_parallel_size splits attention",
    "--max_seq_len": "--max_seq_len has no value",
    "--max_seq_len -5": "--max_seq_len: its value is not a whole number",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_what_kvcalc_has_no_rule_for_is_refused_by_name(read: Callable[[str], Reading], flags: str) -> None:
    with pytest.raises(UsageError) as error:
        read(f"trtllm-serve org/name {flags}")
    assert error.value.message.startswith(REFUSED[flags])


def test_other_commands_of_the_program_are_refused(read: Callable[[str], Reading]) -> None:
    with pytest.raises(UsageError, match="trtllm-serve disaggregated starts no server with a cache of its own"):
        read("trtllm-serve disaggregated -c x.yaml")


def test_every_setting_has_its_option() -> None:
    assert {f"--{setting.name}" for setting in get_engine("tensorrt-llm").settings if setting.name != "version"} <= _FLAGS.keys()


def in_file(text: str, tmp_path: Path, read: Callable[[str], Reading]) -> Reading:
    """What is read of a file of the LLM's arguments."""
    (tmp_path / "llm.yaml").write_text(text, encoding="utf-8")
    return read(f"trtllm-serve org/name --config {tmp_path / 'llm.yaml'}")


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("kv_cache_config: {use_kv_cache_manager_v2: false}", {"use_kv_cache_manager_v2": "false"}),
        ("kv_cache_config: {use_kv_cache_manager_v2: true, avg_seq_len: 2048}", {"use_kv_cache_manager_v2": "true", "avg_seq_len": 2048}),
        (
            "kv_cache_config: {use_kv_cache_manager_v2: auto, pool_ratio: [0.3, 0.7]}",
            {"use_kv_cache_manager_v2": "auto", "pool_ratio": ["0.3", "0.7"]},
        ),
        (
            "kv_cache_config: {max_gpu_total_bytes: 1000000000, max_util_for_resume: 0.9}",
            {"max_gpu_total_bytes": 10**9, "max_util_for_resume": 0.9},
        ),
        ("kv_cache_config: {mamba_state_config: {periodic_snapshot_interval: 256}}", {"mamba_state_cache_interval": 256}),
        ("kv_cache_config: {mamba_state_cache_interval: 512}", {"mamba_state_cache_interval": 512}),
        ("sparse_attention_config: {algorithm: dsa, index_topk: 2048}", {}),
        ("max_batch_size: 16\nmax_num_tokens: 4096", {"max_batch_size": 16, "max_num_tokens": 4096}),
    ],
)
def test_keys_of_the_file(text: str, settings: dict[str, Any], tmp_path: Path, read: Callable[[str], Reading]) -> None:
    found = in_file(text, tmp_path, read)
    assert {name: value for name, value in found.settings.items() if name not in found.implied} == settings
    assert found.warnings == []


def test_keys_of_the_file_that_are_named(tmp_path: Path, read: Callable[[str], Reading]) -> None:
    found = in_file("kv_cache_config: {enable_kv_pool_rebalance: true, sink_token_length: 4, disk_cache_size: 5}", tmp_path, read)
    assert [warning.partition(" ")[0] for warning in found.warnings] == [
        "--kv_cache_config.enable_kv_pool_rebalance",
        "--kv_cache_config.sink_token_length",
    ]
    with pytest.raises(UsageError, match="keeps another cache"):
        in_file("sparse_attention_config: {algorithm: rocket}", tmp_path, read)
    with pytest.raises(UsageError, match="--pp_partition cuts the pipeline's stages"):
        in_file("pp_partition: [10, 12]", tmp_path, read)


def test_a_hybrid_that_does_not_start_with_the_default_batch(ask: Callable[..., Answer]) -> None:
    """Qwen3-Next keeps state for 2,048 requests: 80,973,594,624 B at least, and a card of 80 GB has less."""
    found = ask(
        "launch", "--model", "qwen3-next-80b-a3b", "--kv-memory", "60GiB", "-f", "json", "trtllm-serve", "x/y", "--max_seq_len", "32768"
    )
    assert found.document["fits"] is False
    assert any("need at least 80,973,594,624 bytes" in warning for warning in found.document["warnings"])
    smaller = ask(
        "launch", "--model", "qwen3-next-80b-a3b", "--kv-memory", "60GiB", "-f", "json", "trtllm-serve", "x/y", "--max_seq_len", "32768",
        "--max_batch_size", "64",
    )  # fmt: skip
    assert smaller.document["fits"] is True


def test_the_bytes_are_those_of_the_engine(ask: Callable[..., Answer]) -> None:
    """Llama-3.1-8B: 32 layers x 2 x 8 heads x 128 in fp8 for 8,192 tokens of one sequence."""
    found = ask(
        "launch", "--model", "llama-3.1-8b", "-f", "json", "trtllm-serve", "x/y", "--max_seq_len", "8192", "--kv_cache_dtype", "fp8"
    )
    assert found.document["bytes"]["total"] == 32 * 2 * 8 * 128 * 8192
