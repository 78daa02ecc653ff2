"""What an answer shows, before it has a format: a headline, facts, tables, text.

    document (a dict, the JSON) ── a command's view function ──▶ View ── one renderer a format ──▶ text

A view holds raw values; `show` turns one into text. No renderer knows a command, no command knows a format. All are named
tuples, which are made ten times as fast as dataclasses: every start pays for them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal, NamedTuple

from kvcalc.core.units import clean, human

#: text: names, kept on one line · prose: sentences, may be wrapped · bytes, count: exact integers · size: bytes as 64 GiB
#: ratio: 0.25 x · percent: 75.0 % · work: operations as 70.37 T · time: seconds as 1.27 ms · bar: a fraction drawn as a bar
Kind = Literal["text", "prose", "bytes", "count", "size", "ratio", "percent", "work", "time", "bar"]

#: Kinds that line up on the right.
NUMBERS = frozenset({"bytes", "count", "size", "ratio", "percent", "work", "time"})
BAR_WIDTH = 20
#: Kinds that are a number times a factor, with so many decimals and a unit.
_SCALED: dict[Kind, tuple[int, int, str]] = {"ratio": (1, 4, "x"), "percent": (100, 1, "%"), "time": (1000, 2, "ms")}
_LONGEST_CELL = 4000
#: What stands where there is no value.
NOTHING = "-"


class Column(NamedTuple):
    """One column.

    key     its name in CSV and in narrow blocks
    title   its heading
    rank    0 stays at every width; where room is short the highest ranks leave first
    """

    key: str
    title: str
    kind: Kind = "text"
    rank: int = 0


class Table(NamedTuple):
    """Rows under columns; the cells are raw values, None where there is none.

    alike   columns after the first are alike: where room is short none of them leaves, they go on in further tables below
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    title: str = ""
    alike: bool = False


class Facts(NamedTuple):
    """Labels and their sentences."""

    rows: tuple[tuple[str, str], ...]
    title: str = ""


class Text(NamedTuple):
    """Lines that keep their form: formulas, YAML."""

    lines: tuple[str, ...]
    title: str = ""


def cells_of(part: object, columns: tuple[Column, ...]) -> tuple[Any, ...]:
    """The fields of a part of a document that the columns are named after."""
    return tuple(getattr(part, column.key) for column in columns)


class View(NamedTuple):
    """An answer: the figure that was asked for, what was assumed, and the rest.

    data   the table that CSV writes; the first table among the blocks if it is not given
    """

    headline: str
    blocks: tuple[Table | Facts | Text, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    data: Table | None = None


def tidy(view: View) -> View:
    """The view with every control character replaced: names and notes may come from files, and files may hold anything."""

    def text(value: str) -> str:
        return value if value.isprintable() else clean(value, _LONGEST_CELL)

    def block(found: Table | Facts | Text) -> Table | Facts | Text:
        if isinstance(found, Facts):
            return Facts(tuple((text(label), text(value)) for label, value in found.rows), text(found.title))
        if isinstance(found, Text):
            return Text(tuple(text(line) for line in found.lines), text(found.title))
        return table(found)

    def table(found: Table) -> Table:
        rows = tuple(tuple(text(value) if isinstance(value, str) else value for value in row) for row in found.rows)
        return Table(found.columns, rows, text(found.title), found.alike)

    return View(
        headline=text(view.headline),
        blocks=tuple(block(found) for found in view.blocks),
        notes=tuple(text(note) for note in view.notes),
        warnings=tuple(text(warning) for warning in view.warnings),
        data=None if view.data is None else table(view.data),
    )


def show(kind: Kind, value: Any) -> str:
    """One cell as text: exact, and never cut."""
    if value is None:
        return NOTHING
    if kind in ("bytes", "count") and isinstance(value, int):
        return f"{value:,}"
    if kind == "size":
        return human(value)
    if kind in _SCALED:
        factor, places, unit = _SCALED[kind]
        return f"{_decimal(Fraction(value) * factor, places)} {unit}"
    if kind == "work":
        return _operations(value)
    if kind == "bar":
        return bar(Fraction(value))
    return clean(value, _LONGEST_CELL)


def bar(part: Fraction, mark: str = "#") -> str:
    """A bar of BAR_WIDTH for 1, at least one mark for anything above 0, one mark more where it would overflow."""
    if part <= 0:
        return ""
    if part > 1:
        return mark * BAR_WIDTH + ">"
    return mark * max(1, round(part * BAR_WIDTH))


def _operations(value: int) -> str:
    """`70.37 T`: decimal prefixes, two decimals."""
    for power, prefix in ((30, "Q"), (27, "R"), (24, "Y"), (21, "Z"), (18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M")):
        if value >= 10**power:
            return f"{_decimal(Fraction(value, 10**power), 2)} {prefix}"
    return f"{value:,}"


def _decimal(value: Fraction, places: int) -> str:
    """`value` rounded half up to at most `places` decimals, trailing zeros left out; enough places to never show 0 for more."""
    while value and abs(value) * 2 * 10**places < 1 and places < 12:
        places += 1
    scaled = (abs(value) * 10**places * 2 + 1) // 2
    whole, rest = divmod(int(scaled), 10**places)
    text = f"{whole:,}.{rest:0{places}d}".rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 and text != "0" else text
