"""Every family that the sources read, under every engine here: a row of the engine's table, or the refusal that names who knows it."""

from __future__ import annotations

import pytest

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import KvcalcError, UnsupportedArchitectureError
from kvcalc.core.states import Full
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.sglang.classes import CLASSES
from kvcalc.engines.sglang.families import FAMILIES as SGLANG
from kvcalc.questions.set_fields import override
from kvcalc.sources import load
from kvcalc.sources.hf.families.index import INDEX

ENGINES = ("ideal", "sglang", "llama.cpp", "ollama")


def model(family: str) -> Architecture:
    """Four layers of plain attention that say to be of that family."""
    state = Full(kv_heads=4, query_heads=8, head_dim=64)
    layers = Layout(pattern=("full",), count=4, states={"full": (state,)})
    return Architecture(id="plain", family=family, dtype="bf16", max_context=8192, hidden_dim=512, layers=layers)


def refusal(engine: str, family: str) -> UnsupportedArchitectureError | None:
    """What the engine says to a family without a row; None where it has one, whatever else it may not like."""
    try:
        get_engine(engine).plan(model(family), Workload(context=4096))
    except UnsupportedArchitectureError as error:
        return error if f"no rule of {engine}" in error.message else None
    except KvcalcError:
        return None
    return None


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("family", INDEX)
def test_a_row_or_the_refusal(engine: str, family: str) -> None:
    found = refusal(engine, family)
    assert (found is None) is get_engine(engine).knows(family)
    assert found is None or found.hint.endswith("ideal")


@pytest.mark.parametrize("engine", ["sglang", "llama.cpp", "ollama"])
@pytest.mark.parametrize("name", ["deepseek-v3", "llama-3.1-8b", "gemma-3-27b", "kimi-k3", "qwen3-next-80b-a3b"])
def test_a_family_that_nobody_knows_is_refused_whatever_its_class(engine: str, name: str) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=f"no rule of {engine} for model_type 'zzz'") as refused:
        get_engine(engine).plan(override(load(name), {"family": "zzz"}), Workload(context=4096))
    assert (refused.value.exit_code, refused.value.type) == (3, "unsupported_architecture")
    assert "ideal" in refused.value.hint


def test_a_refusal_names_the_engines_that_know_the_family() -> None:
    found = refusal("sglang", "rwkv7")
    assert found is not None
    assert found.hint.startswith("engines that know it: ")
    assert "llama.cpp, ollama" in found.hint


def test_ideal_answers_for_every_family() -> None:
    assert all(get_engine("ideal").knows(family) for family in (*INDEX, "zzz"))


def test_every_class_of_a_row_is_one_of_a_family_or_of_a_wrapper() -> None:
    """SGLang's rows about classes are not about classes that no family could have."""
    assert set(SGLANG) <= set(INDEX)
    named = {family.class_name for family in SGLANG.values()}
    assert {name for name, rule in CLASSES.items() if rule.stateful_only} <= named
    assert {name for name, rule in CLASSES.items() if rule.compressed} <= named | {"DeepseekV4ForCausalLM"}
