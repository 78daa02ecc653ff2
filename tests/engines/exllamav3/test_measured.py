"""Caches against ExLlamaV3 1.6.5 itself: tests/cases/exllamav3.jsonl says how its figures were obtained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.workload import Workload
from kvcalc.engines.exllamav3.classes import CLASSES
from kvcalc.engines.exllamav3.engine import ExllamaV3
from kvcalc.sources.hf.reader import read_config

ENGINE = ExllamaV3()
CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "exllamav3.jsonl").read_text().splitlines()[1:]]
#: Classes of the engine that hold one kind of state only, and the states that kvcalc gives to them.
ALONE = {
    "GDNLayerState": {"gated_deltanet", "kda", "mamba2"},
    "ShortConvLayerState": {"short_conv"},
    "PLELayerState": {"fixed"},
    "CacheLayer_MLA_fp16": {"latent", "index"},
    "CacheLayer_MLA_quant": {"latent", "index"},
}


def asked(case: dict[str, Any]) -> Workload:
    """One sequence of the shortest length, under the case's settings."""
    return Workload(context=1, engine_args=case["engine_args"])


@pytest.mark.parametrize("case", [case for case in CASES if "bytes" in case], ids=lambda case: case["id"])
def test_every_tensor_of_the_cache(case: dict[str, Any]) -> None:
    found = ENGINE.plan(read_config(case["config"]), asked(case))
    assert found.total == case["bytes"]
    for name in ALONE.keys() & case["by_class"]:
        assert sum(line.bytes for line in found.lines if line.state in ALONE[name]) == case["by_class"][name]


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case], ids=lambda case: case["id"])
def test_what_the_engine_refuses(case: dict[str, Any]) -> None:
    with pytest.raises(EngineRejectsError):
        ENGINE.plan(read_config(case["config"]), asked(case))


def test_the_cases_speak_of_many_architectures() -> None:
    names = {case["config"]["architectures"][0] for case in CASES}
    assert len(names) >= 40
    assert names <= {row.name for row in CLASSES}
