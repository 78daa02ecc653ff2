"""Room: which columns fit a width. A number is never cut; a column leaves, or the row becomes a block of lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.render.view import NOTHING, Table, show

if TYPE_CHECKING:
    from kvcalc.render.view import Column

#: Sentences may be wrapped, but not below this.
LEAST_PROSE = 24


def cells(table: Table) -> list[list[str]]:
    """Every cell as text."""
    return [[show(column.kind, value) for column, value in zip(table.columns, row, strict=True)] for row in table.rows]


def widths(table: Table, texts: list[list[str]]) -> list[int]:
    """The width that each column needs for its longest cell."""
    return [max([len(column.title), *(len(row[index]) for row in texts)]) for index, column in enumerate(table.columns)]


def narrowed(table: Table, width: int | None, gap: int) -> tuple[Table | None, list[Column]]:
    """The table with the columns that fit into `width`, and those that left; None if not even the ranks 0 fit."""
    if width is None:
        return table, []
    left: list[Column] = []
    needs = dict(zip(table.columns, widths(table, cells(table)), strict=True))
    least = {column: min(need, LEAST_PROSE) if column.kind == "prose" else need for column, need in needs.items()}
    kept = list(table.columns)
    while sum(least[column] for column in kept) + gap * (len(kept) - 1) > width:
        highest = max(column.rank for column in kept)
        if highest == 0:
            return None, []
        leaving = next(column for column in reversed(kept) if column.rank == highest)
        kept.remove(leaving)
        left.append(leaving)
    return select(table, kept), left


def parted(table: Table, width: int, gap: int) -> list[Table]:
    """A table whose columns are alike as several that fit into `width`, each with the first column; as it is where it fits."""
    first, *others = range(len(table.columns))
    needs = widths(table, cells(table))
    parts: list[list[int]] = [[first]]
    for index in others:
        if len(parts[-1]) > 1 and sum(needs[kept] + gap for kept in parts[-1]) + needs[index] > width:
            parts.append([first])
        parts[-1].append(index)
    return [select(table, [table.columns[index] for index in kept]) for kept in parts]


def select(table: Table, kept: list[Column]) -> Table:
    """The table with only the columns `kept`."""
    places = [table.columns.index(column) for column in kept]
    return Table(tuple(kept), tuple(tuple(row[place] for place in places) for row in table.rows), table.title)


def blocks(table: Table) -> list[list[tuple[str, str]]]:
    """Each row as lines of title and value, for a width that no table fits; what has no value has no line."""
    return [
        [(column.title, text) for column, text in zip(table.columns, row, strict=True) if column.kind != "bar" and text != NOTHING]
        for row in cells(table)
    ]
