"""Types, refusals and contradictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EngineRejectsError, KvcalcError, UnsupportedArchitectureError, UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.sources.gguf.architecture import read_metadata
from kvcalc.sources.schema import read

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan


def plan(name: str = "llama", keys: dict[str, Any] | None = None, *, workload: dict[str, Any] | None = None, **args: Any) -> Plan:
    base = {"block_count": 2, "context_length": 4096, "embedding_length": 512, "attention.head_count": 4, "attention.head_count_kv": 2}
    metadata = {"general.architecture": name} | {f"{name}.{key}": value for key, value in (base | (keys or {})).items()}
    return get_engine("llama.cpp").plan(read_metadata(metadata), Workload(engine_args=args, **{"context": 1024, **(workload or {})}))


def refused(error: type[KvcalcError], why: str, *arguments: Any, **args: Any) -> None:
    with pytest.raises(error, match=why):
        plan(*arguments, **args)


def test_f16_is_the_default_and_kv_dtype_an_alternative_spelling() -> None:
    assert plan().kv_dtype == "fp16"
    assert plan().args["cache_type_k"] == "f16"
    both = plan(workload={"kv_dtype": "q8_0/q4_0"})
    assert both.kv_dtype == "q8_0/q4_0"
    assert both.total == plan(cache_type_k="q8_0", cache_type_v="q4_0").total
    assert plan(workload={"kv_dtype": "q8_0"}, cache_type_k="q8_0").kv_dtype == "q8_0"
    refused(UsageError, "cache_type_k is q4_0, and --kv-dtype says q8_0", workload={"kv_dtype": "q8_0"}, cache_type_k="q4_0")


def test_types_that_llamacpp_does_not_have() -> None:
    refused(EngineRejectsError, "no cache type fp8", workload={"kv_dtype": "fp8"})
    refused(UsageError, "unknown format", cache_type_k="q9_0")


def test_a_quantised_v_needs_flash_attention() -> None:
    refused(EngineRejectsError, "needs flash attention", cache_type_v="q8_0", flash_attn="off")
    refused(EngineRejectsError, "needs flash attention", "grok", cache_type_v="q8_0")
    assert plan(cache_type_k="q8_0", flash_attn="off").kv_dtype == "q8_0/fp16"


def test_quantised_types_must_divide_a_head() -> None:
    narrow = {"embedding_length": 160}
    refused(EngineRejectsError, "head of 40 elements", "stablelm", narrow, cache_type_k="q8_0")
    refused(EngineRejectsError, "head of 40 elements", "stablelm", narrow, cache_type_v="q8_0")
    # without flash attention only the row counts: 4 heads x 40 elements are 5 blocks, 3 heads x 40 are none
    assert plan("stablelm", narrow | {"attention.head_count_kv": 4}, cache_type_k="q8_0", flash_attn="off").total
    odd = {"embedding_length": 200, "attention.head_count": 5, "attention.head_count_kv": 1}
    refused(EngineRejectsError, "cannot store rows of 40", "stablelm", odd, cache_type_k="q8_0", flash_attn="off")


MLA = {"attention.head_count_kv": 1, "attention.key_length": 576, "attention.value_length": 512, "attention.kv_lora_rank": 512}
MLA |= {"attention.key_length_mla": 192, "attention.value_length_mla": 128}


def test_latents_have_one_type() -> None:
    refused(EngineRejectsError, "one tensor", "deepseek2", MLA, cache_type_k="q8_0")
    assert plan("deepseek2", MLA, cache_type_k="q8_0", cache_type_v="q8_0").total == 2 * 1024 * 576 // 32 * 34
    # the V width is checked although no V is stored: kimi-linear's files leave it at embedding / heads
    untold = MLA | {"kda.head_dim": 128, "ssm.conv_kernel": 4, "embedding_length": 288, "attention.value_length": 72}
    refused(EngineRejectsError, "V type q8_0.* head of 72", "kimi-linear", untold, cache_type_k="q8_0", cache_type_v="q8_0")


def test_slots_are_bounded() -> None:
    refused(EngineRejectsError, "at most 256 sequences", workload={"sequences": 257})
    assert plan(workload={"sequences": 256}).args["parallel"] == 256


def test_unknown_settings_and_words() -> None:
    refused(UsageError, "no setting 'ctx_sze'", ctx_sze=1)
    refused(UsageError, "unknown value 'maybe'", flash_attn="maybe")
    refused(UsageError, "largest that fits", workload={"context": -1})
    assert plan(**{"--ctx-size": "2048"}).args["ctx_size"] == 2048


def test_a_file_without_a_context_needs_one() -> None:
    refused(UsageError, "does not say its maximum context", "llama", {"context_length": 0}, ctx_size=0, workload={"context": None})


def test_layers_with_different_windows_are_refused() -> None:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import Sliding

    layers = {
        "pattern": ["a", "b"],
        "count": 4,
        "states": {name: [Sliding(window=window, kv_heads=1, head_dim=64)] for name, window in (("a", 64), ("b", 128))},
    }
    model = read(Architecture, {"id": "two", "family": "gemma2", "layers": layers, "max_context": 4096})
    with pytest.raises(UnsupportedArchitectureError, match="one window"):
        get_engine("llama.cpp").plan(model, Workload())


def test_capacity_is_the_largest_multiple_of_256_cells() -> None:
    engine = get_engine("llama.cpp")
    metadata = {"general.architecture": "llama"} | {
        f"llama.{key}": value
        for key, value in {"block_count": 2, "context_length": 4096, "embedding_length": 512, "attention.head_count": 4}.items()
    }
    model = read_metadata(metadata)
    cell = 2 * 2 * 512 * 2
    found = engine.capacity(model, Workload(context=1024), 1000 * cell)
    assert found is not None
    assert (found.tokens, found.fits) == (768, False)
    found = engine.capacity(model, Workload(context=1024, sequences=2), 2048 * cell)
    assert found is not None
    assert (found.tokens, found.fits) == (2048, True)
