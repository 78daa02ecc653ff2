"""What the weights take: checkpoints that are quantised as they are released, held to their published sizes and set-ups."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.units import GIB
from kvcalc.questions.estimate import estimate
from kvcalc.questions.fit_card import size
from kvcalc.questions.request import parse_request
from kvcalc.questions.weights import published_as
from kvcalc.sources import load


def asked(model: str, engine: str, gpu: str, **question: Any) -> Any:
    return size(parse_request({"model": model, "engine": engine, "gpu": gpu, **question}))


@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("gpt-oss-20b", 12.8 * GIB),  # the model card: checkpoint size
        ("gpt-oss-120b", 60.8 * GIB),  # the model card
        ("deepseek-v3", 688_586_727_753),  # total_size of its safetensors index, the layer for speculation included
    ],
)
def test_the_size_of_the_released_checkpoint(model: str, published: float) -> None:
    found = asked(model, "ideal", "h200-141gb:8", pipeline_parallel=8, tensor_parallel=1, context=1024)
    assert 8 * found.memory.weights == pytest.approx(published, rel=0.005)
    assert "as published" in found.memory.sure["weights"]


def test_by_hand() -> None:
    """gpt-oss-20b: 24 layers of 2,880 x (64 + 8) x 128 of attention, twice 201,088 x 2,880 of embeddings, the rest in 17/32 B."""
    kept = 24 * 2880 * (64 + 8) * 128 + 2 * 201_088 * 2880
    found = asked("gpt-oss-20b", "ideal", "rtx4090-24gb", context=1024)
    assert found.memory.weights == -(-(20_914_757_184 - kept) * 17 // 32) + 2 * kept


@pytest.mark.parametrize(
    ("model", "engine", "gpu", "question"),
    [
        ("gpt-oss-120b", "vllm", "h100-80gb", {"context": 131_072}),
        ("gpt-oss-20b", "llama.cpp", "rtx4090-24gb", {"context": 131_072}),
        ("gpt-oss-20b", "ollama", "rtx4090-24gb", {}),
        ("deepseek-v3", "vllm", "h200-141gb:8", {}),
        ("deepseek-r1", "sglang", "h200-141gb:8", {}),
        ("kimi-k2", "vllm", "h100-80gb:16", {}),
        ("kimi-k2", "vllm", "b200-180gb:8", {}),
        ("qwen3-32b", "ollama", "rtx4090-24gb", {"context": 8192}),
        ("llama-3.1-8b", "mlx", "m4pro-64gb", {"context": 131_072}),
    ],
)
def test_published_set_ups_fit(model: str, engine: str, gpu: str, question: dict[str, Any]) -> None:
    assert asked(model, engine, gpu, **question).fit.fits


def test_an_engine_whose_models_are_quantised_says_so() -> None:
    found = asked("qwen3-32b", "ollama", "rtx4090-24gb", context=8192)
    assert found.memory.sure["weights"] == "estimated: 32,762,123,264 parameters in q4_k_m, the engine's usual type"
    alone = estimate(parse_request({"model": "qwen3-32b", "engine": "ollama", "context": 8192})).document()
    assert alone.memory.devices[0].weights == found.memory.weights  # an estimate and a fit speak of the same weights
    wider = size(parse_request({"model": "qwen3-32b", "engine": "ollama", "gpu": "rtx4090-24gb", "context": 8192}), weight_dtype="bf16")
    assert wider.memory.weights == 2 * 32_762_123_264


@pytest.mark.parametrize(("method", "words"), [("fp8", "fp8 with"), ("mxfp4", "mxfp4 in the experts"), ("awq", ""), (None, "")])
def test_what_a_config_says_of_its_checkpoint(method: str | None, words: str) -> None:
    config = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1000}
    if method:
        config["quantization_config"] = {"quant_method": method}
    found = published_as(load({"hf_config": config}))
    assert (found.words if found else "").startswith(words)
    assert (found is None) == (not words)
