"""`estimate`: what one model's cache takes under one engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.questions.documents.estimate import EstimateDocument, Hidden
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, figures_of, lines_of, model_of
from kvcalc.questions.memory import memory_of
from kvcalc.sources import load

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload
    from kvcalc.questions.request import Request


@dataclass(frozen=True, slots=True)
class Estimate(Answer):
    """An architecture, the question, and the plan that answers it."""

    architecture: Architecture
    workload: Workload
    plan: Plan

    def document(self) -> EstimateDocument:
        """`kvcalc.estimate/1`."""
        plan = self.plan
        memory, basis = memory_of(plan, self.architecture, self.workload)
        return EstimateDocument(
            model=model_of(self.architecture),
            workload=asked_of(self.workload, plan.context),
            engine=engine_of(plan),
            kv_dtype=plan.kv_dtype,
            bytes=figures_of(plan),
            lines=lines_of(plan),
            notes=plan.notes,
            warnings=plan.warnings,
            out_of_sight=_out_of_sight(self.architecture, plan.context),
            memory=memory,
            basis=basis,
        )


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


def _out_of_sight(architecture: Architecture, context: int) -> tuple[Hidden, ...]:
    """What layers with a window cannot look back to."""
    extents = {buffer.extent.kind for state in architecture.states for buffer in state.buffers()}
    if extents.isdisjoint(("window", "chunk")):
        return ()
    from kvcalc.questions.work import out_of_sight

    return tuple(Hidden(layers, tokens) for tokens, layers in out_of_sight(architecture, context).items())
