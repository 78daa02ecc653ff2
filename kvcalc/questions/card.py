"""From a card to bytes for the cache, figure by figure, each marked exact, given or estimated.

    a share of the whole card       memory x share - weights - overhead
    a share of what is left         (memory - weights - overhead) x share
    no share                        memory - weights - overhead

Which of these an engine does, and its overhead, stands in its folder's memory.py. What an engine keeps for activations, graphs and
buffers is found by running it, not by arithmetic: the overhead is an estimate with a low, a likely and a high figure, and so is the
result. `--overhead`, `--weights` and `--kv-memory` replace estimates by facts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, KvcalcError, UsageError
from kvcalc.engines import get_engine
from kvcalc.hardware import Gpu, get_gpu
from kvcalc.questions.weights import weights_per_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.memory import Share
    from kvcalc.questions.documents.fit import CardShares
    from kvcalc.questions.request import Request


#: Of a capacity as sold a driver keeps up to so much; measured cards lie between 0 and 8 per cent below theirs.
_KEPT = Fraction(8, 100)


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """One device's memory, divided.

    kv_low, kv_likely, kv_high     bytes for the cache under the high, likely and low overhead, and the least, the usual and the largest
                                   total of such a card; never below 0
    sure                           how each figure is known: exact, given or estimated, with where it comes from
    """

    gpu: Gpu
    memory: int
    utilization: Fraction
    weights: int
    overhead: int
    kv_low: int
    kv_likely: int
    kv_high: int
    sure: dict[str, str]

    def origin(self) -> CardShares:
        """Where the memory for the cache comes from, in a document."""
        from kvcalc.questions.documents.fit import CardShares, Sure

        sure = Sure(self.sure["memory"], self.sure["utilization"], self.sure["weights"], self.sure["overhead"])
        return CardShares(
            self.gpu.id,
            self.memory,
            float(self.utilization),
            self.weights,
            self.overhead,
            self.kv_low,
            self.kv_likely,
            self.kv_high,
            sure,
        )


def on_card(workload: Workload, shares: Mapping[str, Any]) -> bool:
    """The memory for the cache is what a device leaves: a card of the catalogue, or one whose memory is among the shares."""
    return workload.kv_memory is None and (workload.gpu is not None or "memory" in shares)


def share_of(engine: str, gpu: Gpu) -> Share:
    """What the engine leaves on that card. Raises UsageError for an unknown engine, EngineRejectsError for a card that it does not run on."""
    share = get_engine(engine).share
    if gpu.vendor not in ("any", *share.vendors):
        raise EngineRejectsError(f"{engine} does not run on {gpu.name}", "vendors: " + ", ".join(share.vendors))
    return share


def memory_budget(
    architecture: Architecture,
    request: Request,
    *,
    weights: int | None = None,
    weight_dtype: str | None = None,
    overhead: int | None = None,
    utilization: float | None = None,
    memory: int | None = None,
    measured: int | None = None,
) -> MemoryBudget:
    """The budget of one device of the request's GPU. `weights` (given) and `measured` (from the files) are all devices together.

    Raises UsageError for what is unknown, EngineRejectsError for a card that the engine does not run on.
    """
    workload = request.workload
    if workload.gpu is None and memory is None:
        raise UsageError("fit: no accelerator and no memory are named", "give --gpu NAME, --memory SIZE, or --kv-memory SIZE")
    gpu = (
        get_gpu(workload.gpu)
        if workload.gpu is not None
        else Gpu("memory", "memory given", "any", memory or 0, "given", 0, None, "given", "")
    )
    share = share_of(request.engine, gpu)
    total = gpu.memory if memory is None else memory
    least, most = (total, total) if memory is not None else _range(gpu)
    sure = {"memory": "given" if memory is not None else how_known(gpu)}
    fraction = _utilization(share, request, gpu, utilization, sure)
    usual = get_engine(request.engine).usual_weights
    held = weights_per_device(architecture, workload, weights, measured, weight_dtype, sure, usual=usual)
    low, likely, high = share.overhead if overhead is None else (overhead, overhead, overhead)
    sure["overhead"] = "given" if overhead is not None else "exact: none" if share.is_nothing else f"estimated: {share.source}"

    def left(total: int, spent: int) -> int:
        room = (total - held - spent) * fraction if share.free else math.ceil(total * fraction) - held - spent
        return max(0, math.floor(room))

    return MemoryBudget(gpu, total, fraction, held, likely, left(least, high), left(total, likely), left(most, low), sure)


def how_known(gpu: Gpu) -> str:
    """How the memory of a card is known, in words."""
    if gpu.known == "measured":
        prints = "one public print" if gpu.prints == 1 else f"the median of {gpu.prints} public prints"
        return f"measured: what engines print as its total, {prints}"
    return f"estimated: the capacity as sold, of which the driver keeps a part ({gpu.source})"


def _range(gpu: Gpu) -> tuple[int, int]:
    """The least and the largest total that such a card is known, or must be expected, to have."""
    if gpu.low is not None and gpu.high is not None:
        return gpu.low, gpu.high
    return math.floor(gpu.memory * (1 - _KEPT)), gpu.memory


def utilization_for(engine: str, memory: MemoryBudget, needed: int) -> tuple[str, Fraction] | None:
    """The engine's setting for its share, and the least in thousandths that leaves `needed` bytes under the likely overhead.

    None where the engine has no such setting, or where not even the whole device is enough.
    """
    share = get_engine(engine).share
    room = memory.memory - memory.weights - memory.overhead
    if not share.setting or needed > room or not memory.memory:
        return None
    exact = Fraction(needed, room) if share.free and room else Fraction(needed + memory.weights + memory.overhead, memory.memory)
    return share.setting, Fraction(math.ceil(exact * 1000), 1000)


def idle_share(request: Request, said: Iterable[str], *, fits: bool) -> tuple[str, ...]:
    """A note where the engine's share of a card is set and no card is divided, so that the share does nothing.

    said    notes of the engine, which may speak of it already
    fits    something is fitted into a memory; else an estimate is asked for
    """
    share, given = get_engine(request.engine).share, request.workload.kv_memory is not None
    idle = not fits or (given and not share.free)
    if not idle or not _sets(request, share.setting) or any(share.setting in note for note in said):
        return ()
    why = "the memory for the cache is given" if fits else "an estimate divides none"
    return (f"{share.setting} changes nothing here: it divides a card, and {why}",)


def _sets(request: Request, setting: str) -> bool:
    return bool(setting) and setting in {str(key).replace("-", "_") for key in request.workload.engine_args}


def _utilization(share: Share, request: Request, gpu: Gpu, given: float | None, sure: dict[str, str]) -> Fraction:
    if _sets(request, share.setting):
        if given is not None:
            raise UsageError(f"the share of the card is set twice, by utilization and by {share.setting}", "give one of them")
        given = get_engine(request.engine).read_args(request.workload.engine_args).get(share.setting)
    if given is not None:
        if not 0 < given <= 1:
            raise UsageError(f"utilization {given:g} is not a fraction of the memory", "write it like 0.9")
        sure["utilization"] = "given"
        return Fraction(str(given))
    if share.how:
        sure["utilization"] = f"estimated: {share.how}"
    else:
        sure["utilization"] = "exact: the engine's default" if share.setting else "exact: the engine takes what is left"
    return share.fraction(gpu.memory, request.workload)


def without_share(request: Request) -> Request:
    """The same question to an engine that takes all of the memory it is given: what `memory_budget` leaves is its share already."""
    share = get_engine(request.engine).share
    if not share.free:
        return request
    args = {**request.workload.engine_args, share.setting: 1.0}
    return replace(request, workload=replace(request.workload, engine_args=args))


def holds_on_card(architecture: Architecture, request: Request, shares: Mapping[str, Any]) -> bool:
    """The question holds on the request's cards, under the likely overhead; what the engine refuses does not. Raises UsageError."""
    engine = get_engine(request.engine)
    try:
        memory = memory_budget(architecture, request, **shares)
        workload = without_share(request).workload
        return engine.fitting(architecture, workload, memory.kv_likely).admits(
            engine.context_of(architecture, workload), workload.sequences
        )
    except UsageError:
        raise
    except KvcalcError:
        return False
