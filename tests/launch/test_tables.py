"""Every flag stands in one table: what it does is said once."""

from __future__ import annotations

from importlib import import_module
from itertools import combinations

import pytest


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "tensorrt_llm", "lmdeploy", "exllamav3"])
def test_a_flag_stands_in_one_table(engine: str) -> None:
    module = import_module(f"kvcalc.engines.{engine}.launch")
    tables = {name: set(getattr(module, name)) for name in ("_TRANSLATED", "_SETTINGS", "_REFUSED", "_DOUBTED", "_IDLE")}
    for (first, flags), (second, others) in combinations(tables.items(), 2):
        assert not flags & others, f"{first} and {second}"
    assert set().union(*tables.values()) <= set(module._FLAGS)
    for name, flag in module._FLAGS.items():
        assert name.startswith("-")
        assert flag.takes in ("nothing", "one", "many", "maybe", "word", "mapping")
