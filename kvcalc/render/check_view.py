"""The view of `kvcalc.check/1`: what is not met first, the limit above the value, then the table of all budgets."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean
from kvcalc.render.reports.sentences import amount, first_line, fits_with, memory, missed, question, warnings
from kvcalc.render.view import Column, Facts, Table, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcalc.questions.documents.check import Check, CheckDocument, Verdict

_LONGEST = 2000
_STATES = {"pass": "met", "over": "EXCEEDED", "error": "NOT EVALUATED"}
_COLUMNS = (
    Column("name", "budget"),
    Column("status", "state"),
    Column("limit", "limit"),
    Column("allowed", "allowed", "count", 3),
    Column("actual", "figure", "count", 2),
    Column("used", "of limit", "percent", 1),
    Column("question", "asked", "text", 4),
)
#: What CSV has besides: figures without a unit, and the unit in a column of its own.
_DATA = (*_COLUMNS[:-1], Column("unit", "unit"), _COLUMNS[-1])


def view(document: CheckDocument) -> View:
    """What `kvcalc check` shows."""
    summary, budgets = document.summary, document.budgets
    blocks = [_unmet(budget) for budget in budgets if budget.status != "pass"]
    rows = [row for budget in budgets for row in _rows(budget)]
    headline = f"{summary.passed} of {summary.budgets} budgets met: {document.file}"
    if summary.over:
        headline += f"; {summary.over} exceeded"
    if summary.errors:
        headline += f"; {summary.errors} not evaluated"
    return View(
        headline,
        (*blocks, _table(_COLUMNS, map(_with_units, rows))),
        document.notes,
        tuple(warnings(document)),
        data=_table(_DATA, rows),
    )


def _unmet(budget: Verdict) -> Facts:
    """By how much, the limit above the value, what was asked, the place to edit, the owner's message, the remedies."""
    found: list[tuple[str, str]] = []
    error = budget.error
    if error:
        found += [("error", error.message), ("next", error.hint)]
    for check in missed(budget):
        unit = check.unit
        sign = "short" if check.limit.startswith("min_") else "over"
        found.append((sign, f"{amount(check.over, unit)}, {check.over_percent:g} %"))
        found.append(("limit", f"{amount(check.allowed, unit)} {check.limit}"))
        found.append(("value", amount(check.actual, unit)))
    found += [("asked", question(budget)), ("memory", memory(budget)), ("edit", f"{budget.file}:{first_line(budget)}")]
    if not error:
        found += [("message", budget.message), ("fits with", fits_with(budget))]
    rows = tuple((label, clean(text, _LONGEST)) for label, text in found if text)
    return Facts(rows, f"{_STATES[budget.status]} {clean(budget.name)}")


def _rows(budget: Verdict) -> list[dict[str, Any]]:
    return [_row(budget, check) for check in budget.checks] or [_row(budget, None)]


def _row(budget: Verdict, check: Check | None) -> dict[str, Any]:
    """A cell for each column of CSV."""
    row: dict[str, Any] = dict.fromkeys(column.key for column in _DATA)
    row |= {"name": budget.name, "status": _STATES[budget.status], "question": question(budget)}
    if check is not None:
        row |= {"limit": check.limit, "allowed": check.allowed, "actual": None if check.unbounded else check.actual, "unit": check.unit}
        row["status"] = "EXCEEDED" if check.over else "met"
        row["used"] = Fraction(check.actual, check.allowed) if check.allowed and not check.unbounded else None
    return row


def _with_units(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as people read it: each figure with its unit; a figure that nothing ends says so."""
    if row["unit"] is None:
        return {**row}
    return {**row} | {key: "no limit" if row[key] is None else f"{row[key]:,} {row['unit']}" for key in ("allowed", "actual")}


def _table(columns: tuple[Column, ...], rows: Iterable[Mapping[str, Any]]) -> Table:
    return Table(columns, tuple(tuple(row[column.key] for column in columns) for row in rows))
