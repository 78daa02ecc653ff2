"""Flags, cards, cache types, speculation and what vLLM no longer has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from vllm_models import DEEPSEEK, ENGINE, GPT_OSS, INDEX, WHISPER, deepseek_v3, fitting, gpt_oss, llama, model, plan, qwen3_next, uniform

from kvcalc.core.architecture import Layout
from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.states import Full, Mamba2
from kvcalc.engines.vllm.dtypes import cache_dtype, model_dtype
from kvcalc.engines.vllm.settings import read_card, read_scheduler
from kvcalc.engines.vllm.start import stage_of
from kvcalc.sources.schema import read

DRAFT = read(Layout, {"pattern": ["d"], "count": 1, "states": {"d": [Full(kv_heads=8, head_dim=128)]}})


@pytest.mark.parametrize(
    ("gpu", "usage", "tokens", "sequences"),
    [
        (None, "api_server", 8192, 1024),
        ("h100-80gb", "llm_class", 16384, 1024),
        ("h200-141gb", "api_server", 8192, 1024),
        ("b200-180gb", "api_server", 16384, 1024),
        ("a100-80gb", "api_server", 2048, 256),
        ("a100-80gb", "llm_class", 8192, 256),
        ("l40s-48gb", "api_server", 2048, 256),
    ],
)
def test_tokens_of_a_step_by_card_and_usage(gpu: str | None, usage: str, tokens: int, sequences: int) -> None:
    scheduler = read_scheduler(ENGINE.read_args({"usage_context": usage}), read_card(gpu), 1, encoder_decoder=False)
    assert (scheduler.step_tokens(10**6), scheduler.sequences, scheduler.in_flight(10**6)) == (tokens, sequences, 2 * tokens)
    assert scheduler.step_tokens(1) == sequences


def test_given_limits_win() -> None:
    args = ENGINE.read_args({"max-num-batched-tokens": 512, "max_num_seqs": "4", "async_scheduling": "off"})
    scheduler = read_scheduler(args, read_card(None), 3, encoder_decoder=False)
    assert (scheduler.step_tokens(10), scheduler.in_flight(10), scheduler.sequences) == (512, 1536, 4)


def test_without_chunked_prefill_a_step_holds_a_prompt() -> None:
    assert read_scheduler(ENGINE.read_args({}), read_card("l4-24gb"), 1, encoder_decoder=True).step_tokens(50_000) == 50_000


@pytest.mark.parametrize(
    ("layers", "stages", "sizes"), [(80, 3, [27, 27, 26]), (32, 4, [8] * 4), (61, 4, [15, 15, 16, 15]), (62, 4, [15, 16, 16, 15])]
)
def test_layers_of_pipeline_stages(layers: int, stages: int, sizes: list[int]) -> None:
    found = stage_of(layers, stages)
    assert [found.count(stage) for stage in range(stages)] == sizes
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("dtype", "own", "said"),
    [
        ("bfloat16", "bf16", ""),
        ("float16", "fp16", ""),
        ("float32", "bf16", "float32"),
        ("float8_e4m3fn", "bf16", "does not compute in fp8"),
        (None, "bf16", "does not say"),
    ],
)
def test_the_type_a_model_runs_in(dtype: str | None, own: str, said: str) -> None:
    found, note = model_dtype(llama(dtype=dtype))
    assert (found, said in (note or "")) == (own, True)


@pytest.mark.parametrize(
    ("asked", "traits", "word"),
    [
        ("auto", {}, "auto"),
        ("auto", {"quantization": "modelopt", "kv_cache_quant_algo": "FP8"}, "fp8_e4m3"),
        ("auto", {"quantization": "modelopt_fp4", "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"}}, "fp8_e4m3"),
        ("auto", {"quantization": "modelopt_fp4", "kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "nvfp4"),
        ("auto", {"quantization": "modelopt", "kv_cache_scheme": {"num_bits": 8, "type": "int"}}, "auto"),
        ("auto", {"quantization": "fp8", "kv_cache_quant_algo": "FP8"}, "auto"),
        ("auto", {"quantization": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ("bf16", {"quantization": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "auto"),
        ("bf16", {}, "auto"),
        ("BFloat16", {}, "auto"),
        ("fp8", {"quantization": "modelopt", "kv_cache_quant_algo": "NVFP4"}, "fp8"),
    ],
)
def test_the_cache_type_in_force(asked: str, traits: dict[str, object], word: str) -> None:
    assert cache_dtype(asked, llama(traits=traits), "bf16", 90)[0] == word


def test_a_scheme_that_vllm_cannot_read() -> None:
    traits = {"quantization": "compressed-tensors", "kv_cache_scheme": {"num_bits": 4, "type": "int"}}
    with pytest.raises(EngineRejectsError, match="4-bit int"):
        plan(llama(traits=traits), context=64)


def test_a_scheme_does_not_reach_latents() -> None:
    traits = {"quantization": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert plan(deepseek_v3(traits=traits), context=64).kv_dtype == "bf16"


def test_falcon_never_hears_of_the_flag() -> None:
    found = plan(uniform(32, Full(kv_heads=1, query_heads=71, head_dim=64), family="falcon"), context=2048, kv_dtype="fp8")
    assert found.per_device == 32 * 2048 * 2 * 64 * 2
    assert any("whatever the flag" in note for note in found.notes)


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ("fp16", EngineRejectsError, "runs in bfloat16"),
        ("q8_0", EngineRejectsError, "no cache of q8_0"),
        ("int8", EngineRejectsError, "no cache of int8"),
        ("fp8/bf16", EngineRejectsError, "sets them apart"),
        ("ultraquant_4bit", EngineRejectsError, "ROCm only"),
        ("fb8", UsageError, "unknown format 'fb8'"),
    ],
)
def test_cache_types_that_vllm_does_not_have(asked: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        cache_dtype(asked, llama(), "bf16", 90)


def test_settings_in_force_are_reported() -> None:
    found = plan(qwen3_next(), context=4096)
    assert found.args["block_size"] == 576
    assert (found.args["max_num_batched_tokens"], found.args["max_num_seqs"]) == (8192, 1024)
    assert (found.args["enable_prefix_caching"], found.args["async_scheduling"]) == (True, True)
    asked = plan(qwen3_next(), context=4096, args={"block_size": 32})
    assert any("block_size 32 was raised to" in note for note in asked.notes)


def test_prefix_caching_is_off_for_pure_recurrent_models() -> None:
    mamba = uniform(4, Mamba2(heads=8, head_dim=64, state_dim=16, groups=1, conv_kernel=4), family="mamba2")
    assert plan(mamba, context=10).args["enable_prefix_caching"] is False
    assert fitting(mamba, 10**9, args={"enable_prefix_caching": True}).pool.request_blocks(10) == 3


@pytest.mark.parametrize(
    ("question", "error", "said"),
    [
        ({"args": {"num_speculative_tokens": 2}}, UsageError, "needs speculative_method"),
        ({"args": {"speculative_method": "draft_model"}}, UsageError, "second model"),
        ({"args": {"speculative_method": "ngram"}}, EngineRejectsError, "without num_speculative_tokens"),
        ({"args": {"speculative_method": "mtp"}}, EngineRejectsError, "no MTP model for llama"),
        ({"args": {"speculativ_method": "mtp"}}, UsageError, "no setting"),
        ({"tensor_parallel": 3}, EngineRejectsError, "does not divide the 32 attention heads"),
        ({"tensor_parallel": 2, "decode_context_parallel": 3}, EngineRejectsError, "does not divide tensor parallel size"),
        ({"tensor_parallel": 4, "decode_context_parallel": 2}, EngineRejectsError, "1 copies of the 8 KV heads"),
        ({"pipeline_parallel": 33}, EngineRejectsError, "more than the model's 32 layers"),
        ({"args": {"block_size": 24}}, EngineRejectsError, "no attention backend"),
        ({"gpu": "h100"}, UsageError, "unknown accelerator"),
    ],
)
def test_refused(question: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        plan(llama(), context=4096, **question)


def test_decode_context_parallelism_over_spare_copies_of_heads() -> None:
    """8 KV heads on 32 GPUs are four copies: two of them may share a request's tokens."""
    heads = uniform(4, Full(kv_heads=8, query_heads=128, head_dim=128))
    found = fitting(heads, 10**9, tensor_parallel=32, decode_context_parallel=2)
    assert found.pool.request_blocks(4096) == 128
    with pytest.raises(EngineRejectsError, match="2 copies"):
        fitting(heads, 10**9, tensor_parallel=16, decode_context_parallel=4)
    with pytest.raises(EngineRejectsError, match="sliding windows"):
        fitting(model(["w", "f"], 4, {"w": GPT_OSS[0], "f": GPT_OSS[1]}), 10**9, tensor_parallel=32, decode_context_parallel=2)


def test_draft_tokens_of_a_model_with_draft_layers() -> None:
    assert plan(deepseek_v3(draft=DRAFT), context=64, args={"speculative_method": "mtp"}).args["num_speculative_tokens"] == 1
    two = read(Layout, {"pattern": ["d"], "count": 2, "states": {"d": [Full(kv_heads=8, head_dim=128)]}})
    with pytest.raises(EngineRejectsError, match="3 draft tokens of 2 MTP layers"):
        plan(deepseek_v3(draft=two), context=64, args={"speculative_method": "mtp", "num_speculative_tokens": 3})


@pytest.mark.parametrize(("family", "groups"), [("mimo_v2_flash", [13, 12]), ("exaone_moe", [13, 12]), ("qwen3_next", [12, 13])])
def test_a_draft_layer_sees_what_its_family_gives_it(family: str, groups: list[int]) -> None:
    """MiMo: a window. EXAONE: what layer 0 sees, here a window. Others: the model's full attention."""
    states = {"window": GPT_OSS[0], "full": GPT_OSS[1]}
    args = {"speculative_method": "mtp", "num_speculative_tokens": 1}
    found = fitting(model(["window", "full"], 24, states, family), 10**9, args=args)
    assert [len(group.layers) for group in found.pool.groups] == groups


def test_several_mtp_modules_keep_more_of_a_window() -> None:
    """extra = draft tokens - 1."""
    wide = model(["w", "f"], 4, {"w": GPT_OSS[0], "f": GPT_OSS[1]}, "glm4_moe", traits={"num_nextn_predict_layers": 3})
    draft = read(Layout, {"pattern": ["f"], "count": 3, "states": {"f": [GPT_OSS[1]]}})
    args = {"speculative_method": "mtp", "num_speculative_tokens": 3, "max_num_batched_tokens": 2048}
    found = fitting(replace(wide, draft=draft), 10**9, args=args)
    assert found.pool.demand(10**6).retained == 2
    assert found.pool.demand(10**6).in_flight == 4096


def test_eagle_has_a_layer_of_its_own_and_says_so() -> None:
    found = fitting(gpt_oss(), 10**9, args={"speculative_method": "eagle3", "num_speculative_tokens": 3})
    assert [len(group.layers) for group in found.pool.groups] == [12, 13]
    assert any("its own attention" in note or "model's own attention" in note for note in found.start.notes)


@pytest.mark.parametrize(
    ("family", "class_name"),
    [
        ("bamba", "BambaForCausalLM"),
        ("minimax_m1", ""),
        ("llama", "Plamo2ForCausalLM"),
        ("bart", "BartForConditionalGeneration"),
        ("rwkv7", ""),
        ("gpt_neo", "GPTNeoForCausalLM"),
        ("bailing_hybrid", "BailingHybridForCausalLM"),
    ],
)
def test_models_that_vllm_no_longer_has(family: str, class_name: str) -> None:
    mixer = Mamba2(heads=8, head_dim=64, state_dim=16, groups=1, conv_kernel=4)
    found = model(["m", "f"], 4, {"m": mixer, "f": Full(kv_heads=8, head_dim=128)}, family, class_name=class_name)
    with pytest.raises(UnsupportedArchitectureError, match=r"unsupported by vLLM 0\.33"):
        plan(found, context=64)


@pytest.mark.parametrize(("family", "class_name"), [("step5", ""), ("step5", "Step5ForCausalLM")])
def test_models_with_caches_that_kvcalc_has_no_rule_for(family: str, class_name: str) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=r"kvcalc has no rule .* under vLLM 0\.33"):
        plan(uniform(4, Full(kv_heads=8, head_dim=128), family=family, class_name=class_name), context=64)


@pytest.mark.parametrize(("gpu", "stored"), [("h100-80gb", "bf16"), ("b200-180gb", "fp8")])
def test_glm_is_stored_as_fp8_on_blackwell(gpu: str, stored: str) -> None:
    found = plan(uniform(4, DEEPSEEK, INDEX, family="glm_moe_dsa"), context=64, gpu=gpu)
    assert found.kv_dtype == stored
    assert any("fp8 on compute capability 10" in note for note in found.notes) == (stored == "fp8")


def test_cross_attention_that_vllm_has_no_model_for() -> None:
    plan(uniform(4, *WHISPER, family="whisper"), context=64)
    with pytest.raises(UnsupportedArchitectureError, match="no model with its cross-attention"):
        plan(uniform(4, *WHISPER, family="pegasus"), context=64)


def test_latents_that_vllm_expands_have_no_index_keys() -> None:
    found = plan(uniform(4, DEEPSEEK, INDEX, family="axk2"), context=64)
    assert found.per_device == 4 * 64 * 128 * 2 * (128 + 64) * 2
    assert any("expanded K and V" in note for note in found.notes)


def test_prefix_caching_is_off_only_for_families_without_attention() -> None:
    mixer = Mamba2(heads=8, head_dim=64, state_dim=16, groups=1, conv_kernel=4)
    for family, on in {"mamba2": False, "granitemoehybrid": True}.items():
        assert plan(uniform(4, mixer, family=family), context=64).args["enable_prefix_caching"] is on


def test_models_that_run_on_one_backend() -> None:
    found = model(["window", "full"], 24, {"window": GPT_OSS[0], "full": GPT_OSS[1]}, "flint")
    with pytest.raises(EngineRejectsError, match="without FLASHINFER attention, and here chooses FLASH_ATTN"):
        plan(found, context=64)


def test_models_that_transformers_still_has_run_through_it() -> None:
    found = plan(uniform(4, Full(kv_heads=8, head_dim=128), family="dots1", class_name="Dots1ForCausalLM"), context=64)
    assert any("Transformers backend" in note for note in found.notes)


def test_models_that_are_not_cut_into_stages() -> None:
    with pytest.raises(EngineRejectsError, match="pipeline parallelism for gemma3n_text"):
        plan(uniform(4, GPT_OSS[0], family="gemma3n_text"), context=64, pipeline_parallel=2)
