"""The chart as text: one mark a line, plain characters only, for a terminal, a pipe or a log.

16 |                          aaa        each line is drawn with its letter; where lines meet, the later one shows
 4 |              aaaaaaaaaaaa   bb
 1 |  aaaaaaaaaaaa     bbbbbbbbbb
   +--+-----------+-----------+--
     1k          4k          16k
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kvcalc.render.plot_axes import Axis, axes
from kvcalc.render.plot_words import legend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.questions.documents.plot import PlotDocument

MARKS = "abcdefghijklmnopqrstuvwxyz"
BUDGET_MARK = "="
HEIGHT = 16
_LEAST_COLUMNS = 20


def chart(document: PlotDocument, width: int) -> list[str]:
    """Lines of at most `width` characters where the labels leave room for it."""
    across, up = axes(document)
    labels = {_row(up, tick): label for tick, label in up.ticks}
    margin = max(len(label) for label in labels.values()) + 2
    columns = max(width - margin - 1, _LEAST_COLUMNS)
    grid = [[" "] * columns for _ in range(HEIGHT)]
    if document.kv_memory:
        grid[_row(up, document.kv_memory)] = [BUDGET_MARK] * columns
    for mark, series in zip(MARKS, document.series, strict=False):
        _draw(grid, mark, across, up, [(point.context, point.bytes_of(document.figure)) for point in series.points])
    lines = [up.title]
    lines += [f"{labels.get(row, ''):>{margin - 2}} |{''.join(cells)}".rstrip() for row, cells in reversed(list(enumerate(grid)))]
    return [*lines, *_foot(across, margin, columns), *_legend(document)]


def _row(up: Axis, size: float) -> int:
    return round(up.place(size) * (HEIGHT - 1))


def _draw(grid: list[list[str]], mark: str, across: Axis, up: Axis, points: Sequence[tuple[int, int]]) -> None:
    """Every column between two points, and every row between two columns."""
    columns = len(grid[0])
    places = [(across.place(context) * (columns - 1), up.place(size) * (HEIGHT - 1)) for context, size in points]
    grid[round(places[0][1])][round(places[0][0])] = mark
    for (left, low), (right, high) in pairwise(places):
        steps = max(round(right) - round(left), abs(round(high) - round(low)), 1)
        for step in range(1, steps + 1):
            part = step / steps
            grid[round(low + (high - low) * part)][round(left + (right - left) * part)] = mark


def _foot(across: Axis, margin: int, columns: int) -> list[str]:
    """The lower edge, and the contexts under it; a label that would touch the one before it is left out."""
    edge = ["-"] * columns
    under = ""
    for tick, label in across.ticks:
        column = round(across.place(tick) * (columns - 1))
        edge[column] = "+"
        begin = max(margin + column - len(label) // 2, 0)
        if begin > len(under) or not under:
            under = under.ljust(begin) + label
    return [" " * (margin - 1) + "+" + "".join(edge), under, across.title.rjust(margin + columns)]


def _legend(document: PlotDocument) -> list[str]:
    marks = MARKS[: len(document.series)] + BUDGET_MARK
    return ["", *(f"{mark}  {text}" for mark, text in zip(marks, legend(document), strict=False))]
