"""What the log of an engine complains of, before anything is computed.

    Refusal      the server did not start: the cache was too small for one sequence
    Truncation   a prompt was cut, or refused, for its length

A recogniser finds them; what would end them is computed by whoever reads the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.printed import Printed


@dataclass(frozen=True, slots=True)
class Refusal:
    """A server that did not start.

    line       where the log says so
    asked      the question that the server could not hold
    left       the memory for the cache; None where the log does not print it
    below      bytes by which that memory was less than nothing
    nothing    the log says that nothing was left
    """

    line: int
    asked: Workload
    left: Printed | None
    below: Fraction
    nothing: bool


@dataclass(frozen=True, slots=True)
class Truncation:
    """A prompt that was too long.

    line       where the log says so
    prompt     tokens of the longest one
    limit      tokens that were kept of it, or that the server takes
    held       tokens of the context of one sequence; 0 where the log does not say it
    """

    line: int
    prompt: int
    limit: int
    held: int


@dataclass(frozen=True, slots=True)
class Longer:
    """The same server with a longer context.

    flag       how its user asks for that; `elsewhere` names further places, as the end of a sentence
    bytes      of its cache then, for `sequences` of them
    """

    flag: str
    elsewhere: str
    bytes: int
    sequences: int
