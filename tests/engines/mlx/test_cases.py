"""What mlx-lm's own classes and cache objects held, a config each of its modules: tests/cases/mlx.jsonl says how that was obtained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kvcalc
from kvcalc.core.errors import EngineRejectsError
from kvcalc.engines.mlx.families import MODULES, family_of
from kvcalc.sources.hf.families import read_family

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "mlx.jsonl").read_text().splitlines()[1:]]
#: Modules that do not run on a CPU, or need a package of their own.
UNASKED = {"bitnet", "muse_spark", "olmo", "phixtral", "prism_hadamard_qwen35"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_the_bytes_are_those_of_the_library(case: dict[str, Any]) -> None:
    for asked in case["asked"]:
        question = {key: asked[key] for key in ("context", "sequences", "engine_args")}
        if "error" in asked:
            with pytest.raises(EngineRejectsError):
                kvcalc.estimate({"hf_config": case["config"]}, engine="mlx", **question)
            continue
        found = kvcalc.estimate({"hf_config": case["config"]}, engine="mlx", **question).to_dict()
        assert found["bytes"]["total"] == asked["bytes"], question


def test_every_module_was_asked() -> None:
    families = (family_of(read_family(case["config"])) for case in CASES)
    asked = {family.module for family in families if family is not None}
    assert set(MODULES) - asked <= UNASKED
