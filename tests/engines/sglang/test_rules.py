"""What holds for every model: growth, the ideal as a floor, capacity in memory, and a plan that fits the memory it takes."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from pool_engines import GIB, SGLANG, Asked
from vllm_models import deepseek_v3, gemma3, gpt_oss, llama, nemotron_nano, qwen3_next

from kvcalc.engines.ideal.engine import Ideal
from kvcalc.sources import load

ASKED = Asked(SGLANG)
#: One pool without windows: never below the ideal. Pools of windows hold 0.8 of the tokens, which for short sequences is less than they
#: need at once; DeepSeek-V4's hold a tenth.
ONE_POOL = {"llama": llama(), "gemma": gemma3(12, 4, 128), "deepseek": deepseek_v3(), "glm": load("glm-5.2")}
HYBRIDS = {"qwen": qwen3_next(), "nemotron": nemotron_nano()}
WINDOWS = {"gpt-oss": gpt_oss(), "v4": load("deepseek-v4-flash")}
EVERY = ONE_POOL | HYBRIDS | WINDOWS

contexts = st.integers(min_value=1, max_value=60_000)
counts = st.integers(min_value=1, max_value=40)


@given(st.sampled_from(sorted(EVERY)), contexts, contexts, counts, counts)
def test_longer_and_more_never_take_less(name: str, short: int, more: int, few: int, further: int) -> None:
    small = ASKED.plan(EVERY[name], short, sequences=few)
    large = ASKED.plan(EVERY[name], min(short + more, 131_072), sequences=few + further)
    assert small.per_device <= large.per_device
    assert small.per_sequence <= large.per_sequence
    assert small.per_token == large.per_token


@given(st.sampled_from(sorted(ONE_POOL | HYBRIDS)), contexts, counts, st.sampled_from([1, 2, 4, 8]))
def test_never_below_the_ideal(name: str, context: int, sequences: int, ranks: int) -> None:
    """Where sliding layers are stored in full or not at all; the formats are the same on both sides."""
    asked = ASKED.workload(context, {"sequences": sequences, "tensor_parallel": ranks})
    ideal = Ideal().plan(EVERY[name], asked)
    assert SGLANG.plan(EVERY[name], asked).per_device >= ideal.per_device


@given(st.sampled_from(sorted(EVERY)), st.integers(GIB, 80 * GIB), st.integers(1, 20 * GIB), contexts, counts)
def test_more_memory_never_holds_less(name: str, memory: int, more: int, context: int, sequences: int) -> None:
    small, large = (ASKED.capacity(EVERY[name], size, context, sequences=sequences) for size in (memory, memory + more))
    assert small.tokens is not None
    assert large.tokens is not None
    assert small.tokens <= large.tokens
    assert small.fits <= large.fits
    assert (small.state_slots or 0) <= (large.state_slots or math.inf)


@given(st.sampled_from(sorted(EVERY)), st.integers(GIB, 80 * GIB), contexts, counts)
def test_shorter_and_fewer_fit_as_well(name: str, memory: int, context: int, sequences: int) -> None:
    fitting = SGLANG.fitting(EVERY[name], ASKED.workload(context, {}), memory)
    if fitting.admits(context, sequences):
        assert fitting.admits(max(1, context // 2), sequences)
        assert fitting.admits(context, max(1, sequences // 2))


@given(st.sampled_from(sorted(ONE_POOL)), contexts, counts)
def test_a_plan_fits_the_memory_that_it_takes(name: str, context: int, sequences: int) -> None:
    """The extra page comes on top of what SGLang divides, so a server with a plan's memory holds that page more."""
    found = ASKED.plan(EVERY[name], context, sequences=sequences)
    capacity = ASKED.capacity(EVERY[name], found.per_device, context, sequences=sequences, max_running_requests=sequences)
    assert capacity.tokens == found.args["max_total_tokens"] + found.args["page_size"]
    assert capacity.fits


@given(st.sampled_from(sorted(EVERY)), contexts, counts, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3]))
def test_lines_add_up_over_ranks_and_stages(name: str, context: int, sequences: int, ranks: int, stages: int) -> None:
    found = ASKED.plan(EVERY[name], context, sequences=sequences, tensor_parallel=ranks, pipeline_parallel=stages)
    assert found.per_device * ranks * stages >= found.total
