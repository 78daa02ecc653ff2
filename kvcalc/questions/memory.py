"""Where the memory of a question lies, device by device: weights, cache, overhead, and what there is of it.

weights    divided evenly over the devices        given, from the files, or parameters x type
cache      the plan's, where every device holds the same; null where the engine spreads it unevenly
total      their sum, where all of them are known; with a memory for the cache alone, the cache
limit      the device's memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kvcalc.core.errors import UsageError
from kvcalc.core.weights import weight_format
from kvcalc.engines import get_engine
from kvcalc.questions.documents.common import Basis, Device, Host, Memory

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload
    from kvcalc.questions.card import MemoryBudget

#: Nothing lies in host memory.
NOTHING = Host(0, 0, 0, 0, 0, 0)
#: More devices than these are not listed one by one.
MOST_LISTED = 1024
#: How `sure` begins → the words of `basis`.
_CARD = {"given": "given", "measured": "measured", "estimated": "nominal"}
_OVERHEAD = {"given": "given", "exact": "given", "estimated": "estimated"}


def memory_in(plan: Plan, workload: Workload, kv_memory: int) -> tuple[Memory, Basis]:
    """The cache beside the memory that was given for it: nothing else is known, and nothing else counts."""
    return _memory(plan, workload, None, None, kv_memory, cache_alone=True), Basis(None, "given", None)


def memory_on(plan: Plan, workload: Workload, budget: MemoryBudget) -> tuple[Memory, Basis]:
    """The question on a card whose memory was divided."""
    first = {key: text.partition(":")[0].partition(";")[0] for key, text in budget.sure.items()}
    basis = Basis(cast("Any", first["weights"]), cast("Any", _CARD[first["memory"]]), cast("Any", _OVERHEAD[first["overhead"]]))
    return _memory(plan, workload, budget.weights, budget.overhead, budget.memory), basis


def memory_of(plan: Plan, architecture: Architecture, workload: Workload) -> tuple[Memory, Basis]:
    """The question by itself, or on its card: the weights are estimated where the model's parameters and their type are known."""
    known = architecture.parameters is not None and _is_weight_type(architecture.dtype)
    if workload.gpu is not None:
        from kvcalc.hardware import get_gpu
        from kvcalc.questions.card import memory_budget
        from kvcalc.questions.request import Request

        if known:
            return memory_on(plan, workload, memory_budget(architecture, Request(architecture, plan.engine, workload)))
        gpu = get_gpu(workload.gpu)
        return _memory(plan, workload, None, None, gpu.memory), Basis(None, "measured" if gpu.known == "measured" else "nominal", None)
    if not known:
        return _memory(plan, workload, None, None, None), Basis(None, None, None)
    from kvcalc.questions.weights import weights_per_device

    usual = get_engine(plan.engine).usual_weights
    weights = weights_per_device(architecture, workload, None, None, None, {}, usual=usual)
    return _memory(plan, workload, weights, None, None), Basis("estimated", None, None)


def _is_weight_type(name: str | None) -> bool:
    """Weights of that type have a size that kvcalc knows."""
    try:
        return name is not None and bool(weight_format(name))
    except UsageError:
        return False


def _memory(
    plan: Plan, workload: Workload, weights: int | None, overhead: int | None, limit: int | None, *, cache_alone: bool = False
) -> Memory:
    """The same on every device."""
    devices = workload.devices
    listed = devices if devices <= MOST_LISTED else 0
    cache = plan.per_device if plan.per_device * devices == plan.total else None
    parts = [cache] if cache_alone else [weights, cache, overhead]
    known = [part for part in parts if part is not None]
    total = sum(known) if len(known) == len(parts) else None
    return Memory(tuple(Device(str(number), weights, cache, overhead, None, None, total, limit) for number in range(listed)), NOTHING)
