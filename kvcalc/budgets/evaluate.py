"""Is a budget met? Its limits against one plan (and one fit), and where it is not: the nearest changes that meet it.

    Verdict.status   "pass" · "over" (a limit exceeded) · "error" (could not be evaluated; never a pass)

Every remedy is found by search over the engine's own plans and holds for all limits of the budget when it is applied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kvcalc.budgets.file import BYTE_LIMITS, MEMORY_LIMITS, Budget
from kvcalc.engines import get_engine
from kvcalc.errors import EXIT_NOT_EVALUATED, EXIT_OK, EXIT_OVER_BUDGET, EXIT_USAGE, KvcalcError, UsageError
from kvcalc.fit import MOST, REMEDY_FORMATS, largest_context, last_that
from kvcalc.memory_budget import memory_budget
from kvcalc.sources import load
from kvcalc.sources.weights import measured_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kvcalc.architecture import Architecture
    from kvcalc.plan import Capacity, Plan
    from kvcalc.workload import Workload

_DEVICES = (2, 4, 8, 16)
MOST_REMEDIES = 4


@dataclass(frozen=True, slots=True)
class Check:
    """One limit and the figure it is held against.

    over   by how much the limit is missed, in its own unit; 0 where it is met (equal to the limit passes)
    line   where the limit stands in the file
    """

    limit: str
    allowed: int
    actual: int
    line: int

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

    def to_dict(self) -> dict[str, Any]:
        """One entry of `checks` in `kvcalc.check/1`."""
        return {
            "limit": self.limit,
            "allowed": self.allowed,
            "actual": self.actual,
            "unit": self.unit,
            "over": self.over,
            "over_percent": self.percent,
            "line": self.line,
        }


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change to the budget's own keys that meets every limit."""

    change: dict[str, int | str]
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A budget, its plan, and what came of it."""

    budget: Budget
    status: str
    plan: Plan | None = None
    checks: tuple[Check, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    error: KvcalcError | None = None
    growth: Fraction | None = None

    @property
    def exit_code(self) -> int:
        """What this budget alone asks of the exit code."""
        if self.error is not None:
            return EXIT_USAGE if self.error.exit_code == EXIT_USAGE else EXIT_NOT_EVALUATED
        return EXIT_OVER_BUDGET if self.status == "over" else EXIT_OK

    def to_dict(self) -> dict[str, Any]:
        """One entry of `budgets` in `kvcalc.check/1`."""
        workload = self.budget.request.workload
        return {
            "name": self.budget.name,
            "model": _model_text(self.budget.request.model),
            "engine": self.budget.request.engine,
            "kv_dtype": self.plan.kv_dtype if self.plan else workload.kv_dtype,
            "context": self.plan.context if self.plan else workload.context,
            "sequences": workload.sequences,
            "status": self.status,
            "file": self.budget.file,
            "line": self.budget.line,
            "bytes": self.plan.bytes_dict() if self.plan else None,
            "checks": [check.to_dict() for check in self.checks],
            "growth_percent": None if self.growth is None else round(float(self.growth) * 100, 3),
            "remedies": [{"change": dict(remedy.change), "text": remedy.text} for remedy in self.remedies],
            "message": self.budget.message,
            "error": self.error.to_dict() if self.error else None,
            "notes": list(self.plan.notes) if self.plan else [],
            "warnings": list(self.plan.warnings) if self.plan else [],
        }


def _model_text(model: Any) -> str:
    return model if isinstance(model, str) else "inline"


def evaluate(budget: Budget, baseline: Mapping[str, int] | None = None) -> Verdict:
    """The verdict on one budget; an error of kvcalc's own tree becomes part of it. `baseline` is bytes by budget name."""
    try:
        architecture = load(budget.request.model)
        case = _Case(budget, architecture, baseline)
        plan = case.plan(budget.request.workload)
        checks = case.checks(budget.request.workload, plan)
        growth = case.growth(plan)
    except KvcalcError as error:
        return Verdict(budget, "error", error=error)
    if not any(check.over for check in checks):
        return Verdict(budget, "pass", plan, checks, growth=growth)
    return Verdict(budget, "over", plan, checks, case.remedies(plan), growth=growth)


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """Of all budgets together: 2, then 3, then 1 (CONTRACT, section 3)."""
    codes = {verdict.exit_code for verdict in verdicts}
    return next((code for code in (EXIT_USAGE, EXIT_NOT_EVALUATED, EXIT_OVER_BUDGET) if code in codes), EXIT_OK)


class _Case:
    """One budget's question, asked again with other contexts, sequences, formats and devices."""

    def __init__(self, budget: Budget, architecture: Architecture, baseline: Mapping[str, int] | None) -> None:
        self.budget = budget
        self.architecture = architecture
        self.engine = get_engine(budget.request.engine)
        self.baseline = baseline

    def plan(self, workload: Workload) -> Plan:
        return self.engine.plan(self.architecture, workload)

    def growth(self, plan: Plan) -> Fraction | None:
        """Growth of the total over the baseline, as a fraction of it; None without one."""
        if self.baseline is None or self.budget.name not in self.baseline:
            if "max_growth" in self.budget.limits:
                raise UsageError(
                    f"budget '{self.budget.name}' limits its growth, and there is no earlier figure to compare with",
                    "give --baseline FILE, and write it once with --update-baseline",
                )
            return None
        before = self.baseline[self.budget.name]
        return Fraction(plan.total - before, before)

    def checks(self, workload: Workload, plan: Plan) -> tuple[Check, ...]:
        """Every limit against its figure, those missed by the most first."""
        limits, lines = self.budget.limits, self.budget.limit_lines
        figures = plan.bytes_dict()
        found = [Check(name, int(limits[name]), figures[name], lines.get(name, 0)) for name in BYTE_LIMITS if name in limits]
        if any(name in limits for name in MEMORY_LIMITS):
            capacities = self.capacities(workload)
            found += [Check(name, int(limits[name]), capacities[name](), lines.get(name, 0)) for name in MEMORY_LIMITS if name in limits]
        if "max_growth" in limits:
            self.growth(plan)
            before = (self.baseline or {})[self.budget.name]
            allowed = before + int(before * Fraction(limits["max_growth"]))
            found.append(Check("max_growth", allowed, plan.total, lines.get("max_growth", 0)))
        return tuple(sorted(found, key=lambda check: -check.percent))

    def capacities(self, workload: Workload) -> dict[str, Callable[[], int]]:
        """The figures behind `min_context`, `min_sequences` and `min_tokens`, each computed when it is asked for."""
        fitting = self.engine.fitting(self.architecture, workload, self.memory(workload))
        context = self.engine.context_of(self.architecture, workload)
        return {
            "min_context": lambda: largest_context(self.architecture, workload, fitting, beyond=False) or 0,
            "min_sequences": lambda: last_that(lambda count: fitting.admits(context, count), MOST) or 0,
            "min_tokens": lambda: self.tokens(fitting.capacity(context)),
        }

    def memory(self, workload: Workload) -> int:
        """Bytes for the cache on one device: given, or what the card leaves."""
        if workload.kv_memory is not None:
            return workload.kv_memory
        request = replace(self.budget.request, workload=workload)
        return memory_budget(self.architecture, request, measured=self.measured, **self.budget.memory).kv_likely

    @cached_property
    def measured(self) -> int | None:
        """The weights' exact size, asked of the files once; None where the budget says it or the files cannot."""
        said = self.budget.memory
        return None if "weights" in said or "weight_dtype" in said else measured_weights(self.budget.request.model)

    def tokens(self, capacity: Capacity | None) -> int:
        """The engine's own capacity in tokens. Raises UsageError where it has no such notion."""
        if capacity is None or capacity.tokens is None:
            raise UsageError(
                f"{self.engine.name} has no notion of a capacity in tokens, which min_tokens limits", "use min_context instead"
            )
        return capacity.tokens

    def holds(self, workload: Workload) -> bool:
        """Every limit is met under `workload`; what the engine refuses holds nothing."""
        try:
            return not any(check.over for check in self.checks(workload, self.plan(workload)))
        except KvcalcError:
            return False

    def remedies(self, plan: Plan) -> tuple[Remedy, ...]:
        """The nearest changes that meet every limit: a shorter context, fewer sequences, a smaller format, more devices."""
        workload = self.budget.request.workload
        found: list[Remedy] = []
        context = last_that(lambda value: self.holds(replace(workload, context=value)), plan.context)
        if context:
            found.append(Remedy({"context": context}, f"context ≤ {context:,}"))
        sequences = last_that(lambda value: self.holds(replace(workload, sequences=value)), workload.sequences)
        if sequences:
            found.append(Remedy({"sequences": sequences}, f"sequences ≤ {sequences:,}"))
        for name in REMEDY_FORMATS:
            if name != plan.kv_dtype and self.holds(replace(workload, kv_dtype=name)):
                found.append(Remedy({"kv_dtype": name}, f"kv-dtype {name}"))
                break
        for ranks in _DEVICES:
            if ranks > workload.tensor_parallel and self.holds(replace(workload, tensor_parallel=ranks)):
                found.append(Remedy({"tensor_parallel": ranks}, f"tensor parallel {ranks}"))
                break
        return tuple(found[:MOST_REMEDIES])
