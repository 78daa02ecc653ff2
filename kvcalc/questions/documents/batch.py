"""An answer line of `kvcalc batch`, and `kvcalc.error/1`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from kvcalc.questions.documents.common import Fault
from kvcalc.questions.documents.estimate import EstimateDocument
from kvcalc.questions.documents.fit import FitDocument
from kvcalc.questions.documents.kinds import Document, record


@record
class Answered:
    """A line that was answered."""

    closed: ClassVar = True
    id: Any
    ok: Literal[True]
    result: EstimateDocument | FitDocument


@record
class Failed:
    """A line that was not."""

    closed: ClassVar = True
    id: Any
    ok: Literal[False]
    error: Fault


@record
class ErrorDocument(Document):
    """what goes wrong."""

    schema: ClassVar = "kvcalc.error/1"
    closed: ClassVar = True
    error: Fault
