"""`plain`: aligned text without escapes, boxes or markup, as wide as it needs to be."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from kvcalc.render.layout import LEAST_PROSE, blocks, cells, narrowed, widths
from kvcalc.render.view import NUMBERS, Facts, Table, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcalc.render.view import View

GAP = 2
#: How much further in a line goes on that was too wide.
_FURTHER = 4


def render(view: View, width: int | None = None) -> str:
    """The view as text; with `width`, tables leave out columns that do not fit it."""
    parts = [[view.headline]]
    parts.extend(_block(block, width) for block in view.blocks)
    return "\n\n".join("\n".join(line.rstrip() for line in lines) for lines in parts if lines) + "\n"


def _block(block: Table | Facts | Text, width: int | None) -> list[str]:
    title = [block.title] if block.title else []
    if isinstance(block, Facts):
        return [*title, *facts(block.rows, width)]
    return [*title, *(block.lines if isinstance(block, Text) else _table(block, width))]


def facts(rows: tuple[tuple[str, str], ...] | list[tuple[str, str]], width: int | None) -> list[str]:
    """Labels and values in two columns; a value that is too long goes on below itself."""
    if not rows:
        return []
    margin = max(len(label) for label, _ in rows) + GAP
    lines: list[str] = []
    for label, value in rows:
        wrapped = wrap(value, None if width is None else width - margin)
        lines.append(f"{label:<{margin}}{wrapped[0]}")
        lines.extend(" " * margin + line for line in wrapped[1:])
    return lines


def wrap(text: str, width: int | None) -> list[str]:
    """`text` in lines of at most `width`, broken between words only."""
    if width is None or len(text) <= width:
        return [text]
    return textwrap.wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False) or [""]


def broken(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Lines that keep their form; one that is too wide goes on below itself, a little further in."""
    for line in lines:
        if width is None or len(line) <= width:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip()) + _FURTHER)
        yield from textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _table(table: Table, width: int | None) -> list[str]:
    if not table.rows:
        return ["(none)"]
    fitting, _ = narrowed(table, width, GAP)
    if fitting is None:
        return stacked(table, width)
    texts = cells(fitting)
    needs = squeezed(fitting, texts, width, GAP)
    lines = [_row(fitting, [column.title for column in fitting.columns], needs)]
    for row in texts:
        wrapped = [
            wrap(text, need) if column.kind == "prose" else [text] for column, text, need in zip(fitting.columns, row, needs, strict=True)
        ]
        height = max(len(cell) for cell in wrapped)
        lines.extend(_row(fitting, [cell[index] if index < len(cell) else "" for cell in wrapped], needs) for index in range(height))
    return lines


def stacked(table: Table, width: int | None) -> list[str]:
    """A block of lines for each row, where no table fits."""
    lines: list[str] = []
    for block in blocks(table):
        lines.extend([*facts(block, width), ""])
    return lines[:-1]


def squeezed(table: Table, texts: list[list[str]], width: int | None, gap: int) -> list[int]:
    """The width of each column: what it needs, but prose gives up what the table is too wide by."""
    needs = widths(table, texts)
    if width is None:
        return needs
    for index, column in enumerate(table.columns):
        over = sum(needs) + gap * (len(needs) - 1) - width
        if over > 0 and column.kind == "prose":
            needs[index] = max(needs[index] - over, min(needs[index], LEAST_PROSE))
    return needs


def _row(table: Table, texts: list[str], needs: list[int]) -> str:
    return (" " * GAP).join(
        f"{text:>{need}}" if column.kind in NUMBERS else f"{text:<{need}}"
        for column, text, need in zip(table.columns, texts, needs, strict=True)
    )
