"""Every architecture against llama.cpp's own allocator: tests/cases/llamacpp.jsonl says how its figures were obtained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.sources.gguf.architecture import KNOWN, read_metadata

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "llamacpp.jsonl").read_text().splitlines()[1:]]
NAMES = sorted({case["architecture"] for case in CASES})


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_refusals_of(name: str) -> None:
    for case in (case for case in CASES if case["architecture"] == name):
        keys: dict[str, Any] = {"general.architecture": name} | {f"{name}.{key}": value for key, value in case["keys"].items()}
        architecture, workload = read_metadata(keys), Workload(engine_args=case["settings"])
        if case.get("refused"):
            with pytest.raises(EngineRejectsError):
                get_engine("llama.cpp").plan(architecture, workload)
            continue
        plan = get_engine("llama.cpp").plan(architecture, workload)
        assert plan.total == case["total"], case
        assert plan.per_device == plan.total
        assert plan.fixed == sum(line.bytes for line in plan.lines if line.fixed) // plan.args["parallel"]


def test_nearly_every_architecture_is_measured() -> None:
    # clef is newer than the measured commit; Gemma 4's assistant needs a target; lfm2moe and qwen4exp changed after it
    assert KNOWN - set(NAMES) == {"clef", "gemma4-assistant", "lfm2moe", "qwen4exp", "dots3note"}
