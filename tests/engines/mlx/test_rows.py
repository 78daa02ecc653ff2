"""Rows of mlx-lm's cache classes, against a plain replay of their rules call by call (models/cache.py, release 0.32.2)."""

from __future__ import annotations

import pytest

from kvcalc.engines.mlx.rows import Schedule, growing, prefill_peak, rotating


def calls(schedule: Schedule) -> list[int]:
    """The tokens of every call (generate.py: generate_step)."""
    left, found = schedule.prompt, []
    while left > 1:
        found.append(min(schedule.prefill, left - 1))
        left -= found[-1]
    return [*found, *[1] * (1 + schedule.generated)]


def replay_growing(schedule: Schedule, chunk: int | None = None) -> int:
    """KVCache and ChunkedKVCache, call by call."""
    held = rows = 0
    for tokens in calls(schedule):
        if chunk is not None and rows and held > chunk:
            held = rows = chunk
        if held + tokens > rows:
            rows = (held if held % 256 else rows) + -(-tokens // 256) * 256
        held += tokens
    return rows


def replay_rotating(schedule: Schedule, window: int) -> list[int]:
    """RotatingKVCache, the rows after each call."""
    rows, offset, found = 0, 0, []
    for tokens in calls(schedule):
        if tokens > 1:
            rows = tokens if not offset else rows - max(0, rows - window + 1) + tokens
        else:
            if not rows or (offset >= rows and rows < window):
                rows += min(256, window - offset)
            rows = min(rows, window)
        offset += tokens
        found.append(rows)
    return found


SCHEDULES = [
    Schedule(prompt + generated, generated, prefill)
    for prompt in (1, 2, 3, 100, 255, 256, 257, 258, 1000, 2048, 2049, 2050, 3001, 5000)
    for generated in (0, 1, 2, 255, 256, 257, 700)
    for prefill in (1, 7, 100, 256, 1000, 2048)
]


@pytest.mark.parametrize("chunk", [None, 100, 256, 512, 1000])
def test_plain_and_chunked_caches_grow_as_their_calls_say(chunk: int | None) -> None:
    for schedule in SCHEDULES:
        assert growing(schedule.segments, chunk) == replay_growing(schedule, chunk), schedule


@pytest.mark.parametrize("window", [2, 100, 256, 512, 1000, 4096])
def test_rotating_caches_grow_from_the_length_of_the_prompt(window: int) -> None:
    for schedule in SCHEDULES:
        replayed = replay_rotating(schedule, window)
        assert rotating(schedule.segments, window) == replayed[-1], schedule
        assert prefill_peak(schedule.segments[:-1], window) == max(replayed[: -1 - schedule.generated], default=0), schedule


def test_a_step_that_is_no_multiple_of_256_leaves_rows_that_are_none() -> None:
    """Measured with mlx-lm 0.32.2: prefill by 1,000 gives 1,024, 2,024, 3,024 rows."""
    assert [growing(((count, 1000),)) for count in (1, 2, 3)] == [1024, 2024, 3024]


def test_any_context_is_counted_at_once() -> None:
    assert growing(Schedule(2**50, 0, 1000).segments) >= 2**50
    assert growing(Schedule(2**50, 0, 1).segments) == 2**50
    assert growing(Schedule(2**50, 2**49, 2048).segments, 8192) == 8192 + 256
    assert rotating(Schedule(2**50, 0, 7).segments, 1024) == 1024
