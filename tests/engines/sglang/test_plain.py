"""One pool of keys and values: cell, pages, the extra page, ranks, formats. Every figure is worked out in the test."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pool_engines import GIB, SGLANG, Asked, sizes
from vllm_models import llama, model, uniform

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.states import Cross, Full, Nothing, Shared
from kvcalc.sources import load

ASKED = Asked(SGLANG)


def test_multi_head_attention() -> None:
    """Llama-2-7B: 32 layers x 32 heads x 256 x 2 B = 524,288 B a token, and one more page of 1 token."""
    found = ASKED.plan(load("llama-2-7b"), 4096, sequences=3)
    assert found.per_token == 524_288
    assert found.per_device == (3 * 4096 + 1) * 524_288
    assert sizes(found)["padding", "page"] == 524_288
    assert found.growth_per_token == 524_288
    assert found.fixed == 0


def test_the_extra_page_is_not_in_the_cell() -> None:
    """SGLang divides the memory by the bytes of a token, and then allocates a page more."""
    memory = 10 * GIB
    assert ASKED.capacity(load("llama-2-7b"), memory).tokens == memory // 524_288
    assert ASKED.capacity(load("llama-2-7b"), memory + 5, page_size=64).tokens == memory // 524_288 // 64 * 64


def test_pages_round_each_sequence() -> None:
    """4,097 tokens in pages of 64 are 65 pages; the pad is a page of its own."""
    found = ASKED.plan(llama(), 4097, sequences=2, page_size=64)
    assert found.per_device == (2 * 65 * 64 + 64) * 131_072
    assert found.per_sequence == 65 * 64 * 131_072
    assert found.growth_per_token == 0
    assert ASKED.plan(llama(), 4160, page_size=64).growth_per_token == 64 * 131_072


@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1)])
def test_heads_of_a_rank_are_at_least_one(ranks: int, heads: int) -> None:
    """8 KV heads: 16 ranks hold each head twice."""
    found = ASKED.plan(llama(), 4096, tensor_parallel=ranks)
    assert found.per_device == 4097 * 32 * heads * 256 * 2
    assert found.total == found.per_device * ranks
    assert found.per_token == 131_072


def test_query_heads_divide_over_the_ranks_of_an_attention_group() -> None:
    """32 heads on 3 ranks: the model classes refuse (models/llama.py); 12 ranks in 3 groups have 4 each."""
    with pytest.raises(EngineRejectsError, match="cannot split the 32 query heads"):
        ASKED.plan(llama(), 4096, tensor_parallel=3)
    assert ASKED.plan(llama(), 4096, tensor_parallel=12, dp_size=3, enable_dp_attention=True).total


def test_stages_take_the_layers_that_do_not_divide_to_the_end() -> None:
    """32 layers on 3 stages: 10, 11, 11."""
    found = ASKED.plan(llama(), 4096, pipeline_parallel=3)
    assert found.per_device == 4097 * 11 * 4096
    assert found.total == 4097 * 32 * 4096
    assert ASKED.capacity(llama(), 8 * GIB, pipeline_parallel=3).tokens == 8 * GIB // (11 * 4096)
    with pytest.raises(EngineRejectsError, match="more than the model's 32 layers"):
        ASKED.plan(llama(), 4096, pipeline_parallel=33)


def test_decode_context_parallel_ranks_share_the_tokens() -> None:
    """4 ranks of 8 hold the same heads: 8 // (8 / 4) = 4 heads a rank, and a quarter of the tokens each."""
    found = ASKED.plan(llama(), 4096, tensor_parallel=8, decode_context_parallel=4)
    assert found.per_device == (1024 + 1) * 32 * 4 * 256 * 2
    assert ASKED.capacity(llama(), 8 * GIB, tensor_parallel=8, decode_context_parallel=4).tokens == 8 * GIB // (32 * 4 * 512) * 4
    with pytest.raises(EngineRejectsError, match="does not divide"):
        ASKED.plan(llama(), 4096, tensor_parallel=8, decode_context_parallel=3)


def test_attention_groups_hold_their_own_requests() -> None:
    """8 ranks in 4 groups of 2: 4 heads a rank, and 3 of 10 sequences on the fullest group."""
    found = ASKED.plan(llama(), 4096, sequences=10, tensor_parallel=8, dp_size=4, enable_dp_attention=True)
    assert found.per_device == (3 * 4096 + 1) * 32 * 4 * 512
    assert found.args["attn_dp_size"] == 4
    assert ASKED.plan(llama(), 4096, sequences=10, tensor_parallel=8, attn_dp_size=4).per_device == found.per_device
    with pytest.raises(EngineRejectsError, match="without enable_dp_attention"):
        ASKED.plan(llama(), 4096, dp_size=2)
    with pytest.raises(EngineRejectsError, match="do not divide"):
        ASKED.plan(llama(), 4096, tensor_parallel=8, attn_dp_size=3)


def test_a_shared_prefix_is_held_once_in_whole_pages() -> None:
    """1,000 shared tokens fill 15 pages of 64; with no radix cache nothing is shared."""
    found = ASKED.plan(llama(), 4096, sequences=4, shared_prefix=1000, page_size=64)
    assert found.per_device == (960 + 4 * (4096 - 960) + 64) * 131_072
    alone = ASKED.plan(llama(), 4096, sequences=4, shared_prefix=1000, page_size=64, disable_radix_cache=True)
    assert alone.per_device == (4 * 4096 + 64) * 131_072
    assert any("no radix cache" in note for note in alone.notes)


@pytest.mark.parametrize(
    ("kv_dtype", "gpu", "row"),
    [
        ("fp8_e4m3", "h100-80gb", 8 * 256),
        ("fp8_e5m2", "h100-80gb", 8 * 256),
        ("bf16", "h100-80gb", 8 * 512),
        ("mxfp8", "b200-180gb", 8 * 256 * 33 // 32),
    ],
)
def test_formats(kv_dtype: str, gpu: str, row: int) -> None:
    found = ASKED.plan(llama(), 4096, kv_dtype=kv_dtype, gpu=gpu)
    page = found.args["page_size"]
    assert found.per_device == (4096 + page) * 32 * row


def test_nvfp4_keeps_a_scale_for_16_elements() -> None:
    """SM100 reads it as it lies: 8 heads x 256 x 9/16 B; SM120 through an fp8 workspace of one layer, with scales of two layouts."""
    native = ASKED.plan(llama(), 4096, kv_dtype="nvfp4", gpu="b200-180gb")
    assert native.per_device == (4096 + 64) * 32 * 8 * 256 * 9 // 16
    mixed = ASKED.plan(llama(), 4096, kv_dtype="nvfp4", gpu="rtxpro6000-96gb")
    assert mixed.per_device == (4096 + 64) * (32 * 8 * (256 * 9 // 16 + 256 // 16) + 8 * 256)
    assert sizes(mixed)["workspace", "dequantised"] == 4096 * 8 * 256
    with pytest.raises(EngineRejectsError, match="Blackwell card of SM100"):
        ASKED.plan(llama(), 4096, kv_dtype="nvfp4", gpu="h100-80gb")
    with pytest.raises(EngineRejectsError, match="64 divides"):
        ASKED.plan(uniform(4, Full(kv_heads=4, head_dim=80), max_context=4096), 4096, kv_dtype="nvfp4", gpu="b200-180gb")


def test_four_bits_of_the_older_kind() -> None:
    found = ASKED.plan(llama(), 4096, kv_dtype="fp4_mx_block16", attention_backend="triton")
    assert found.per_device == 4097 * 32 * 8 * 256 * 9 // 16
    with pytest.raises(EngineRejectsError, match="no multiple of it"):
        ASKED.plan(uniform(4, Full(kv_heads=4, head_dim=72), max_context=4096), 4096, kv_dtype="fp4_mx_block16", attention_backend="triton")


def test_values_may_be_narrower_than_keys() -> None:
    narrow = uniform(10, Full(kv_heads=4, head_dim=192, value_head_dim=128), max_context=4096)
    assert ASKED.plan(narrow, 4096).per_device == 4097 * 10 * 4 * (192 + 128) * 2


def test_layers_that_keep_nothing_get_rows_all_the_same() -> None:
    """Outside hybrids SGLang counts layers, not caches: those that share or that were pruned have tensors nobody fills."""
    heads = Full(kv_heads=4, head_dim=128)
    mixed = model(["f*6", "s", "n"], 8, {"f": heads, "s": Shared(shares_with=0), "n": Nothing()}, max_context=4096)
    assert ASKED.plan(mixed, 4096).per_device == 4097 * 8 * 4 * 512


def test_one_shape_for_all_full_layers() -> None:
    uneven = model(["a", "b"], 8, {"a": Full(kv_heads=4, head_dim=128), "b": Full(kv_heads=2, head_dim=128)}, max_context=4096)
    with pytest.raises(EngineRejectsError, match="one shape for all full layers"):
        ASKED.plan(uneven, 4096)


def test_what_nobody_says_is_assumed_and_noted() -> None:
    """No dtype: Gemma in bf16, others in fp16; no context: 2,048."""
    unnamed = uniform(4, Full(kv_heads=4, head_dim=128), dtype=None)
    found = ASKED.plan(unnamed, 2048)
    assert found.kv_dtype == "fp16"
    assert any("fp16" in note for note in found.notes)
    assert ASKED.plan(uniform(4, Full(kv_heads=4, head_dim=128), family="gemma", dtype=None), 2048).kv_dtype == "bf16"
    with pytest.raises(EngineRejectsError, match="names no maximum, and SGLang takes 2,048"):
        ASKED.plan(unnamed, 2049)


def test_the_context_ends_where_the_model_does() -> None:
    assert ASKED.plan(llama(), 131_072).context == 131_072
    with pytest.raises(EngineRejectsError, match="maximum is 131,072"):
        ASKED.plan(llama(), 131_073)
    fitting = SGLANG.fitting(llama(), ASKED.workload(4096, {}), 60 * GIB)
    assert fitting.admits(131_072, 1)
    assert not fitting.admits(131_073, 1)


def test_a_limit_on_tokens_is_the_pool() -> None:
    found = ASKED.plan(llama(), 4096, sequences=3, max_total_tokens=8192)
    assert found.per_device == (8192 + 1) * 131_072
    assert any("smaller than the 12,288 tokens" in warning for warning in found.warnings)
    assert ASKED.capacity(llama(), 60 * GIB, max_total_tokens=10_000, page_size=64).tokens == 9_984
    with pytest.raises(EngineRejectsError, match="less than a page of 64"):
        ASKED.plan(llama(), 4096, max_total_tokens=63, page_size=64)


def test_how_many_requests() -> None:
    """min(clamp(int(tokens / context x 512), 2048, 4096), tokens // 2)."""
    tokens = 60 * GIB // 131_072
    assert ASKED.capacity(llama(), 60 * GIB, 131_072).concurrency == max(2048, int(tokens / 131_072 * 512))
    assert ASKED.capacity(llama(), 60 * GIB, 4096).concurrency == 4096
    assert ASKED.capacity(llama(), 60 * GIB, max_running_requests=300).concurrency == 300
    assert ASKED.capacity(llama(), 1000 * 131_072, 512).concurrency == 500
    few = ASKED.capacity(llama(), 60 * GIB, 1024, sequences=301, max_running_requests=300)
    assert not few.fits
    assert ASKED.capacity(llama(), 60 * GIB, 1024, sequences=300, max_running_requests=300).fits


def test_too_little_memory_is_no_server() -> None:
    found = ASKED.capacity(llama(), 1000)
    assert (found.fits, found.tokens) == (False, 0)
    assert found.warnings


def test_layers_of_an_encoder_are_kept_in_the_same_pool() -> None:
    heads = Full(kv_heads=8, head_dim=128)
    mllama = model(["f*4", "c"], 10, {"f": heads, "c": Cross(kv_heads=8, head_dim=128)}, "mllama_text_model", max_context=131072)
    assert ASKED.plan(mllama, 4096).per_device == 4097 * 10 * 8 * 512


def test_whisper_has_rows_for_its_encoder_too() -> None:
    """6 encoder layers, and two attentions in each of 4 decoder layers: 14 rows, read with FlashInfer."""
    heads = {"kv_heads": 8, "head_dim": 64}
    whisper = uniform(4, Full(**heads), Cross(**heads, source_tokens=1500), family="whisper", max_context=448, traits={"encoder_layers": 6})
    found = ASKED.plan(replace(whisper, class_name="WhisperForConditionalGeneration"), 448)
    assert found.per_device == 449 * (6 + 2 * 4) * 8 * 128 * 2
    assert found.args["attention_backend"] == "flashinfer"


def test_unknown_settings_and_formats() -> None:
    with pytest.raises(UsageError, match="no setting 'page'"):
        SGLANG.read_args({"page": 1})
    with pytest.raises(EngineRejectsError, match="no kv-cache-dtype 'int8'"):
        ASKED.plan(llama(), 4096, kv_dtype="int8")
    with pytest.raises(EngineRejectsError, match="is none"):
        ASKED.plan(llama(), 4096, gpu="mi300x-192gb")


def test_the_settings_in_force() -> None:
    args = ASKED.plan(llama(), 4096, sequences=2, gpu="a100-40gb").args
    assert (args["page_size"], args["attention_backend"], args["chunked_prefill_size"], args["max_total_tokens"]) == (
        1,
        "flashinfer",
        4096,
        8192,
    )
    assert args["swa_full_tokens_ratio"] is None
    assert args["max_mamba_cache_size"] is None
