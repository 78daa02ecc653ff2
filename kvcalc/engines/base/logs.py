"""What a log says, what kvcalc says, and how far apart they are.

    Recogniser ── feed(line) ── model, settings, figures ── rows(architecture) ──▶ Row(figure, logged, expected, within)

A recogniser reads the lines of one engine. Figures are compared at the resolution at which they were printed: 3.75x means
anything that prints as 3.75, 60.00 GiB anything from 59.995 to 60.005. Where a row does not close, the recogniser asks again under
the usual suspects (another meaning of the line, a window that is not honoured, …) and names the first that closes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import KvcalcError
from kvcalc.core.units import clean
from kvcalc.engines import get_engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.base.printed import Printed
    from kvcalc.engines.base.trouble import Longer, Refusal, Truncation

#: Where no suspect closes a row.
UNEXPLAINED = "none of the usual reasons explains it: compare model, settings and version"
_MOST_REASONS = 3
_MOST_FIGURES = 10_000
#: Settings of a Workload that a user may know better than a log.
_GIVEN = ("gpu", "kv_dtype", "tensor_parallel")
_RANK = re.compile(r"(?<![A-Z])(DP|PP|TP)([0-9]{1,6})(?![0-9])")


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the log beside kvcalc's.

    logged, low, high   bytes, tokens, blocks or sequences (`unit`); low and high: the range that kvcalc computes from rounded inputs
    within              they agree at the resolution of the print
    reason              where they do not: the likely reason, or that none of the usual ones explains it
    """

    figure: str
    unit: str
    line: int
    logged: Fraction
    low: Fraction
    high: Fraction
    within: bool
    reason: str = ""

    @property
    def difference(self) -> Fraction:
        """How far the print lies outside of what kvcalc computes; 0 within."""
        if self.within:
            return Fraction(0)
        return self.logged - self.high if self.logged > self.high else self.logged - self.low


@dataclass(slots=True)
class Seen:
    """What has been read so far: the model's name, settings in kvcalc's words, and figures in order."""

    model: str = ""
    version: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    figures: dict[str, list[Printed]] = field(default_factory=dict)

    def add(self, name: str, figure: Printed) -> None:
        """Remember one more figure of that name, if they are not more than any number of ranks and restarts prints."""
        known = self.figures.setdefault(name, [])
        if len(known) < _MOST_FIGURES:
            known.append(figure)

    def smallest(self, name: str) -> Printed | None:
        """The smallest of that name: ranks differ, and engines take the minimum."""
        return min(self.figures.get(name, ()), key=lambda figure: figure.value, default=None)

    def last(self, name: str) -> Printed | None:
        """The last of that name: a server that restarts prints again."""
        found = self.figures.get(name)
        return found[-1] if found else None


@dataclass(slots=True)
class Ranks:
    """The processes that print a log, by the names that they give themselves: `TP0`, `Worker_PP1_TP3`, `DP0 TP7 EP7`."""

    seen: dict[str, set[int]] = field(default_factory=dict)

    def read(self, names: str) -> None:
        """Note every rank in a name."""
        for kind, index in _RANK.findall(names):
            self.seen.setdefault(kind, set()).add(int(index))

    def count(self, kind: str) -> int:
        """How many there are: as many as were seen, or, if only some of them speak, the next power of two."""
        found = self.seen.get(kind, {0})
        most = max(found) + 1
        return most if len(found) == most else 1 << (most - 1).bit_length()

    def settle(self, settings: dict[str, Any]) -> list[str]:
        """Set the parallel sizes that the log does not say itself; what to tell the reader."""
        notes = []
        for name, kind, what in (("tensor_parallel", "TP", "tensor"), ("pipeline_parallel", "PP", "pipeline")):
            if name not in settings and self.count(kind) > 1:
                settings[name] = self.count(kind)
                notes.append(f"{what} parallel size {settings[name]} read from the names of the ranks")
        return notes


Suspects = tuple[tuple[str, dict[str, Any]], ...]


def explained(rows: Sequence[Row], tiers: Sequence[Suspects], again: Callable[[dict[str, Any]], Iterable[Row]]) -> list[Row]:
    """The rows, and for those that differ the likely reason: a suspect under which all rows close, else one for each row.

    tiers    suspects (text, changed settings), the likeliest tier first; one tier is asked only where those before it explain nothing
    again    changed settings → the rows under them; may raise KvcalcError: what the engine refuses did not run
    """
    if all(row.within or row.reason for row in rows):
        return list(rows)
    known: dict[str, dict[str, Row]] = {}

    def closing(text: str, changed: dict[str, Any]) -> dict[str, Row]:
        """Rows that close under a suspect: within, or explained by themselves."""
        if text not in known:
            known[text] = {}
            with suppress(KvcalcError):
                known[text] = {row.figure: row for row in again(changed) if row.within or row.reason}
        return known[text]

    def likeliest(figures: Sequence[str]) -> list[str]:
        for tier in tiers:
            found: dict[str, str] = {}  # one of a kind: `… size 2`, not `… size 4` too
            for text, changed in tier:
                if closing(text, changed).keys() >= set(figures):
                    found.setdefault(text.rstrip("0123456789,"), text)
            if found:
                return list(found.values())[:_MOST_REASONS]
        return []

    together = likeliest([row.figure for row in rows])
    done = []
    for row in rows:
        texts = together or (likeliest([row.figure]) if not row.reason else [])
        own = known[texts[0]][row.figure].reason if texts else row.reason
        reason = "; ".join(part for part in (" or ".join(texts), own) if part)
        done.append(row if row.within else replace(row, reason=reason or UNEXPLAINED))
    return done


class Recogniser(ABC):
    """Reads the lines of one engine. An engine has one in its folder's startlog.py, as `RECOGNISER`."""

    engine: ClassVar[str]
    #: Of several recognisers that find figures in one log, the one with the largest preference speaks for it.
    preference: ClassVar[int] = 0
    #: The engine whose settings the lines hold, where that is another.
    planner: ClassVar[str] = ""
    #: Words of which one stands in every line of interest, for a fast first look.
    marks: ClassVar[tuple[bytes, ...]]

    def __init__(self) -> None:
        self.seen = Seen()

    @abstractmethod
    def feed(self, line: str, number: int) -> None:
        """Take what the line holds, if it is one of this engine's."""

    def hear(self, line: str, number: int) -> None:  # noqa: B027  most engines complain of nothing that kvcalc can mend
        """Take what the line complains of, if it is one of this engine's complaints; none by default."""

    @property
    def recognised(self) -> bool:
        """A memory figure of this engine was found."""
        return bool(self.seen.figures)

    @property
    def complains(self) -> bool:
        """The log complains as this engine does, whether or not it has a figure."""
        return False

    def complaint(self) -> Refusal | Truncation | None:
        """The gravest thing that the log complains of and does not mend later; complete once `rows` has run."""
        return None

    def longer(self, architecture: Architecture, context: int) -> Longer | None:  # noqa: ARG002  for recognisers that find truncated prompts
        """The server of the log with a longer context; None where that is not known. Raises what planning raises."""
        return None

    def give(self, settings: Mapping[str, Any]) -> list[str]:
        """Take settings that the user knows better than the log; what to tell the reader. Raises UsageError for one that means nothing."""
        notes = []
        asked = self.read_given(settings)
        for name, value in asked.items():
            said = self.seen.settings.get(name, value)
            if said != value:
                notes.append(f"{name} was given as {clean(str(value), 40)}, and the log says {clean(str(said), 40)}")
        self.seen.settings.update(asked)
        return notes

    def read_given(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings in their own types: those of a Workload, and the engine's own. Raises UsageError for one that there is not."""
        asked = {name: settings[name] for name in _GIVEN if name in settings}
        own = {name.replace("-", "_"): value for name, value in settings.items() if name not in _GIVEN}
        read = get_engine(self.planner or self.engine).read_args(own)
        return asked | {name: read[name] for name in own}

    @property
    def metadata(self) -> dict[str, Any]:
        """GGUF metadata that the log itself prints, if it does."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the rows has to know; complete once `rows` has run."""
        return ()

    @abstractmethod
    def rows(self, architecture: Architecture) -> list[Row]:
        """Every figure beside kvcalc's. Raises what planning raises."""
