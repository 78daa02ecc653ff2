"""The view of `kvcalc.gpus/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.render.view import Column, Table, View

if TYPE_CHECKING:
    from kvcalc.questions.documents.models import GpusDocument

_COLUMNS = (
    Column("id", "id"),
    Column("name", "name", "text", 3),
    Column("memory", "memory, B", "bytes", 1),
    Column("size", "size", "size"),
    Column("known", "memory is", "text", 2),
    Column("bandwidth", "bandwidth, B/s", "count", 2),
    Column("capability", "CUDA sm", "count", 4),
    Column("source", "source", "prose", 5),
)


def view(document: GpusDocument) -> View:
    """What `kvcalc gpus list` shows."""
    rows = tuple(
        (
            gpu.id,
            gpu.name,
            gpu.memory,
            gpu.memory,
            gpu.known,
            gpu.bandwidth,
            gpu.capability,
            gpu.source,
        )
        for gpu in document.gpus
    )
    return View(
        f"{len(rows)} accelerator{'s' if len(rows) != 1 else ''}",
        (Table(_COLUMNS, rows),),
        document.notes,
        document.warnings,
    )
