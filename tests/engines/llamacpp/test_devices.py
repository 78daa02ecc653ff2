"""Layers over devices, tensors over devices, CUDA's padding."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.llamacpp.devices import HOST, Devices
from kvcalc.sources.gguf.architecture import read_metadata

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan

LLAMA = {"block_count": 7, "context_length": 4096, "embedding_length": 512, "attention.head_count": 4, "attention.head_count_kv": 4}
#: K and V of one layer: 4 heads x 128 x 2 B each, 1,024 cells.
LAYER = 2 * 512 * 2 * 1024


def plan(name: str = "llama", keys: dict[str, Any] | None = None, *, args: dict[str, Any] | None = None, **workload: Any) -> Plan:
    metadata = {"general.architecture": name} | {f"{name}.{key}": value for key, value in (LLAMA | (keys or {})).items()}
    return get_engine("llama.cpp").plan(read_metadata(metadata), Workload(context=1024, engine_args=args or {}, **workload))


def devices(count: int, *, offloaded: int | None = None, host_only: bool = False) -> Devices:
    return Devices(count, "layer", (Fraction(1, count),) * count, offloaded, host_only, nvidia=False)


def test_the_output_layer_counts_as_one_more() -> None:
    # 7 layers and the output layer over 2 devices: 4 and 3; over 3: 8 / 3, so layers 0-2, 3-5, 6
    assert [devices(2).place(i, 7) for i in range(7)] == [0, 0, 0, 0, 1, 1, 1]
    assert [devices(3).place(i, 7) for i in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert [devices(1, offloaded=3).place(i, 7) for i in range(7)] == [HOST] * 5 + [0, 0]
    assert devices(2, host_only=True).place(0, 7) == HOST


def test_the_fullest_device() -> None:
    assert plan(gpu="rtx3090-24gb:2").per_device == 4 * LAYER
    assert plan(pipeline_parallel=2).per_device == 4 * LAYER
    assert plan(pipeline_parallel=2).total == 7 * LAYER
    assert plan(args={"tensor_split": "3,1"}).per_device == 6 * LAYER
    assert plan(args={"tensor_split": [0, 1]}).per_device == 7 * LAYER
    assert plan(args={"n_gpu_layers": 3}).per_device == 2 * LAYER
    assert plan(args={"split_mode": "none"}, gpu="rtx3090-24gb:2").per_device == 7 * LAYER


@pytest.mark.parametrize(
    ("args", "device", "host"), [({"no_kv_offload": True}, 0, 7), ({"n_gpu_layers": 0}, 0, 7), ({"n_gpu_layers": 3}, 2, 5)]
)
def test_what_lies_in_host_memory_is_on_no_device(args: dict[str, Any], device: int, host: int) -> None:
    """Quantised rows of 512 elements read beyond no CUDA tensor, and every tensor is a multiple of 128 B: nothing is padded."""
    found = plan(args=args, gpu="rtx3090-24gb")
    assert (found.total, found.per_device) == (7 * LAYER, device * LAYER)
    assert any(f"host memory holds {host * LAYER:,} B" in note for note in found.notes)
    assert not any("host memory" in note for note in plan().notes)


def test_cuda_pads_nothing_in_host_memory() -> None:
    """q8_0 rows of 3 x 128 elements in 1,024 cells: CUDA reads 128 elements = 136 B beyond, up to the next 128 B = 256 B a tensor."""
    heads = {"attention.head_count": 3, "attention.head_count_kv": 3, "embedding_length": 384}
    tensor = 1024 * 384 // 32 * 34
    for args, padded in (({}, 14), ({"n_gpu_layers": 3}, 4), ({"no_kv_offload": True}, 0)):
        found = plan(keys=heads, args=args, gpu="rtx3090-24gb", kv_dtype="q8_0")
        assert found.total == 14 * tensor + padded * 256
        lines = [line for line in found.lines if line.buffer == "cuda"]
        assert sum(line.bytes for line in lines) == padded * 256
        assert [(line.state, line.layers, line.width, line.slots, line.fixed) for line in lines] == [("padding", 0, 0, 0, False)] * len(
            lines
        )


def test_hybrids_can_be_very_uneven() -> None:
    ssm = {"ssm.inner_size": 64, "ssm.state_size": 16, "ssm.conv_kernel": 4, "ssm.time_step_rank": 1, "ssm.group_count": 1}
    found = plan("granitehybrid", ssm | {"attention.head_count_kv": [4, 4, 0, 0, 0, 0, 0]}, pipeline_parallel=2)
    states = 5 * 4 * (3 * (64 + 2 * 16) + 16 * 64)
    assert found.total == 2 * LAYER + states
    assert found.per_device == 2 * LAYER + 2 * states // 5


def test_a_tensor_split_divides_heads() -> None:
    found = plan(tensor_parallel=4)
    assert (found.total, found.per_device) == (7 * LAYER, 7 * LAYER // 4)
    with pytest.raises(UnsupportedArchitectureError, match="same heads"):
        plan(tensor_parallel=3)
    with pytest.raises(EngineRejectsError, match="no tensor split for gemma3n"):
        plan("gemma3n", {"attention.sliding_window": 64}, tensor_parallel=2)
    with pytest.raises(EngineRejectsError, match="needs flash attention"):
        plan(tensor_parallel=2, args={"flash_attn": "off"})


def test_some_caches_stand_whole_on_every_device() -> None:
    lfm2 = {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 4, 0, 4, 0, 4, 0]}
    one, two = plan("lfm2", lfm2), plan("lfm2", lfm2, tensor_parallel=2)
    state = 4 * 4 * 2 * 512
    assert one.total == 3 * LAYER + state
    assert (two.total, two.per_device) == (3 * LAYER + 2 * state, 3 * LAYER // 2 + state)


@pytest.mark.parametrize(
    ("workload", "args", "why"),
    [
        ({"tensor_parallel": 2, "pipeline_parallel": 2}, {}, "not by both"),
        ({"tensor_parallel": 2, "decode_context_parallel": 2}, {}, "decode context"),
        ({"pipeline_parallel": 2, "gpu": "rtx3090-24gb:4"}, {}, "speaks of 2 GPUs"),
        ({"tensor_parallel": 2}, {"split_mode": "layer"}, "splits by tensors"),
        ({"pipeline_parallel": 2}, {"split_mode": "tensor"}, "splits by layers"),
        ({}, {"tensor_split": "a,b"}, "not a proportion"),
        ({}, {"tensor_split": "1e99,1"}, "not a proportion"),
        ({}, {"tensor_split": "0,0"}, "not all of them 0"),
        ({"pipeline_parallel": 17}, {}, "at most 16"),
    ],
)
def test_contradictions(workload: dict[str, Any], args: dict[str, Any], why: str) -> None:
    with pytest.raises((UsageError, EngineRejectsError), match=why):
        plan(args=args, **workload)


def test_cudas_padding_is_a_line_of_its_own() -> None:
    mla = {"attention.head_count_kv": 1, "attention.key_length": 576, "attention.value_length": 512, "attention.kv_lora_rank": 512}
    mla |= {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    args = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    plain, cuda = plan("deepseek2", mla, args=args), plan("deepseek2", mla, args=args, gpu="h100-80gb")
    # 576 elements are 64 beyond a multiple of 512: 448 more, 14 blocks x 34 B = 476 B, at multiples of 128 B = 512 B a layer
    assert cuda.total - plain.total == 7 * 512
    assert [line.bytes for line in cuda.lines if line.buffer == "cuda"] == [7 * 512]
    assert plan(gpu="h100-80gb").total == plan().total
