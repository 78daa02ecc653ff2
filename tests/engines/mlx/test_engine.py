"""What mlx-lm does with each family, its settings and several machines: worked figures and refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import kvcalc
from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError

PAGE = Path(__file__).parents[3] / "docs" / "engines" / "mlx.md"

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "torch_dtype": "bfloat16",
}
#: One layer's K and V of one row of LLAMA, in bytes.
ROW = 2 * 2 * 64 * 2


def estimate(model: Any, context: int, **asked: Any) -> Any:
    model = {"hf_config": model} if isinstance(model, dict) else model
    keys = {name: asked.pop(name) for name in ("sequences", "tensor_parallel", "pipeline_parallel", "kv_dtype") if name in asked}
    return kvcalc.estimate(model, context=context, engine="mlx", engine_args=asked, **keys)


def total(model: Any, context: int, **asked: Any) -> int:
    found: int = estimate(model, context, **asked).to_dict()["bytes"]["total"]
    return found


# ── the page ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_worked_example_of_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    figures = {int(found.replace(",", "")) for found in re.findall(r"([0-9,]{9,}) B", text)}
    assert total("qwen3-8b", 4097) == 641_728_512
    assert total("qwen3-8b", 4097, kv_bits=4, quantized_kv_start=4000) == 180_486_144
    assert {641_728_512, 180_486_144, 871_989_248} <= figures
    notes = estimate("gemma-3-27b", 9000).to_dict()["notes"]
    assert any("871,989,248 B more" in note for note in notes)


# ── windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_window_without_a_list_of_layers_does_nothing_to_llama() -> None:
    assert total(LLAMA | {"sliding_window": 300}, 1000) == 2 * 1024 * ROW
    assert total(LLAMA | {"model_type": "mistral", "sliding_window": 300}, 1000) == 2 * 1024 * ROW
    listed = {"sliding_window": 300, "layer_types": ["sliding_attention", "full_attention"]}
    assert total(LLAMA | listed, 1000) == (300 + 1024) * ROW
    assert total(LLAMA | listed | {"model_type": "mistral"}, 1000) == (300 + 1024) * ROW


def test_llama_has_as_many_layers_as_its_list() -> None:
    assert total(LLAMA | {"layer_types": ["full_attention"] * 4}, 1) == 4 * 256 * ROW


@pytest.mark.parametrize("family", ["phi3", "mixtral", "starcoder2", "qwen2"])
def test_modules_without_caches_of_their_own_ignore_windows(family: str) -> None:
    config = LLAMA | {"model_type": family, "sliding_window": 300, "use_sliding_window": True, "max_window_layers": 0}
    assert total(config, 1000) == 2 * 1024 * ROW


def test_a_window_grows_from_the_length_of_the_prompt() -> None:
    listed = LLAMA | {"sliding_window": 600, "layer_types": ["sliding_attention"] * 2}
    assert total(listed, 101, max_tokens=1) == 2 * (99 + 256) * ROW
    assert total(listed, 400, max_tokens=300) == 2 * 600 * ROW


def test_the_peak_of_the_prefill_is_a_line_that_is_not_in_the_total() -> None:
    plan = estimate(LLAMA | {"sliding_window": 600, "layer_types": ["sliding_attention"] * 2}, 5000).to_dict()
    (line,) = [line for line in plan["lines"] if line["state"] == "prefill_peak"]
    assert line["slots"] == 599 + 2048
    assert line["bytes"] == 0
    assert sum(line["bytes"] for line in plan["lines"]) == plan["bytes"]["total"] == 2 * 600 * ROW


# ── settings ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_max_kv_size_acts_where_a_module_makes_no_caches() -> None:
    config = LLAMA | {"model_type": "qwen3"}
    assert total(config, 5000, max_kv_size=512) == 2 * 512 * ROW
    assert total(LLAMA, 5000, max_kv_size=512) == total(LLAMA, 5000)
    assert any("max_kv_size does nothing" in note for note in estimate(LLAMA, 5000, max_kv_size=512).to_dict()["notes"])


def test_a_quantized_row_has_a_scale_and_a_bias_a_group() -> None:
    assert total(LLAMA, 6000, kv_bits=4) == 2 * 6144 * 2 * 2 * (64 // 2 + 4)
    assert total(LLAMA, 6000, kv_bits=8, kv_group_size=32) == 2 * 6144 * 2 * 2 * (64 + 8)
    assert total(LLAMA, 4999, kv_bits=4) == 2 * 5120 * ROW


@pytest.mark.parametrize(
    ("change", "args", "reason"),
    [
        ({}, {"kv_bits": 7}, "1 to 6 or 8 bits"),
        ({}, {"kv_bits": 4, "kv_group_size": 48}, "groups of 32, 64 and 128"),
        ({"head_dim": 80}, {"kv_bits": 4}, "does not divide the head width of 80"),
        ({"model_type": "qwen3"}, {"kv_bits": 4, "max_kv_size": 512}, "rotating cache"),
        ({"model_type": "gemma2"}, {"kv_bits": 4}, "cannot run on a quantized cache"),
    ],
)
def test_what_mlx_lm_refuses(change: dict[str, Any], args: dict[str, Any], reason: str) -> None:
    with pytest.raises(EngineRejectsError, match=reason):
        estimate(LLAMA | change, 6000, **args)


@pytest.mark.parametrize("kv_dtype", ["fp8", "q8_0", "int4"])
def test_the_cache_follows_the_type_of_the_model(kv_dtype: str) -> None:
    assert total(LLAMA, 256, kv_dtype="fp32") == 2 * 256 * ROW * 2
    with pytest.raises(EngineRejectsError, match="in the type that the model computes in"):
        estimate(LLAMA, 256, kv_dtype=kv_dtype)


def test_a_prompt_has_a_token() -> None:
    with pytest.raises(UsageError, match="leaves nothing of the context"):
        estimate(LLAMA, 256, max_tokens=256)


# ── several machines, several sequences, unknown families ───────────────────────────────────────────────────────────────


def test_heads_divide_over_ranks_or_it_does_not_load() -> None:
    plan = estimate(LLAMA, 256, tensor_parallel=2).to_dict()
    assert plan["bytes"]["per_device"] * 2 == plan["bytes"]["total"] == 2 * 256 * ROW
    with pytest.raises(EngineRejectsError, match="cannot split the 2 KV heads"):
        estimate(LLAMA, 256, tensor_parallel=4)
    with pytest.raises(EngineRejectsError, match="no `shard`"):
        estimate(LLAMA | {"model_type": "gemma2"}, 256, tensor_parallel=2)


def test_a_pipeline_gives_the_low_ranks_one_layer_more() -> None:
    config = LLAMA | {"model_type": "qwen2", "num_hidden_layers": 3}
    assert estimate(config, 256, pipeline_parallel=2).to_dict()["bytes"]["per_device"] == 2 * 256 * ROW
    with pytest.raises(EngineRejectsError, match="no `pipeline`"):
        estimate(LLAMA, 256, pipeline_parallel=2)
    with pytest.raises(EngineRejectsError, match="never both"):
        estimate(config, 256, pipeline_parallel=2, tensor_parallel=2)


def test_a_batch_has_the_rows_of_its_longest() -> None:
    assert total(LLAMA, 700, sequences=3) == 3 * 2 * 768 * ROW


def test_a_family_without_a_module_is_named() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="has no module of the name falcon"):
        estimate(LLAMA | {"model_type": "falcon"}, 256)
