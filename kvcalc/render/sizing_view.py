"""The views of `kvcalc.sizing/1` and `kvcalc.lengths/1`."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean, show_bytes, show_tokens
from kvcalc.render.view import Column, Facts, Table, View, cells_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.fit import Allocation, LengthsDocument, SizingDocument

_RANKED = (
    Column("gpu", "id"),
    Column("name", "name", "text", 2),
    Column("devices", "devices", "count"),
    Column("memory", "memory of each", "size", 1),
    Column("kv_bytes_per_device", "for the cache, each", "size", 3),
)
_ALLOCATIONS = (
    Column("name", "allocation"),
    Column("bytes", "bytes", "bytes"),
    Column("size", "size", "size", 2),
    Column("waste", "waste, B", "bytes", 3),
    Column("utilisation", "in use", "percent"),
    Column("p50", "fit, p50", "count", 1),
    Column("p95", "fit, p95", "count", 1),
    Column("p99", "fit, p99", "count", 1),
)


def rank_view(document: SizingDocument) -> View:
    """What `kvcalc fit --gpus all` shows."""
    rows = tuple(cells_of(row, _RANKED) for row in document.gpus)
    workload = document.workload
    asked = f"{workload.sequences:,} x {show_tokens(workload.context)} tokens: {clean(document.model.id)}, {document.engine.name}"
    best = document.gpus[0] if rows else None
    headline = f"{best.devices} x {best.gpu} is the least memory that holds {asked}" if best else f"no accelerator holds {asked}"
    return View(headline, (Table(_RANKED, rows),), document.notes, document.warnings)


def lengths_view(document: LengthsDocument) -> View:
    """What `kvcalc fit --lengths` shows."""
    rows = tuple(_allocation(row) for row in document.allocations)
    percentiles = ", ".join(f"{name} {tokens:,}" for name, tokens in document.percentiles.items())
    facts = [("lengths", f"{document.requests:,} requests, {document.tokens:,} tokens, longest {document.longest:,}; {percentiles}")]
    if document.budget is not None:
        facts.append(("memory", show_bytes(document.budget)))
        alike = ", ".join(f"{count:,} of {name}'s length" for name, count in document.fits_at.items() if count is not None)
        facts.append(("all of one length", f"{alike} fit"))
    ideal, contiguous = document.allocations[-1], document.allocations[0]
    headline = f"{show_bytes(ideal.bytes)} in use, {show_bytes(contiguous.bytes)} if each reserves the longest: {clean(document.model.id)}"
    notes = ("fit, p95: the most requests of this traffic whose sum stays in the memory with 95 % probability (normal approximation)",)
    return View(headline, (Facts(tuple(facts)), Table(_ALLOCATIONS, rows)), notes)


def _allocation(row: Allocation) -> tuple[Any, ...]:
    fits = row.fits_mixed or {}
    used = Fraction(row.bytes - row.waste, row.bytes) if row.bytes else Fraction(1)
    return (row.name, row.bytes, row.bytes, row.waste, used, fits.get("p50"), fits.get("p95"), fits.get("p99"))
