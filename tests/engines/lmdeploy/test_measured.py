"""Blocks and slots against LMDeploy 0.18's own PyTorch engine: tests/cases/lmdeploy.jsonl says how its figures were obtained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.workload import Workload
from kvcalc.engines.lmdeploy.engine import LmDeploy
from kvcalc.sources.hf.reader import read_config

ENGINE = LmDeploy()
CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "lmdeploy.jsonl").read_text().splitlines()[1:]]


def workload(case: dict[str, Any]) -> Workload:
    """One sequence of one token on the case's card, under its settings."""
    return Workload(context=1, gpu=case["card"], tensor_parallel=case["tensor_parallel"], engine_args=case["engine_args"])


@pytest.mark.parametrize("case", [case for case in CASES if "blocks" in case], ids=lambda case: case["id"])
def test_blocks_and_slots(case: dict[str, Any]) -> None:
    architecture = read_config(case["config"])
    found = ENGINE.capacity(architecture, workload(case), case["memory"])
    assert (found.blocks, found.block_bytes, found.block_size) == (case["blocks"], case["block_bytes"], case["block_size"])
    assert found.tokens == (case["blocks"] - 1) * case["block_size"]
    assert (found.state_slots or 0) == case["slots"]
    plan, ranks = ENGINE.plan(architecture, workload(case)), case["tensor_parallel"]
    assert plan.fixed == case["slot_bytes"] * ranks
    assert plan.total == ranks * (case["block_bytes"] + case["slots"] * case["slot_bytes"])
    assert sum(line.bytes for line in plan.lines) == plan.total


@pytest.mark.parametrize("case", [case for case in CASES if "blocks" in case], ids=lambda case: case["id"])
def test_windows(case: dict[str, Any]) -> None:
    """A window of the engine's own drops whole blocks; without one a long sequence holds them all."""
    architecture, size = read_config(case["config"]), case["block_size"]
    asked = Workload(context=20_001, gpu=case["card"], tensor_parallel=case["tensor_parallel"], engine_args=case["engine_args"])
    blocks = -(-20_001 // size) - (0 if case["window"] <= 0 else max(0, 20_000 - case["window"]) // size)
    each = ENGINE.plan(architecture, asked)
    assert each.per_sequence - each.fixed == blocks * case["block_bytes"] * case["tensor_parallel"]


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case], ids=lambda case: case["id"])
def test_what_the_engine_refuses(case: dict[str, Any]) -> None:
    with pytest.raises(EngineRejectsError):
        ENGINE.capacity(read_config(case["config"]), workload(case), case["memory"])


def test_the_cases_speak_of_many_classes() -> None:
    assert len(CASES) >= 70
    assert len({case["config"]["architectures"][0] for case in CASES}) >= 25
