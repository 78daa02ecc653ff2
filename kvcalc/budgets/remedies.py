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
from kvcalc.engines.base.search import last_between
from kvcalc.questions.documents.check import BudgetRemedy
from kvcalc.questions.remedies import Room, nearest_changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.budgets.question import BudgetQuestion
    from kvcalc.budgets.verdict import Check
    from kvcalc.core.plan import Plan
    from kvcalc.engines.base.engine import Fitting

_DEVICES = (2, 4, 8, 16)


def remedies(asked: BudgetQuestion, plan: Plan, checks: tuple[Check, ...]) -> Iterator[BudgetRemedy]:
    """Changes of one key each, where there are such, in the words of the file: they can be pasted into the budget."""
    workload = asked.budget.request.workload
    part = min(
        (Fraction(check.allowed, check.actual) for check in checks if check.over and check.limit not in MEMORY_LIMITS), default=Fraction(1)
    )
    # A budget whose context is under its own min_context, or under the prefix that it shares, is refused when it is read.
    least = max(1, workload.shared_prefix, int(asked.budget.limits.get("min_context", 1)))
    started = asked.fitting(workload)
    room = Room(
        last_between(least, plan.context, int(plan.context * part), lambda length: _holds(asked, "context", length, started)),
        workload.sequences,
        part,
        (name for name in asked.engine.remedy_formats if name != plan.kv_dtype),
        (ranks for ranks in _DEVICES if ranks > workload.tensor_parallel),
    )
    for setting, value in nearest_changes(room, lambda setting, value: _holds(asked, setting, value)):
        yield BudgetRemedy({setting: value}, asked.budget.change(setting, value))


def _holds(asked: BudgetQuestion, setting: str, value: int | str, started: Fitting | None = None) -> bool:
    """Every limit is met with that change to the question; what the engine refuses holds nothing."""
    changed: Any = {setting: value}
    try:
        workload = replace(asked.budget.request.workload, **changed)
        _, checks = asked.ask(workload, started or asked.fitting(workload))
    except KvcalcError:
        return False
    return not any(check.over for check in checks)
