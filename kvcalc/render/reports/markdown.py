"""Markdown for a pull request's comment or a job summary: what is not met first, then the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.render.reports.sentences import amount, first_line, name_of, question, sentences, warnings

if TYPE_CHECKING:
    from kvcalc.questions.documents.check import CheckDocument, Verdict

_MARKS = {"pass": "met", "over": "**exceeded**", "error": "**not evaluated**"}
_ESCAPED = {ord(character): "\\" + character for character in "\\`*_{}[]<>#|~"}


def report(document: CheckDocument) -> str:
    """A heading with the counts, a section a budget that is not met, and a table of all."""
    summary = document.summary
    lines = [f"### KV-cache budgets: {summary.passed} met, {summary.over} exceeded, {summary.errors} not evaluated", ""]
    for budget in document.budgets:
        if budget.status != "pass":
            lines.append(f"**{_plain(name_of(budget))}** ({_plain(question(budget))}), {_plain(budget.file)}:{first_line(budget)}")
            lines += [f"- {_plain(sentence)}" for sentence in sentences(budget)]
            lines.append("")
    lines += ["| budget | state | limit | figure | growth |", "|---|---|--:|--:|--:|"]
    lines += [row for budget in document.budgets for row in _rows(budget)]
    said = [f"- **warning:** {_plain(text)}" for text in warnings(document)]
    lines += ["", *said] if said else []
    return "\n".join(lines) + "\n"


def _rows(budget: Verdict) -> list[str]:
    """A row a limit, those missed by the most first; one for a budget that could not be evaluated."""
    growth = "-" if budget.growth_percent is None else f"{budget.growth_percent:+g} %"
    if not budget.checks:
        return [_row(name_of(budget), budget.status, "-", "-", growth)]
    return [
        _row(
            name_of(budget),
            "over" if check.over else "pass",
            f"{check.limit} {amount(check.allowed, check.unit)}",
            amount(check.actual, check.unit),
            growth,
        )
        for check in budget.checks
    ]


def _row(name: str, status: str, *cells: str) -> str:
    return "| " + " | ".join([_plain(name), _MARKS[status], *map(_plain, cells)]) + " |"


def _plain(text: str) -> str:
    return text.translate(_ESCAPED)
