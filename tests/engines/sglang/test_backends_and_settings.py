"""Page sizes and refusals by card, backend, format and class, as SGLang's own resolution leaves them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pool_engines import GIB, SGLANG, Asked
from vllm_models import deepseek_v3, gpt_oss, llama, model, nemotron_nano, qwen3_next, uniform

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.states import Full, Sliding
from kvcalc.core.traits import Traits
from kvcalc.questions.fit import fit
from kvcalc.questions.request import parse_request
from kvcalc.sources import load

ASKED = Asked(SGLANG)


def named(class_name: str, **fields: Any) -> Any:
    """A plain model of that class."""
    return uniform(4, Full(kv_heads=8, query_heads=32, head_dim=128), class_name=class_name, max_context=65_536, **fields)


@pytest.mark.parametrize(
    ("gpu", "asked", "backend", "page"),
    [
        ("h100-80gb", {}, "fa3", 1),
        ("a100-80gb", {}, "flashinfer", 1),
        ("l4-24gb", {}, "flashinfer", 1),
        ("b200-180gb", {}, "trtllm_mha", 64),
        ("b200-180gb", {"page_size": 16}, "trtllm_mha", 16),
        ("b200-180gb", {"page_size": 8}, "trtllm_mha", 64),
        ("b200-180gb", {"attention_backend": "fa4", "page_size": 16}, "fa4", 128),
        ("b200-180gb", {"attention_backend": "triton"}, "triton", 1),
        ("h100-80gb", {"kv_dtype": "fp8_e5m2"}, "triton", 1),
        ("rtx5090-32gb", {}, "flashinfer", 1),
    ],
)
def test_a_plain_model(gpu: str, asked: dict[str, Any], backend: str, page: int) -> None:
    args = ASKED.plan(llama(), 4096, gpu=gpu, **asked).args
    assert (args["attention_backend"], args["page_size"]) == (backend, page)


@pytest.mark.parametrize(
    ("gpu", "backend"),
    [("h100-80gb", "fa3"), ("a100-80gb", "triton"), ("b200-180gb", "trtllm_mha"), ("rtx5090-32gb", "triton")],
)
def test_a_model_with_sinks(gpu: str, backend: str) -> None:
    assert ASKED.plan(gpt_oss(), 8192, gpu=gpu).args["attention_backend"] == backend
    with pytest.raises(EngineRejectsError, match="does not serve GptOssForCausalLM with attention backend flashinfer"):
        ASKED.plan(gpt_oss(), 8192, gpu=gpu, attention_backend="flashinfer")


def test_sinks_that_the_config_speaks_of() -> None:
    """MiMo-V2 on an A100: Triton with sinks, FlashInfer without."""
    states = {
        "w": Sliding(window=128, kv_heads=8, head_dim=192, value_head_dim=128),
        "f": Full(kv_heads=4, head_dim=192, value_head_dim=128),
    }
    mimo = model(["w", "f"], 4, states, "mimo_v2_flash", max_context=65_536)
    sinks = replace(mimo, traits=Traits(add_swa_attention_sink_bias=True))
    assert ASKED.plan(mimo, 8192, gpu="a100-80gb").args["attention_backend"] == "flashinfer"
    assert ASKED.plan(sinks, 8192, gpu="a100-80gb").args["attention_backend"] == "triton"
    assert ASKED.plan(mimo, 8192, gpu="b200-180gb").args["page_size"] == 128  # FA4, for K and V of different widths


@pytest.mark.parametrize(
    ("architecture", "asked", "sentence"),
    [
        (llama(), {"attention_backend": "trtllm_mha", "gpu": "a100-80gb"}, "trtllm_mha needs a Hopper or Blackwell card"),
        (llama(), {"kv_dtype": "mxfp8"}, "mxfp8 needs a Blackwell card"),
        (llama(), {"kv_dtype": "fp4_mx_block16"}, "cannot be read by attention backend fa3"),
        (llama(), {"kv_dtype": "nvfp4", "attention_backend": "triton", "gpu": "b200-180gb"}, "cannot read NVFP4"),
        (llama(), {"kv_dtype": "nvfp4", "attention_backend": "trtllm_mha", "gpu": "rtx5090-32gb"}, "natively on SM100 only"),
        (deepseek_v3(), {"attention_backend": "trtllm_mla"}, "trtllm_mla needs a Blackwell card"),
        (deepseek_v3(), {"attention_backend": "trtllm_mla", "gpu": "b200-180gb", "kv_dtype": "fp8_e5m2"}, "reads bf16 and fp8_e4m3"),
        (deepseek_v3(), {"attention_backend": "cutedsl_mla"}, "needs an SM100 card"),
        (named("Olmo2ForCausalLM"), {"attention_backend": "flashinfer"}, "does not serve Olmo2ForCausalLM"),
        (named("Exaone4ForCausalLM"), {"attention_backend": "flashinfer"}, "it takes fa3, triton, trtllm_mha"),
    ],
)
def test_refusals(architecture: Any, asked: dict[str, Any], sentence: str) -> None:
    with pytest.raises(EngineRejectsError) as caught:
        ASKED.plan(architecture, 4096, **asked)
    assert sentence in f"{caught.value.message} {caught.value.hint}"


def test_hybrids_on_blackwell() -> None:
    """Without anything that forces pages of several tokens Qwen3-Next takes Triton and pages of 1; speculating, trtllm_mha and 64."""
    assert ASKED.plan(qwen3_next(), 8192, gpu="b200-180gb").args["attention_backend"] == "triton"
    assert ASKED.plan(qwen3_next(), 8192, gpu="b200-180gb", disable_radix_cache=True).args["page_size"] == 64
    assert ASKED.plan(qwen3_next(), 8192, gpu="b200-180gb", speculative_num_draft_tokens=4).args["page_size"] == 64
    assert ASKED.plan(nemotron_nano(), 8192, gpu="b200-180gb", speculative_num_draft_tokens=4).args["page_size"] == 64


def test_checkpoints_that_ask_for_fp8() -> None:
    """ModelOpt's word makes the cache fp8; that of other tools does not."""
    assert ASKED.plan(llama(traits={"kv_cache_quant_algo": "FP8"}), 4096).kv_dtype == "fp8"
    scheme = {"type": "float", "num_bits": 8}
    assert ASKED.plan(llama(traits={"quantization": "modelopt", "kv_cache_scheme": scheme}), 4096).kv_dtype == "fp8"
    assert ASKED.plan(llama(traits={"quantization": "compressed-tensors", "kv_cache_scheme": scheme}), 4096).kv_dtype == "bf16"


def test_speculation_prices_the_next_token_layers() -> None:
    """DeepSeek-V3 with its one next-token layer: 62 layers' bytes a token; requests default to 48."""
    drafting = load("deepseek-v3")
    found = ASKED.capacity(drafting, 40 * GIB, speculative_num_draft_tokens=4)
    assert found.tokens == 40 * GIB // (61 * 1152 + 1152)
    assert found.concurrency == 48
    assert ASKED.capacity(drafting, 40 * GIB, speculative_algorithm="EAGLE").tokens == found.tokens
    plan = ASKED.plan(drafting, 4096, speculative_num_draft_tokens=4)
    assert {line.state for line in plan.lines} == {"latent", "draft latent", "padding"}
    assert plan.per_device == 4097 * 62 * 1152
    with pytest.raises(EngineRejectsError, match="pipeline stages"):
        ASKED.plan(drafting, 4096, speculative_num_draft_tokens=4, pipeline_parallel=2)


@pytest.mark.parametrize("named", ["itself", "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "qwen3-30B-A3B"])
def test_a_model_that_is_its_own_draft_pays_for_its_draft_layers(named: str) -> None:
    """Qwen3-30B-A3B's config names no next-token layer; read as its own draft it has one: 49 layers of 2,048 B a token instead of 48."""
    found = load("qwen3-30b-a3b")
    asked = {"speculative_algorithm": "NEXTN"}
    assert ASKED.capacity(found, 10 * GIB, **asked).tokens == 10 * GIB // (48 * 2048) == 109_226
    assert ASKED.capacity(found, 10 * GIB, **asked, speculative_draft_model_path=named).tokens == 10 * GIB // (49 * 2048) == 106_997


def test_a_draft_that_is_already_counted_is_counted_once() -> None:
    drafting = load("deepseek-v3")
    alone = ASKED.capacity(drafting, 40 * GIB, speculative_algorithm="NEXTN")
    assert ASKED.capacity(drafting, 40 * GIB, speculative_algorithm="NEXTN", speculative_draft_model_path="deepseek-v3") == alone


def test_a_draft_that_kvcalc_cannot_count_is_refused() -> None:
    with pytest.raises(UsageError, match="is another model than"):
        ASKED.plan(load("qwen3-30b-a3b"), 4096, speculative_algorithm="EAGLE", speculative_draft_model_path="some/eagle-head")
    with pytest.raises(EngineRejectsError, match="no next-token layers"):
        ASKED.plan(load("llama-3.1-8b"), 4096, speculative_algorithm="EAGLE", speculative_draft_model_path="itself")


def test_a_second_tier_in_host_memory_costs_the_device_nothing() -> None:
    plain, tiered = ASKED.plan(llama(), 4096), ASKED.plan(llama(), 4096, enable_hierarchical_cache=True)
    assert tiered.per_device == plain.per_device
    note = next(note for note in tiered.notes if note.startswith("host memory"))
    assert note.startswith("host memory: 8,193 tokens,")
    sized = ASKED.plan(llama(), 4096, enable_hierarchical_cache=True, hicache_size=1)
    assert f"{int(1e9 // 131_072) + 1:,} tokens" in next(note for note in sized.notes if note.startswith("host memory"))
    with pytest.raises(EngineRejectsError, match="without a radix cache"):
        ASKED.plan(llama(), 4096, enable_hierarchical_cache=True, disable_radix_cache=True)
    with pytest.raises(UnsupportedArchitectureError, match="one pool of tokens only"):
        ASKED.plan(gpt_oss(), 4096, enable_hierarchical_cache=True)


def test_a_fit_says_what_the_host_holds_beside_the_whole_pool() -> None:
    """10 GiB hold 81,920 tokens of 131,072 B; the host holds twice as many and a page, however few tokens are asked for."""
    asked = parse_request(
        {
            "model": "llama-3.1-8b",
            "engine": "sglang",
            "context": 4096,
            "kv_memory": 10 * GIB,
            "engine_args": {"enable_hierarchical_cache": True},
        }
    )
    notes = [note for note in fit(asked).notes if note.startswith("host memory")]
    assert notes == [f"host memory: 163,841 tokens, {163_841 * 131_072:,} B (20 GiB) for each rank, not counted on the device"]


def test_chunks_follow_the_card() -> None:
    chunks = {
        gpu: ASKED.plan(llama(), 4096, gpu=gpu).args["chunked_prefill_size"] for gpu in ("t4-16gb", "l4-24gb", "h100-80gb", "b200-180gb")
    }
    assert chunks == {"t4-16gb": 2048, "l4-24gb": 4096, "h100-80gb": 8192, "b200-180gb": 16384}


def test_the_share_of_the_memory_is_not_the_engines_to_take() -> None:
    """kv_memory is what is left for the pools: mem_fraction_static decided that before."""
    assert ASKED.capacity(llama(), 20 * GIB, mem_fraction_static=0.5).tokens == 20 * GIB // 131_072
