"""A card's memory divided, with the arithmetic written out, and what fits in what is left."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.units import GIB
from kvcalc.core.workload import Workload
from kvcalc.engines.sglang.memory import static_fraction
from kvcalc.hardware import get_gpu, gpus
from kvcalc.questions.card import MemoryBudget, memory_budget, without_share
from kvcalc.questions.documents.kinds import plain
from kvcalc.questions.estimate import estimate
from kvcalc.questions.fit import Budget, fit
from kvcalc.questions.fit_card import rank, rank_document, size
from kvcalc.questions.request import parse_request
from kvcalc.sources import load

if TYPE_CHECKING:
    from pathlib import Path

PARAMETERS = 8_030_261_248


def divided(engine: str, gpu: str = "h100-80gb", **shares: Any) -> MemoryBudget:
    question: dict[str, Any] = {key: shares.pop(key) for key in ("tensor_parallel", "engine_args") if key in shares}
    request = parse_request({"model": "llama-3.1-8b", "engine": engine, "gpu": gpu, "context": 8192, **question})
    return memory_budget(load("llama-3.1-8b"), request, **shares)


def test_vllm_takes_a_share_of_the_whole_card() -> None:
    found = divided("vllm", overhead=2 * GIB)
    memory = get_gpu("h100-80gb").memory
    assert found.weights == 2 * PARAMETERS
    assert found.kv_likely == math.ceil(memory * Fraction(92, 100)) - 2 * PARAMETERS - 2 * GIB
    card = get_gpu("h100-80gb")
    for total, kv in ((card.low, found.kv_low), (card.memory, found.kv_likely), (card.high, found.kv_high)):
        assert total is not None
        assert kv == math.ceil(total * Fraction(92, 100)) - 2 * PARAMETERS - 2 * GIB
    assert found.sure["weights"] == "estimated: 8,030,261,248 parameters in bf16"
    lower = divided("vllm", overhead=2 * GIB, engine_args={"gpu_memory_utilization": 0.5})
    assert lower.kv_likely == math.ceil(memory / 2) - 2 * PARAMETERS - 2 * GIB


def test_tensorrt_llm_takes_a_share_of_what_is_free() -> None:
    found = divided("tensorrt-llm", overhead=GIB, weights=16 * GIB)
    assert found.kv_likely == (get_gpu("h100-80gb").memory - 17 * GIB) * 9 // 10


def test_sglang_leaves_room_by_card() -> None:
    memory = get_gpu("h100-80gb").memory
    reserved = 512 + 8192 * 3 // 2 + 1024 // 8 + 2 * 256  # MiB; more than the 10 GiB that it keeps at least
    assert static_fraction(memory, Workload()) == Fraction(round((1 - Fraction(reserved * 1024**2, memory)) * 1000), 1000)


def test_weights_divide_and_formats_are_known() -> None:
    assert divided("vllm", tensor_parallel=4).weights == PARAMETERS // 2
    assert divided("llama.cpp", "rtx4090-24gb", weight_dtype="q8_0").weights == math.ceil(PARAMETERS * Fraction(34, 32))
    assert divided("vllm", weights=16 * GIB).sure["weights"] == "given"
    with pytest.raises(UsageError, match="unknown type 'q9'"):
        divided("vllm", weight_dtype="q9")


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="no accelerator"):
        memory_budget(load("llama-3.1-8b"), parse_request({"model": "llama-3.1-8b"}))
    with pytest.raises(UsageError, match="not a fraction"):
        divided("vllm", utilization=1.5)
    nameless = replace(load("llama-3.1-8b"), parameters=None)
    with pytest.raises(UsageError, match=r"parameters of llama-3\.1-8b are not known"):
        memory_budget(nameless, parse_request({"model": "llama-3.1-8b", "gpu": "h100-80gb"}))


def test_the_exact_part_equals_kv_memory_with_the_same_bytes() -> None:
    request = parse_request({"model": "llama-3.1-8b", "engine": "vllm", "gpu": "h100-80gb", "context": 8192})
    found = size(request)
    same = fit(request, budget=Budget(found.memory.kv_likely))
    assert found.fit.capacity == same.capacity
    assert (found.fit.max_context, found.fit.max_sequences) == (same.max_context, same.max_sequences)
    low, high = found.sequences_range
    assert low is not None
    assert high is not None
    assert same.max_sequences is not None
    assert low <= same.max_sequences <= high
    assert found.smallest == 1


def test_weights_that_do_not_fit_leave_nothing() -> None:
    request = parse_request({"model": "llama-3.1-70b", "engine": "ideal", "gpu": "rtx4090-24gb", "context": 1024})
    found = size(request)
    assert found.memory.kv_high == 0
    assert not found.fit.fits
    assert found.fit.max_context is None
    assert found.smallest == 8  # 141 GB of weights over 8 x 24 GiB


@pytest.mark.parametrize(
    ("engine", "model", "gpu", "sequences", "remedies"),
    [
        # 2 B x 70.6e9 over 2 x 79.18 GiB leave 4.64 GiB of the 5 that one sequence needs; over 4 devices, or with a quarter of the weights, there is room.
        (
            "vllm",
            "llama-3.3-70b",
            "h100-80gb:2",
            8,
            [("context", 3792), ("tensor_parallel", 4), ("weight_dtype", "int4")],
        ),
        ("vllm", "llama-3.3-70b", "h100-80gb", 1, [("tensor_parallel", 4), ("weight_dtype", "int4")]),
        # 16 GB of weights in fp16, 8.5 GB in q8_0, 4.9 GB in q4_k_m, on a card of 12 GB; layers go to several devices.
        ("llama.cpp", "llama-3.1-8b", "rtx3060-12gb", 1, [("pipeline_parallel", 2), ("weight_dtype", "q4_k_m")]),
    ],
)
def test_a_remedy_on_a_card_moves_the_weights_too(
    engine: str, model: str, gpu: str, sequences: int, remedies: list[tuple[str, Any]]
) -> None:
    question: dict[str, Any] = {"model": model, "engine": engine, "gpu": gpu, "context": 32_768, "sequences": sequences}
    found = size(parse_request(question))
    assert not found.fit.fits
    assert [(remedy.setting, remedy.value) for remedy in found.fit.remedies] == remedies
    card, _, count = gpu.partition(":")
    for setting, value in remedies:
        if setting == "weight_dtype":
            assert size(parse_request(question), weight_dtype=str(value)).fit.fits
        else:
            ranks = {} if setting.endswith("parallel") else {"tensor_parallel": int(count or 1)}
            assert size(parse_request({**question, "gpu": card, **ranks, setting: value})).fit.fits


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_the_least_share_of_the_card_that_is_enough(engine: str) -> None:
    question: dict[str, Any] = {"model": "llama-3.1-8b", "engine": engine, "gpu": "h100-80gb", "context": 8192, "sequences": 20}
    found = size(parse_request(question))
    assert found.fit.needed is not None
    assert found.share is not None
    setting, share = found.share
    spent = found.memory.weights + found.memory.overhead
    exact = (
        Fraction(found.fit.needed, found.memory.memory - spent)
        if engine == "tensorrt-llm"
        else Fraction(found.fit.needed + spent, found.memory.memory)
    )
    assert 0 <= share - exact < Fraction(1, 1000)
    assert size(parse_request({**question, "engine_args": {setting: float(share)}})).fit.fits
    assert not size(parse_request({**question, "engine_args": {setting: float(share) - 0.002}})).fit.fits


def test_more_of_the_card_is_a_remedy_where_there_is_more() -> None:
    """20 x 8,192 tokens of 128 KiB, 16.06 GB of weights and 2.5 GiB of overhead on a card of 80 GB: 47 % of it."""
    question: dict[str, Any] = {"model": "llama-3.1-8b", "engine": "vllm", "gpu": "h100-80gb", "context": 8192, "sequences": 20}
    found = size(parse_request(question), utilization=0.4)
    (remedy,) = (remedy for remedy in found.fit.remedies if remedy.setting == "utilization")
    assert (remedy.value, remedy.text) == ("0.474", "gpu_memory_utilization 0.474 instead of 0.4")
    assert size(parse_request({**question, "sequences": 2000})).share is None
    assert size(parse_request({**question, "engine": "llama.cpp"})).share is None


def test_weights_that_are_given_are_not_made_narrower() -> None:
    found = size(parse_request({"model": "llama-3.1-8b", "engine": "vllm", "gpu": "l4-24gb", "context": 131_072}), weights=16 * GIB)
    assert [remedy.setting for remedy in found.fit.remedies] == ["context", "tensor_parallel"]


def test_the_decode_bound_reads_weights_and_cache_once_a_step() -> None:
    request = parse_request({"model": "llama-3.1-8b", "gpu": "h100-80gb", "context": 8192, "sequences": 4})
    found = size(request)
    assert found.bound is not None
    read = 2 * PARAMETERS + 4 * 8192 * 131_072
    assert found.bound.bytes_per_step == read
    assert found.bound.tokens_per_second == pytest.approx(4 * get_gpu("h100-80gb").bandwidth / read, abs=0.05)
    experts = size(parse_request({"model": "qwen3-30b-a3b", "gpu": "h100-80gb", "context": 8192}))
    assert experts.bound is not None
    assert "weights are left out" in experts.bound.text


def test_cards_are_ranked_by_memory_in_all() -> None:
    rows = rank(parse_request({"model": "llama-3.1-8b", "engine": "vllm", "context": 8192, "sequences": 4}))
    sizes = [row.devices * row.memory for row in rows]
    assert sizes == sorted(sizes)
    assert rows[0].devices == 1


def test_a_ranking_says_what_the_engine_runs_with() -> None:
    request = parse_request({"model": "deepseek-v3", "engine": "vllm", "context": 8192, "engine_args": {"max_num_seqs": 64}})
    rows = rank(request)
    found = plain(rank_document(request, rows))
    first = {"gpu": f"{rows[0].gpu}:{rows[0].devices}", "context": 8192, "engine_args": {"max_num_seqs": 64}}
    best = estimate(parse_request({"model": "deepseek-v3", "engine": "vllm", **first})).to_dict()
    assert (found["engine"], found["kv_dtype"]) == (best["engine"], best["kv_dtype"])
    assert (found["engine"]["args"]["max_num_seqs"], found["kv_dtype"]) == (64, "bf16")
    nothing = plain(rank_document(request, []))
    assert (nothing["kv_dtype"], nothing["engine"]["args"]) == ("auto", {"max_num_seqs": 64})


def test_an_engine_is_not_offered_cards_that_it_does_not_run_on() -> None:
    for engine, gpu in (("vllm", "m4max-128gb"), ("tensorrt-llm", "mi300x-192gb"), ("llama.cpp", "tpuv5e-16gb")):
        with pytest.raises(EngineRejectsError, match="does not run on"):
            divided(engine, gpu)
    rows = rank(parse_request({"model": "llama-3.1-8b", "engine": "vllm", "context": 8192}))
    assert {gpus()[row.gpu].vendor for row in rows} <= {"nvidia", "amd"}


def test_the_checkpoints_own_index_is_exact(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 13_476_831_232}, "weight_map": {}}))
    found = size(parse_request({"model": str(tmp_path), "gpu": "h100-80gb", "context": 4096}))
    assert found.memory.weights == 13_476_831_232
    assert found.memory.sure["weights"].startswith("exact")


def test_a_share_of_what_is_free_is_taken_once() -> None:
    request = parse_request({"model": "llama-3.1-8b", "engine": "tensorrt-llm", "gpu": "h100-80gb", "context": 8192})
    found = size(request, overhead=GIB, weights=16 * GIB)
    free = get_gpu("h100-80gb").memory - 17 * GIB
    assert found.fit.budget.kv_bytes_per_device == free * 9 // 10
    assert found.fit.capacity.blocks == free * 9 // 10 // (131_072 * 32)
    assert without_share(parse_request({"model": "llama-3.1-8b", "engine": "vllm"})).workload.engine_args == {}
