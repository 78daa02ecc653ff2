"""The view of `kvcalc.verify/1`: the verdict, what was run, and layers that are alike as one row."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean, show_bytes, show_tokens
from kvcalc.render.view import Column, Facts, Table, View, cells_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.verify import VerifyDocument

_LAYERS = (
    Column("layer", "layers"),
    Column("states", "states"),
    Column("kvcalc", "kvcalc, B each", "bytes"),
    Column("transformers", "transformers, B each", "bytes"),
    Column("difference", "difference, B", "bytes", 1),
)


def view(document: VerifyDocument) -> View:
    """What `kvcalc verify` shows."""
    figures, run = document.bytes, document.class_
    tokens = show_tokens(document.workload.context)
    asked = f"1 sequence of {tokens} tokens: {clean(document.model.id)}, {document.kv_dtype}"
    verdict = "equal" if document.equal else "DIFFERENT"
    facts = Facts(
        (
            ("kvcalc", show_bytes(figures.kvcalc)),
            ("transformers", show_bytes(figures.transformers)),
            ("class", f"{clean(run.name)}, transformers {run.transformers}, torch {run.torch}, meta device"),
            ("config", run.config),
        )
    )
    rows = tuple(cells_of(layer, _LAYERS) for layer in document.layers)
    return View(
        headline=f"{verdict}: {show_bytes(figures.transformers)} for {asked}",
        blocks=(facts, Table(_LAYERS, _runs(rows))),
        notes=document.notes,
        warnings=document.warnings,
        data=Table(_LAYERS, rows),
    )


def _runs(rows: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
    """Neighbours that are alike as one row: `0-4`."""
    found = []
    for figures, group in groupby(rows, key=lambda row: row[1:]):
        names = [row[0] for row in group]
        found.append((names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}", *figures))
    return tuple(found)
