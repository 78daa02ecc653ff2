"""`kvcalc.estimate/1`: what one model's cache takes under one engine."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kvcalc.questions.documents.common import Asked, Basis, Engine, Figures, Line, Memory, Model, Section
from kvcalc.questions.documents.kinds import Document, Positive, record


@record
class Hidden:
    """Leading tokens that layers with a window cannot look back to."""

    layers: Positive
    tokens: Positive


@record
class EstimateDocument(Document):
    """kvcalc estimate: what one model's cache takes."""

    schema: ClassVar = "kvcalc.estimate/1"
    model: Model
    workload: Asked
    engine: Engine
    kv_dtype: str
    bytes: Figures
    lines: Annotated[tuple[Line, ...], "their bytes add up to bytes.total"]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    out_of_sight: Annotated[tuple[Hidden, ...], "leading tokens that layers with a window cannot look back to"]
    memory: Memory
    basis: Basis
    derivation: Annotated[tuple[Section, ...] | None, "with --explain"] = None
