"""`markdown`: for a pull request, an issue, a page. Notes and warnings stand in the text, which travels without stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.render.layout import cells
from kvcalc.render.view import NUMBERS, Facts, Table, Text

if TYPE_CHECKING:
    from kvcalc.render.view import View

#: Characters that Markdown would read as its own.
_SPECIAL = str.maketrans({character: "\\" + character for character in "\\`*_[]<>|#"})


def render(view: View) -> str:
    """The view as GitHub-flavoured Markdown."""
    parts = [f"**{_escape(view.headline)}**"]
    parts.extend(part for part in (_block(block) for block in view.blocks) if part)
    said = [f"- **warning:** {_escape(text)}" for text in view.warnings] + [f"- {_escape(text)}" for text in view.notes]
    if said:
        parts.append("\n".join(said))
    return "\n\n".join(parts) + "\n"


def _block(block: Table | Facts | Text) -> str:
    title = f"**{_escape(block.title)}**\n\n" if block.title else ""
    if isinstance(block, Text):
        return title + "\n".join(["```text", *block.lines, "```"])
    if isinstance(block, Facts):
        return title + "\n".join(f"- {_escape(label)}: {_escape(value)}" for label, value in block.rows)
    lines = [
        [_escape(column.title) for column in block.columns],
        ["---:" if column.kind in NUMBERS else "---" for column in block.columns],
        *([_escape(text) for text in row] for row in cells(block)),
    ]
    return title + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _escape(text: str) -> str:
    return text.translate(_SPECIAL)
