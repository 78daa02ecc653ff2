"""What vLLM 0.33 cannot serve (model_executor/models/registry.py), by the rows of families.py and classes.py.

A class that vLLM does not have runs through its Transformers backend where transformers has it; that backend serves attention
alone: recurrent layers and cross-attention need a class of vLLM's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Cross
from kvcalc.core.units import clean
from kvcalc.engines.base.families import unknown_family
from kvcalc.engines.vllm.classes import CLASSES
from kvcalc.engines.vllm.families import FAMILIES, Service, family_of

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

_SERVED = (Service.OWN, Service.TRANSFORMERS)


def service_of(family: str, class_name: str) -> tuple[Service, str]:
    """Who serves a model, and the last release that had a class of its own for it; no row, no service."""
    row, known = FAMILIES.get(family), CLASSES.get(class_name)
    if known is not None and (row is not None or known.service not in _SERVED):
        return known.service, known.last
    if row is None:
        return Service.ABSENT, ""
    return row.service, row.last


def knows(family: str, class_name: str) -> bool:
    """Whether vLLM serves this model_type under this class, and kvcalc has a rule for its caches."""
    return service_of(family, class_name)[0] in _SERVED and not family_of(family).unruled


def check_pipeline(architecture: Architecture, stages: int) -> None:
    """Raises EngineRejectsError for several pipeline stages of a model that vLLM does not cut: n-gram embeddings read the first's token ids."""
    if stages == 1:
        return
    embeds = any(getattr(state, "name", "") == "ngram_conv" for state in architecture.states)
    known = CLASSES.get(architecture.class_name)
    if embeds or (known is not None and not known.pipeline) or not family_of(architecture.family).pipeline:
        shown = clean(architecture.class_name or architecture.family, 60)
        raise EngineRejectsError(f"vLLM refuses pipeline parallelism for {shown}", "use tensor parallelism")


def check_support(architecture: Architecture) -> str | None:
    """A sentence where vLLM serves the model through transformers. Raises UnsupportedArchitectureError for one that it cannot serve."""
    family, name = architecture.family, architecture.class_name
    row, known = family_of(family), CLASSES.get(name)
    shown = clean(name or family, 60)
    service, last = service_of(family, name)
    reason = _unserved(service, last, family)
    if reason is None and any(isinstance(state, Cross) for state in architecture.states) and not (row.cross or (known and known.cross)):
        reason = "which has no model with its cross-attention"
    if reason is None and not row.recurrent and any(state.is_recurrent for state in architecture.states):
        reason = "which has no model with its recurrent layers"
    if reason is not None:
        raise UnsupportedArchitectureError(f"{shown} is unsupported by vLLM 0.33, {reason}", unknown_family("vllm", architecture).hint)
    if row.unruled:
        raise UnsupportedArchitectureError(
            f"kvcalc has no rule for {shown} under vLLM 0.33, which keeps {row.unruled}", unknown_family("vllm", architecture).hint
        )
    if last:
        return f"{shown} left vLLM after {last}: its Transformers backend serves it"
    if service is Service.TRANSFORMERS:
        return f"vLLM 0.33 has no class of its own for {shown}: its Transformers backend serves it"
    return None


def _unserved(service: Service, last: str, family: str) -> str | None:
    """Why vLLM does not serve a model, as the end of a sentence; None where it does."""
    match service:
        case Service.OWN | Service.TRANSFORMERS:
            return None
        case Service.REMOVED:
            return f"and {last} was the last release that had it"
        case Service.PLUGIN:
            return "which leaves it to a plugin"
        case Service.UNDRIVEN:
            return "which has no class for it that its backends can drive"
        case Service.ABSENT:
            return f"which has no class for model_type {clean(family, 60)}, and neither have the transformers that it runs with"
