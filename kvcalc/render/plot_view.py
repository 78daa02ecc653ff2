"""The view of `kvcalc.plot/1`: the chart as text, and a table with a row a context and a column a line."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from kvcalc.render.plot_text import chart
from kvcalc.render.plot_words import headline, name
from kvcalc.render.view import Column, Table, Text, View

if TYPE_CHECKING:
    from kvcalc.questions.documents.plot import PlotDocument

#: Columns of a chart where nobody says how wide the terminal is, and the most that it takes of a wide one.
_WIDTH, _WIDEST = 80, 110


def view(document: PlotDocument) -> View:
    """What `kvcalc plot` shows."""
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDEST)
    return View(
        headline=headline(document),
        blocks=(Text(tuple(chart(document, width))), _table(document)),
        notes=document.notes,
        warnings=document.warnings,
        data=_points(document),
    )


def _table(document: PlotDocument) -> Table:
    """A column a line: figures at both ends, and at each power of two between them, or at every fourth point."""
    figure, series = document.figure, document.series
    longest = max((entry.points for entry in series), key=len)
    contexts = [point.context for point in longest]
    shown = set(contexts[::4]) if document.scale == "linear" else {context for context in contexts if context & (context - 1) == 0}
    shown |= {document.from_, *(entry.points[-1].context for entry in series)}
    by_line = [{point.context: point.bytes_of(figure) for point in entry.points} for entry in series]
    columns = (
        Column("context", "tokens", "count"),
        *(Column(f"{place}", name(entry), "bytes") for place, entry in enumerate(series)),
    )
    return Table(
        columns,
        tuple((context, *(sizes.get(context) for sizes in by_line)) for context in sorted(shown)),
        "Bytes by tokens per sequence",
        alike=True,
    )


def _points(document: PlotDocument) -> Table:
    """Every point of every line, for CSV."""
    columns = (
        Column("name", "line"),
        Column("model", "model"),
        Column("engine", "engine"),
        Column("kv_dtype", "format"),
        Column("context", "tokens", "count"),
        Column("total", "total", "bytes"),
        Column("per_device", "per device", "bytes"),
    )
    return Table(
        columns,
        tuple(
            (
                series.name,
                series.model.id,
                series.engine.name,
                series.kv_dtype,
                point.context,
                point.total,
                point.per_device,
            )
            for series in document.series
            for point in series.points
        ),
    )
