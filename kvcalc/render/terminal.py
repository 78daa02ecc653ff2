"""`table`: Rich, for people at a terminal. The same columns as `plain`, with weight and a little colour."""

from __future__ import annotations

import io
import os
import shutil
import sys

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text as RichText

from kvcalc.render import plain
from kvcalc.render.layout import cells, narrowed
from kvcalc.render.view import NUMBERS, Facts, Table, Text, View

#: Two spaces between columns: Rich's simple box pads each by one on both sides.
_GAP = 2
_MARGIN = 2
#: Wide enough for anything, where there is no terminal to be narrow.
_NO_TERMINAL = 100_000


def render(view: View, *, to_terminal: bool) -> str:
    """The view as Rich draws it; escapes only for a terminal that wants them."""
    width = shutil.get_terminal_size().columns if to_terminal else None
    colour = to_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width or _NO_TERMINAL,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
        safe_box=True,
    )
    figure, _, rest = view.headline.partition(" for ")
    console.print(RichText.assemble((figure, "bold"), f" for {rest}" if rest else ""), soft_wrap=width is None)
    for block in view.blocks:
        console.print()
        _print(console, block, width)
    return "\n".join(line.rstrip() for line in stream.getvalue().split("\n"))


def _print(console: Console, block: Table | Facts | Text, width: int | None) -> None:
    if isinstance(block, Facts):
        for line in plain.facts(block.rows, width):
            console.print(line, soft_wrap=True)
        return
    if block.title:
        console.print(RichText(block.title, "bold"), soft_wrap=True)
    if isinstance(block, Text):
        for line in block.lines:
            console.print(line, soft_wrap=True)
        return
    fitting, left = narrowed(block, width, _GAP, _MARGIN)
    if fitting is None:
        console.print(plain.render(View("", (block,)), width).strip("\n"), soft_wrap=True)
        return
    _table(console, fitting)
    if left:
        names = ", ".join(column.title for column in reversed(left))
        console.print(RichText(f"not shown at this width: {names} (-f plain shows all)", "dim"), soft_wrap=False)


def _table(console: Console, table: Table) -> None:
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=True, padding=(0, 1), header_style="bold", show_edge=False)
    for column in table.columns:
        drawn.add_column(
            RichText(column.title),
            justify="right" if column.kind in NUMBERS else "left",
            no_wrap=column.kind != "prose",
            overflow="fold",
        )
    for row in cells(table):
        drawn.add_row(*(_cell(column.kind, text) for column, text in zip(table.columns, row, strict=True)))
    console.print(drawn)


def _cell(kind: str, text: str) -> RichText:
    if kind == "bar":
        return RichText(text.replace("#", "\N{FULL BLOCK}"), "cyan")
    return RichText(text, "bold" if kind == "bytes" else "")


def is_terminal() -> bool:
    """Stdout is a terminal that can be drawn on."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
