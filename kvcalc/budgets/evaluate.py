"""Are the budgets met? Their limits against the engine's plan, and against what a memory holds."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kvcalc.budgets.question import BudgetQuestion
from kvcalc.budgets.remedies import remedies
from kvcalc.budgets.verdict import Verdict
from kvcalc.core.errors import KvcalcError
from kvcalc.questions.card import idle_share
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.budgets.file import Budget


def evaluate(budgets: Sequence[Budget], baseline: Mapping[str, int] | None = None) -> tuple[Verdict, ...]:
    """The verdict on each budget; an error of kvcalc's own tree becomes part of it. `baseline` is bytes by budget name.

    Models are taken one by one: each is read, or asked of the Hub, once, and none has to stay in memory.
    """
    found: dict[tuple[str, str], Verdict] = {}
    for _, group in groupby(sorted(budgets, key=_model_of), _model_of):
        asked = list(group)
        try:
            architecture = load(asked[0].request.model)
        except KvcalcError as error:
            found |= {_key(budget): Verdict(budget, "error", error=error) for budget in asked}
        else:
            found |= {_key(budget): _verdict(BudgetQuestion(budget, architecture, baseline)) for budget in asked}
    return tuple(found[_key(budget)] for budget in budgets)


def _key(budget: Budget) -> tuple[str, str]:
    return budget.file, budget.name


def _model_of(budget: Budget) -> str:
    return str(budget.request.model)


def _verdict(asked: BudgetQuestion) -> Verdict:
    budget, workload = asked.budget, asked.budget.request.workload
    try:
        started = asked.fitting(workload)
        plan, checks = asked.ask(workload, started)
        growth, memory = asked.growth(plan), started.memory if asked.needs_memory else None
        notes = (*budget.notes, *idle_share(budget.request, plan.notes, fits=True))
        if not any(check.over for check in checks):
            return Verdict(budget, "pass", plan, checks, growth=growth, memory=memory, notes=notes)
        return Verdict(budget, "over", plan, checks, tuple(remedies(asked, plan, checks)), growth=growth, memory=memory, notes=notes)
    except KvcalcError as error:
        return Verdict(budget, "error", error=error)
