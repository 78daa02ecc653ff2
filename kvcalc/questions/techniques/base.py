"""What a technique is: a function of a case and its parameters, registered under its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload


@dataclass(frozen=True, slots=True)
class Case:
    """What a technique changes.

    block       page size in tokens; 0 = rows are allocated one by one
    recomputed  the layers whose keys and values every step computes again; None = they are kept
    applied     names of the techniques so far
    remarks     what the reader should know about the result
    """

    architecture: Architecture
    workload: Workload
    block: int = 0
    recomputed: Architecture | None = None
    applied: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class Ratio(NamedTuple):
    """`5-1`: five layers of one kind, then one of the other."""

    changed: int
    kept: int

    def __str__(self) -> str:
        return f"{self.changed}-{self.kept}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: `default` is a value, or a function that finds it in the case; `least` the smallest that it may be."""

    name: str
    default: int | Ratio | Callable[[Case], int]
    about: str
    least: int = 1

    def read(self, text: str) -> int | Ratio:
        """The value behind `text`. Raises UsageError."""
        if isinstance(self.default, Ratio):
            changed, dash, kept = text.partition("-")
            digits = changed + kept
            if not (dash and changed and kept and digits.isascii() and digits.isdigit() and len(text) < 10 and int(changed) + int(kept)):
                raise UsageError(f"{self.name}: '{clean(text, 40)}' is not a ratio", "write it like 5-1")
            return Ratio(int(changed), int(kept))
        return parse_tokens(text, self.name, least=self.least)


@dataclass(frozen=True, slots=True)
class Technique:
    """A name, its parameters, and the function that applies it.

    base   the technique that it stands on where the chain has not said what attention keeps
    """

    name: str
    parameters: tuple[Parameter, ...]
    change: Callable[..., Case]
    base: str = ""

    @property
    def about(self) -> str:
        """The first line of its page."""
        return (self.change.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Step:
    """A technique with the parameters that were given for it; the others take their defaults."""

    technique: Technique
    given: Mapping[str, int | Ratio] = field(default_factory=dict)


class Used(NamedTuple):
    """A technique as it was applied."""

    name: str
    parameters: dict[str, Any]

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{key}={value}" for key, value in self.parameters.items())])


#: Every technique by its name, in the order in which it is defined.
TECHNIQUES: dict[str, Technique] = {}


def technique(*parameters: Parameter, base: str = "") -> Callable[[Callable[..., Case]], Callable[..., Case]]:
    """Registers the function that follows, under its own name with dashes; `base` as in Technique."""

    def register(function: Callable[..., Case]) -> Callable[..., Case]:
        name = function.__name__.replace("_", "-")
        TECHNIQUES[name] = Technique(name, parameters, function, base)
        return function

    return register
