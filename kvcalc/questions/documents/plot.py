"""`kvcalc.plot/1`: memory against context."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from kvcalc.questions.documents.common import Asked, Engine, Model
from kvcalc.questions.documents.kinds import AtLeast, Bytes, Document, Positive, record


@record
class Point:
    """Bytes at a context."""

    context: Positive
    total: Annotated[Bytes, "all devices together"]
    per_device: Annotated[Bytes, "the fullest device"]

    def bytes_of(self, figure: Literal["total", "per_device"]) -> int:
        """The figure that a chart draws."""
        return self.total if figure == "total" else self.per_device


@record
class Series:
    """One line of a chart."""

    name: str
    model: Model
    engine: Engine
    kv_dtype: str
    points: Annotated[tuple[Point, ...], AtLeast(1)]
    max_context: Annotated[Positive | None, "the largest context that fits kv_memory"]


@record
class PlotDocument(Document):
    """kvcalc plot: memory against context."""

    schema: ClassVar = "kvcalc.plot/1"
    model: Annotated[Model | None, "null where the lines do not have it in common, as engine and kv_dtype"]
    workload: Annotated[Asked, "its context is where the chart ends"]
    engine: Engine | None
    kv_dtype: str | None
    figure: Annotated[Literal["total", "per_device"], "which bytes are drawn"]
    scale: Literal["log", "linear"]
    from_: Annotated[Positive, "where the chart begins"]
    kv_memory: Bytes | None
    series: Annotated[tuple[Series, ...], AtLeast(1)]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
