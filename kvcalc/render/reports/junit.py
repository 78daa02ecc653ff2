"""JUnit XML, as Jenkins, GitLab and most dashboards read it: a failure where a limit is missed, an error where nothing is known."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from kvcalc.render.reports.sentences import first_line, name_of, question, sentences

if TYPE_CHECKING:
    from kvcalc.questions.documents.check import CheckDocument, Verdict


def report(document: CheckDocument) -> str:
    """One test suite, one test case a budget."""
    budgets = document.budgets
    counts = {status: sum(budget.status == status for budget in budgets) for status in ("over", "error")}
    totals = f'tests="{len(budgets)}" failures="{counts["over"]}" errors="{counts["error"]}"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuites name="kvcalc" {totals}>',
        f'  <testsuite name="kvcalc" {totals} skipped="0">',
    ]
    for budget in budgets:
        lines += _case(budget)
    return "\n".join([*lines, "  </testsuite>", "</testsuites>", ""])


def _case(budget: Verdict) -> list[str]:
    head = f"    <testcase classname={quoteattr(budget.file)} name={quoteattr(name_of(budget))}"
    if budget.status == "pass":
        return [head + "/>"]
    said = sentences(budget)
    kind = "error" if budget.status == "error" else "failure"
    text = "\n".join([f"{budget.file}:{first_line(budget)}", question(budget), *said])
    return [
        f"{head}>",
        f"      <{kind} message={quoteattr(said[0])} type={quoteattr('kvcalc.' + budget.status)}>{escape(text)}</{kind}>",
        "    </testcase>",
    ]
