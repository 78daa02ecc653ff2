"""GitLab code quality: a list of issues, each with a fingerprint that stays the same from run to run."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from kvcalc.render.reports.sentences import first_line, name_of, sentences

if TYPE_CHECKING:
    from kvcalc.questions.documents.check import CheckDocument


def report(document: CheckDocument) -> str:
    """One issue a budget that is not met."""
    issues = [
        {
            "description": f"{name_of(budget)}: " + ". ".join(sentences(budget)),
            "check_name": "kvcalc-budget",
            "fingerprint": hashlib.sha256(f"{budget.file}\0{budget.name}\0{budget.status}".encode()).hexdigest(),
            "severity": "major" if budget.status == "over" else "critical",
            "location": {"path": budget.file, "lines": {"begin": first_line(budget)}},
        }
        for budget in document.budgets
        if budget.status != "pass"
    ]
    return json.dumps(issues, indent=2) + "\n"
