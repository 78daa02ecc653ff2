"""SGLang's own figures: measured.jsonl says how they were obtained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pool_engines import SGLANG, Asked

from kvcalc.engines.sglang.engine import pooled
from kvcalc.sources import load

ASKED = Asked(SGLANG)
LINES = [json.loads(line) for line in (Path(__file__).parent / "measured.jsonl").read_text(encoding="utf-8").splitlines()[1:]]
CONFIGS = {line["model"]: line["hf_config"] for line in LINES if "hf_config" in line}
CASES = [line for line in LINES if "tokens" in line]
FIGURES = ("tokens", "page_size", "requests", "sliding", "slots", "bytes")


def test_there_are_enough() -> None:
    assert len(CONFIGS) >= 25
    assert len(CASES) > 135


@pytest.mark.parametrize("case", CASES, ids=[f"{case['model']}-{number}" for number, case in enumerate(CASES)])
def test_figures(case: dict[str, Any]) -> None:
    architecture = load({"hf_config": CONFIGS[case["model"]]})
    question = {key: value for key, value in case.items() if key not in (*FIGURES, "model", "engine_args", "kv_memory")}
    workload = ASKED.workload(4096, question | case["engine_args"])
    found = SGLANG.capacity(architecture, workload, case["kv_memory"])
    assert (found.tokens, found.block_size, found.concurrency) == (case["tokens"], case["page_size"], case["requests"])
    assert (found.sliding_tokens, found.state_slots) == (case.get("sliding"), case.get("slots"))
    if "bytes" in case:
        started = pooled(architecture, workload, SGLANG.read_args(workload.engine_args))
        sizes = started.sizer.from_memory(case["kv_memory"], workload.context or 0)
        assert list(started.layout.allocate(sizes).ranks) == case["bytes"]
