"""`chat`: a conversation turn by turn under a retention policy.

    turn i:   prompt = retained(history) + user message        then the reply is decoded and joins the history

    full                 the whole history
    window:W             the last W tokens
    sinks:K+window:W     the first K tokens (attention sinks, arXiv:2309.17453) and the last W
    keep:K+window:W      the first K tokens (a system prompt, instructions) and the last W
    summary:N            the system prompt, N tokens of summary in place of all older turns, and the last turn

A prefix cache serves whole blocks up to the first token that differs from the turn before. Dropping tokens in the middle
therefore costs what it saves: everything behind the gap is computed again. Tokens that are dropped are also out of sight.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.errors import InvalidConfigError, KvcalcError, UsageError, nearest
from kvcalc.core.units import LARGEST, MIB, clean, parse_tokens
from kvcalc.engines import get_engine
from kvcalc.questions.documents.chat import Change, ChatDocument, Totals, Turn
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, model_of
from kvcalc.sources import load
from kvcalc.sources.files import decode, read_bytes, read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.questions.request import Request

#: More turns than a conversation has. A turn lists the turns that are out of its sight, so that an answer grows with their square.
MOST_TURNS = 2_000

_POLICIES = ("full", "window:W", "sinks:K+window:W", "keep:K+window:W", "summary:N")
_PART = re.compile(r"(window|sinks|keep|summary):([0-9][0-9_,.]*[kKmM]?)", re.ASCII)
#: A transcript of so many turns is under 1 MiB.
LARGEST_TRANSCRIPT = 4 * MIB
_SPEAKERS = ("user", "reply")
#: The author of a summary's tokens: no turn of the history wrote them.
_SUMMARY = -1
_SYSTEM = 0


class Span(NamedTuple):
    """Tokens `start` to `end` of what `author` wrote: turn 1, 2, …, the system prompt (0), or a summary made at `version`."""

    author: int
    start: int
    end: int
    version: int = 0

    @property
    def tokens(self) -> int:
        """Length of the span."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Policy:
    """What is retained between turns: `first` tokens, the last `last` tokens, or a summary; all zero means everything."""

    text: str
    first: int = 0
    last: int = 0
    summary: int = 0

    def retained(self, history: Sequence[Span], turn: int) -> tuple[Span, ...]:
        """The part of `history` that opens the prompt of `turn`."""
        if self.summary:
            recent = [span for span in history if span.author == turn - 1 and span.author != _SYSTEM]
            older = any(_SYSTEM < span.author < turn - 1 for span in history)
            digest = [Span(_SUMMARY, 0, self.summary, turn)] if older else []
            return (*(span for span in history if span.author == _SYSTEM), *digest, *recent)
        total = sum(span.tokens for span in history)
        if not self.last or total <= self.first + self.last:
            return tuple(history)
        return (*_cut(history, 0, self.first), *_cut(history, total - self.last, total))


def parse_policy(text: str) -> Policy:
    """A policy from its text. Raises UsageError naming the forms."""
    word = text.strip().lower()
    if word == "full":
        return Policy("full")
    parts: dict[str, int] = {}
    for part in word.split("+"):
        match = _PART.fullmatch(part)
        if match is None or match[1] in parts:
            raise UsageError(f"--policy: '{clean(text, 60)}' is not a policy", nearest(word, _POLICIES) or "one of " + ", ".join(_POLICIES))
        parts[match[1]] = parse_tokens(match[2], f"--policy {match[1]}")
    names = frozenset(parts)
    if names == {"summary"}:
        return Policy(word, summary=parts["summary"])
    if names not in ({"window"}, {"sinks", "window"}, {"keep", "window"}):
        raise UsageError(f"--policy: '{clean(text, 60)}' does not say how many recent tokens are kept", "one of " + ", ".join(_POLICIES))
    return Policy(word, first=parts.get("sinks", parts.get("keep", 0)), last=parts["window"])


@dataclass(frozen=True, slots=True)
class Conversation:
    """The question: tokens of the system prompt, then (user, reply) tokens of every turn.

    block_size          tokens of a prefix cache's block
    changed_turn        turn before which the system prompt changes, None = never
    changed_at          position of the first token of the system prompt that changes
    """

    system: int
    turns: tuple[tuple[int, int], ...]
    policy: Policy
    block_size: int = 16
    changed_turn: int | None = None
    changed_at: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.turns) <= MOST_TURNS:
            raise UsageError(f"a conversation of {len(self.turns):,} turns cannot be computed", f"between 1 and {MOST_TURNS:,}")
        if self.block_size < 1:
            raise UsageError("--block-size must be at least 1")
        if self.changed_turn is not None and not 2 <= self.changed_turn <= len(self.turns):
            raise UsageError(f"turn {self.changed_turn} cannot change the system prompt", f"between 2 and {len(self.turns)}")
        if self.changed_turn is not None and self.changed_at >= self.system:
            raise UsageError(f"the system prompt has {self.system} tokens, and position {self.changed_at} is not one of them")


@dataclass(frozen=True, slots=True)
class Chat(Answer):
    """The answer, turn by turn."""

    architecture: Architecture
    request: Request
    conversation: Conversation
    turns: tuple[Turn, ...]
    plan: Plan
    notes: tuple[str, ...]

    @property
    def breaks_at(self) -> int | None:
        """The first turn whose cache exceeds the budget or the model's maximum."""
        return next((turn.number for turn in self.turns if turn.over_budget or turn.beyond_context), None)

    def document(self) -> ChatDocument:
        """`kvcalc.chat/1`."""
        talk = self.conversation
        return ChatDocument(
            model=model_of(self.architecture),
            workload=asked_of(self.request.workload, self.plan.context),
            engine=engine_of(self.plan),
            kv_dtype=self.plan.kv_dtype,
            policy=talk.policy.text,
            system_tokens=talk.system,
            block_size=talk.block_size,
            budget=self.request.workload.kv_memory,
            changed=None if talk.changed_turn is None else Change(talk.changed_turn, talk.changed_at),
            breaks_at=self.breaks_at,
            turns=self.turns,
            totals=Totals(sum(turn.recomputed for turn in self.turns), sum(turn.without_reuse for turn in self.turns)),
            notes=self.notes,
            warnings=self.plan.warnings,
        )


def read_turns(path: Path) -> tuple[tuple[int, int], ...]:
    """(user, reply) tokens of every turn of a JSON Lines file: `{"user": 200, "reply": 500}` a line. Raises InvalidConfigError."""
    name = clean(path.name)
    found: list[tuple[int, int]] = []
    for number, line in enumerate(decode(read_bytes(path, LARGEST_TRANSCRIPT), name).splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        row = read_json(line, place)
        unknown = next((key for key in row if key not in _SPEAKERS), None)
        if unknown is not None:
            raise InvalidConfigError(
                f"{place}: unknown key '{clean(unknown, 40)}'", nearest(unknown, _SPEAKERS) or "a turn has user and reply"
            )
        user, reply = (_turn_tokens(row.get(key), key, place) for key in _SPEAKERS)
        found.append((user, reply))
    if not found:
        raise InvalidConfigError(f"{name} holds no turns", 'write one a line: {"user": 200, "reply": 500}')
    return tuple(found)


def _turn_tokens(value: Any, key: str, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
        raise InvalidConfigError(f"{place}: '{key}' is {clean(repr(value), 40)}, and a turn needs a number of tokens")
    return value


def chat(request: Request, conversation: Conversation) -> Chat:
    """The conversation under the request's engine; `kv_memory` is the budget. Raises what loading and planning raise."""
    architecture = load(request.model)
    history: list[Span] = [Span(_SYSTEM, 0, conversation.system)] if conversation.system else []
    cached: tuple[Span, ...] = ()
    turns: list[Turn] = []
    plan: Plan | None = None
    for number, (user, reply) in enumerate(conversation.turns, start=1):
        if number == conversation.changed_turn:
            history = [*_changed(history[0], conversation.changed_at, number), *history[1:]]
        retained = conversation.policy.retained(history, number)
        prompt = (*retained, Span(number, 0, user))
        matched = common_prefix(cached, prompt) // conversation.block_size * conversation.block_size
        tokens = sum(span.tokens for span in prompt)
        cached = (*prompt, Span(number, user, user + reply))
        plan = _plan(architecture, request, tokens + reply, plan)
        size = plan.total if plan is not None and plan.context == tokens + reply else None
        unseen, partly = _missing(history, retained)
        turns.append(
            Turn(
                number=number,
                prompt=tokens,
                held=tokens + reply,
                # The last prompt token is always computed: its output is the first new token.
                recomputed=tokens - min(matched, tokens - 1),
                without_reuse=tokens,
                bytes=size,
                out_of_sight=unseen,
                partly=partly,
                over_budget=request.workload.kv_memory is not None and size is not None and size > request.workload.kv_memory,
                beyond_context=architecture.max_context is not None and tokens + reply > architecture.max_context,
            )
        )
        history.append(Span(number, 0, user + reply))
    if plan is None:
        plan = get_engine(request.engine).plan(architecture, replace(request.workload, context=turns[0].held))
    return Chat(architecture, request, conversation, tuple(turns), plan, (*plan.notes, *_sight(architecture)))


def common_prefix(before: Sequence[Span], after: Sequence[Span]) -> int:
    """How many leading tokens two sequences share."""
    same = next((index for index, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), min(len(before), len(after)))
    left, right = _merged(before[same:]), _merged(after[same:])
    shared = sum(span.tokens for span in before[:same])
    for old, new in zip(left, right, strict=False):
        if (old.author, old.start, old.version) != (new.author, new.start, new.version):
            return shared
        shared += min(old.tokens, new.tokens)
        if old.end != new.end:
            return shared
    return shared


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Neighbours that continue each other as one span."""
    merged: list[Span] = []
    for span in spans:
        if merged and (merged[-1].author, merged[-1].end, merged[-1].version) == (span.author, span.start, span.version):
            merged[-1] = merged[-1]._replace(end=span.end)
        elif span.tokens:
            merged.append(span)
    return merged


def _cut(spans: Sequence[Span], start: int, end: int) -> list[Span]:
    """Tokens `start` to `end` of a sequence of spans."""
    found: list[Span] = []
    position = 0
    for span in spans:
        first, last = max(start - position, 0), min(end - position, span.tokens)
        if first < last:
            found.append(span._replace(start=span.start + first, end=span.start + last))
        position += span.tokens
    return found


def _changed(system: Span, position: int, version: int) -> list[Span]:
    """The system prompt with other tokens from `position` on."""
    return [*_cut([system], 0, position), system._replace(start=position, version=version)]


def _missing(history: Sequence[Span], retained: Sequence[Span]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Authors of whom nothing is retained, and of whom not all is."""
    if tuple(history) == tuple(retained):
        return (), ()
    wrote: dict[int, int] = {}
    kept: dict[int, int] = {}
    for spans, counts in ((history, wrote), (retained, kept)):
        for span in spans:
            counts[span.author] = counts.get(span.author, 0) + span.tokens
    unseen = tuple(author for author, tokens in wrote.items() if tokens and not kept.get(author))
    return unseen, tuple(author for author, tokens in wrote.items() if 0 < kept.get(author, 0) < tokens)


def _plan(architecture: Architecture, request: Request, context: int, before: Plan | None) -> Plan | None:
    """The plan at `context`; where the engine refuses that length, the plan of the turn before."""
    if before is not None and before.context == context:
        return before
    try:
        return get_engine(request.engine).plan(architecture, replace(request.workload, context=context))
    except KvcalcError:
        if before is None:
            raise
        return before


def _sight(architecture: Architecture) -> list[str]:
    """How far single layers look back, whatever the policy retains."""
    windows = [(layers, buffer.extent) for state, layers in architecture.states.items() for buffer in state.buffers()[:1]]
    return [
        f"{layers} of {architecture.layers.count} layers see only their {extent.kind} of {extent.size:,} tokens"
        for layers, extent in windows
        if extent.kind in ("window", "chunk")
    ]
