"""Rows that MLX-LM's cache classes hold after a schedule of forward calls (mlx-lm 0.32.2: models/cache.py, generate.py).

A prompt of p tokens goes in by calls of `prefill_step_size` tokens until one is left, that one alone, then one call a generated
token. `KVCache` grows in steps of 256 rows. `RotatingKVCache` takes a prompt as it is and grows in steps of 256 from there, up to
its window. `ChunkedKVCache` drops the front before each call so that one chunk is left, and then grows as the first does.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

#: Rows by which every class grows (`step` of the classes).
STEP = 256


class Schedule(NamedTuple):
    """Calls of one sequence: a prompt in steps of `prefill`, its last token alone, then `generated` tokens one by one."""

    context: int
    generated: int
    prefill: int

    @property
    def prompt(self) -> int:
        """Tokens that were read, not generated."""
        return self.context - self.generated

    @property
    def segments(self) -> tuple[tuple[int, int], ...]:
        """(calls, tokens a call), in order."""
        whole, rest = divmod(self.prompt - 1, self.prefill)
        return ((whole, self.prefill), (int(rest > 0), rest), (1 + self.generated, 1))

    @property
    def before_last(self) -> int:
        """Tokens that are cached before the last call."""
        return self.context - 1


@lru_cache(maxsize=4096)
def growing(segments: tuple[tuple[int, int], ...], chunk: int | None = None) -> int:
    """Rows of a `KVCache`, or of a `ChunkedKVCache` of `chunk` tokens, after these calls.

    Calls that change nothing are taken together, and whole periods are skipped: a context of any length costs as much as a short one.
    """
    held = rows = 0
    for calls, tokens in segments:
        left, seen = calls, dict[tuple[int, int], int]()
        while left:
            if chunk is not None and held > chunk:
                held = rows = chunk
            room = (rows - held) // tokens
            if chunk is not None:
                room = min(room, (chunk - held) // tokens + 1)
            if room:
                taken = min(left, room)
                held, left = held + taken * tokens, left - taken
                continue
            rows = (held if held % STEP else rows) + _stepped(tokens)
            held, left = held + tokens, left - 1
            key = (rows - held, held % STEP) if chunk is None else (rows, held)
            before = seen.setdefault(key, left)
            if before != left:
                skipped = left // (before - left) * (before - left)
                if chunk is None:
                    held, rows = held + skipped * tokens, rows + skipped * tokens
                left, seen = left - skipped, {}
    return rows


@lru_cache(maxsize=4096)
def rotating(segments: tuple[tuple[int, int], ...], window: int) -> int:
    """Rows of a `RotatingKVCache` of `window` tokens after these calls."""
    held = rows = 0
    for calls, tokens in segments:
        if not calls:
            continue
        if tokens > 1:
            rows = _concatenated(rows, held, calls, tokens, window)
        elif rows >= window:
            rows = window
        elif held + calls > rows:
            rows = min(window, rows + _stepped(held + calls - rows))
        held += calls * tokens
    return rows


def _concatenated(rows: int, held: int, calls: int, tokens: int, window: int) -> int:
    """After `calls` calls of several tokens: live rows beyond window - 1 are dropped before each, all new ones are kept."""
    before = held + (calls - 1) * tokens
    if calls == 1 and not rows:
        return tokens
    return min(before, window - 1) + tokens


def prefill_peak(segments: tuple[tuple[int, int], ...], window: int) -> int:
    """The most rows of a `RotatingKVCache` at the end of any call of these."""
    most = 0
    for place, (calls, tokens) in enumerate(segments):
        if calls:
            most = max(most, rotating((*segments[:place], (calls, tokens)), window))
    return most


def _stepped(tokens: int) -> int:
    return -(-tokens // STEP) * STEP
