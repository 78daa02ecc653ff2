"""`import kvcalc`: light, lazy, typed, and stable whatever is imported beside it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import kvcalc
from kvcalc.core.architecture import Architecture
from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.questions.compare import Comparison
from kvcalc.questions.estimate import Estimate
from kvcalc.questions.fit import Fit

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}


def test_typed_results_with_documents() -> None:
    assert isinstance(kvcalc.load("llama-2-7b"), Architecture)
    estimated = kvcalc.estimate("llama-2-7b", context="128k", sequences=2, engine="vllm", engine_args={"block_size": 32})
    assert isinstance(estimated, Estimate)
    assert estimated.to_dict()["engine"]["args"]["block_size"] == 32
    fitted = kvcalc.fit("llama-2-7b", kv_memory="60GiB", context=4096)
    assert isinstance(fitted, Fit)
    assert fitted.max_sequences == 30
    compared = kvcalc.compare(["llama-2-7b", "llama-3.1-8b"], context=4096, techniques=["fp8"])
    assert isinstance(compared, Comparison)
    assert len(compared.rows) == 4


def test_models_of_every_form() -> None:
    inline = kvcalc.estimate({"hf_config": CONFIG}, context=10, kv_dtype="bf16").plan.total
    assert inline == 2 * 2 * 32 * 2 * 10
    loaded = kvcalc.load({"hf_config": CONFIG})
    assert kvcalc.estimate(loaded, context=10, kv_dtype="bf16").plan.total == inline
    assert kvcalc.compare({"hf_config": CONFIG}, context=10, techniques=["mqa"]).rows[1].plan is not None
    assert kvcalc.compare(loaded, context=10, techniques=["mqa"]).rows[0].architecture == loaded


@pytest.mark.parametrize(
    ("model", "question"),
    [
        ("nonesuch", {}),
        ("", {}),
        (None, {}),
        (3, {}),
        ({}, {}),
        ({"hf_config": 3}, {}),
        ("llama-2-7b", {"contxt": 3}),
        ("llama-2-7b", {"context": 1.5}),
        ("llama-2-7b", {"sequences": True}),
        ("llama-2-7b", {"engine_args": 3}),
    ],
)
def test_errors_are_of_one_tree(model: Any, question: Any) -> None:
    with pytest.raises(KvcalcError):
        kvcalc.estimate(model, **question)


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        kvcalc.estimate("llama-2-7b", tensor_paralel=2)  # type: ignore[call-arg]
    assert "'tensor_parallel'" in caught.value.hint


def test_importing_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import kvcalc; print(*sorted(m.partition('.')[0] for m in set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"typer", "rich", "click", "huggingface_hub", "pydantic", "yaml", "torch", "httpx"} & set(found)
