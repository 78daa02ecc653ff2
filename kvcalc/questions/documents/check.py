"""`kvcalc.check/1`: budgets, met or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from kvcalc.questions.documents.common import Fault, Figures
from kvcalc.questions.documents.kinds import Amount, AtLeast, Bytes, Count, Document, Known, Least, Positive, record

#: What a remedy of a budget may change.
CHANGES = Known({"context": Positive, "sequences": Positive, "kv_dtype": str, "tensor_parallel": Annotated[int, Least(2)]})


@record
class Check:
    """One limit and the figure it is held against."""

    limit: Literal["total", "per_device", "per_sequence", "per_token", "min_context", "min_sequences", "min_tokens", "max_growth"]
    allowed: Positive
    actual: Count
    unit: Literal["B", "tokens", "sequences"]
    over: Annotated[Count, "by how much the limit is missed; 0 where it is met (equal passes)"]
    over_percent: Amount
    line: Annotated[Count, "where the limit stands in the file"]
    unbounded: Annotated[bool, "nothing ends the figure: actual is the most that is searched"]


@record
class BudgetRemedy:
    """A change to the budget's own keys that meets every limit."""

    change: Annotated[Mapping[str, Any], AtLeast(1), CHANGES]
    text: str


@record
class Verdict:
    """A budget, and what came of it."""

    name: str
    model: str
    engine: str
    kv_dtype: str
    context: Positive | None
    sequences: Positive
    tensor_parallel: Positive
    pipeline_parallel: Positive
    gpu: str | None
    kv_bytes_per_device: Annotated[Bytes | None, "what min_context, min_sequences and min_tokens were held against"]
    status: Annotated[Literal["pass", "over", "error"], "an error is never a pass"]
    file: str
    line: Count
    bytes: Figures | None
    checks: tuple[Check, ...]
    growth_percent: Annotated[float | None, "over the baseline"]
    remedies: tuple[BudgetRemedy, ...]
    message: str
    error: Fault | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@record
class Summary:
    """How many budgets there are of each status."""

    budgets: Positive
    passed: Count
    over: Count
    errors: Count
    exit_code: Literal[0, 1, 2, 3, 70]


@record
class CheckDocument(Document):
    """kvcalc check: budgets, met or not."""

    schema: ClassVar = "kvcalc.check/1"
    model: None
    workload: None
    engine: None
    kv_dtype: None
    file: str
    summary: Summary
    budgets: tuple[Verdict, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
