"""The flags of `lmdeploy serve api_server`, and what the server logs of its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines.lmdeploy.engine import LmDeploy
from kvcalc.engines.lmdeploy.startlog import LmDeployLog
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.engines.base.reading import Reading

_START = "lmdeploy serve api_server org/name --backend pytorch"
#: Flags → keys of the request and settings of the engine.
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "": ({}, {}),
    "--session-len 32768 --tp 2 --server-port 23333": ({"context": 32768, "tensor_parallel": 2}, {}),
    "--max-batch-size 64 --cache-max-entry-count 0.5": ({}, {"max_batch_size": 64, "cache_max_entry_count": 0.5}),
    "--max_prefill_token_num=4096 --num_gpu_blocks 900": ({}, {"max_prefill_token_num": 4096, "num_gpu_blocks": 900}),
    "--quant-policy 8": ({}, {"quant_policy": 8}),
    "--quant-policy fp8_e4m3": ({}, {"quant_policy": 16}),
    "--quant-policy TURBO_QUANT": ({}, {"quant_policy": 42}),
    "--cache-block-seq-len 128 --kernel-block-size 64": ({}, {"block_size": 128, "kernel_block_size": 64}),
    "--kernel-block-size -1 --enable-prefix-caching": ({}, {"enable_prefix_caching": True}),
    "--prefix-cache-state-budget 8 --api-keys a b": ({}, {"prefix_cache_state_budget": 8}),
    "--tp 8 --dp 4": ({"tensor_parallel": 2}, {}),
    "--dp 8 --ep 16": ({"tensor_parallel": 2}, {}),
}


@pytest.mark.parametrize("flags", READ)
def test_flags_are_read(read: Callable[[str], Reading], flags: str) -> None:
    found = read(f"{_START} {flags}")
    assert (found.engine, found.model, found.keys, found.settings) == ("lmdeploy", "org/name", *READ[flags])
    assert found.warnings == []


def test_the_groups_of_data_parallel_are_replicas(read: Callable[[str], Reading]) -> None:
    assert read(f"{_START} --tp 8 --dp 4").replicas == 4


def test_the_type_of_the_weights_and_of_the_states(read: Callable[[str], Reading]) -> None:
    found = read(
        f"docker run --gpus all -e LMDEPLOY_FP32_MAMBA_SSM_DTYPE=1 openmmlab/lmdeploy:latest {_START} --model-format awq --dtype float16"
    )
    assert (found.weight_dtype, found.dtype, found.settings) == ("int4", "fp16", {"fp32_mamba_ssm_dtype": True})


def test_without_a_backend_turbomind_is_named(read: Callable[[str], Reading]) -> None:
    assert any("TurboMind" in said for said in read("lmdeploy serve api_server org/name").warnings)


REFUSED = {
    "lmdeploy serve proxy --server-port 8000": "lmdeploy serve starts no model without api_server",
    "lmdeploy serve api_server a/b --backend turbomind": "--backend turbomind starts an engine",
    f"{_START} --quant-policy two": "--quant-policy: its value is not a whole number",
    f"{_START} --dtype float32": "--dtype: its value is not one of auto, float16, bfloat16",
    f"{_START} --dtype=auto --role Prefill": "--role splits the work",
    f"{_START} --hf-overrides.rope_theta 1": "--hf-overrides makes another model",
    f"{_START} --speculative-algorithm eagle3": "--speculative-algorithm runs a draft",
    f"{_START} --tp 8 --dp 3": "--tp, --dp and --ep: 8 ranks are not divided",
    f"{_START} --device ascend": "--device starts on another kind of device",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_has_no_rule_is_refused_by_name(read: Callable[[str], Reading], command: str) -> None:
    with pytest.raises(UsageError) as error:
        read(command)
    assert error.value.message.startswith(REFUSED[command])


# ── its log ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_MIB = 1024**2


def _log(*, free: int | None, blocks: int, slots: int | None, batch: int = 256) -> LmDeployLog:
    found = LmDeployLog()
    lines = [
        "lmdeploy - INFO - async_engine.py:133 - input backend=pytorch, backend_config=PytorchEngineConfig(dtype='auto', tp=2, dp=1, ep=1)",
        *([] if free is None else [f"lmdeploy - DEBUG - base.py:346 - minimal free gpu memory: {free} mb"]),
        "lmdeploy - INFO - base.py:439 - Building CacheEngine with config: ",
        (
            f"CacheConfig(max_batches={batch}, block_size=64, num_cpu_blocks=0, num_gpu_blocks={blocks}, kernel_block_size=64, window_size=-1, "
            f"cache_max_entry_count=0.8, max_prefill_token_num=8192, quant_policy=<QuantPolicy.INT8: 8>, num_state_caches={slots}, "
            "prefix_cache_state_budget=0)."
        ),
    ]
    for number, line in enumerate(lines, 1):
        found.feed(line, number)
    assert found.recognised
    return found


def _blocks(model: str, free: int) -> int:
    workload = Workload(context=1, tensor_parallel=2, engine_args={"quant_policy": 8, "max_batch_size": 256})
    return LmDeploy().capacity(load(model), workload, free * _MIB).blocks or 0


@pytest.mark.parametrize(("model", "slots"), [("llama-3.1-8b", None), ("qwen3-next-80b-a3b", 258)])
def test_blocks_follow_from_the_free_memory(model: str, slots: int | None) -> None:
    blocks = _blocks(model, 60_000)
    rows = _log(free=60_000, blocks=blocks, slots=slots).rows(load(model))
    assert [(row.figure, row.within) for row in rows] == [("blocks", True)] + [("state slots", True)] * (slots is not None)
    wrong = _log(free=60_000, blocks=2 * blocks, slots=slots).rows(load(model))
    assert not wrong[0].within
    assert wrong[0].reason


def test_without_the_free_memory_that_is_said() -> None:
    found = _log(free=None, blocks=1000, slots=None)
    assert found.rows(load("llama-3.1-8b")) == []
    assert "DEBUG" in found.notes[0]
