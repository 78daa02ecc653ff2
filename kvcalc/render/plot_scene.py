"""A chart as shapes on a plane, which plot_svg.py writes and plot_png.py paints: what stands where is settled here, once.

The colours are those of Okabe and Ito (2008), which people with any colour vision tell apart; lines differ in their dashes too,
so that they survive a black-and-white printer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kvcalc.render.plot_axes import Axis, axes
from kvcalc.render.plot_words import legend, title

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.questions.documents.plot import PlotDocument

WIDTH = 960
_LEFT, _RIGHT, _TOP, _PLOT_HEIGHT, _FOOT = 90, 30, 64, 380, 64
_ROW = 24
#: What a character of a label is taken to be wide, for leaving room.
_CHARACTER = 7.5
_LEGEND_LINE = 34
TEXT_SIZE, TITLE_SIZE = 13, 16

INK, FAINT, PAPER = "#222222", "#d8d8d8", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES: tuple[tuple[int, ...], ...] = ((), (9, 4), (2, 4), (12, 4, 2, 4))
_BUDGET_DASH = (5, 3)


class Stroke(NamedTuple):
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    colour: str = INK
    width: float = 1.0
    dash: tuple[int, ...] = ()


class Dot(NamedTuple):
    """A filled circle."""

    x: float
    y: float
    radius: float
    colour: str


class Label(NamedTuple):
    """Text whose base line begins, ends or is centred at a point."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"] = "start"
    size: int = TEXT_SIZE
    colour: str = INK


class Scene(NamedTuple):
    """All shapes, in the order in which they are drawn, on a plane of that size."""

    width: int
    height: int
    shapes: tuple[Stroke | Dot | Label, ...]


def scene(document: PlotDocument) -> Scene:
    """Title, grid, axes, lines, legend."""
    texts = legend(document)
    columns = max(1, int((WIDTH - _LEFT - _RIGHT) / (max(len(text) for text in texts) * _CHARACTER + _LEGEND_LINE + 20)))
    rows = -(-len(texts) // columns)
    across, up = axes(document)
    shapes = (
        Label(_LEFT, 26, title(document), size=TITLE_SIZE),
        Label(_LEFT, 50, up.title),
        *_grid(across, up),
        *_lines(document, across, up),
        *_legend(texts, columns, bool(document.kv_memory)),
    )
    return Scene(WIDTH, _TOP + _PLOT_HEIGHT + _FOOT + rows * _ROW, shapes)


def _x(across: Axis, context: float) -> float:
    return _LEFT + across.place(context) * (WIDTH - _LEFT - _RIGHT)


def _y(up: Axis, size: float) -> float:
    return _TOP + (1 - up.place(size)) * _PLOT_HEIGHT


def _grid(across: Axis, up: Axis) -> Iterator[Stroke | Label]:
    bottom = _TOP + _PLOT_HEIGHT
    for tick, text in up.ticks:
        y = _y(up, tick)
        yield Stroke(((_LEFT, y), (WIDTH - _RIGHT, y)), FAINT)
        yield Label(_LEFT - 8, y + 4, text, "end")
    for tick, text in across.ticks:
        x = _x(across, tick)
        yield Stroke(((x, _TOP), (x, bottom)), FAINT)
        yield Label(x, bottom + 20, text, "middle")
    yield Stroke(((_LEFT, _TOP), (_LEFT, bottom), (WIDTH - _RIGHT, bottom)), INK, 1.5)
    yield Label((_LEFT + WIDTH - _RIGHT) / 2, bottom + 42, across.title, "middle")


def _lines(document: PlotDocument, across: Axis, up: Axis) -> Iterator[Stroke | Dot]:
    if document.kv_memory:
        y = _y(up, document.kv_memory)
        yield Stroke(((_LEFT, y), (WIDTH - _RIGHT, y)), INK, 1.5, _BUDGET_DASH)
    for place, series in enumerate(document.series):
        points = tuple((_x(across, point.context), _y(up, point.bytes_of(document.figure))) for point in series.points)
        colour, dash = _style(place)
        yield Stroke(points, colour, 2.5, dash)
        yield Dot(*points[-1], 4, colour)


def _style(place: int) -> tuple[str, tuple[int, ...]]:
    return COLOURS[place % len(COLOURS)], DASHES[place % len(DASHES)]


def _legend(texts: list[str], columns: int, has_budget: bool) -> Iterator[Stroke | Label]:
    step = (WIDTH - _LEFT - _RIGHT) / columns
    for place, text in enumerate(texts):
        x, y = _LEFT + place % columns * step, _TOP + _PLOT_HEIGHT + _FOOT + place // columns * _ROW
        is_budget = has_budget and place == len(texts) - 1
        colour, dash = (INK, _BUDGET_DASH) if is_budget else _style(place)
        yield Stroke(((x, y - 4), (x + _LEGEND_LINE - 8, y - 4)), colour, 1.5 if is_budget else 2.5, dash)
        yield Label(x + _LEGEND_LINE, y, text)
