"""`kvcalc.check/1` in the formats of CI systems: one file a format, each a function from the document to text.

junit.py · sarif.py · github.py · gitlab.py · markdown.py
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Format → its module; each has `report(document) -> str`.
REPORTS: dict[str, str] = {
    "junit": "kvcalc.render.reports.junit",
    "sarif": "kvcalc.render.reports.sarif",
    "github": "kvcalc.render.reports.github",
    "gitlab": "kvcalc.render.reports.gitlab",
    "markdown": "kvcalc.render.reports.markdown",
}


def report(document: Mapping[str, Any], name: str) -> str:
    """The document in the format of that name, with a newline at its end."""
    function: Callable[[Mapping[str, Any]], str] = import_module(REPORTS[name]).report
    return function(document)
