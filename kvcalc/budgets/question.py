"""One budget as a question to its engine, which is asked again when something of it changes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from kvcalc.budgets.file import BYTE_LIMITS, MEMORY_LIMITS, Budget
from kvcalc.budgets.verdict import Check
from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import MOST, largest_context, last_that
from kvcalc.questions.card import memory_budget, without_share
from kvcalc.sources.weights import measured_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Capacity, Plan
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Engine, Fitting


class BudgetQuestion:
    """One budget's question, which is asked again with other contexts, sequences, formats and devices."""

    def __init__(self, budget: Budget, architecture: Architecture, baseline: Mapping[str, int] | None) -> None:
        self.budget = budget
        self.architecture = architecture
        self.baseline = baseline
        self.needs_memory = any(name in budget.limits for name in MEMORY_LIMITS)

    @cached_property
    def engine(self) -> Engine:
        """The budget's engine. Raises UsageError where there is no such."""
        return get_engine(self.budget.request.engine)

    def fitting(self, workload: Workload) -> Fitting:
        """The engine, started once for every context of that question, with the memory that its limits are about."""
        if not self.needs_memory:
            return self.engine.fitting(self.architecture, workload, 0)
        if workload.kv_memory is not None:
            return self.engine.fitting(self.architecture, workload, workload.kv_memory)
        request = replace(self.budget.request, workload=workload)
        left = memory_budget(self.architecture, request, measured=self._measured, **self.budget.memory).kv_likely
        return self.engine.fitting(self.architecture, without_share(request).workload, left)

    def ask(self, workload: Workload, fitting: Fitting) -> tuple[Plan, tuple[Check, ...]]:
        """The plan, and every limit against its figure, those missed by the most first."""
        plan = fitting.plan(workload)
        limits, lines = self.budget.limits, self.budget.limit_lines
        found = [Check(name, int(limits[name]), getattr(plan, name), lines.get(name, 0)) for name in BYTE_LIMITS if name in limits]
        if self.needs_memory:
            capacities = self._capacities(workload, fitting)
            asked = [(name, capacities[name]()) for name in MEMORY_LIMITS if name in limits]
            found += [Check(name, int(limits[name]), held, lines.get(name, 0), unbounded=held == MOST) for name, held in asked]
        if "max_growth" in limits:
            before = self._before()
            allowed = before + int(before * Fraction(limits["max_growth"]))
            found.append(Check("max_growth", allowed, plan.total, lines.get("max_growth", 0)))
        return plan, tuple(sorted(found, key=lambda check: -check.percent))

    def growth(self, plan: Plan) -> Fraction | None:
        """Growth of the total over the baseline, as a fraction of it; None for a budget that the baseline does not have."""
        before = (self.baseline or {}).get(self.budget.name)
        return None if before is None else Fraction(plan.total - before, before)

    def _before(self) -> int:
        """The baseline's figure. Raises UsageError where there is none to hold a limit on growth against."""
        before = (self.baseline or {}).get(self.budget.name)
        if before is None:
            raise UsageError(
                f"budget '{self.budget.name}' limits its growth, and there is no earlier figure to compare with",
                "give --baseline FILE, and write it once with --update-baseline",
            )
        return before

    def _capacities(self, workload: Workload, fitting: Fitting) -> dict[str, Callable[[], int]]:
        """The figures behind `min_context`, `min_sequences` and `min_tokens`, each computed when it is asked for."""
        context = self.engine.context_of(self.architecture, workload)
        return {
            "min_context": lambda: self._longest(workload, fitting),
            "min_sequences": lambda: last_that(lambda count: fitting.admits(context, count), MOST) or 0,
            "min_tokens": lambda: self._tokens(fitting.capacity(context)),
        }

    def _longest(self, workload: Workload, fitting: Fitting) -> int:
        """The largest context that fits: 0 where none does, MOST where nothing ends it."""
        found = largest_context(self.architecture, workload, fitting, beyond=False)
        if found is not None:
            return found
        return MOST if fitting.admits(1, workload.sequences) else 0

    def _tokens(self, capacity: Capacity | None) -> int:
        """The engine's own capacity in tokens. Raises UsageError where it has no such notion."""
        if capacity is None or capacity.tokens is None:
            raise UsageError(
                f"{self.engine.name} has no notion of a capacity in tokens, which min_tokens limits", "use min_context instead"
            )
        return capacity.tokens

    @cached_property
    def _measured(self) -> int | None:
        """The weights' exact size, asked of the files once; None where the budget says it or the files cannot."""
        said = self.budget.memory
        return None if "weights" in said or "weight_dtype" in said else measured_weights(self.budget.request.model)
