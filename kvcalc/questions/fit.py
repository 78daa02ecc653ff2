"""`fit`: the inverse question: what a fixed memory per device holds.

    max_context     largest context at which the asked sequences fit           at most the model's maximum, unless `beyond`
    max_sequences   most sequences of the asked context that fit
    needed          the least memory per device that holds the question
    capacity        what the engine's own log would say

All are searched: the engine says whether a context and a number of sequences fit a memory, which is monotone in each, and
bisection finds the last that does. No formula is inverted. Context -1 asks for the largest that fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.core.plan import Capacity
from kvcalc.core.units import parse_bytes
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import largest_context, last_that, least_memory, most_sequences
from kvcalc.questions.card import idle_share
from kvcalc.questions.estimate import engine_dict, model_dict, workload_dict
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Engine, Fitting
    from kvcalc.questions.request import Request

#: How far a remedy doubles the tensor parallel size.
_MOST_RANKS = 64


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes for the cache on each device, and where they come from: the flag, or how a card's memory was divided."""

    kv_bytes_per_device: int
    origin: str | Mapping[str, Any] = "--kv-memory"

    def to_dict(self) -> dict[str, Any]:
        """The `budget` object of `kvcalc.fit/1`."""
        return {"kv_bytes_per_device": self.kv_bytes_per_device, "from": self.origin if isinstance(self.origin, str) else dict(self.origin)}


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that makes the question fit, alone and as it stands."""

    setting: str
    value: int | str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """One entry of `remedies` in `kvcalc.fit/1`."""
        return {"setting": self.setting, "value": self.value, "text": self.text}


@dataclass(frozen=True, slots=True)
class Fit:
    """An architecture, the question, the memory, and what fits into it."""

    architecture: Architecture
    workload: Workload
    plan: Plan
    budget: Budget
    fits: bool
    max_context: int | None
    max_sequences: int | None
    capacity: Capacity
    needed: int | None = None
    remedies: tuple[Remedy, ...] = ()
    notes: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The document `kvcalc.fit/1`."""
        return {
            "schema": "kvcalc.fit/1",
            "model": model_dict(self.architecture),
            "workload": workload_dict(self.workload, self.plan.context),
            "engine": engine_dict(self.plan),
            "kv_dtype": self.plan.kv_dtype,
            "budget": self.budget.to_dict(),
            "fits": self.fits,
            "max_context": self.max_context,
            "max_sequences": self.max_sequences,
            "needed": self.needed,
            "capacity": self.capacity.to_dict(),
            "remedies": [remedy.to_dict() for remedy in self.remedies],
            "notes": list(self.notes),
            "warnings": list(self.warnings),
        }


def fit(request: Request, *, budget: Budget | None = None, beyond: bool = False) -> Fit:
    """Load the model, search what fits. Raises every KvcalcError that loading or planning raises, and UsageError without a budget."""
    budget = budget or read_budget(request)
    architecture, engine = load(request.model), get_engine(request.engine)
    workload = request.workload
    fitting = engine.fitting(architecture, workload, budget.kv_bytes_per_device)
    longest = largest_context(architecture, workload, fitting, beyond=beyond)
    asked = longest or 1 if workload.context == -1 else engine.context_of(architecture, workload)
    settled = replace(workload, context=asked) if workload.context == -1 else workload
    plan = fitting.plan(settled)
    fits = (workload.context != -1 or longest is not None) and fitting.admits(asked, workload.sequences)
    capacity = fitting.capacity(asked) or Capacity(fits)
    return Fit(
        architecture,
        settled,
        plan,
        budget,
        fits,
        longest,
        most_sequences(fitting, asked),
        capacity,
        None if workload.context == -1 and not fits else least_memory(fitting, asked, plan.per_device),
        () if fits else tuple(remedies(architecture, engine, settled, budget, fitting, longest)),
        notes=tuple(dict.fromkeys((*plan.notes, *capacity.notes, *idle_share(request, plan.notes, fits=True)))),
        warnings=tuple(dict.fromkeys((*plan.warnings, *capacity.warnings))),
    )


def read_budget(request: Request) -> Budget:
    """The memory that the question names. Raises UsageError where it names none."""
    if request.workload.kv_memory is None:
        raise UsageError("fit: no memory to fit into", "give the bytes that each device has for the cache, such as --kv-memory 60GiB")
    return Budget(parse_bytes(request.workload.kv_memory, "kv_memory"))


def remedies(
    architecture: Architecture, engine: Engine, workload: Workload, budget: Budget, fitting: Fitting, longest: int | None
) -> Iterator[Remedy]:
    """The nearest changes that make it fit, one setting at a time, each tried before it is named."""
    memory = budget.kv_bytes_per_device
    context, sequences = engine.context_of(architecture, workload), workload.sequences
    if longest is not None and longest < context:
        yield Remedy("context", longest, f"a context of {longest:,} tokens instead of {context:,}")
    fewer = last_that(lambda n: fitting.admits(context, n), sequences)
    if fewer is not None and fewer < sequences:
        yield Remedy("sequences", fewer, f"{fewer:,} sequence{'s' if fewer > 1 else ''} instead of {sequences:,}")
    for name in engine.remedy_formats:
        if _admitted(engine, architecture, replace(workload, kv_dtype=name), memory, context):
            yield Remedy("kv_dtype", name, f"a cache of {name}")
            break
    ranks = workload.tensor_parallel * 2
    while ranks <= _MOST_RANKS:
        if _admitted(engine, architecture, replace(workload, tensor_parallel=ranks), memory, context):
            yield Remedy("tensor_parallel", ranks, f"tensor parallel over {ranks} devices with as much memory each")
            break
        ranks *= 2


def _admitted(engine: Engine, architecture: Architecture, workload: Workload, memory: int, context: int) -> bool:
    try:
        return engine.fitting(architecture, workload, memory).admits(context, workload.sequences)
    except KvcalcError:
        return False
