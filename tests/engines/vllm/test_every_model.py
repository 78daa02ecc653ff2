"""Every model of the catalogue on every split: a plan whose lines add up, or a refusal; nothing breaks."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.workload import Workload
from kvcalc.engines.vllm.engine import Vllm
from kvcalc.sources import load
from kvcalc.sources.catalogue import ids

SPLITS = [(tp, pp, dcp) for tp in (1, 2, 4, 8, 16, 128) for pp in (1, 2) for dcp in (1, 2, 4, 8) if tp >= dcp]


@pytest.mark.parametrize("name", ids())
def test_a_plan_or_a_refusal(name: str) -> None:
    architecture, engine = load(name), Vllm()
    for tp, pp, dcp in SPLITS:
        workload = Workload(
            context=5000, sequences=3, tensor_parallel=tp, pipeline_parallel=pp, decode_context_parallel=dcp, shared_prefix=1000
        )
        try:
            plan = engine.plan(architecture, workload)
        except (EngineRejectsError, UnsupportedArchitectureError):
            continue
        assert all(line.bytes > 0 for line in plan.lines)
        assert plan.per_device <= plan.total <= tp * pp * plan.per_device
        if pp == 1:
            assert plan.total == tp * plan.per_device


@pytest.mark.parametrize("name", ["sarvam-105b", "mistral-small-4-119b"])
def test_expanded_latents_have_too_few_copies_of_their_heads(name: str) -> None:
    """No MLA in vLLM: K and V of every head, of which 4 ranks hold no two copies."""
    with pytest.raises(EngineRejectsError, match=r"tensor parallel size 4 holds 1 copies of the \d+ KV heads"):
        Vllm().plan(load(name), Workload(context=5000, tensor_parallel=4, decode_context_parallel=2))
