"""What a technique brings to the lab: a decoder, a way to open a cache, the work, and the bytes that kvcalc expects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.lab.trial import Outcome, Sequence, Trial, decode, single

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.lab.frame import Cache, Decoder, Store
    from kvcalc.lab.sizes import Sizes

#: Largest difference between cached and recomputed logits, relative to the largest logit, that still counts as equal. The two add
#: the same numbers up in another order: float32 differs by some 1e-6, and a forgotten token by more than 1e-2.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Figure:
    """What kvcalc says: bytes, and how they come about."""

    bytes: int
    formula: str


def plan(architecture: Architecture, context: int, **workload: object) -> Plan:
    """The `ideal` engine's plan."""
    return get_engine("ideal").plan(architecture, Workload(context=context, **workload))  # type: ignore[arg-type]


def formula(found: Plan) -> str:
    """The lines of a plan on one line."""
    return "; ".join(f"{line.buffer}: {line.formula}" for line in found.lines)


def ideal(decoder: Decoder, trial: Trial) -> Figure:
    """Each sequence at its own length, in the decoder's type, without any policy."""
    plans = [plan(decoder.architecture(), sequence.stops[-1]) for sequence in trial.sequences]
    return Figure(sum(found.total for found in plans), " + ".join(formula(found) for found in plans))


def each_alone(decoder: Decoder, trial: Trial) -> Callable[[Sequence], Cache]:
    """Every sequence gets a cache of each layer's own kind of store."""
    del trial
    return lambda _: decoder.start()


def stores(make: Callable[[Decoder, Trial], Store]) -> Callable[[Decoder, Trial], Callable[[Sequence], Cache]]:
    """Every layer of every sequence gets the same kind of store."""
    return lambda decoder, trial: lambda _: decoder.start(lambda: make(decoder, trial))


@dataclass(frozen=True)
class Lesson:
    """One row of the lab.

    decoder     the model; lessons that name the same function share its recomputed answers
    open        for one run of the work: what makes a sequence's cache
    trial       the work
    figure      the bytes that kvcalc expects when the work is done
    decode      how the work is done with a cache
    tolerance   of the output; None where the cache is meant to lose something, and the error is shown instead
    cached      False for the one lesson that keeps nothing
    notes       what this run shows besides
    """

    decoder: Callable[[Sizes], Decoder]
    open: Callable[[Decoder, Trial], Callable[[Sequence], Cache]] = each_alone
    trial: Callable[[Sizes], Trial] = single
    figure: Callable[[Decoder, Trial], Figure] = ideal
    decode: Callable[[Decoder, Trial, Callable[[Sequence], Cache]], Outcome] = decode
    tolerance: float | None = TOLERANCE
    cached: bool = True
    notes: Callable[[Decoder, Trial], tuple[str, ...]] = lambda _decoder, _trial: ()
