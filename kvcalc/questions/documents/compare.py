"""`kvcalc.compare/1`: several answers beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from kvcalc.questions.documents.common import Asked, Engine, Fault, Figures, Model
from kvcalc.questions.documents.kinds import Amount, AtLeast, Bytes, Count, Document, Most, Positive, record


@record
class Operations:
    """Multiply-adds of one sequence, generated token by token."""

    projections: Count
    scores: Count


@record
class UsedTechnique:
    """A technique and the parameters that were in force."""

    name: str
    parameters: Mapping[str, int | str]


@record
class Attended:
    """How many layers read how many positions for a new token."""

    layers: Positive
    positions: Count


@record
class Work:
    """The same tokens with and without a cache."""

    with_cache: Operations
    without_cache: Operations


@record
class Held:
    """What fits into the memory asked about."""

    tokens: Count | None
    max_sequences: Count | None
    max_context: Count | None
    unbounded: Annotated[bool, "no context is too long: max_context is null because nothing ends it"]


@record
class Row:
    """One row of a comparison: figures, or the error that stands in their place."""

    name: str
    model: str | None
    techniques: tuple[UsedTechnique, ...]
    engine: Engine
    kv_dtype: str | None
    bytes: Figures | None
    ratio: Amount | None
    saving: Annotated[float | None, Most(1)]
    attended: tuple[Attended, ...] | None
    work: Work | None
    capacity: Held | None
    why: tuple[str, ...]
    remarks: tuple[str, ...]
    error: Fault | None


Kind = Literal["techniques", "models", "engines"]


@record
class CompareDocument(Document):
    """kvcalc compare: techniques, models or engines side by side."""

    schema: ClassVar = "kvcalc.compare/1"
    kind: Kind
    model: Model | None
    workload: Asked
    engine: Engine
    kv_dtype: str | None
    kv_memory: Bytes | None
    baseline: str | None
    rows: Annotated[tuple[Row, ...], AtLeast(1)]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
