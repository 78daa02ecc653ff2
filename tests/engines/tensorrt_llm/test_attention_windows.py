"""`max_attention_window`: a pool for each distinct window, in equal shares. Every figure is worked out in the test."""

from __future__ import annotations

import pytest
from pool_engines import GIB, TENSORRT, Asked, sizes
from vllm_models import gpt_oss, llama, model

from kvcalc.core.errors import UsageError
from kvcalc.core.states import Full, Sliding

ASKED = Asked(TENSORRT)
FIRST = {"use_kv_cache_manager_v2": "false"}
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
    found = ASKED.capacity(gpt_oss(), 20 * GIB, 32_768, max_attention_window=[128, 32_768], **FIRST)
    blocks = int(0.9 * 20 * GIB) // 2 // HALF // 32
    assert (found.blocks, found.tokens, found.sliding_tokens) == (blocks, blocks * 32, blocks * 32)
    assert found.block_bytes == 32 * HALF
    assert any("2 pools in equal shares" in note for note in found.notes)


def test_shares_of_layers_that_weigh_differently() -> None:
    states = {"w": Sliding(window=512, kv_heads=8, head_dim=128), "f": Full(kv_heads=8, head_dim=128)}
    mixed = model(["w*3", "f"], 8, states, max_context=65_536)
    found = ASKED.capacity(mixed, 10 * GIB, 8192, max_attention_window=[512, 512, 512, 8192], free_gpu_memory_fraction=1.0, **FIRST)
    assert found.tokens == 5 * GIB // (2 * 4096) // 32 * 32
    assert found.sliding_tokens == 5 * GIB // (6 * 4096) // 32 * 32


def test_the_pattern_runs_over_all_layers() -> None:
    """Three entries on 32 layers: 11, 11 and 10 of them; a window at least as long as the context is the context."""
    found = ASKED.plan(llama(), 4096, max_attention_window=[64, 4096, 100_000])
    assert found.per_device == (11 * 64 + 21 * 4096) * 4096


def test_one_window_for_all_layers() -> None:
    """One pool, in which a sequence takes its window; with several, max_tokens stands for bytes."""
    question = {"max_attention_window": [1024], "max_tokens": 76_800, **FIRST}
    found = ASKED.capacity(llama(), 20 * GIB, 32_768, sequences=75, **question)
    assert found.blocks == 76_800 // 32
    assert found.fits
    assert not ASKED.capacity(llama(), 20 * GIB, 32_768, sequences=76, **question).fits
    several = ASKED.capacity(gpt_oss(), 10 * GIB, 32_768, max_attention_window=[128, 32_768], max_tokens=6400, **FIRST)
    assert any("max_tokens stands for bytes" in note for note in several.notes)
    assert (several.blocks, several.sliding_tokens) == (200, 6400)


def test_a_pool_that_does_not_hold_one_sequence() -> None:
    found = ASKED.capacity(gpt_oss(), 1024 * HALF, 32_768, max_attention_window=[128, 32_768], **FIRST)
    assert not found.fits
    assert "shortens the windows" in found.warnings[0]


def test_a_prefix_that_left_the_window_is_not_shared() -> None:
    """128 of 4,096 tokens stay in the window; a prefix of 4,000 reaches 32 tokens into it."""
    for manager in (FIRST, {}):
        found = ASKED.plan(gpt_oss(), 4096, sequences=2, shared_prefix=4000, max_attention_window=[128, 4096], **manager)
        assert found.per_device == (32 + 2 * 96) * HALF + (4000 + 2 * 96) * HALF


@pytest.mark.parametrize("vector", [[], ["x"], [0], [128, -1]])
def test_vectors_that_are_none(vector: list[object]) -> None:
    with pytest.raises(UsageError, match="max_attention_window"):
        ASKED.plan(gpt_oss(), 4096, max_attention_window=vector)
