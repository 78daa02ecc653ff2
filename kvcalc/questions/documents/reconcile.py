"""`kvcalc.reconcile/1` and `kvcalc.growth/1`: what was measured beside what kvcalc computes."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from kvcalc.questions.documents.common import Asked, Engine, Model
from kvcalc.questions.documents.kinds import Amount, Bytes, Count, Document, Positive, record


@record
class WholeFigure:
    """A whole number of a log beside kvcalc's."""

    figure: str
    unit: Literal["bytes", "tokens", "blocks"]
    line: Count
    logged: Count
    expected: int
    expected_high: int
    difference: int
    within: Annotated[bool, "they agree at the resolution of the print"]
    reason: str


@record
class SequencesFigure:
    """A number of sequences, which may be a fraction, of a log beside kvcalc's."""

    figure: str
    unit: Literal["sequences"]
    line: Count
    logged: Amount
    expected: float
    expected_high: float
    difference: float
    within: Annotated[bool, "they agree at the resolution of the print"]
    reason: str


@record
class Way:
    """One change, as the engine's user writes it, and what it means."""

    flag: str
    text: str


@record
class Trouble:
    """A complaint of the log."""

    kind: Annotated[Literal["refused", "truncated"], "the server did not start, or a prompt was cut or refused for its length"]
    line: Positive
    text: str
    unit: Literal["bytes", "tokens"]
    needed: Positive
    available: Count
    ways: Annotated[tuple[Way, ...], "changes that end it, each by itself"]


@record
class ReconcileDocument(Document):
    """kvcalc reconcile: a log beside what kvcalc computes."""

    schema: ClassVar = "kvcalc.reconcile/1"
    model: Model | None
    workload: None
    engine: Engine | None
    kv_dtype: None
    log: str
    rows: tuple[WholeFigure | SequencesFigure, ...]
    trouble: Trouble | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@record
class GrowthDocument(Document):
    """kvcalc reconcile --growth: measured growth beside what kvcalc computes."""

    schema: ClassVar = "kvcalc.growth/1"
    model: Model
    workload: Asked
    engine: Engine
    kv_dtype: str
    start: Count
    tokens: Positive
    observed: Bytes
    expected: Positive
    ratio: float
    within: bool
    reason: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
