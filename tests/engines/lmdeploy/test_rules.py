"""LMDeploy's rules one by one: formats, blocks, windows, ranks, what is refused, and what fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines.lmdeploy.classes import CLASSES, REMOVED
from kvcalc.engines.lmdeploy.engine import LmDeploy
from kvcalc.engines.lmdeploy.settings import batch_on
from kvcalc.hardware import gpus
from kvcalc.questions.estimate import estimate
from kvcalc.questions.fit import Fit, fit
from kvcalc.questions.request import parse_request
from kvcalc.sources import load

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan

ENGINE = LmDeploy()
GIB = 1024**3
BLOCK = 32 * 64 * 1024 * 2 * 2
NEXT = "qwen3-next-80b-a3b"


def plan(model: str, context: int = 4096, **question: Any) -> Plan:
    """The plan of a catalogue model."""
    found = ENGINE.plan(load(model), Workload(context=context, **question))
    assert sum(line.bytes for line in found.lines) == found.total
    return found


def fitted(model: str, memory: int, **question: Any) -> Fit:
    """What fits into `memory` bytes a card."""
    return fit(parse_request({"model": model, "engine": "lmdeploy", "kv_memory": memory, "gpu": "h100-80gb", "context": 4096, **question}))


@pytest.mark.parametrize(
    ("kv_dtype", "policy"), [("bf16", 0), ("fp16", 0), ("int8", 8), ("int4", 4), ("fp8", 16), ("fp8_e5m2", 17), ("turboquant", 42)]
)
def test_a_format_is_a_policy(kv_dtype: str, policy: int) -> None:
    word, number = plan("llama-3.1-8b", kv_dtype=kv_dtype), plan("llama-3.1-8b", engine_args={"quant_policy": policy})
    assert word.total == number.total
    assert word.args["quant_policy"] == policy


def test_blocks_are_whole() -> None:
    assert [plan("llama-3.1-8b", tokens).total // BLOCK for tokens in (1, 64, 65, 128)] == [1, 1, 2, 2]
    assert plan("llama-3.1-8b", 64).growth_per_token == BLOCK
    assert plan("llama-3.1-8b", 65).growth_per_token == 0
    assert plan("llama-3.1-8b", 65, sequences=3).total == 6 * BLOCK


def test_parts_are_rounded_up() -> None:
    # One head of 16 with int4: 16 x 8 B of scales is no multiple of 256 in a block of 16 tokens.
    found = plan("qwen2.5-0.5b", 16, engine_args={"block_size": 16, "quant_policy": 4}, tensor_parallel=2)
    assert [(line.state, line.bytes) for line in found.lines if line.state == "padding"] == [("padding", 24 * 2 * 192 * 2)]


def test_one_window_for_all_layers() -> None:
    assert plan("mistral-7b-v0.1", 4097).total == 65 * BLOCK
    assert plan("mistral-7b-v0.1", 100_000).total == (1563 - (99_999 - 4096) // 64) * BLOCK
    assert "one window for all layers" in " ".join(plan("gemma-2-9b").notes)
    assert plan("gemma-3-27b", 8192).total == 2 * plan("gemma-3-27b", 4096).total
    assert "keeps every token" in " ".join(plan("gemma-3-27b").notes)


def test_a_sequence_is_admitted_at_its_widest_under_a_window() -> None:
    found = fitted("mistral-7b-v0.1", 40 * GIB, context=100_000)
    assert found.max_sequences is not None
    peak = max(plan("mistral-7b-v0.1", tokens).total // BLOCK for tokens in range(99_800, 100_001))
    assert found.capacity.blocks is not None
    assert found.max_sequences == (found.capacity.blocks - 1) // peak


def test_ranks() -> None:
    assert plan("llama-3.1-8b", tensor_parallel=8).total == plan("llama-3.1-8b").total
    assert plan("llama-3.1-8b", tensor_parallel=16).total == 2 * plan("llama-3.1-8b").total
    assert plan("deepseek-v3", tensor_parallel=8).per_device == plan("deepseek-v3").total
    with pytest.raises(EngineRejectsError, match="does not divide the 32 query heads"):
        plan("llama-3.1-8b", tensor_parallel=3)
    with pytest.raises(EngineRejectsError, match="10 KV heads"):
        plan("phi-4", tensor_parallel=4)
    for more in ({"pipeline_parallel": 2}, {"tensor_parallel": 4, "decode_context_parallel": 2}):
        with pytest.raises(EngineRejectsError, match="by heads only"):
            plan("llama-3.1-8b", **more)


def test_latents_without_flash_mla_have_blocks_of_32() -> None:
    assert fitted("deepseek-v2-lite", 20 * GIB, gpu="a100-80gb").capacity.block_size == 32
    assert fitted("deepseek-v2-lite", 20 * GIB).capacity.block_size == 64


def test_slots_by_the_name_of_the_card() -> None:
    sizes = {"h100-80gb": 1024, "h200-141gb": 1024, "gh200-96gb": 1024, "a100-40gb": 384, "b200-180gb": 128, "rtx4090-24gb": 128}
    assert {card: batch_on(gpus()[card]) for card in sizes} == sizes
    few = plan(NEXT, engine_args={"max_batch_size": 1})
    assert few.total - few.fixed * 3 == 12 * 64 * 2 * 256 * 2 * 2 * 64
    assert "3 state slots" in " ".join(few.notes)
    assert "no card named" in " ".join(few.notes)


def test_shared_blocks() -> None:
    question: dict[str, Any] = {"sequences": 4, "shared_prefix": 1000}
    assert plan("llama-3.1-8b", **question).total == 256 * BLOCK
    assert plan("llama-3.1-8b", **question, engine_args={"enable_prefix_caching": True}).total == (15 + 4 * 49) * BLOCK


def test_the_log_counts_the_reserved_block() -> None:
    found = fitted("llama-3.1-8b", 60 * GIB)
    assert (found.capacity.blocks, found.capacity.tokens, found.max_sequences) == (5893, 5892 * 64, 5892 // 64)
    assert found.fits
    given = fitted("llama-3.1-8b", 60 * GIB, engine_args={"num_gpu_blocks": 130})
    assert (given.capacity.blocks, given.max_sequences) == (130, 2)


def test_the_least_memory_is_exact() -> None:
    needed = fitted("llama-3.1-8b", 60 * GIB, sequences=4).needed
    assert needed is not None
    assert fitted("llama-3.1-8b", needed, sequences=4).fits
    short = fitted("llama-3.1-8b", needed - 1, sequences=4)
    assert not short.fits


def test_no_more_sequences_than_its_batch() -> None:
    assert fitted("llama-3.1-8b", 60 * GIB, engine_args={"max_batch_size": 3}).max_sequences == 3
    assert "the others wait" in " ".join(plan("llama-3.1-8b", sequences=4, engine_args={"max_batch_size": 3}).warnings)


def test_it_does_not_start() -> None:
    for model, said in ((NEXT, "state cache"), ("llama-3.1-8b", "kv cache")):
        with pytest.raises(EngineRejectsError, match=f"does not start: no enough gpu memory for {said}"):
            fitted(model, GIB)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"quant_policy": 5}, "invalid quant_policy 5"),
        ({"cache_max_entry_count": 1}, "invalid cache_max_entry_count"),
        ({"cache_max_entry_count": 100}, "invalid cache_max_entry_count"),
        ({"block_size": 48}, "power of 2"),
        ({"block_size": 8}, ">= 16"),
        ({"block_size": 32, "kernel_block_size": 64}, "no multiple"),
        ({"num_gpu_blocks": -1}, "invalid num_gpu_blocks"),
        ({"max_prefill_token_num": -1}, "invalid max_prefill_token_num"),
    ],
)
@pytest.mark.parametrize("memory", [None, 60 * GIB])
def test_a_setting_that_the_engine_refuses(args: dict[str, Any], said: str, memory: int | None) -> None:
    request = parse_request({"model": "llama-3.1-8b", "engine": "lmdeploy", "context": 4096, "engine_args": args, "kv_memory": memory})
    with pytest.raises(EngineRejectsError, match=said):
        estimate(request) if memory is None else fit(request)


def test_formats_that_it_has_not() -> None:
    for kv_dtype in ("q8_0", "nvfp4", "fp32"):
        with pytest.raises(EngineRejectsError, match="LMDeploy has no cache of"):
            plan("llama-3.1-8b", kv_dtype=kv_dtype)
    with pytest.raises(EngineRejectsError, match="name two caches"):
        plan("llama-3.1-8b", kv_dtype="int8", engine_args={"quant_policy": 4})


def test_architectures_without_a_row() -> None:
    for model in ("mamba-2.8b", "gemma-4-31b", "opt-125m", "minimax-m2"):
        architecture = load(model)
        assert not ENGINE.knows(architecture.family, architecture.class_name)
        with pytest.raises(UnsupportedArchitectureError, match="has no such"):
            ENGINE.plan(architecture, Workload(context=64))
    with pytest.raises(EngineRejectsError, match="StarCoder2"):
        plan("starcoder2-7b")
    assert not REMOVED.keys() & {row.name for row in CLASSES}


def test_a_vocabulary_that_is_not_known() -> None:
    architecture = load("llama-3.1-8b")
    bare = replace(architecture, traits=replace(architecture.traits, vocab_size=None))
    assert ENGINE.plan(bare, Workload(context=64)).total == BLOCK
    with pytest.raises(UsageError, match="vocabulary"):
        ENGINE.capacity(bare, Workload(context=64), 60 * GIB)
    assert ENGINE.capacity(bare, Workload(context=64, engine_args={"num_gpu_blocks": 9}), 60 * GIB).blocks == 9
