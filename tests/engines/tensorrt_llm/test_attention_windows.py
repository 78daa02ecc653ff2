"""`max_attention_window`: a pool for each distinct window, in equal shares. Every figure is worked out in the test."""

from __future__ import annotations

import pytest
from pool_engines import GIB, TENSORRT, Asked, sizes
from vllm_models import gpt_oss, llama, model

from kvcalc.core.errors import UsageError
from kvcalc.core.states import Chunked, Full, Sliding

ASKED = Asked(TENSORRT)
#: A token in the 12 layers of one kind.
HALF = 12 * 8 * 128 * 2


def test_a_window_for_every_other_layer() -> None:
    """gpt-oss at 32,768 tokens with 128, 32768 in turn: 4 blocks and 1,024."""
    found = ASKED.plan(gpt_oss(), 32_768, sequences=2, max_attention_window=[128, 32_768])
    assert found.per_device == 2 * (128 + 32_768) * HALF
    assert {(line.state, line.slots) for line in found.lines} == {("sliding", 128), ("full", 32_768)}
    assert not any("kept in full" in note for note in found.notes)


def test_windows_fill_whole_blocks() -> None:
    found = ASKED.plan(gpt_oss(), 32_768, max_attention_window="100,32768")
    assert found.per_device == (128 + 32_768) * HALF
    assert sizes(found)["padding", "block"] == 28 * HALF


def test_memory_is_divided_in_equal_shares_whatever_is_needed() -> None:
    """Half of 18 GiB each: the windows could do with 1/257 of it."""
    found = ASKED.capacity(gpt_oss(), 20 * GIB, 32_768, max_attention_window=[128, 32_768])
    blocks = int(0.9 * 20 * GIB) // 2 // HALF // 32
    assert (found.blocks, found.tokens, found.sliding_tokens) == (blocks, blocks * 32, blocks * 32)
    assert found.block_bytes == 32 * HALF
    assert any("2 pools in equal shares" in note for note in found.notes)


def test_shares_of_layers_that_weigh_differently() -> None:
    states = {"w": Sliding(window=512, kv_heads=8, head_dim=128), "f": Full(kv_heads=8, head_dim=128)}
    mixed = model(["w*3", "f"], 8, states, max_context=65_536)
    found = ASKED.capacity(mixed, 10 * GIB, 8192, max_attention_window=[512, 512, 512, 8192], free_gpu_memory_fraction=1.0)
    assert found.tokens == 5 * GIB // (2 * 4096) // 32 * 32
    assert found.sliding_tokens == 5 * GIB // (6 * 4096) // 32 * 32


def test_the_pattern_runs_over_all_layers() -> None:
    """Three entries on 32 layers: 11, 11 and 10 of them; a window at least as long as the context is the context."""
    found = ASKED.plan(llama(), 4096, max_attention_window=[64, 4096, 100_000])
    assert found.per_device == (11 * 64 + 21 * 4096) * 4096


def test_one_window_for_all_layers() -> None:
    """One pool, in which a sequence takes its window; here max_tokens holds."""
    found = ASKED.capacity(llama(), 20 * GIB, 32_768, sequences=75, max_attention_window=[1024], max_tokens=76_800)
    assert found.blocks == 76_800 // 32
    assert found.fits
    assert not ASKED.capacity(llama(), 20 * GIB, 32_768, sequences=76, max_attention_window=[1024], max_tokens=76_800).fits
    several = ASKED.capacity(gpt_oss(), 10 * GIB, 32_768, max_attention_window=[128, 32_768], max_tokens=64)
    assert any("max_tokens says nothing" in note for note in several.notes)
    assert several.fits


def test_a_pool_that_does_not_hold_one_sequence() -> None:
    found = ASKED.capacity(gpt_oss(), 1024 * HALF, 32_768, max_attention_window=[128, 32_768])
    assert not found.fits
    assert "shortens the windows" in found.warnings[0]


def test_a_prefix_that_left_the_window_is_not_shared() -> None:
    """128 of 4,096 tokens stay in the window; a prefix of 4,000 reaches 32 tokens into it."""
    found = ASKED.plan(gpt_oss(), 4096, sequences=2, shared_prefix=4000, max_attention_window=[128, 4096])
    assert found.per_device == (32 + 2 * 96) * HALF + (4000 + 2 * 96) * HALF


def test_gemma_4_has_the_windows_of_its_layers() -> None:
    """Layers of two widths take the second manager, which reads the windows itself and divides memory by need."""
    states = {"w": Sliding(window=1024, kv_heads=16, head_dim=256), "f": Full(kv_heads=4, head_dim=512)}
    gemma4 = model(["w*5", "f"], 12, states, "gemma4_text", max_context=131_072)
    sequence = 1024 * 10 * 16 * 1024 + 32_768 * 2 * 4 * 2048
    found = ASKED.plan(gemma4, 32_768)
    assert found.per_device == sequence
    capacity = ASKED.capacity(gemma4, 10 * sequence, 32_768, free_gpu_memory_fraction=1.0, sequences=10)
    assert (capacity.fits, capacity.concurrency, capacity.tokens) == (True, 10, 327_680)
    assert not ASKED.capacity(gemma4, 10 * sequence, 32_768, free_gpu_memory_fraction=1.0, sequences=11).fits
    asked = ASKED.plan(gemma4, 32_768, max_attention_window=[2048])
    assert asked.per_device == 2048 * (10 * 16 * 1024 + 2 * 4 * 2048)
    chunked = model(["c", "f"], 2, {"c": Chunked(chunk=256, kv_heads=4, head_dim=64), "f": Full(kv_heads=4, head_dim=64)}, "gemma4_text")
    assert ASKED.plan(chunked, 1024).per_device == (256 + 1024) * 4 * 128 * 2


@pytest.mark.parametrize("vector", [[], ["x"], [0], [128, -1]])
def test_vectors_that_are_none(vector: list[object]) -> None:
    with pytest.raises(UsageError, match="max_attention_window"):
        ASKED.plan(gpt_oss(), 4096, max_attention_window=vector)
