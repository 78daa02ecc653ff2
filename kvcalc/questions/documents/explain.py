"""`kvcalc.explain/1`: a formula, with the numbers put in, and its source."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from kvcalc.questions.documents.common import Asked, Engine, Figures, Model, Section
from kvcalc.questions.documents.kinds import AtLeast, Document, record

Kind = Literal["technique", "state", "format", "engine", "model"]


@record
class ExplainDocument(Document):
    """kvcalc explain: the formula, with the numbers put in, and its source."""

    schema: ClassVar = "kvcalc.explain/1"
    subject: str
    kind: Kind
    model: Model | None
    workload: Asked | None
    engine: Engine | None
    kv_dtype: str | None
    bytes: Figures | None
    sections: Annotated[tuple[Section, ...], AtLeast(1)]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
