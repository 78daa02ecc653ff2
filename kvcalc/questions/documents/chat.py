"""`kvcalc.chat/1`: a conversation turn by turn."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kvcalc.questions.documents.common import Asked, Engine, Model
from kvcalc.questions.documents.kinds import Bytes, Count, Document, Positive, record


@record
class Turn:
    """One turn at its end, the reply included."""

    number: Positive
    prompt: Annotated[Positive, "tokens of the prompt"]
    held: Annotated[Positive, "tokens of prompt and reply"]
    recomputed: Annotated[Positive, "prompt tokens that are computed with a prefix cache"]
    without_reuse: Annotated[Positive, "prompt tokens that are computed without one"]
    bytes: Annotated[Bytes | None, "the cache at the end of the turn; null where the engine refuses that length"]
    out_of_sight: Annotated[tuple[Count, ...], "earlier turns of which nothing is in the prompt; 0 = the system prompt"]
    partly: Annotated[tuple[Count, ...], "earlier turns of which something is missing"]
    over_budget: bool
    beyond_context: bool


@record
class Change:
    """Where the system prompt changes: before which turn, from which token on."""

    turn: Positive
    position: Count


@record
class Totals:
    """Prompt tokens computed over all turns, with and without a prefix cache."""

    recomputed: Count
    without_reuse: Count


@record
class ChatDocument(Document):
    """kvcalc chat: a conversation turn by turn."""

    schema: ClassVar = "kvcalc.chat/1"
    model: Model
    workload: Asked
    engine: Engine
    kv_dtype: str
    policy: str
    system_tokens: Count
    block_size: Positive
    budget: Bytes | None
    changed: Change | None
    breaks_at: Annotated[Positive | None, "the first turn whose cache exceeds the budget or the model's maximum"]
    turns: tuple[Turn, ...]
    totals: Totals
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
