"""A start is worked out once a model and its settings, and asked for any context, number of sequences and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_models import ENGINE, GIB, deepseek_v3, fitting, gemma3, llama, plan, qwen3_next, work

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.search import largest_context, least_memory, most_sequences
from kvcalc.engines.vllm.engine import ready

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

MODELS = (llama(), gemma3(62, 16, 128), qwen3_next(), deepseek_v3())


def start_of(architecture: Architecture, **question: object) -> object:
    """The start behind a question."""
    workload = work(**question)  # type: ignore[arg-type]
    return ready(architecture, workload, ENGINE.read_args(workload.engine_args)).start


def test_one_start_for_every_context_and_number_of_sequences() -> None:
    found = MODELS[1]
    first = start_of(found, context=100)
    assert start_of(found, context=5000, sequences=16, shared_prefix=3) is first
    assert start_of(found, context=100, tensor_parallel=2) is not first
    assert start_of(found, context=100, gpu="b200-180gb") is not first
    assert start_of(found, context=100, args={"block_size": 32}) is not first
    assert start_of(gemma3(62, 16, 128), context=100) is not first


def test_settings_that_are_equal_in_python_are_told_apart() -> None:
    """1 names a layer, True none; a list of anything else is refused, not a crash."""
    skipped = {"kv_cache_dtype_skip_layers": [1]}
    assert plan(MODELS[0], context=100, kv_dtype="fp8", args=skipped).args["kv_cache_dtype_skip_layers"] == [1]
    for wrong in ([True], [{}], [[1]]):
        with pytest.raises(UsageError, match="is no layer of this model"):
            plan(MODELS[0], context=100, kv_dtype="fp8", args={"kv_cache_dtype_skip_layers": wrong})


@given(
    st.sampled_from(MODELS),
    st.integers(1, 40_000),
    st.integers(1, 40),
    st.sampled_from([1, 2]),
    st.sampled_from([0, 1, 1000]),
    st.integers(0, 40 * GIB),
)
def test_what_is_left_is_what_the_blocks_leave(
    found: Architecture, context: int, sequences: int, stages: int, prefix: int, memory: int
) -> None:
    """A memory admits them if its blocks, the null block taken off, are as many as they take; on every stage."""
    asked = fitting(found, memory, context=context, pipeline_parallel=stages, shared_prefix=min(prefix, context))
    blocks = min(memory // stage for stage in asked.pool.stages)
    used = asked.pool.used_blocks(context, sequences, min(prefix, context))
    assert asked.admits(context, sequences) == (used <= blocks - 1)


def test_a_given_number_of_blocks_is_counted_in_blocks() -> None:
    asked = fitting(llama(), 0, context=2048, args={"num_gpu_blocks_override": 257})
    assert (asked.left(2048, 1), asked.left(2048, 2), asked.left(2048, 3)) == (128, 0, -128)
    assert least_memory(asked, 2048, 10**9) == 0


class Counted:
    """How often a fitting was asked."""

    def __init__(self) -> None:
        self.asked = 0


@pytest.mark.parametrize("found", MODELS)
def test_a_search_asks_a_handful_of_times(found: Architecture, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fitting(found, 40 * GIB, context=8192, sequences=3)
    counted = Counted()
    real = type(asked).left

    def left(self: object, context: int, sequences: int) -> int:
        counted.asked += 1
        return real(self, context, sequences)  # type: ignore[arg-type]

    monkeypatch.setattr(type(asked), "left", left)
    longest = largest_context(found, work(context=8192, sequences=3), asked, beyond=True)
    most = most_sequences(asked, 8192)
    least = least_memory(asked, 8192, plan(found, context=8192, sequences=3).per_device)
    assert counted.asked <= 60
    assert longest is not None
    assert asked.admits(longest, 3)
    assert not asked.admits(longest + 1, 3)
    assert most is not None
    assert asked.admits(8192, most)
    assert not asked.admits(8192, most + 1)
    assert least == (asked.pool.used_blocks(8192, 3) + 1) * asked.pool.block_bytes
