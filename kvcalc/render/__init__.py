"""From a document to text: `emit` picks the format, writes the answer, and says the notes beside it.

The first line of an answer is the figure that was asked for. Notes and warnings go to stderr, and stand right behind it on a
terminal; documents that carry them (json, yaml, markdown, html) do not repeat them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean, unobeyed
from kvcalc.render.output import say, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from kvcalc.questions.documents.kinds import Document
    from kvcalc.render.view import View

    #: What a command hands to `emit` besides its document: the function that says how it is shown.
    ViewOf: TypeAlias = Callable[[Any], View]

_Document = TypeVar("_Document", bound="Document")

FORMATS = ("table", "plain", "json", "yaml", "csv", "markdown", "html")
#: What the ending of an `--output` file says about its format.
ENDINGS = {"json": "json", "yaml": "yaml", "yml": "yaml", "csv": "csv", "md": "markdown", "html": "html", "htm": "html"}
#: The document itself.
_DOCUMENTS = ("json", "yaml")


def emit(
    document: _Document,
    view_of: Callable[[_Document], View],
    format_name: str | None = None,
    output: str | None = None,
) -> None:
    """Write `document` in the format asked for, or by the file's ending (else a table on a terminal, or plain). Raises UsageError."""
    name = chosen_format(format_name, output)
    if name in _DOCUMENTS:
        write(text_of(document, view_of, name), output)
        return
    from kvcalc.render.view import tidy

    view = tidy(view_of(document))
    text = _text(view, name, output)
    if output is None and name in ("table", "plain"):
        headline, gap, rest = text.partition("\n\n")  # on a narrow terminal the headline takes several lines
        write(headline + "\n" if gap else headline)
        _say_notes(view)
        write("\n" + rest if gap else "")
        return
    write(text, output)
    if name not in ("markdown", "html"):
        _say_notes(view)


def text_of(document: _Document, view_of: Callable[[_Document], View], name: str) -> str:
    """`document` in the format of that name, as a file holds it. Raises UsageError."""
    if name in _DOCUMENTS:
        from kvcalc.questions.documents.kinds import plain
    if name == "json":
        from kvcalc.render.documents import as_json

        return as_json(plain(document))
    if name == "yaml":
        from kvcalc.render.documents import as_yaml

        return as_yaml(plain(document))
    from kvcalc.render.view import tidy

    return _text(tidy(view_of(document)), name, "a file")


def chosen_format(name: str | None, output: str | None = None) -> str:
    """The format in force. Raises UsageError for an unknown one."""
    if name is None:
        return ENDINGS.get(ending(output)) or ("table" if output is None and _on_terminal() else "plain")
    if name not in FORMATS:
        raise UsageError(f"--format: unknown format '{clean(name, 40)}'", nearest(name, FORMATS) or "one of " + ", ".join(FORMATS))
    return name


def ending(output: str | None) -> str:
    """What stands behind the last dot of a file's name, in small letters; an empty string where there is none."""
    name = (output or "").replace("\\", "/").rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name[1:] else ""


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _text(view: View, name: str, output: str | None) -> str:
    """The view in that format. No line of it is a command to a CI system, whatever a file held and wherever a line is broken."""
    return unobeyed(_rendered(view, name, output))


def _rendered(view: View, name: str, output: str | None) -> str:
    if name == "table":
        from kvcalc.render import terminal

        return terminal.render(view, to_terminal=output is None and _on_terminal())
    if name == "plain":
        from kvcalc.render import plain

        return plain.render(view)
    if name == "csv":
        from kvcalc.render import delimited

        return delimited.render(view)
    if name == "markdown":
        from kvcalc.render import markdown

        return markdown.render(view)
    from kvcalc.render import html_page

    return html_page.render(view)


def _say_notes(view: View) -> None:
    say([*(f"warning: {clean(text, 1000)}" for text in view.warnings), *(f"note: {clean(text, 1000)}" for text in view.notes)])
