"""`kvcalc.check/1` in the formats of CI systems: one file a format, each a function from the document to text.

junit.py · sarif.py · github.py · gitlab.py · markdown.py
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.questions.documents.check import CheckDocument

#: Format → its module; each has `report(document) -> str`.
REPORTS: dict[str, str] = {
    "junit": "kvcalc.render.reports.junit",
    "sarif": "kvcalc.render.reports.sarif",
    "github": "kvcalc.render.reports.github",
    "gitlab": "kvcalc.render.reports.gitlab",
    "markdown": "kvcalc.render.reports.markdown",
}


def report(document: CheckDocument, name: str) -> str:
    """The document in the format of that name, with a newline at its end."""
    function: Callable[[CheckDocument], str] = import_module(REPORTS[name]).report
    return function(document)
