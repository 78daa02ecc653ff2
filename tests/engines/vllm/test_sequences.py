"""How many blocks let n sequences run together, against vLLM 0.33.0's own Scheduler and KVCacheManager.

Measured: the engine's EngineArgs, specs and groups with its Scheduler (AsyncScheduler) driven step by step on a CPU as
EngineCore.step_with_batch_queue drives it, tokens made up, an H100's platform; smallest pools by bisection, the null block
taken off; counts are the most full-length requests that ran together without a preemption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from vllm_models import GIB, WHISPER, fitting, gemma3, gpt_oss, llama, model, plan, qwen3_next, uniform

from kvcalc.core.architecture import Layout
from kvcalc.core.states import Chunked, Full, Mamba2, Sliding
from kvcalc.engines.base.search import most_sequences
from kvcalc.engines.vllm.specs import CHUNKED, CROSS, FULL, RECURRENT, RING, SLIDING, Demand, Spec, decoding_blocks, request_blocks

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

GEMMA = gemma3(62, 16, 128)
MISTRAL = uniform(32, Sliding(window=4096, kv_heads=8, query_heads=32, head_dim=128), family="mistral")
SCOUT_HEADS = {"kv_heads": 8, "query_heads": 40, "head_dim": 128}
SCOUT = model(["c*3", "f"], 48, {"c": Chunked(chunk=8192, **SCOUT_HEADS), "f": Full(**SCOUT_HEADS)}, "llama4_text", max_context=262144)
GRANITE = model(
    ["m*9", "a"],
    40,
    {"m": Mamba2(heads=128, head_dim=64, state_dim=128, groups=1, conv_kernel=4), "a": Full(kv_heads=8, query_heads=32, head_dim=128)},
    "granitemoehybrid",
    max_context=131072,
)


@pytest.mark.parametrize(
    ("found", "question", "context", "smallest"),
    [
        (GEMMA, {"tensor_parallel": 2}, 32768, {1: 8581, 2: 11018, 8: 25636, 16: 45120}),
        (GEMMA, {"tensor_parallel": 2}, 2048, {8: 4508}),
        (GEMMA, {"pipeline_parallel": 2}, 32768, {1: 11653, 4: 18963, 16: 48180}),
        (SCOUT, {"tensor_parallel": 8}, 32768, {1: 6655, 8: 31700}),
        (qwen3_next(), {}, 32768, {1: 66, 4: 246, 16: 966}),
    ],
)
def test_the_smallest_pool_that_runs_them_together(
    found: Architecture, question: dict[str, int], context: int, smallest: dict[int, int]
) -> None:
    """A + (n - 1) x S is never below the smallest pool, and at most 0.45 % above it."""
    pool = fitting(found, GIB, context=context, **question).pool
    for sequences, measured in smallest.items():
        assert measured <= pool.used_blocks(context, sequences) <= measured * 1.0045


@pytest.mark.parametrize(
    ("found", "question", "blocks", "ran"),
    [
        (GEMMA, {"tensor_parallel": 2}, 74_100, 27),
        (GEMMA, {"tensor_parallel": 2, "args": {"async_scheduling": False}}, 74_100, 29),
        (gpt_oss(), {}, 54_613, 26),
        (llama(), {}, 30_720, 14),
        (qwen3_next(), {}, 910, 15),
        (SCOUT, {"tensor_parallel": 8}, 218_453, 60),
        (MISTRAL, {}, 15_360, 55),
    ],
)
def test_the_most_that_run_together(found: Architecture, question: dict[str, object], blocks: int, ran: int) -> None:
    args = {**question.get("args", {}), "num_gpu_blocks_override": blocks}  # type: ignore[dict-item]
    assert most_sequences(fitting(found, 0, context=32768, **(question | {"args": args})), 32768) == ran


def test_the_null_block_is_counted() -> None:
    """Llama-3.1-8B at 2,048 tokens: 15 in lock-step need 15 x 128 + 1 blocks; with 1,920 one is preempted."""
    for blocks, ran in ((1921, 15), (1920, 14)):
        args = {"num_gpu_blocks_override": blocks}
        assert most_sequences(fitting(llama(), 0, context=2048, args=args), 2048) == ran


def test_the_log_and_one_sequence_stay() -> None:
    """The log charges every request a whole step: 74,100 / 8,582 = 8.63."""
    found = fitting(GEMMA, 74_100 * 655_360, context=32768, tensor_parallel=2)
    capacity = found.capacity(32768)
    assert (capacity.blocks, capacity.concurrency) == (74_100, 74_100 / 8_582)
    assert found.pool.used_blocks(32768, 1) == found.pool.request_blocks(32768) == 8_582
    assert any(note.startswith("the log's Maximum concurrency charges every request 8,582 blocks") for note in capacity.notes)
    assert not any("Maximum concurrency" in note for note in fitting(llama(), GIB, context=32768).capacity(32768).notes)


def test_the_step_is_one_line_for_all() -> None:
    """Gemma-3-27B: 15,360 tokens of a step beyond the window, and one token more for each of the others."""
    found = plan(GEMMA, context=32768, sequences=16, tensor_parallel=2)
    (line,) = (line for line in found.lines if line.buffer == "in_flight")
    # W - 1 + F = 17,407 tokens of the first, W - 1 + B = 1,025 of each other, 16 x 1,024 in the window
    assert line.bytes == 52 * (17_407 + 15 * 1_025 - 16 * 1_024) * 16 * 256 * 2
    assert "16,398 tokens in flight (16,383 of a step, once, + 1 of each other sequence) x 8,192 B" in line.formula
    assert found.total == sum(line.bytes for line in found.lines) == 2 * found.per_device == 2 * 45_152 * 655_360
    assert found.per_sequence == plan(GEMMA, context=32768, tensor_parallel=2).total


def test_what_is_not_counted_is_said() -> None:
    def notes(found: Architecture, **question: object) -> str:
        return "\n".join(plan(found, **question).notes)

    assert "16 sequences take 8,582 + 15 x 2,438 blocks" in notes(GEMMA, context=32768, sequences=16, tensor_parallel=2)
    assert "longer than a sequence" in notes(GEMMA, context=2048, sequences=16, tensor_parallel=2)
    assert "freed some steps later" in notes(GEMMA, context=32768, sequences=4, pipeline_parallel=2)
    # 99 blocks where the planner counts 90: nine groups, one state more in each
    assert "may hold 9 blocks more" in notes(GRANITE, context=32768, sequences=4)
    off = {"async_scheduling": False}
    assert "may hold" not in notes(GRANITE, context=32768, sequences=4, args=off)
    assert "in full for every sequence" in notes(uniform(2, *WHISPER, family="whisper"), context=448, sequences=2)
    assert "not counted" not in notes(llama(), context=32768, sequences=16)
    assert "not counted" not in notes(GEMMA, context=32768)


def test_recurrent_states_while_decoding() -> None:
    """Qwen3-Next: 57 + 3 x 3 blocks of the first, 57 + 3 x 1 of each other; draft tokens add one a group and a token."""
    found = fitting(qwen3_next(), GIB, context=32768).pool
    assert (found.group_blocks(32768), found.decoding_blocks(32768)) == ((3, 3, 3, 57), 60)
    draft = Layout(pattern=("full",), count=1, states={"full": (Full(kv_heads=2, query_heads=16, head_dim=256),)})
    args = {"speculative_method": "mtp", "num_speculative_tokens": 2}
    drafts = fitting(qwen3_next(draft=draft), GIB, context=32768, args=args).pool
    assert sum(b.decoding for b in drafts.by_group(32768)[:3]) == 9


@pytest.mark.parametrize("block", [16, 64, 576])
@pytest.mark.parametrize("decoding", [1, 2, 9])
@pytest.mark.parametrize("context", [1, 15, 128, 4097, 131072])
def test_a_request_that_decodes_never_holds_more(block: int, decoding: int, context: int) -> None:
    demand = Demand(context, in_flight=max(decoding, 16), align=True, encoder=1500, decoding=decoding)
    for kind in (FULL, SLIDING, CHUNKED, CROSS, RECURRENT, RING):
        spec = Spec(kind, block, 2, (1, 1, 1), "bf16", limit=0 if kind == RECURRENT else 1024)
        assert 1 <= decoding_blocks(spec, demand) <= request_blocks(spec, demand)


def test_a_run_of_tokens_touches_one_block_more() -> None:
    """W = 128: 129 tokens touch at most 9 blocks of 16, 130 may touch 10."""
    window = Spec(SLIDING, 16, 2, (1, 1, 1), "bf16", limit=128)
    for decoding, blocks in ((1, 9), (2, 9), (3, 10), (18, 10), (19, 11)):
        assert decoding_blocks(window, Demand(32768, 16384, decoding=decoding)) == blocks
