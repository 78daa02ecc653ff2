"""The one search: exact on every step function that never rises, whatever it is told about it, in few questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import last_that, last_within, least_memory, most_sequences
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Callable


def bisected(left: Callable[[int], int], most: int) -> int | None:
    """What a search has to find, by plain halves."""
    if left(1) < 0:
        return None
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if left(middle) >= 0 else (low, middle)
    return low


def counted(left: Callable[[int], int], most: int, *, first: int = 2, grain: int = 1) -> tuple[int | None, int]:
    """What the search finds, and how often it asked."""
    asked: list[int] = []

    def ask(n: int) -> int:
        asked.append(n)
        return left(n)

    return last_within(ask, most, first=first, grain=grain), len(asked)


@given(
    steps=st.dictionaries(st.integers(1, 3000), st.integers(0, 10**6), max_size=12),
    slope=st.integers(0, 100),
    memory=st.integers(-10, 10**6),
    most=st.integers(1, 3000),
    first=st.integers(1, 4000),
    grain=st.integers(1, 300),
)
def test_it_equals_bisection_on_any_step_function(
    steps: dict[int, int], slope: int, memory: int, most: int, first: int, grain: int
) -> None:
    def left(n: int) -> int:
        return memory - slope * n - sum(size for place, size in steps.items() if place <= n)

    assert last_within(left, most, first=first, grain=grain) == bisected(left, most)


@given(
    row=st.integers(1, 10**6),
    window=st.integers(1, 10**5),
    windowed=st.integers(0, 10**6),
    step=st.sampled_from((1, 16, 64, 256)),
    memory=st.integers(0, 2**40),
    told=st.booleans(),
)
def test_it_equals_bisection_on_caches(row: int, window: int, windowed: int, step: int, memory: int, told: bool) -> None:
    def left(n: int) -> int:
        cells = -(-n // step) * step
        return memory - row * cells - windowed * min(cells, window)

    assert last_within(left, 2**40, first=2**17, grain=step if told else 1) == bisected(left, 2**40)


@given(limit=st.integers(0, 2000), most=st.integers(1, 2000), first=st.integers(1, 3000))
def test_yes_and_no_are_enough(limit: int, most: int, first: int) -> None:
    found = last_within(lambda n: 0 if n <= limit else -1, most, first=first)
    assert found == last_that(lambda n: n <= limit, most) == (min(limit, most) or None)


@pytest.mark.parametrize(
    ("step", "memory", "asked"),
    [
        (1, 2**34, 5),  # 131,072 tokens fit: 1 and the maximum
        (1, 2**33, 5),  # a line: 1, the maximum, where it meets nothing, and the next
        (256, 2**33, 5),  # the same in steps, which it is told
        (1, 1000, 1),  # not even one
    ],
)
def test_a_line_takes_a_handful_of_questions(step: int, memory: int, asked: int) -> None:
    def left(n: int) -> int:
        return memory - 131_072 * -(-n // step) * step

    found, count = counted(left, 131_072, first=131_072, grain=step)
    assert found == bisected(left, 131_072)
    assert count <= asked


def test_a_window_takes_about_ten_questions() -> None:
    """Gemma-3-27B's shape: 10 layers grow by 16,384 B a token, 52 only up to 1,024 tokens."""

    def left(n: int) -> int:
        return 2**33 - 16_384 * (10 * n + 52 * min(n, 1024))

    found, count = counted(left, 131_072, first=131_072)
    assert found == (2**33 // 16_384 - 52 * 1024) // 10 == 47_104
    assert count <= 10


@pytest.mark.parametrize("engine", ["ideal", "transformers", "vllm", "sglang", "llama.cpp", "ollama", "tensorrt-llm"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "qwen3-next-80b-a3b", "deepseek-v3"])
def test_every_engine_is_settled_on_both_sides(engine: str, model: str) -> None:
    """The least memory holds the question and one byte less does not; one sequence more than the most does not fit."""
    architecture, workload = load(model), Workload(context=9000, sequences=2)
    found = get_engine(engine)
    plan = found.plan(architecture, workload)
    needed = least_memory(found.fitting(architecture, workload, plan.total), 9000, plan.per_device)
    assert needed is not None
    assert found.fitting(architecture, workload, needed).admits(9000, 2)
    assert not found.fitting(architecture, workload, needed - 1).admits(9000, 2)
    fitting = found.fitting(architecture, workload, 3 * plan.per_device)
    most = most_sequences(fitting, 9000)
    if most is None:  # Ollama serves such a model in one slot, and all others wait
        assert fitting.admits(9000, 10**6)
        return
    assert fitting.admits(9000, most)
    assert most == 256 or not fitting.admits(9000, most + 1)


def test_what_lies_in_host_memory_needs_none() -> None:
    engine, workload = get_engine("llama.cpp"), Workload(context=9000, engine_args={"no_kv_offload": True})
    assert least_memory(engine.fitting(load("llama-3.1-8b"), workload, 0), 9000, 0) == 0
