"""Markdown for a pull request's comment or a job summary: what is not met first, then the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.render.reports.sentences import amount, first_line, missed, name_of, question, sentences, warnings

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARKS = {"pass": "met", "over": "**exceeded**", "error": "**not evaluated**"}
_ESCAPED = {ord(character): "\\" + character for character in "\\`*_{}[]<>#|~"}


def report(document: Mapping[str, Any]) -> str:
    """A heading with the counts, a section a budget that is not met, and a table of all."""
    summary = document["summary"]
    lines = [f"### KV-cache budgets: {summary['passed']} met, {summary['over']} exceeded, {summary['errors']} not evaluated", ""]
    for budget in document["budgets"]:
        if budget["status"] != "pass":
            lines.append(f"**{_plain(name_of(budget))}** ({_plain(question(budget))}), {_plain(budget['file'])}:{first_line(budget)}")
            lines += [f"- {_plain(sentence)}" for sentence in sentences(budget)]
            lines.append("")
    lines += ["| budget | state | limit | figure | growth |", "|---|---|--:|--:|--:|"]
    lines += [_row(budget) for budget in document["budgets"]]
    said = [f"- **warning:** {_plain(text)}" for text in warnings(document)]
    lines += ["", *said] if said else []
    return "\n".join(lines) + "\n"


def _row(budget: Mapping[str, Any]) -> str:
    worst = next(iter(missed(budget) or budget["checks"]), None)
    limit = f"{worst['limit']} {amount(worst['allowed'], worst['unit'])}" if worst else "-"
    figure = amount(worst["actual"], worst["unit"]) if worst else "-"
    growth = "-" if budget["growth_percent"] is None else f"{budget['growth_percent']:+g} %"
    cells = (name_of(budget), None, limit, figure, growth)
    return "| " + " | ".join(_MARKS[budget["status"]] if cell is None else _plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    return text.translate(_ESCAPED)
