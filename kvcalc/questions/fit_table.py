"""`fit --table`: how many sequences of each length a memory holds, format by format.

context         1k, 2k, 4k, … up to the context that was asked for, else the model's maximum
per_sequence    bytes of one sequence of that length, all devices
max_sequences   most sequences of that length at once: 0 = not even one; None = nothing ends it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvcalc.engines import get_engine
from kvcalc.engines.base.search import most_sequences
from kvcalc.questions.documents.fit import Cell, FitTableDocument, LengthRow
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, model_of
from kvcalc.questions.fit import Budget, read_budget
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.engines.base.engine import Fitting
    from kvcalc.questions.request import Request

#: Where a table begins.
FIRST = 1024


@dataclass(frozen=True, slots=True)
class FitTable(Answer):
    """Rows of lengths, columns of formats; `plan` is that of the longest in the first format."""

    architecture: Architecture
    request: Request
    plan: Plan
    budget: Budget
    rows: tuple[LengthRow, ...]

    def document(self) -> FitTableDocument:
        """`kvcalc.fit_table/1`."""
        return FitTableDocument(
            model=model_of(self.architecture),
            workload=asked_of(self.request.workload, self.plan.context),
            engine=engine_of(self.plan),
            kv_dtype=self.plan.kv_dtype,
            budget=self.budget.document(),
            rows=self.rows,
            notes=self.plan.notes,
            warnings=self.plan.warnings,
        )


def fit_table(request: Request, formats: Sequence[str], *, budget: Budget | None = None) -> FitTable:
    """Every length in every format. Raises what loading or planning raises, and UsageError without a budget."""
    budget = budget or read_budget(request)
    architecture, engine = load(request.model), get_engine(request.engine)
    longest = engine.context_of(architecture, request.workload)
    workload = replace(request.workload, sequences=1)
    columns = [engine.fitting(architecture, replace(workload, kv_dtype=name), budget.kv_bytes_per_device) for name in formats]
    rows = tuple(LengthRow(context, tuple(_cell(column, context) for column in columns)) for context in lengths_to(longest))
    return FitTable(architecture, replace(request, workload=workload), columns[0].plan(columns[0].workload), budget, rows)


def lengths_to(longest: int) -> list[int]:
    """Powers of two from FIRST, and `longest` itself at the end."""
    found = []
    length = FIRST
    while length < longest:
        found.append(length)
        length *= 2
    return [*found, longest]


def _cell(fitting: Fitting, context: int) -> Cell:
    asked = replace(fitting.workload, context=context, shared_prefix=min(context, fitting.workload.shared_prefix))
    plan = fitting.plan(asked)
    return Cell(plan.kv_dtype, plan.per_sequence, most_sequences(fitting, context) if fitting.admits(context, 1) else 0)
