"""From what is computed to the parts that documents share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kvcalc.questions.documents.common import Asked, Engine, Fault, Figures, Line, Model

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.errors import KvcalcError
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload


def model_of(architecture: Architecture) -> Model:
    """The `model` of every document."""
    source = architecture.source
    described = "" if source is None else source.file + (f"@{source.revision}" if source.revision else "")
    return Model(architecture.id, described, architecture.family, architecture.dtype, architecture.max_context)


def asked_of(workload: Workload, context: int) -> Asked:
    """The `workload` of every document; `context` is the one that was planned."""
    return Asked(
        context,
        workload.sequences,
        workload.tensor_parallel,
        workload.pipeline_parallel,
        workload.decode_context_parallel,
        workload.shared_prefix,
    )


def engine_of(plan: Plan) -> Engine:
    """The `engine` of every document."""
    return Engine(plan.engine, plan.version, plan.args)


def figures_of(plan: Plan) -> Figures:
    """The `bytes` of a plan."""
    return Figures(plan.total, plan.per_device, plan.per_sequence, plan.per_token, plan.growth_per_token, plan.fixed)


def lines_of(plan: Plan) -> tuple[Line, ...]:
    """The `lines` of a plan; their bytes add up to its total."""
    return tuple(
        Line(line.state, line.layers, line.buffer, line.width, line.format, line.slots, line.bytes, line.formula) for line in plan.lines
    )


def fault_of(error: KvcalcError) -> Fault:
    """The `error` of a document."""
    return Fault(cast("Any", error.type), error.message, error.hint, cast("Any", error.exit_code))
