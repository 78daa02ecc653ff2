"""The view of `kvcalc.fit_table/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean, show_bytes
from kvcalc.render.estimate_view import engine_name
from kvcalc.render.fit_view import memory_table
from kvcalc.render.view import Column, Table, View, cells_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.fit import Cell, FitTableDocument, LengthRow


def view(document: FitTableDocument) -> View:
    """What `kvcalc fit --table` shows: a row for each length, two columns for each format."""
    formats = [cell.kv_dtype for cell in document.rows[0].cells]
    named = len(formats) > 1
    columns = [Column("context", "context", "count")]
    for place, name in enumerate(formats):
        one, fit = (f"one in {name}", f"fit in {name}") if named else ("one sequence", "sequences")
        columns += [Column(f"size{place}", one, "size"), Column(f"sequences{place}", fit, "count")]
    rows = tuple(_row(row) for row in document.rows)
    kv = show_bytes(document.budget.kv_bytes_per_device)
    longest = document.rows[-1]
    counts = ", ".join(f"{_count(cell)} in {cell.kv_dtype}" for cell in longest.cells)
    headline = f"{counts} of {longest.context:,} tokens in {kv} per device: {clean(document.model.id)}, {engine_name(document.engine)}"
    blocks = (Table(tuple(columns), rows, "Sequences at once, by their length", alike=True), memory_table(document.budget))
    return View(headline, blocks, document.notes, document.warnings, data=_data(document))


def _row(row: LengthRow) -> tuple[Any, ...]:
    found: list[Any] = [row.context]
    for cell in row.cells:
        found += [cell.per_sequence, "any number" if cell.max_sequences is None else cell.max_sequences]
    return tuple(found)


def _count(cell: Cell) -> str:
    count = cell.max_sequences
    return "any number" if count is None else f"{count:,}" if count else "none"


def _data(document: FitTableDocument) -> Table:
    """For CSV: a row for each length and format."""
    figures = tuple(Column(key, key) for key in ("kv_dtype", "per_sequence", "max_sequences"))
    rows = tuple((row.context, *cells_of(cell, figures)) for row in document.rows for cell in row.cells)
    return Table((Column("context", "context"), *figures), rows)
