"""`fit --table`: how many sequences of each length a memory holds, format by format.

context         1k, 2k, 4k, … up to the context that was asked for, else the model's maximum
per_sequence    bytes of one sequence of that length, all devices
max_sequences   most sequences of that length at once: 0 = not even one; None = nothing ends it
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvcalc.engines import get_engine
from kvcalc.engines.base.search import most_sequences
from kvcalc.questions.estimate import engine_dict, model_dict, workload_dict
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
class Cell:
    """One length in one format."""

    kv_dtype: str
    per_sequence: int
    max_sequences: int | None

    def to_dict(self) -> dict[str, Any]:
        """One entry of `cells` in `kvcalc.fit_table/1`."""
        return {"kv_dtype": self.kv_dtype, "per_sequence": self.per_sequence, "max_sequences": self.max_sequences}


@dataclass(frozen=True, slots=True)
class FitTable:
    """Rows of lengths, columns of formats; `plan` is that of the longest in the first format."""

    architecture: Architecture
    request: Request
    plan: Plan
    budget: Budget
    rows: tuple[tuple[int, tuple[Cell, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        """The document `kvcalc.fit_table/1`."""
        return {
            "schema": "kvcalc.fit_table/1",
            "model": model_dict(self.architecture),
            "workload": workload_dict(self.request.workload, self.plan.context),
            "engine": engine_dict(self.plan),
            "kv_dtype": self.plan.kv_dtype,
            "budget": self.budget.to_dict(),
            "rows": [{"context": context, "cells": [cell.to_dict() for cell in cells]} for context, cells in self.rows],
            "notes": list(self.plan.notes),
            "warnings": list(self.plan.warnings),
        }


def fit_table(request: Request, formats: Sequence[str], *, budget: Budget | None = None) -> FitTable:
    """Every length in every format. Raises what loading or planning raises, and UsageError without a budget."""
    budget = budget or read_budget(request)
    architecture, engine = load(request.model), get_engine(request.engine)
    longest = engine.context_of(architecture, request.workload)
    workload = replace(request.workload, sequences=1)
    columns = [engine.fitting(architecture, replace(workload, kv_dtype=name), budget.kv_bytes_per_device) for name in formats]
    rows = tuple((context, tuple(_cell(column, context) for column in columns)) for context in lengths_to(longest))
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
