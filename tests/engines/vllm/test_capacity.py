"""What vLLM 0.33 prints at start-up, by its own specs, grouping and capacity code, against arithmetic written out."""

from __future__ import annotations

import pytest
from vllm_models import (
    DEEPSEEK,
    GIB,
    INDEX,
    MAMBA,
    WHISPER,
    deepseek_v3,
    fitting,
    gemma3,
    gpt_oss,
    llama,
    model,
    nemotron_nano,
    qwen3_next,
    uniform,
)

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.states import Chunked, Full, Mamba2, Sliding
from kvcalc.sources.schema import read


def figures(architecture: Architecture, memory: int, context: int, **question: object) -> tuple[int | None, ...]:
    """Blocks, bytes of a block, tokens of the log line, block size."""
    found = fitting(architecture, memory, context=context, **question).capacity(context)
    return found.blocks, found.block_bytes, found.tokens, found.block_size


def test_plain_attention() -> None:
    block = 32 * 16 * 8 * (128 + 128) * 2
    assert figures(llama(), 60 * GIB, 131072) == (60 * GIB // block, block, 491_520, 16)
    found = fitting(llama(), 60 * GIB).capacity(131072)
    assert found.concurrency == 30_720 / 8_192 == 3.75


def test_the_printed_tokens_are_not_blocks_times_block_size() -> None:
    """L = 10,001 takes 626 blocks: 5120 / 626 x 10,001 tokens, and not 5120 x 16."""
    assert figures(llama(), 10 * GIB + 12_345, 10_001) == (5_120, 2_097_152, int(5_120 / 626 * 10_001), 16)
    assert int(5_120 / 626 * 10_001) == 81_797


def test_a_gpu_keeps_one_head_at_least() -> None:
    """8 heads on 16 GPUs: as on 8, and the cluster holds two copies."""
    big = uniform(80, Full(kv_heads=8, query_heads=64, head_dim=128))
    assert figures(big, 45 * GIB, 131072, tensor_parallel=16)[:2] == (73_728, 80 * 16 * 256 * 2)
    assert figures(big, 45 * GIB, 131072, tensor_parallel=8)[:2] == (73_728, 80 * 16 * 256 * 2)


@pytest.mark.parametrize(
    ("dtype", "block", "size"),
    [
        ("fp8", 32 * 16 * 8 * 256, 16),
        ("int4_per_token_head", 32 * 16 * 8 * (64 + 4 + 64 + 4), 16),
        # Two layers at each end keep bf16; the block grows so that their page fits the packed layers' one.
        ("turboquant_k8v4", 28 * 32 * 8 * 196 + 4 * 32 * 8 * 512, 32),
        ("turboquant_3bit_nc", 28 * 32 * 8 * 102 + 4 * 32 * 8 * 512, 32),
    ],
)
def test_cache_types(dtype: str, block: int, size: int) -> None:
    assert figures(llama(), 60 * GIB, 131072, kv_dtype=dtype) == (60 * GIB // block, block, *_tokens(60 * GIB // block, size), size)


def _tokens(blocks: int, size: int) -> tuple[int]:
    return (int(blocks / (131_072 // size) * 131_072),)


def test_nvfp4_on_blackwell() -> None:
    assert figures(llama(), 60 * GIB, 131072, kv_dtype="nvfp4", gpu="b200-180gb")[:2] == (109_226, 32 * 16 * 8 * 2 * (64 + 8))


def test_layers_that_keep_the_models_type() -> None:
    args = {"kv_cache_dtype_skip_layers": ["0", "31"]}
    block = 2 * 32 * 8 * 512 + 30 * 32 * 8 * 256
    assert figures(llama(), 60 * GIB, 131072, kv_dtype="fp8", args=args) == (28_912, block, 925_184, 32)


def test_a_uniform_window() -> None:
    """Mistral-7B-v0.1: one group of windows, ⌈(4095 + 16384) / 16⌉ + 1 blocks a request."""
    mistral = uniform(32, Sliding(window=4096, kv_heads=8, query_heads=32, head_dim=128), family="mistral")
    assert figures(mistral, 50 * GIB, 32768)[:3] == (25_600, 2_097_152, int(25_600 / 1_281 * 32_768))


@pytest.mark.parametrize(
    ("question", "window_blocks"),
    [
        ({}, 1033),
        ({"args": {"usage_context": "llm_class"}}, 2057),
        ({"gpu": "b200-180gb"}, 2057),
        ({"pipeline_parallel": 2}, 1545),
        ({"args": {"async_scheduling": False}}, 521),
        ({"gpu": "a100-80gb"}, 265),
        ({"args": {"max_num_batched_tokens": 2048}}, 265),
    ],
)
def test_windows_reserve_for_tokens_in_flight(question: dict[str, object], window_blocks: int) -> None:
    """gpt-oss-20b: ⌈(127 + F) / 16⌉ + 1, F = batches in flight x tokens of a step."""
    found = fitting(gpt_oss(), 50 * GIB, context=131072, **question)
    assert found.pool.group_blocks(131072) == (window_blocks, 8192)


def test_sliding_groups_of_gemma_are_padded() -> None:
    """Gemma-3-27B: 52 window layers as 9 + 9 + 9 + 9 + 8 + 8, 10 full ones: a block id pays for 10 layers."""
    found = fitting(gemma3(62, 16, 128), 20 * GIB)
    assert [len(group.layers) for group in found.pool.groups] == [9, 9, 9, 9, 8, 8, 10]
    assert found.pool.block_bytes == 10 * 16 * 16 * 256 * 2
    assert found.pool.request_blocks(131072) == 6 * (-(-(1023 + 16384) // 16) + 1) + 8192 == 14_726
    assert found.capacity(131072).tokens == 145_829


def test_without_the_hybrid_manager_windows_cost_full_length() -> None:
    args = {"disable_hybrid_kv_cache_manager": True}
    assert figures(gemma3(62, 16, 128), 100 * GIB, 131072, args=args) == (13_212, 62 * 16 * 16 * 256 * 2, 211_392, 16)


def test_chunks() -> None:
    """Llama-4-Scout on 8 GPUs: ⌈(8192 + 16384) / 16⌉ blocks a chunked group."""
    heads = {"kv_heads": 8, "query_heads": 40, "head_dim": 128}
    scout = model(["c*3", "f"], 48, {"c": Chunked(chunk=8192, **heads), "f": Full(**heads)}, "llama4_text")
    assert figures(scout, 40 * GIB, 262144, tensor_parallel=8) == (436_906, 12 * 16 * 256 * 2, 5_455_996, 16)


def test_latents_stand_on_every_gpu() -> None:
    block = 61 * 16 * 576 * 2
    assert figures(deepseek_v3(), 40 * GIB, 163840, tensor_parallel=8) == (38_199, block, 611_184, 16)
    assert figures(deepseek_v3(), 100 * GIB, 163840, tensor_parallel=8, gpu="b200-180gb") == (47_749, 2 * block, 1_527_968, 32)


def test_decode_context_parallelism_divides_a_requests_blocks() -> None:
    found = fitting(deepseek_v3(), 40 * GIB, tensor_parallel=8, decode_context_parallel=8)
    assert (found.pool.request_blocks(163840), found.capacity(163840).tokens) == (163840 // 8 // 16, 4_889_472)


def test_sparse_latents() -> None:
    """DeepSeek-V3.2: a latent row of 1,152 B, 656 B as fp8_ds_mla, or 576 B in plain fp8; the index key is 132 B whatever the type."""
    sparse = uniform(61, DEEPSEEK, INDEX, family="deepseek_v32")
    assert figures(sparse, 40 * GIB, 163840, tensor_parallel=8) == (8_568, 61 * 64 * (1_152 + 132), 548_352, 64)
    assert figures(sparse, 40 * GIB, 163840, tensor_parallel=8, kv_dtype="fp8")[1] == 61 * 64 * (656 + 132)
    assert figures(sparse, 100 * GIB, 163840, tensor_parallel=8, kv_dtype="fp8", gpu="b200-180gb")[:2] == (38_846, 61 * 64 * (576 + 132))


def test_recurrent_pages_decide_the_block() -> None:
    """Qwen3-Next: a state of 3 x 8192 x 2 + 32 x 128 x 128 x 2 = 1,097,728 B; 2,048 B a token, in steps of 64."""
    assert -(-1_097_728 // (64 * 2048)) * 64 == 576
    assert figures(qwen3_next(), 30 * GIB, 262144) == (2_275, 12 * 576 * 2048, 1_282_532, 576)


def test_nemotron_keeps_float32_states() -> None:
    found = fitting(nemotron_nano(), 50 * GIB)
    assert found.pool.block_size == 1312
    assert found.pool.block_bytes == 4 * 1312 * 4096 == 21_495_808
    assert [len(group.layers) for group in found.pool.groups] == [4, 4, 4, 4, 4, 4, 3, 4]
    halved = fitting(nemotron_nano(), 50 * GIB, args={"mamba_ssm_cache_dtype": "bfloat16"})
    assert (halved.pool.block_size, halved.pool.block_bytes, halved.capacity(131072).tokens) == (672, 11_010_048, 2_945_193)


def test_pure_recurrent_models_take_one_block() -> None:
    """Mamba-2.8B: 64 x (3 x 5120 x 2 + 5120 x 16 x 2) = 12,451,840 B a request, whatever its length."""
    found = fitting(uniform(64, MAMBA, family="mamba"), 10 * GIB)
    assert (found.pool.block_bytes, found.pool.request_blocks(1), found.pool.request_blocks(10**6)) == (12_451_840, 1, 1)


def test_cross_attention_holds_the_encoder_tokens_of_a_step() -> None:
    """A Whisper with 12 heads of 64: 8192 / 16 blocks of cross-attention, 448 / 16 of its own."""
    found = fitting(uniform(2, *WHISPER, family="whisper"), 50 * GIB)
    assert (found.pool.block_bytes, found.pool.request_blocks(448)) == (2 * 49_152, 540)


def test_draft_layers_may_raise_every_group() -> None:
    """Qwen3-Next with MTP: 13 full layers against 36 recurrent ones make groups of 13, so 36 layers pay for 39."""
    draft = read(Layout, {"pattern": ["full"], "count": 1, "states": {"full": [Full(kv_heads=2, query_heads=16, head_dim=256)]}})
    args = {"speculative_method": "mtp", "num_speculative_tokens": 1}
    found = fitting(qwen3_next(draft=draft), 30 * GIB, tensor_parallel=2, args=args)
    assert sorted(len(group.layers) for group in found.pool.groups) == [12, 12, 12, 13]
    assert found.pool.block_bytes == 13 * found.pool.block_size * 1024


def test_uneven_stages_take_the_blocks_of_the_fullest() -> None:
    """80 layers on 3 stages: 27, 27, 26."""
    big = uniform(80, Full(kv_heads=8, query_heads=64, head_dim=128))
    found = fitting(big, 60 * GIB, tensor_parallel=2, pipeline_parallel=3)
    assert found.pool.stages == (884_736, 884_736, 851_968)
    assert (found.capacity(131072).blocks, round(found.capacity(131072).concurrency or 0, 5)) == (72_817, 8.88879)


def test_a_number_of_blocks_replaces_the_memory() -> None:
    found = fitting(llama(), 10 * GIB, args={"num_gpu_blocks_override": 9000}).capacity(131072)
    assert (found.blocks, found.concurrency, found.tokens) == (9000, 9000 / 8192, 144_000)


def test_a_recurrent_group_of_its_own_size() -> None:
    """Granite-4.0-H-Small: no room for the checkpoint without prefix caching, and no steps of 64 either."""
    mixer = Mamba2(heads=128, head_dim=64, state_dim=128, groups=1, conv_kernel=4)
    heads = Full(kv_heads=8, query_heads=32, head_dim=128)
    granite = model(["m*9", "a"], 40, {"m": mixer, "a": heads}, "granitemoehybrid")
    assert figures(granite, 20 * GIB, 131072) == (2_482, 4 * 528 * 4096, 1_178_698, 528)
    off = fitting(granite, 20 * GIB, args={"enable_prefix_caching": False})
    assert off.pool.group_blocks(131072) == (1,) * 9 + (249,)
    assert fitting(granite, 20 * GIB).pool.group_blocks(131072) == (3,) * 9 + (249,)
