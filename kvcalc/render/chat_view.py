"""The view of `kvcalc.chat/1`: when it breaks, then every turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import clean, show_bytes
from kvcalc.render.view import Column, Facts, Table, View

if TYPE_CHECKING:
    from kvcalc.questions.documents.chat import ChatDocument, Turn

_COLUMNS = (
    Column("number", "turn", "count"),
    Column("prompt", "prompt", "count", 1),
    Column("held", "held", "count"),
    Column("bytes", "bytes", "bytes"),
    Column("size", "size", "size", 4),
    Column("recomputed", "recomputed", "count"),
    Column("without_reuse", "without reuse", "count", 2),
    Column("out_of_sight", "out of sight", "text", 3),
    Column("state", "state", "text"),
)
_MOST_NAMED = 3


def view(document: ChatDocument) -> View:
    """What `kvcalc chat` shows."""
    turns, totals = document.turns, document.totals
    facts = [
        (
            "policy",
            f"{document.policy}, system prompt of {document.system_tokens:,} tokens, blocks of {document.block_size} tokens",
        ),
        ("recomputed", f"{totals.recomputed:,} prompt tokens with a prefix cache, {totals.without_reuse:,} without"),
    ]
    if document.changed:
        change = document.changed
        hit = next(turn for turn in turns if turn.number == change.turn)
        facts.append(
            (
                "changed",
                f"system prompt from token {change.position:,} on before turn {change.turn}: {hit.recomputed:,} tokens computed again",
            )
        )
    rows = tuple(
        (
            turn.number,
            turn.prompt,
            turn.held,
            turn.bytes,
            turn.bytes,
            turn.recomputed,
            turn.without_reuse,
            _unseen(turn),
            _state(turn),
        )
        for turn in turns
    )
    return View(_headline(document), (Facts(tuple(facts)), Table(_COLUMNS, rows)), document.notes, document.warnings)


def _headline(document: ChatDocument) -> str:
    last = document.turns[-1]
    size = show_bytes(last.bytes) if last.bytes is not None else "more than the engine accepts"
    text = f"{size} after turn {last.number}, {last.held:,} tokens held: {clean(document.model.id)}, {document.kv_dtype}"
    broken = document.breaks_at
    return text if broken is None else f"breaks at turn {broken}; {text}"


def _state(turn: Turn) -> str:
    if turn.over_budget:
        return "over the budget"
    return "beyond the model's maximum" if turn.beyond_context else "ok"


def _unseen(turn: Turn) -> str:
    """`system, 1-4, part of 5`."""
    named = [*_ranges(turn.out_of_sight), *(f"part of {_name(author)}" for author in turn.partly)]
    more = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "") or "-"


def _name(author: int) -> str:
    return "system" if author == 0 else str(author)


def _ranges(authors: tuple[int, ...]) -> list[str]:
    """Neighbouring turns as ranges; the system prompt by its name."""
    found = ["system"] if 0 in authors else []
    run: list[int] = []
    for author in [*sorted(author for author in authors if author), -1]:
        if run and author != run[-1] + 1:
            found.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
            run = []
        run.append(author)
    return found
