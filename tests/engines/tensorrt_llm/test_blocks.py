"""Blocks of one pool: rates, ranks, formats, capacity. Every figure is worked out in the test."""

from __future__ import annotations

import pytest
from pool_engines import GIB, TENSORRT, Asked, sizes
from vllm_models import DEEPSEEK, deepseek_v3, gemma3, gpt_oss, llama, model, uniform

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.states import Cross, Full, Index, Nothing, Shared
from kvcalc.sources import load

ASKED = Asked(TENSORRT)
FIRST = {"use_kv_cache_manager_v2": "false"}


def test_multi_head_attention() -> None:
    """Llama-2-7B: 524,288 B a token, in blocks of 32."""
    found = ASKED.plan(load("llama-2-7b"), 4000, sequences=3)
    assert found.per_token == 524_288
    assert found.per_device == 3 * 125 * 32 * 524_288
    assert ASKED.plan(load("llama-2-7b"), 4001).per_device == 126 * 32 * 524_288


def test_the_rest_of_a_last_block_is_a_line() -> None:
    found = ASKED.plan(llama(), 4001, sequences=2)
    assert sizes(found)["full", "key"] == 2 * 4001 * 65_536
    assert sizes(found)["padding", "block"] == 2 * 31 * 131_072
    assert found.growth_per_token == 0
    assert ASKED.plan(llama(), 4032).growth_per_token == 32 * 131_072


@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (8, 1), (16, 1), (3, 3), (6, 2)])
def test_heads_of_a_rank_are_rounded_up(ranks: int, heads: int) -> None:
    """8 KV heads on 3 ranks: 3 on each, where SGLang and vLLM have 2. The 48 query heads divide, as they must."""
    found = ASKED.plan(uniform(32, Full(kv_heads=8, query_heads=48, head_dim=128), max_context=131_072), 4096, tensor_parallel=ranks)
    assert found.per_device == 4096 * 32 * heads * 512
    assert found.total == ranks * found.per_device
    assert found.per_token == 131_072


def test_query_heads_divide_over_the_ranks() -> None:
    """modules/attention.py asserts it; with attention data parallelism every rank has all of them."""
    with pytest.raises(EngineRejectsError, match="cannot split the 32 query heads"):
        ASKED.plan(llama(), 4096, tensor_parallel=3)
    assert ASKED.plan(llama(), 4096, tensor_parallel=3, enable_attention_dp=True).total


def test_attention_data_parallelism() -> None:
    """4 ranks: all heads on each, and 3 of 10 requests on the fullest."""
    found = ASKED.plan(llama(), 4096, sequences=10, tensor_parallel=4, enable_attention_dp=True)
    assert found.per_device == 3 * 4096 * 131_072
    assert found.per_sequence == 4096 * 131_072


def test_stages_take_the_layers_that_do_not_divide_first() -> None:
    """32 layers on 3 stages: 11, 11, 10."""
    found = ASKED.plan(llama(), 4096, pipeline_parallel=3)
    assert found.per_device == 4096 * 11 * 4096
    assert found.total == 4096 * 32 * 4096
    assert ASKED.capacity(llama(), 10 * GIB, pipeline_parallel=3, free_gpu_memory_fraction=1.0).blocks == 10 * GIB // (11 * 4096) // 32


def test_a_shared_prefix_is_held_once_in_whole_blocks() -> None:
    found = ASKED.plan(llama(), 4096, sequences=4, shared_prefix=1000)
    assert found.per_device == (31 * 32 + 4 * (4096 - 31 * 32)) * 131_072


@pytest.mark.parametrize(("kv_dtype", "token"), [("fp8", 65_536), ("nvfp4", 32 * 8 * 256 * 9 // 16), ("bf16", 131_072), ("auto", 131_072)])
def test_formats(kv_dtype: str, token: int) -> None:
    assert ASKED.plan(llama(), 4096, kv_dtype=kv_dtype).per_device == 4096 * token


def test_types_that_the_cache_cannot_have() -> None:
    assert ASKED.plan(llama(dtype="float32"), 4096).per_device == 4096 * 262_144
    assert ASKED.plan(llama(dtype=None), 4096, kv_dtype="fp16").kv_dtype == "fp16"
    for kv_dtype, sentence in (
        ("int8", "no KV cache of type 'int8'"),
        ("fp16", "in bf16, fp8 or nvfp4"),
        ("fp8_ds_mla", "only in fp8_ds_mla"),
    ):
        with pytest.raises(EngineRejectsError, match=sentence):
            ASKED.plan(llama(), 4096, kv_dtype=kv_dtype)
    with pytest.raises(EngineRejectsError, match="needs a Blackwell card"):
        ASKED.plan(llama(), 4096, kv_dtype="nvfp4", gpu="h100-80gb")
    with pytest.raises(EngineRejectsError, match="do not divide by it"):
        ASKED.plan(uniform(4, Full(kv_heads=1, head_dim=72)), 4096, kv_dtype="nvfp4")


def test_checkpoints_that_ask_for_a_type() -> None:
    assert ASKED.plan(llama(traits={"kv_cache_quant_algo": "NVFP4"}), 4096).kv_dtype == "nvfp4"
    assert ASKED.plan(llama(traits={"kv_cache_scheme": {"type": "float", "num_bits": 8}}), 4096).kv_dtype == "fp8"
    assert ASKED.plan(llama(traits={"kv_cache_scheme": {"type": "int", "num_bits": 8}}), 4096).kv_dtype == "bf16"


def test_capacity_is_a_share_of_what_is_free() -> None:
    """0.9 of 60 GiB, less whatever fills no block."""
    found = ASKED.capacity(llama(), 60 * GIB, **FIRST)
    tokens = int(0.9 * 60 * GIB) // 131_072
    assert (found.blocks, found.block_size, found.block_bytes) == (tokens // 32, 32, 32 * 131_072)
    assert found.tokens == tokens // 32 * 32
    half = ASKED.capacity(llama(), 60 * GIB, free_gpu_memory_fraction=0.5, tokens_per_block=64, **FIRST)
    least = ASKED.capacity(llama(), 60 * GIB, max_gpu_total_bytes=10 * GIB, **FIRST)
    assert least.blocks == 10 * GIB // 131_072 // 32
    assert half.blocks == 30 * GIB // 131_072 // 64
    with pytest.raises(UsageError, match="not a share of the memory"):
        ASKED.capacity(llama(), 60 * GIB, free_gpu_memory_fraction=1.5)


def test_a_printed_pool_of_fp8() -> None:
    """Llama-3.1-8B in fp8: 263,008 tokens are 8,219 blocks and 16.05 GiB."""
    found = ASKED.capacity(llama(), 8219 * 2_097_152, kv_dtype="fp8", free_gpu_memory_fraction=1.0)
    assert (found.blocks, found.tokens, found.block_bytes) == (8219, 263_008, 2_097_152)
    assert round(8219 * 2_097_152 / GIB, 2) == 16.05


def test_a_limit_on_tokens() -> None:
    assert ASKED.capacity(llama(), 60 * GIB, max_tokens=10_000, **FIRST).blocks == 312
    found = ASKED.plan(llama(), 4096, sequences=3, max_tokens=10_000)
    assert "max_tokens 10,000 is less than the 12,288 tokens" in found.warnings[0]


def test_what_fits() -> None:
    exactly = 10 * 128 * 32 * 131_072
    assert ASKED.capacity(llama(), exactly, 4096, sequences=10, free_gpu_memory_fraction=1.0).fits
    assert not ASKED.capacity(llama(), exactly - 1, 4096, sequences=10, free_gpu_memory_fraction=1.0).fits
    assert not ASKED.capacity(llama(), exactly, 4096, sequences=10, free_gpu_memory_fraction=1.0, max_batch_size=9).fits
    assert "more than max_batch_size" in ASKED.plan(llama(), 4096, sequences=10, max_batch_size=9).warnings[0]


def test_latents() -> None:
    """DeepSeek-V3: 70,272 B on every rank; in fp8 a plain row of 576 B. FlashMLA on Hopper has blocks of 64."""
    assert ASKED.plan(deepseek_v3(), 4096, tensor_parallel=8).per_device == 4096 * 70_272
    assert ASKED.plan(deepseek_v3(), 4096, kv_dtype="fp8").per_device == 4096 * 61 * 576
    hopper = ASKED.plan(deepseek_v3(), 4097, gpu="h100-80gb", tokens_per_block=32)
    assert hopper.per_device == 65 * 64 * 70_272
    assert any("64 for FlashMLA" in note for note in hopper.notes)
    with pytest.raises(UnsupportedArchitectureError, match="4-bit latents"):
        ASKED.plan(deepseek_v3(), 4096, kv_dtype="nvfp4")


def test_layers_that_own_an_indexer_have_index_keys() -> None:
    """GLM-5.2: 21 of 78 layers own one, of 132 B a token whatever the cache's type; up to 1.2 all 78 had a pool for them."""
    found = ASKED.plan(load("glm-5.2"), 4096)
    assert found.per_device == 4096 * (78 * 1152 + 21 * 132) == 4096 * 92_628
    assert ASKED.plan(load("glm-5.2"), 4096, kv_dtype="fp8").per_token == 78 * 576 + 21 * 132
    assert ASKED.plan(load("glm-5.2"), 4096, version="1.2").per_device == 4096 * 78 * (1152 + 132)


def test_other_index_keys_are_not_known() -> None:
    heads = Full(kv_heads=4, head_dim=128)
    with pytest.raises(UnsupportedArchitectureError, match="beside latents only"):
        ASKED.plan(uniform(4, heads, Index(index_dim=128)), 4096)
    with pytest.raises(UnsupportedArchitectureError, match="pooled index keys"):
        ASKED.plan(uniform(4, DEEPSEEK, Index(index_dim=128, pool=4)), 4096)


def test_windows_are_kept_in_full_unless_they_are_asked_for() -> None:
    """By the first manager, and up to 1.2 always."""
    for architecture, layers in ((gpt_oss(), 12), (gemma3(62, 16, 128), 52)):
        found = ASKED.plan(architecture, 4096, **FIRST)
        assert found.per_device == ASKED.plan(architecture, 4096, version="1.2.1").per_device
        assert found.per_device == 4096 * found.per_token
        assert any(f"{layers} sliding layers are kept in full" in note for note in found.notes)


def test_layers_without_a_cache_of_their_own() -> None:
    """Those that read another's have rows that nobody fills; those without attention have none."""
    heads = Full(kv_heads=4, head_dim=128)
    mixed = model(["f*6", "s", "n"], 8, {"f": heads, "s": Shared(shares_with=0), "n": Nothing()})
    assert ASKED.plan(mixed, 4096).per_device == 4096 * 7 * 4 * 512
    with pytest.raises(UnsupportedArchitectureError, match="nothing says whose"):
        ASKED.plan(model(["f", "s"], 4, {"f": heads, "s": Shared()}), 4096)
    with pytest.raises(UnsupportedArchitectureError, match="cross layers"):
        ASKED.plan(model(["f", "c"], 4, {"f": heads, "c": Cross(kv_heads=4, head_dim=128)}), 4096)
    with pytest.raises(EngineRejectsError, match="without attention"):
        ASKED.plan(uniform(4, Nothing()), 4096)


def test_values_are_as_wide_as_keys() -> None:
    found = ASKED.plan(uniform(10, Full(kv_heads=4, head_dim=192, value_head_dim=128)), 4096)
    assert found.per_device == 4096 * 10 * 4 * 2 * 192 * 2
    assert any("as wide as K" in note for note in found.notes)


def test_context_parallelism_is_not_known() -> None:
    with pytest.raises(EngineRejectsError, match="context parallelism"):
        ASKED.plan(llama(), 4096, tensor_parallel=8, decode_context_parallel=2)
    with pytest.raises(UsageError, match="no setting 'page_size'"):
        TENSORRT.read_args({"page_size": 16})
