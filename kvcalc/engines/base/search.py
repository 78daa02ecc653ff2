"""The one search behind every "how much fits": contexts, sequences and memories, found by asking the engine.

An engine says how much a question leaves of its memory: at least nothing where it fits, less where it does not. What is left
never grows with the context or the number of sequences, so the last one that fits is found by guessing where nothing is left (a
line through the last two answers), and settled by an answer on both sides of it. No formula is inverted: where the guess is
poor, doubled steps and halves find the place. About ten answers are enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.workload import MOST as MOST_SEQUENCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Fitting

#: Beyond this no context and no number of sequences is searched: what still fits there has no limit.
MOST = 2**40
#: Beyond this many bytes no memory is searched: a question that still does not fit there fits nowhere.
MOST_MEMORY = 2**60
#: Where a context is looked for first where the model's maximum is not known.
_USUAL = 2**17
#: Guesses in a row that leave more than half of the range open, before the range is halved instead.
_PATIENCE = 2


def largest_context(architecture: Architecture, workload: Workload, fitting: Fitting, *, beyond: bool) -> int | None:
    """The largest context at which the asked sequences fit; None where not even one token does, or where nothing ends it."""
    known = architecture.max_context
    most = MOST if beyond or known is None else known
    if workload.context is not None and workload.context > most:
        most = workload.context
    first = known or max(workload.context or 0, _USUAL)
    found = last_within(lambda length: fitting.left(length, workload.sequences), most, first=first, grain=fitting.grain)
    return found if found != MOST else None


def most_sequences(fitting: Fitting, context: int) -> int | None:
    """The most sequences of `context` tokens that fit; None where not even one does, or where nothing ends it (they wait for a slot)."""

    def left(count: int) -> int:
        try:
            return fitting.left(context, count)
        except EngineRejectsError:
            if count <= fitting.workload.sequences:
                raise
            return -1  # the engine has no room for so many, whatever the memory

    found = last_within(left, MOST_SEQUENCES)
    return found if found != MOST_SEQUENCES else None


def least_memory(fitting: Fitting, context: int, planned: int) -> int | None:
    """The least bytes per device in which the asked sequences of `context` tokens fit; None where no memory is enough.

    planned    bytes per device of their plan: where the search begins, and seldom far from the answer
    """

    def missing(memory: int) -> int:
        """At least 0 where the memory is too small."""
        return -1 - replace(fitting, memory=memory).left(context, fitting.workload.sequences)

    if missing(0) < 0:
        return 0
    short = last_within(missing, MOST_MEMORY, first=planned) or 0
    return short + 1 if short < MOST_MEMORY else None


def last_that(holds: Callable[[int], bool], most: int) -> int | None:
    """The largest integer from 1 to `most` at which a monotone condition holds; None where it does not hold at 1."""
    return last_within(lambda n: 0 if holds(n) else -1, most)


def last_between(least: int, most: int, guess: int, holds: Callable[[int], bool]) -> int | None:
    """The largest integer from `least` to `most` at which a monotone condition holds, searched outwards from `guess`.

    None where it does not hold at `least`.
    """
    before = least - 1
    found = last_within(lambda n: 0 if holds(before + n) else -1, most - before, first=guess - before) if most >= least else None
    return None if found is None else before + found


def last_within(left: Callable[[int], int], most: int, *, first: int = 2, grain: int = 1) -> int | None:
    """The largest integer from 1 to `most` at which `left` is at least 0, as long as `left` never rises; None where it is not at 1.

    first    where to look first after 1
    grain    `left` falls at multiples of it, as far as is known: it is exact whatever this says, and slower where it is wrong
    """
    value = left(1)
    if value < 0:
        return None
    low, high = 1, most + 1
    older, newer = (1, value), (1, value)
    guess, step, slow, halving = first, 1, 0, False
    while high - low > 1:
        width = high - low
        probe = min(max(guess, low + 1), high - 1)
        value = left(probe)
        low, high = (probe, high) if value >= 0 else (low, probe)
        older, newer = newer, (probe, value)
        slow = 0 if 2 * (high - low) <= width else slow + 1
        meeting = _meeting(older, newer)
        if meeting is not None and slow <= _PATIENCE:
            guess, step, halving = _on_grain(meeting, low, grain), 1, False
            continue
        halving = halving or (older[1] >= 0) != (value >= 0)
        if halving or 2 * step > high - low:
            guess = (low + high) // 2
        else:
            guess = low + step if value >= 0 else high - step
            step *= 2
    return low


def _meeting(older: tuple[int, int], newer: tuple[int, int]) -> int | None:
    """Where a line through two points reaches 0, rounded down; None where it does not fall, or only says yes and no."""
    rise, run = newer[1] - older[1], newer[0] - older[0]
    if run < 0:
        rise, run = -rise, -run
    return newer[0] + newer[1] * run // -rise if rise < -1 else None


def _on_grain(place: int, low: int, grain: int) -> int:
    """The end of the step that `place` lies in: a multiple of the grain above `low`, or else the next place to look."""
    whole = place // grain * grain
    if whole > low:
        return whole
    return low + 1 if low % grain == 0 else low + grain - low % grain
