"""`table`: Rich, for people at a terminal. The same columns as `plain`, with weight and a little colour."""

from __future__ import annotations

import io
import os
import shutil
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from kvcalc.render import plain
from kvcalc.render.layout import cells, narrowed, parted
from kvcalc.render.view import NUMBERS, Facts, Table, Text

if TYPE_CHECKING:
    from kvcalc.render.view import Column, View

#: Rich pads a cell by one on its right, and the box puts one more between two columns.
_GAP = 2
#: Wide enough for anything: what fits is settled before Rich draws.
_NO_TERMINAL = 100_000


def render(view: View, *, to_terminal: bool) -> str:
    """The view as Rich draws it; escapes only for a terminal that wants them."""
    width = shutil.get_terminal_size().columns if to_terminal else None
    colour = to_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=_NO_TERMINAL,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        safe_box=True,
    )
    first, *others = plain.wrap(view.headline, width)
    figure, _, rest = first.partition(" for ")
    console.print(RichText.assemble((figure, "bold"), f" for {rest}" if rest else ""))
    for line in others:
        console.print(line)
    for block in view.blocks:
        console.print()
        _print(console, block, width)
    return "\n".join(line.rstrip() for line in stream.getvalue().split("\n"))


def _print(console: Console, block: Table | Facts | Text, width: int | None) -> None:
    for line in plain.wrap(block.title, width) if block.title else ():
        console.print(RichText(line, "bold"))
    if not isinstance(block, Table):
        for line in plain.facts(block.rows, width) if isinstance(block, Facts) else plain.broken(block.lines, width):
            console.print(line)
        return
    if block.alike and width is not None:
        for place, part in enumerate(parted(block, width, _GAP)):
            console.print("\n" * (place > 0), end="")
            _columns(console, part, width)
        return
    _columns(console, block, width)


def _columns(console: Console, block: Table, width: int | None) -> None:
    """A table, without the columns that do not fit, or each row as a block of lines."""
    fitting, left = narrowed(block, width, _GAP)
    if fitting is None:
        console.print("\n".join(plain.stacked(block, width or _NO_TERMINAL)))
        return
    _table(console, fitting, width)
    names = ", ".join(column.title for column in reversed(left) if column.title)
    if names:
        for line in plain.wrap(f"not shown at this width: {names} (-f plain shows all)", width):
            console.print(RichText(line, "dim"))


def _table(console: Console, table: Table, width: int | None) -> None:
    """The console is as wide as it likes: what fits has been settled before, so Rich has no reason to cut."""
    texts = cells(table)
    needs = plain.squeezed(table, texts, width, _GAP)
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold", show_edge=False)
    for column, need in zip(table.columns, needs, strict=True):
        drawn.add_column(
            RichText(column.title), justify="right" if column.kind in NUMBERS else "left", width=need, no_wrap=column.kind != "prose"
        )
    for row in texts:
        drawn.add_row(*(_cell(column, text) for column, text in zip(table.columns, row, strict=True)))
    console.print(drawn)


def _cell(column: Column, text: str) -> RichText:
    if column.kind == "bar":
        return RichText(text.replace("#", "\N{FULL BLOCK}"), "cyan")
    return RichText(text, "bold" if column.kind == "bytes" and column.rank == 0 else "")
