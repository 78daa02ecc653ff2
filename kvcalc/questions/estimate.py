"""`estimate`: what one model's cache takes under one engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.sources import load

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload
    from kvcalc.questions.request import Request


@dataclass(frozen=True, slots=True)
class Estimate:
    """An architecture, the question, and the plan that answers it."""

    architecture: Architecture
    workload: Workload
    plan: Plan

    def to_dict(self) -> dict[str, Any]:
        """The document `kvcalc.estimate/1`."""
        plan = self.plan
        return {
            "schema": "kvcalc.estimate/1",
            "model": model_dict(self.architecture),
            "workload": workload_dict(self.workload, plan.context),
            "engine": engine_dict(plan),
            "kv_dtype": plan.kv_dtype,
            "bytes": plan.bytes_dict(),
            "lines": [line.to_dict() for line in plan.lines],
            "notes": list(plan.notes),
            "warnings": list(plan.warnings),
        }


def estimate(request: Request) -> Estimate:
    """Load the model, ask the engine. Raises every KvcalcError that loading or planning raises."""
    if request.workload.context == -1:
        raise UsageError(
            "context -1 asks for the largest that fits, which is the question of fit", "give a context, or ask fit with a memory"
        )
    if request.workload.gpu is not None:
        from kvcalc.hardware import get_gpu
        from kvcalc.questions.card import share_of

        share_of(request.engine, get_gpu(request.workload.gpu))
    architecture = load(request.model)
    plan = get_engine(request.engine).plan(architecture, request.workload)
    if request.workload.engine_args:
        from kvcalc.questions.card import idle_share

        plan = replace(plan, notes=(*plan.notes, *idle_share(request, plan.notes, fits=False)))
    return Estimate(architecture, request.workload, plan)


def model_dict(architecture: Architecture) -> dict[str, Any]:
    """The `model` object of every document."""
    source = architecture.source
    described = ""
    if source is not None:
        described = source.file + (f"@{source.revision}" if source.revision else "")
    return {
        "id": architecture.id,
        "source": described,
        "model_type": architecture.family,
        "dtype": architecture.dtype,
        "max_context": architecture.max_context,
    }


def workload_dict(workload: Workload, context: int) -> dict[str, Any]:
    """The `workload` object of every document."""
    return {
        "context": context,
        "sequences": workload.sequences,
        "tensor_parallel": workload.tensor_parallel,
        "pipeline_parallel": workload.pipeline_parallel,
        "decode_context_parallel": workload.decode_context_parallel,
        "shared_prefix": workload.shared_prefix,
    }


def engine_dict(plan: Plan) -> dict[str, Any]:
    """The `engine` object of every document."""
    return {"name": plan.engine, "version": plan.version, "args": dict(plan.args)}
