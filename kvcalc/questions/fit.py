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
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from kvcalc.core.errors import UsageError
from kvcalc.core.plan import Capacity
from kvcalc.core.units import parse_bytes
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import largest_context, least_memory, most_sequences
from kvcalc.questions.card import idle_share
from kvcalc.questions.documents.fit import Capacity as CapacityFigures
from kvcalc.questions.documents.fit import CardBudget, CardShares, FitDocument, GivenBudget, GivenFitDocument
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, model_of
from kvcalc.questions.memory import memory_in
from kvcalc.questions.remedies import Remedy, in_memory
from kvcalc.sources import load

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload
    from kvcalc.questions.request import Request


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes for the cache on each device, and where they come from: the flag, or how a card's memory was divided."""

    kv_bytes_per_device: int
    origin: Literal["--kv-memory"] | CardShares = "--kv-memory"

    def document(self) -> GivenBudget | CardBudget:
        """The `budget` of a document."""
        if isinstance(self.origin, CardShares):
            return CardBudget(self.kv_bytes_per_device, self.origin)
        return GivenBudget(self.kv_bytes_per_device, self.origin)


@dataclass(frozen=True, slots=True)
class Fit(Answer):
    """An architecture, the question, the memory, and what fits into it.

    max_context   None where none fits, and where nothing ends it, which is `unbounded`
    """

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
    unbounded: bool = False

    def document(self) -> FitDocument:
        """`kvcalc.fit/1`."""
        memory, basis = memory_in(self.plan, self.workload, self.budget.kv_bytes_per_device)
        return GivenFitDocument(**self.parts(), memory=memory, basis=basis)

    def parts(self) -> dict[str, Any]:
        """The fields of a document but for where the memory lies."""
        capacity = self.capacity
        return {
            "model": model_of(self.architecture),
            "workload": asked_of(self.workload, self.plan.context),
            "engine": engine_of(self.plan),
            "kv_dtype": self.plan.kv_dtype,
            "budget": self.budget.document(),
            "fits": self.fits,
            "max_context": self.max_context,
            "max_sequences": self.max_sequences,
            "needed": self.needed,
            "capacity": CapacityFigures(
                capacity.tokens,
                capacity.concurrency,
                capacity.blocks,
                capacity.block_bytes,
                capacity.block_size,
                capacity.sliding_tokens,
                capacity.state_slots,
            ),
            "remedies": tuple(remedy.document() for remedy in self.remedies),
            "notes": self.notes,
            "warnings": self.warnings,
            "unbounded": self.unbounded,
        }


def fit(request: Request, *, budget: Budget | None = None, beyond: bool = False) -> Fit:
    """Load the model, search what fits. Raises every KvcalcError that loading or planning raises, and UsageError without a budget."""
    budget = budget or read_budget(request)
    architecture, engine = load(request.model), get_engine(request.engine)
    workload = request.workload
    fitting = engine.fitting(architecture, workload, budget.kv_bytes_per_device)
    longest = largest_context(architecture, workload, fitting, beyond=beyond)
    unbounded = longest is None and fitting.admits(1, workload.sequences)
    asked = longest or 1 if workload.context == -1 else engine.context_of(architecture, workload)
    settled = replace(workload, context=asked) if workload.context == -1 else workload
    plan = fitting.plan(settled)
    fits = (workload.context != -1 or longest is not None or unbounded) and fitting.admits(asked, workload.sequences)
    capacity = fitting.capacity(asked) or Capacity(fits)
    unending = (f"nothing ends the context: the figures are those of {asked:,} token",) if unbounded and workload.context == -1 else ()
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
        () if fits else tuple(in_memory(fitting, settled, longest, _part(budget, plan))),
        notes=tuple(dict.fromkeys((*plan.notes, *capacity.notes, *idle_share(request, plan.notes, fits=True), *unending))),
        warnings=tuple(dict.fromkeys((*plan.warnings, *capacity.warnings))),
        unbounded=unbounded,
    )


def read_budget(request: Request) -> Budget:
    """The memory that the question names. Raises UsageError where it names none."""
    if request.workload.kv_memory is None:
        raise UsageError("fit: no memory to fit into", "give the bytes that each device has for the cache, such as --kv-memory 60GiB")
    return Budget(parse_bytes(request.workload.kv_memory, "kv_memory"))


def _part(budget: Budget, plan: Plan) -> Fraction:
    """How much of what the plan takes is there."""
    return min(Fraction(1), Fraction(budget.kv_bytes_per_device, plan.per_device or 1))
