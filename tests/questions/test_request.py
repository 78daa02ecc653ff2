"""Requests are read strictly."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.questions.request import parse_request


def test_names_of_the_contract() -> None:
    found = parse_request(
        {
            "id": 1,
            "command": "fit",
            "model": "llama-2-7b",
            "context": "128k",
            "sequences": 16,
            "kv_dtype": "fp8",
            "engine": "vllm",
            "engine_args": {"block_size": 32},
            "tensor_parallel": 2,
            "pipeline_parallel": 1,
            "decode_context_parallel": 1,
            "gpu": "h100-80gb",
            "kv_memory": "60GiB",
            "shared_prefix": "1k",
        }
    )
    assert found.workload.context == 131_072
    assert found.workload.kv_memory == 60 * 1024**3
    assert found.workload.shared_prefix == 1024
    assert found.engine == "vllm"


def test_nulls_are_defaults_and_minus_one_is_kept() -> None:
    found = parse_request({"model": "m", "context": None, "engine": None, "sequences": None, "gpu": None})
    assert (found.workload.context, found.engine, found.workload.sequences) == (None, "ideal", 1)
    assert parse_request({"model": "m", "context": -1}).workload.context == -1


@pytest.mark.parametrize(
    "change",
    [
        {"modle": "m"},
        {"model": ""},
        {"model": 3},
        {"context": 0},
        {"context": -2},
        {"context": 1.5},
        {"context": True},
        {"context": 10**30},
        {"sequences": 0},
        {"sequences": "4"},
        {"sequences": 10**12},
        {"tensor_parallel": 1.0},
        {"kv_dtype": 8},
        {"engine_args": []},
        {"kv_memory": -1},
        {"kv_memory": "60 giraffes"},
        {"shared_prefix": -1},
        {"context": 10, "shared_prefix": 11},
        {"engine": ""},
        {"gpu": ["h100-80gb"]},
    ],
)
def test_anything_else_is_a_usage_error(change: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_request({"model": "m"} | change)
    assert caught.value.message.isprintable()


def test_a_missing_model_and_a_near_miss_are_named() -> None:
    with pytest.raises(UsageError, match="'model' is missing"):
        parse_request({})
    with pytest.raises(UsageError) as caught:
        parse_request({"model": "m", "sequence": 3})
    assert "sequences" in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "tensor", "pipeline"),
    [
        ({"gpu": "h100-80gb"}, 1, 1),
        ({"gpu": "h100-80gb", "tensor_parallel": 8}, 8, 1),
        ({"gpu": "H100-80GB:4"}, 4, 1),
        ({"gpu": "h100-80gb:4", "pipeline_parallel": 2}, 2, 2),
        ({"gpu": "h100-80gb:4", "engine": "llama.cpp"}, 1, 4),
        ({"gpu": "h100-80gb:4", "engine": "ollama", "tensor_parallel": 4}, 4, 1),
    ],
)
def test_a_number_of_cards_is_a_number_of_ranks(asked: dict[str, object], tensor: int, pipeline: int) -> None:
    """Split by heads, or by layers where the engine does so (llama.cpp's split_mode is layer unless told otherwise)."""
    workload = parse_request({"model": "m"} | asked).workload
    assert workload.gpu == "h100-80gb"
    assert (workload.tensor_parallel, workload.pipeline_parallel) == (tensor, pipeline)


@pytest.mark.parametrize("gpu", ["h1000", "", "h100-80gb:", "h100-80gb:0", "h100-80gb:x", "h100-80gb:2:2", "h100-80gb:3"])
def test_a_card_that_does_not_exist_is_refused_whatever_the_engine(gpu: str) -> None:
    with pytest.raises(UsageError):
        parse_request({"model": "m", "gpu": gpu, "tensor_parallel": 2})
