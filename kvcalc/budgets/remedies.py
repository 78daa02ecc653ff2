"""The nearest changes that meet every limit of a budget: a shorter context, fewer sequences, a smaller format, more devices.

Each is found by asking the engine again, and holds for all limits when it is written into the budget. Searches start where a
figure in proportion would meet its limit, which is mostly within a block of the answer.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.budgets.file import MEMORY_LIMITS
from kvcalc.core.errors import KvcalcError
from kvcalc.questions.documents.check import BudgetRemedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcalc.budgets.evaluate import Case
    from kvcalc.budgets.verdict import Check
    from kvcalc.core.plan import Plan
    from kvcalc.engines.base.engine import Fitting

_DEVICES = (2, 4, 8, 16)


def remedies(case: Case, plan: Plan, checks: tuple[Check, ...]) -> Iterator[BudgetRemedy]:
    """Changes of one key each, where there are such, in the words of the file: they can be pasted into the budget."""
    workload = case.budget.request.workload
    part = min((Fraction(check.allowed, check.actual) for check in checks if check.over and check.limit not in MEMORY_LIMITS), default=1)
    # A budget whose context is under its own min_context, or under the prefix that it shares, is refused when it is read.
    least = max(1, workload.shared_prefix, int(case.budget.limits.get("min_context", 1)))
    started = case.fitting(workload)
    context = last_between(least, plan.context, int(plan.context * part), lambda length: _holds(case, started, context=length))
    if context is not None:
        yield BudgetRemedy({"context": context}, case.budget.change("context", context))
    few = last_between(1, workload.sequences, int(workload.sequences * part), lambda count: _holds(case, sequences=count))
    if few is not None:
        yield BudgetRemedy({"sequences": few}, case.budget.change("sequences", few))
    name = next((name for name in case.engine.remedy_formats if name != plan.kv_dtype and _holds(case, kv_dtype=name)), None)
    if name is not None:
        yield BudgetRemedy({"kv_dtype": name}, case.budget.change("kv_dtype", name))
    ranks = next((ranks for ranks in _DEVICES if ranks > workload.tensor_parallel and _holds(case, tensor_parallel=ranks)), None)
    if ranks is not None:
        yield BudgetRemedy({"tensor_parallel": ranks}, case.budget.change("tensor_parallel", ranks))


def _holds(case: Case, started: Fitting | None = None, **change: Any) -> bool:
    """Every limit is met with that change to the question; what the engine refuses holds nothing."""
    try:
        workload = replace(case.budget.request.workload, **change)
        _, checks = case.ask(workload, started or case.fitting(workload))
    except KvcalcError:
        return False
    return not any(check.over for check in checks)


def last_between(least: int, most: int, guess: int, holds: Callable[[int], bool]) -> int | None:
    """The largest integer from `least` to `most` at which a monotone condition holds, searched outwards from `guess`.

    None where it does not hold at `least`.
    """
    if most < least or not holds(least):
        return None
    low, high = least, most + 1  # it holds at `low`, and does not, or is not asked, at `high`
    probe, step = min(max(guess, low + 1), most), 1
    while high - low > 1:
        if holds(probe):
            low, probe = probe, probe + step
        else:
            high, probe = probe, probe - step
        step *= 2
        if not low < probe < high:
            probe = (low + high) // 2
    return low
