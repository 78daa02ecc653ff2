"""`fit --gpu`: what fits on these cards, how many of them are enough, and which cards would do.

The cache's figures are the engine's own (`fit`); what is left for them on a card is memory_budget.py's, with its estimates marked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import KvcalcError
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import largest_context, most_sequences
from kvcalc.hardware import gpus
from kvcalc.questions import remedies
from kvcalc.questions.card import MemoryBudget, holds_on_card, memory_budget, on_card, utilization_for, without_share
from kvcalc.questions.documents.common import Engine as EngineInForce
from kvcalc.questions.documents.fit import CardFitDocument, DecodeBound, NeededShare, RankedCard, SizingDocument
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, model_of
from kvcalc.questions.fit import Budget, Fit, fit
from kvcalc.questions.fit_table import FitTable, fit_table
from kvcalc.questions.memory import memory_on
from kvcalc.sources import load
from kvcalc.sources.weights import measured_weights

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from fractions import Fraction

    from kvcalc.core.architecture import Architecture
    from kvcalc.questions.remedies import Remedy
    from kvcalc.questions.request import Request

#: Numbers of devices that are tried; engines and heads refuse those that do not divide.
SIZES = (1, 2, 4, 8, 16, 32)
#: Config fields that say that only some of the weights are read in a step.
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")


@dataclass(frozen=True, slots=True)
class Sized(Answer):
    """A fit on a card: the answer under the likely overhead, the range under the others, and the bound.

    smallest   how many of these devices hold the question
    share      the engine's setting for its share of the device, and the least that leaves what is needed
    """

    fit: Fit
    memory: MemoryBudget
    context_range: tuple[int | None, int | None]
    sequences_range: tuple[int | None, int | None]
    bound: DecodeBound | None
    smallest: int | None
    share: tuple[str, Fraction] | None = None

    @property
    def fits(self) -> bool:
        """The question fits under the likely overhead."""
        return self.fit.fits

    @property
    def max_context(self) -> int | None:
        """As that of `fit`, under the likely overhead; `context_range` under the others."""
        return self.fit.max_context

    @property
    def max_sequences(self) -> int | None:
        """As that of `fit`, under the likely overhead; `sequences_range` under the others."""
        return self.fit.max_sequences

    @property
    def needed(self) -> int | None:
        """The least bytes per device that hold the question."""
        return self.fit.needed

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """Changes that make it fit, one at a time."""
        return self.fit.remedies

    def document(self) -> CardFitDocument:
        """`kvcalc.fit/1`, with what a card adds."""
        memory, basis = memory_on(self.fit.plan, self.fit.workload, self.memory)
        return CardFitDocument(
            **self.fit.parts(),
            memory=memory,
            basis=basis,
            max_context_range=self.context_range,
            max_sequences_range=self.sequences_range,
            decode_bound=self.bound,
            smallest_devices=self.smallest,
            needed_utilization=None if self.share is None else NeededShare(self.share[0], float(self.share[1])),
        )


def size(request: Request, *, beyond: bool = False, **shares: Any) -> Sized:
    """What fits on the request's GPU; `shares` are those of memory_budget (weights, weight_dtype, overhead, utilization, memory)."""
    architecture = load(request.model)
    shares = _measured_once(request, shares)
    memory = memory_budget(architecture, request, **shares)
    asked = without_share(request)
    found = fit(replace(asked, model=architecture), budget=Budget(memory.kv_likely, memory.origin()), beyond=beyond)
    low, high = (_limits(architecture, asked, found.plan.context, kv, beyond=beyond) for kv in (memory.kv_low, memory.kv_high))
    settled = replace(request, workload=replace(request.workload, context=found.plan.context))
    enough = smallest(architecture, settled, shares)
    share = None if found.needed is None else utilization_for(request.engine, memory, found.needed)
    if not found.fits:
        found = replace(
            found, remedies=tuple(remedies.on_card(found.remedies, architecture, settled, memory, shares, enough=enough, share=share))
        )
    bound = decode_bound(architecture, found, memory)
    return Sized(found, memory, (low[0], high[0]), (low[1], high[1]), bound, enough, share)


def fit_or_size(request: Request, *, beyond: bool = False, **shares: Any) -> Fit | Sized:
    """What fits into the memory that the request names, else on its card. Raises what either raises, UsageError without both."""
    return size(request, beyond=beyond, **shares) if on_card(request.workload, shares) else fit(request, beyond=beyond)


def table_or_size(request: Request, formats: Sequence[str], **shares: Any) -> FitTable:
    """How many sequences of each length fit into the memory that the request names, else on its card; as `fit_or_size`."""
    if not on_card(request.workload, shares):
        return fit_table(request, formats)
    architecture = load(request.model)
    memory = memory_budget(architecture, request, **_measured_once(request, shares))
    return fit_table(replace(without_share(request), model=architecture), formats, budget=Budget(memory.kv_likely, memory.origin()))


def _limits(architecture: Architecture, request: Request, context: int, kv_memory: int, *, beyond: bool) -> tuple[int | None, int | None]:
    """Largest context and most sequences in `kv_memory` bytes a device."""
    fitting = get_engine(request.engine).fitting(architecture, request.workload, kv_memory)
    return largest_context(architecture, request.workload, fitting, beyond=beyond), most_sequences(fitting, context)


def decode_bound(architecture: Architecture, found: Fit, memory: MemoryBudget) -> DecodeBound | None:
    """The bound at the asked context and sequences; None for a card whose bandwidth is not known.

    tokens_per_second <= sequences x bandwidth / (weights + cache), each the part of one device
    """
    if not memory.gpu.bandwidth:
        return None
    experts = any(architecture.traits.get(name) for name in _EXPERTS)
    read = found.plan.per_device + (0 if experts else memory.weights)
    if not read:
        return None
    text = "bound: bandwidth / cache read a step; the experts that a step reads are not known, so weights are left out"
    if not experts:
        text = "bound: bandwidth / (weights + cache) read a step"
    return DecodeBound(round(found.workload.sequences * memory.gpu.bandwidth / read, 1), read, text)


def _measured_once(request: Request, shares: dict[str, Any]) -> dict[str, Any]:
    """The shares with the weights' exact size, so that files and repositories are asked once."""
    if shares.get("weights") is not None or shares.get("weight_dtype") is not None:
        return shares
    return shares | {"measured": measured_weights(request.model)}


def smallest(architecture: Architecture, request: Request, shares: Mapping[str, Any]) -> int | None:
    """The smallest number of the request's GPUs, split as the engine splits, that holds the question; None if 32 do not."""
    return next((count for count in SIZES if holds_on_card(architecture, over(request, count), shares)), None)


def over(request: Request, devices: int) -> Request:
    """The request over that many devices: by layers or by heads, whichever is the engine's own way."""
    by_layers = get_engine(request.engine).by_layers
    workload = replace(request.workload, tensor_parallel=1 if by_layers else devices, pipeline_parallel=devices if by_layers else 1)
    return replace(request, workload=workload)


def rank(request: Request, **shares: Any) -> list[RankedCard]:
    """Every accelerator of the catalogue that holds the question, the least memory in all first."""
    architecture = load(request.model)
    shares = _measured_once(request, shares)
    found = list(_ranked(architecture, request, shares))
    if not found:
        _planned_at_all(architecture, request)
    return sorted(found, key=lambda row: (row.devices * row.memory, row.devices, row.gpu))


def _planned_at_all(architecture: Architecture, request: Request) -> None:
    """Raise the engine's refusal where it has one for every number of devices: that is no want of memory."""
    refusals: list[KvcalcError] = []
    for count in SIZES:
        asked = over(request, count)
        try:
            get_engine(request.engine).plan(architecture, asked.workload)
        except KvcalcError as error:
            refusals.append(error)
        else:
            return
    raise refusals[0]


def _ranked(architecture: Architecture, request: Request, shares: Mapping[str, Any]) -> Iterator[RankedCard]:
    for gpu in gpus().values():
        asked = replace(request, workload=replace(request.workload, gpu=gpu.id))
        devices = smallest(architecture, asked, shares)
        if devices is not None:
            yield RankedCard(gpu.id, gpu.name, devices, gpu.memory, memory_budget(architecture, over(asked, devices), **shares).kv_likely)


def rank_document(request: Request, rows: list[RankedCard]) -> SizingDocument:
    """`kvcalc.sizing/1`; the engine's settings are those on the first row's devices."""
    architecture, engine = load(request.model), get_engine(request.engine)
    running = EngineInForce(engine.name, engine.version, request.workload.engine_args)
    context, kv_dtype = engine.context_of(architecture, request.workload), request.workload.kv_dtype
    if rows:
        best = over(replace(request, workload=replace(request.workload, gpu=rows[0].gpu)), rows[0].devices)
        plan = engine.plan(architecture, best.workload)
        running, kv_dtype = engine_of(plan), plan.kv_dtype
    return SizingDocument(
        model=model_of(architecture),
        workload=asked_of(request.workload, context),
        engine=running,
        kv_dtype=kv_dtype,
        gpus=tuple(rows),
        notes=("weights and overhead are estimates; the smallest number of each card, tensor parallel sizes 1 to 32",),
        warnings=(),
    )
