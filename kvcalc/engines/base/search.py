"""The one search behind every "how much fits": contexts, sequences and memories, by bisection over the engine's own word.

An engine says whether a context and a number of sequences fit a memory, which is monotone in each. No formula is inverted.
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


def largest_context(architecture: Architecture, workload: Workload, fitting: Fitting, *, beyond: bool) -> int | None:
    """The largest context at which the asked sequences fit; None where not even one token does, or where nothing ends it."""
    known = architecture.max_context
    most = MOST if beyond or known is None else known
    if workload.context is not None and workload.context > most:
        most = workload.context
    found = last_that(lambda length: fitting.admits(length, workload.sequences), most)
    return found if found != MOST else None


def most_sequences(fitting: Fitting, context: int) -> int | None:
    """The most sequences of `context` tokens that fit; None where not even one does, or where nothing ends it (they wait for a slot)."""

    def holds(count: int) -> bool:
        try:
            return fitting.admits(context, count)
        except EngineRejectsError:
            if count <= fitting.workload.sequences:
                raise
            return False  # the engine has no room for so many, whatever the memory

    found = last_that(holds, MOST_SEQUENCES)
    return found if found != MOST_SEQUENCES else None


def least_memory(fitting: Fitting, context: int, planned: int) -> int | None:
    """The least bytes per device in which the asked sequences of `context` tokens fit; None where no memory is enough.

    planned    bytes per device of their plan: where the search begins
    """

    def short(memory: int) -> bool:
        return not replace(fitting, memory=memory).admits(context, fitting.workload.sequences)

    if not short(planned):  # an engine may start with less than it would fill
        return (last_that(lambda memory: short(memory - 1), planned) or 0) if planned else 0
    missing = last_that(lambda more: short(planned + more - 1), MOST_MEMORY) or 0
    return planned + missing if missing < MOST_MEMORY else None


def last_that(holds: Callable[[int], bool], most: int) -> int | None:
    """The largest integer from 1 to `most` at which a monotone condition holds; None where it does not hold at 1."""
    if not holds(1):
        return None
    low, high = 1, 2
    while high < most and holds(high):
        low, high = high, high * 2
    if high >= most:
        if holds(most):
            return most
        high = most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
