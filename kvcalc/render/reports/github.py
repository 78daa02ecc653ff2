"""GitHub Actions: an annotation on the line to edit, as a workflow command; the job summary is the markdown report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import clean
from kvcalc.render.reports.sentences import first_line, name_of, sentences

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcalc.questions.documents.check import CheckDocument

_MESSAGE = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = _MESSAGE | {":": "%3A", ",": "%2C"}


def report(document: CheckDocument) -> str:
    """One `::error` a budget that is not met, one `::warning` a warning, and one closing line."""
    lines = [
        annotation(budget.file, first_line(budget), f"KV cache: {name_of(budget)}", sentences(budget))
        for budget in document.budgets
        if budget.status != "pass"
    ]
    lines += [
        annotation(budget.file, first_line(budget), f"KV cache: {name_of(budget)}", [clean(text, 1000)], "warning")
        for budget in document.budgets
        for text in budget.warnings
    ]
    summary = document.summary
    lines.append(f"kvcalc: {summary.passed} met, {summary.over} exceeded, {summary.errors} not evaluated")
    return "\n".join(lines) + "\n"


def annotation(file: str, line: int, title: str, said: Iterable[str], level: str = "error") -> str:
    """The workflow command that puts `said` on a line of a file; on none where the file is not known."""
    place = f"file={_escaped(file, _PROPERTY)},line={line}," if file else ""
    return f"::{level} {place}title={_escaped(title, _PROPERTY)}::{_escaped(chr(10).join(filter(None, said)), _MESSAGE)}"


def _escaped(text: str, table: Mapping[str, str]) -> str:
    return "".join(table.get(character, character) for character in text)
