"""What came of a budget: each limit beside its figure, the changes that would meet it, and what that asks of the exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from kvcalc.budgets.file import MEMORY_LIMITS
from kvcalc.core.errors import EXIT_INTERNAL, EXIT_NOT_EVALUATED, EXIT_OK, EXIT_OVER_BUDGET, EXIT_USAGE
from kvcalc.core.units import clean
from kvcalc.questions.documents.check import BudgetRemedy
from kvcalc.questions.documents.check import Check as CheckFigures
from kvcalc.questions.documents.check import Verdict as VerdictFigures
from kvcalc.questions.documents.parts import fault_of, figures_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from kvcalc.budgets.file import Budget
    from kvcalc.core.errors import KvcalcError
    from kvcalc.core.plan import Plan

_GRAVEST_FIRST = (EXIT_INTERNAL, EXIT_USAGE, EXIT_NOT_EVALUATED, EXIT_OVER_BUDGET)


@dataclass(frozen=True, slots=True)
class Check:
    """One limit and the figure it is held against.

    over        by how much the limit is missed, in its own unit; 0 where it is met (equal to the limit passes)
    line        where the limit stands in the file
    unbounded   nothing ends the figure: `actual` is the most that is searched
    """

    limit: str
    allowed: int
    actual: int
    line: int
    unbounded: bool = False

    @property
    def over(self) -> int:
        """By how much the limit is missed."""
        return max(0, self.allowed - self.actual if self.limit in MEMORY_LIMITS else self.actual - self.allowed)

    @property
    def percent(self) -> float:
        """`over` as a percentage of the limit, to one decimal; for people, never compared."""
        return round(self.over * 100 / self.allowed, 1)

    @property
    def unit(self) -> str:
        """What the figures count: "B", "tokens" or "sequences"."""
        return "sequences" if self.limit == "min_sequences" else "tokens" if self.limit in MEMORY_LIMITS else "B"

    def document(self) -> CheckFigures:
        """One of the `checks` of a document."""
        return CheckFigures(
            cast("Any", self.limit), self.allowed, self.actual, cast("Any", self.unit), self.over, self.percent, self.line, self.unbounded
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A budget, its plan, and what came of it.

    status   "pass" · "over" (a limit exceeded) · "error" (could not be evaluated; never a pass)
    memory   bytes a device for the cache that min_context, min_sequences and min_tokens were held against; None without such limits
    notes    besides those of the plan
    """

    budget: Budget
    status: Literal["pass", "over", "error"]
    plan: Plan | None = None
    checks: tuple[Check, ...] = ()
    remedies: tuple[BudgetRemedy, ...] = ()
    error: KvcalcError | None = None
    growth: Fraction | None = None
    memory: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """What this budget alone asks of the exit code."""
        if self.error is not None:
            return self.error.exit_code
        return EXIT_OVER_BUDGET if self.status == "over" else EXIT_OK

    def document(self) -> VerdictFigures:
        """One of the `budgets` of a document."""
        model, workload, plan = self.budget.request.model, self.budget.request.workload, self.plan
        return VerdictFigures(
            name=self.budget.name,
            model=clean(model, 300) if isinstance(model, str) else "inline",
            engine=clean(self.budget.request.engine),
            kv_dtype=plan.kv_dtype if plan else clean(workload.kv_dtype),
            context=plan.context if plan else workload.context,
            sequences=workload.sequences,
            tensor_parallel=workload.tensor_parallel,
            pipeline_parallel=workload.pipeline_parallel,
            gpu=workload.gpu,
            kv_bytes_per_device=self.memory,
            status=self.status,
            file=self.budget.file,
            line=self.budget.line,
            bytes=figures_of(plan) if plan else None,
            checks=tuple(check.document() for check in self.checks),
            growth_percent=None if self.growth is None else round(float(self.growth) * 100, 3),
            remedies=self.remedies,
            message=self.budget.message,
            error=fault_of(self.error) if self.error else None,
            notes=(*(plan.notes if plan else ()), *self.notes),
            warnings=plan.warnings if plan else (),
        )


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Of all budgets together: a bug of ours, then 2, then 3, then 1; 0 if every budget is met."""
    codes = {verdict.exit_code for verdict in verdicts}
    return next((code for code in _GRAVEST_FIRST if code in codes), EXIT_OK)
