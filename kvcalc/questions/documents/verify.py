"""`kvcalc.verify/1`: the real model class's cache beside kvcalc's figure."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kvcalc.questions.documents.common import Asked, Engine, Model
from kvcalc.questions.documents.kinds import AtLeast, Bytes, Document, record


@record
class ClassFigures:
    """Bytes of all layers: kvcalc's, the class's, and what kvcalc says beyond it."""

    kvcalc: Bytes
    transformers: Bytes
    difference: int


@record
class ComparedLayer:
    """One layer, in bytes."""

    layer: str
    states: str
    kvcalc: Bytes
    transformers: Bytes
    difference: int


@record
class RunClass:
    """What was run."""

    name: str
    config: str
    torch: str
    transformers: str


@record
class VerifyDocument(Document):
    """kvcalc verify: the real model class beside kvcalc."""

    schema: ClassVar = "kvcalc.verify/1"
    model: Model
    workload: Asked
    engine: Engine
    kv_dtype: str
    equal: bool
    bytes: ClassFigures
    layers: Annotated[tuple[ComparedLayer, ...], AtLeast(1)]
    class_: RunClass
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
