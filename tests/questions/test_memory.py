"""Where the memory lies: device by device, and how the figures besides the cache are known."""

from __future__ import annotations

from typing import Any

import pytest

import kvcalc
from kvcalc.core.workload import Workload
from kvcalc.questions.documents.kinds import plain
from kvcalc.questions.memory import MOST_LISTED, memory_of

GIB = 1024**3
HOST = dict.fromkeys(("weights", "cache", "checkpoints", "prompt_cache", "offload", "total"), 0)
#: Llama-3.1-8B: 8,030,261,248 parameters of two bytes, 131,072 B of cache a token.
WEIGHTS = 2 * 8_030_261_248


def places(**asked: Any) -> dict[str, Any]:
    found = kvcalc.estimate("llama-3.1-8b", context=8192, **asked).to_dict()
    return {"memory": found["memory"], "basis": found["basis"]}


def device(number: int, **known: int | None) -> dict[str, Any]:
    return {"device": str(number)} | dict.fromkeys(("weights", "cache", "overhead", "draft", "projector", "total", "limit")) | known


def test_an_estimate_knows_the_cache_and_the_models_own_size() -> None:
    found = places()
    assert found["memory"] == {"devices": [device(0, weights=WEIGHTS, cache=GIB)], "host": HOST}
    assert found["basis"] == {"weights": "estimated", "card": None, "overhead": None}


def test_of_a_model_whose_size_is_not_known_the_cache_alone() -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "torch_dtype": "bfloat16"}
    found = kvcalc.estimate({"hf_config": config}, context=16).to_dict()
    assert found["memory"]["devices"] == [device(0, cache=2 * 2 * 64 * 2 * 16)]
    assert found["basis"] == {"weights": None, "card": None, "overhead": None}


def test_a_card_is_the_limit_and_an_even_division() -> None:
    found = places(engine="vllm", gpu="h100-80gb:2")
    first, second = found["memory"]["devices"]
    assert first | {"device": "1"} == second
    assert first["weights"] == WEIGHTS // 2
    assert first["total"] == first["weights"] + first["cache"] + first["overhead"] <= first["limit"]
    assert found["basis"]["overhead"] == "estimated"
    assert found["basis"]["card"] in ("measured", "nominal")


def test_layers_that_do_not_divide_leave_the_cache_open() -> None:
    """32 layers over 3 stages: 11, 11 and 10."""
    devices = places(engine="vllm", pipeline_parallel=3)["memory"]["devices"]
    assert [(found["cache"], found["total"]) for found in devices] == [(None, None)] * 3


def test_a_memory_for_the_cache_holds_the_cache_alone() -> None:
    found = kvcalc.fit("llama-3.1-8b", context=8192, kv_memory=4 * GIB)
    memory, basis = plain(found.document().memory), plain(found.document().basis)
    assert memory == {"devices": [device(0, cache=GIB, total=GIB, limit=4 * GIB)], "host": HOST}
    assert basis == {"weights": None, "card": "given", "overhead": None}


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp", "tensorrt-llm"])
def test_a_fit_on_a_card_says_what_its_budget_says(engine: str) -> None:
    found = kvcalc.fit("llama-3.1-8b", context=8192, engine=engine, gpu="h100-80gb").to_dict()
    shares, (only,) = found["budget"]["from"], found["memory"]["devices"]
    assert (only["weights"], only["overhead"], only["limit"]) == (shares["weights"], shares["overhead"], shares["memory"])
    assert only["total"] == only["weights"] + only["cache"] + only["overhead"]
    assert found["basis"]["weights"] == "estimated"


def test_a_million_devices_are_not_listed() -> None:
    plan, architecture = kvcalc.estimate("llama-3.1-8b", context=64).plan, kvcalc.load("llama-3.1-8b")
    for ranks, listed in ((MOST_LISTED, MOST_LISTED), (MOST_LISTED + 1, 0), (10**9, 0)):
        memory, _ = memory_of(plan, architecture, Workload(context=64, tensor_parallel=ranks))
        assert len(memory.devices) == listed
