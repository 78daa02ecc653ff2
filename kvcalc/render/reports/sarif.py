"""SARIF 2.1.0, as code scanning reads it: one result a budget that is not met, on the line to edit."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kvcalc import __version__
from kvcalc.render.reports.sentences import first_line, name_of, question, sentences

if TYPE_CHECKING:
    from kvcalc.questions.documents.check import CheckDocument, Verdict

_RULES = {
    "over": ("budget-exceeded", "A KV-cache budget is exceeded"),
    "error": ("budget-not-evaluated", "A KV-cache budget could not be evaluated"),
}


def report(document: CheckDocument) -> str:
    """One run, with the rules that its results refer to."""
    rules = [{"id": rule, "shortDescription": {"text": text}, "defaultConfiguration": {"level": "error"}} for rule, text in _RULES.values()]
    driver = {"name": "kvcalc", "version": __version__, "rules": rules}
    results = [_result(budget) for budget in document.budgets if budget.status in _RULES]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(log, indent=2) + "\n"


def _result(budget: Verdict) -> dict[str, Any]:
    rule, _ = _RULES[budget.status]
    place = {"artifactLocation": {"uri": quote(budget.file.replace("\\", "/"))}, "region": {"startLine": first_line(budget)}}
    mark = hashlib.sha256(f"{rule}\0{budget.file}\0{budget.name}".encode()).hexdigest()
    return {
        "ruleId": rule,
        "level": "error",
        "message": {"text": f"{name_of(budget)} ({question(budget)}): " + ". ".join(sentences(budget))},
        "locations": [{"physicalLocation": place}],
        "partialFingerprints": {"kvcalcBudget/v1": mark},
    }
