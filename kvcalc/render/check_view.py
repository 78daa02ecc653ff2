"""The view of `kvcalc.check/1`: what is not met first, the limit above the value, then the table of all budgets."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.render.reports.sentences import amount, first_line, fits_with, missed, question, sentences
from kvcalc.render.view import Column, Table, Text, View
from kvcalc.units import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

_STATES = {"pass": "met", "over": "EXCEEDED", "error": "NOT EVALUATED"}
_COLUMNS = (
    Column("name", "budget"),
    Column("status", "state"),
    Column("limit", "limit", "text", 1),
    Column("allowed", "allowed", "count"),
    Column("actual", "figure", "count"),
    Column("used", "used", "percent", 2),
    Column("question", "asked", "text", 3),
)


def view(document: Mapping[str, Any]) -> View:
    """What `kvcalc check` shows."""
    summary, budgets = document["summary"], document["budgets"]
    blocks = [_unmet(budget) for budget in budgets if budget["status"] != "pass"]
    rows = tuple(row for budget in budgets for row in _rows(budget))
    headline = f"{summary['passed']} of {summary['budgets']} budgets met: {document['file']}"
    if summary["over"]:
        headline += f"; {summary['over']} exceeded"
    if summary["errors"]:
        headline += f"; {summary['errors']} not evaluated"
    table = Table(_COLUMNS, rows)
    return View(headline, (*blocks, table), tuple(document["notes"]), _warnings(budgets), data=table)


def _unmet(budget: Mapping[str, Any]) -> Text:
    """`EXCEEDED by 1,024 B (1 KiB), 5 %`, the limit above the value, the place to edit, the owner's message, the remedies."""
    title = f"{_STATES[budget['status']]} {clean(budget['name'])}"
    place = f"edit      {budget['file']}:{first_line(budget)}"
    if budget["status"] == "error":
        return Text((*sentences(budget), place), title)
    lines: list[str] = []
    for check in missed(budget):
        unit = check["unit"]
        sign = "short" if check["limit"].startswith("min_") else "over"
        lines.append(f"{sign:<10}{amount(check['over'], unit)}, {check['over_percent']:g} %")
        lines.append(f"limit     {amount(check['allowed'], unit)} {check['limit']}")
        lines.append(f"value     {amount(check['actual'], unit)}")
    lines += [f"asked     {question(budget)}", place]
    lines += [clean(text, 2000) for text in (budget["message"], fits_with(budget)) if text]
    return Text(tuple(lines), title)


def _rows(budget: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    state, asked = _STATES[budget["status"]], question(budget)
    if not budget["checks"]:
        return [(budget["name"], state, None, None, None, None, asked)]
    return [
        (
            budget["name"],
            "EXCEEDED" if check["over"] else "met",
            check["limit"],
            check["allowed"],
            check["actual"],
            Fraction(check["actual"], check["allowed"]) if check["allowed"] else None,
            asked,
        )
        for check in budget["checks"]
    ]


def _warnings(budgets: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{clean(budget['name'])}: {text}" for budget in budgets for text in budget["warnings"])
