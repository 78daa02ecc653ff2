"""Sliding layers on and off SGLang's list. Every figure is worked out in the test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pool_engines import GIB, SGLANG, Asked, sizes
from vllm_models import gemma3, gpt_oss, model, uniform

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.states import Full, Latent, Sliding
from kvcalc.core.traits import Traits
from kvcalc.sources import load

ASKED = Asked(SGLANG)
ROW = 8 * 128 * 2


def test_gpt_oss_has_a_pool_of_windows() -> None:
    """cell = 12 x 2,048 + 0.8 x 12 x 2,048 = 44,236.8 B: 20 GiB hold 485,451 tokens and 0.8 of them in the windows."""
    found = ASKED.capacity(gpt_oss(), 20 * GIB)
    assert found.tokens == int(20 * GIB // (12 * ROW + 0.8 * 12 * ROW)) == 485_451
    assert found.sliding_tokens == int(485_451 * 0.8) == 388_360


def test_the_ratio_and_the_pages_of_the_window_pool() -> None:
    found = ASKED.capacity(gpt_oss(), 20 * GIB, swa_full_tokens_ratio=0.25, page_size=16)
    tokens = int(20 * GIB // (12 * ROW * 1.25)) // 16 * 16
    assert (found.tokens, found.sliding_tokens) == (tokens, int(tokens * 0.25) // 16 * 16)
    with pytest.raises(EngineRejectsError, match="not between 0 and 1"):
        ASKED.capacity(gpt_oss(), 20 * GIB, swa_full_tokens_ratio=1.5)


def test_a_plan_allocates_both_pools_and_a_page_of_each() -> None:
    found = ASKED.plan(gpt_oss(), 32_768, sequences=2)
    sliding = int(65_536 * 0.8)
    assert found.per_device == 12 * ROW * (65_536 + 1) + 12 * ROW * (sliding + 1)
    assert sizes(found)["padding", "page"] == 24 * ROW
    assert found.per_token == 24 * ROW


def test_the_pool_of_windows_turned_off() -> None:
    found = ASKED.plan(gpt_oss(), 32_768, disable_hybrid_swa_memory=True)
    assert found.per_device == 24 * ROW * 32_769
    assert any("12 sliding layers are stored in full length: the pool of windows is turned off" in note for note in found.notes)


def test_gemma_3_is_stored_in_full() -> None:
    """Gemma 3 is not on the list: 62 layers x 16 heads x 256 x 2 B whatever their windows are."""
    found = ASKED.plan(gemma3(62, 16, 128), 32_768)
    assert found.per_device == 32_769 * 62 * 16 * 256 * 2
    assert any("52 sliding layers are stored in full length: SGLang gives this model no pool" in note for note in found.notes)
    capacity = ASKED.capacity(gemma3(62, 16, 128), 40 * GIB)
    assert (capacity.tokens, capacity.sliding_tokens) == (40 * GIB // (62 * 16 * 512), None)


def test_windows_of_another_shape() -> None:
    """Gemma 4: sliding layers of 16 heads of 256, full ones of 4 of 512."""
    states = {"w": Sliding(window=1024, kv_heads=16, head_dim=256), "f": Full(kv_heads=4, head_dim=512)}
    gemma4 = model(["w*5", "f"], 12, states, "gemma4_text", max_context=131_072)
    full, sliding = 2 * 4 * 1024 * 2, 10 * 16 * 512 * 2
    assert ASKED.capacity(gemma4, 20 * GIB).tokens == int(20 * GIB // (full + 0.8 * sliding))
    found = ASKED.plan(gemma4, 20_000)
    assert found.per_device == full * 20_001 + sliding * (int(20_000 * 0.8) + 1)


def test_layers_that_share_get_rows_of_their_owners_shape() -> None:
    """Gemma 4's last layers read others' caches, and SGLang's pools have rows for them too."""
    gemma = load("gemma-4-e4b")
    found = ASKED.plan(gemma, 20_000)
    sliding, full = 35, 7
    assert sum(line.layers for line in found.lines if line.buffer == "key") == sliding + full == gemma.layers.count


def test_a_small_plan_is_enlarged_to_what_starts() -> None:
    """The window pool must hold more than 127 + 1 tokens (gpt-oss counts its window of 128 without the current one): 162 x 0.8."""
    found = ASKED.plan(gpt_oss(), 100)
    assert found.args["max_total_tokens"] == 162
    assert any("does not start with fewer than 162 tokens" in note for note in found.notes)
    assert int(162 * 0.8) == 129 > 127 + 1 >= int(161 * 0.8)
    small = ASKED.capacity(gpt_oss(), 140 * 24 * ROW)
    assert not small.fits
    assert "refuses a sliding pool" in small.warnings[0]


def test_windows_sized_by_requests() -> None:
    """Without a prefix cache and with a limit on requests the windows are sized for those.

    each: 127 + 128 + 1 (trailing) + 1 (decoding) tokens; two chunks of 8,192 in flight, and one token more
    """
    asked = {"disable_radix_cache": True, "max_running_requests": 10}
    cap = 10 * (127 + 128 + 1 + 1) + 2 * 8192 + 1
    found = ASKED.capacity(gpt_oss(), 20 * GIB, **asked)
    assert found.sliding_tokens == cap == 18_955
    assert found.tokens == (20 * GIB - cap * 12 * ROW) // (12 * ROW)
    plan = ASKED.plan(gpt_oss(), 32_768, sequences=2, **asked)
    assert plan.per_device == 12 * ROW * 65_537 + 12 * ROW * (cap + 1)
    without = ASKED.capacity(gpt_oss(), 20 * GIB, **asked, disable_overlap_schedule=True)
    assert without.sliding_tokens == 10 * 257 + 8192 + 1


def test_only_windows() -> None:
    """A model on the list whose layers all slide has one pool, counted in its own tokens."""
    only = model(["w"], 6, {"w": Sliding(window=512, kv_heads=4, head_dim=128)}, "gpt_oss", max_context=65_536)
    assert ASKED.capacity(only, GIB).tokens == GIB // (6 * 4 * 512)
    assert ASKED.plan(only, 4096).per_device == 4097 * 6 * 4 * 512


def test_a_listed_model_without_windows_does_not_start() -> None:
    plain = model(["f"], 4, {"f": Full(kv_heads=8, head_dim=64)}, "gpt_oss", max_context=65_536)
    with pytest.raises(EngineRejectsError, match="no layer of this model slides"):
        ASKED.plan(plain, 4096)
    assert ASKED.plan(plain, 4096, disable_hybrid_swa_memory=True).per_device == 4097 * 4 * ROW


def test_every_stage_needs_a_window() -> None:
    lumped = model(["w*4", "f*4"], 8, {"w": Sliding(window=512, kv_heads=8, head_dim=64), "f": Full(kv_heads=8, head_dim=64)}, "gpt_oss")
    with pytest.raises(EngineRejectsError, match="on every pipeline stage"):
        ASKED.plan(lumped, 2048, pipeline_parallel=2)


def test_four_bits_are_not_packed_in_pools_of_windows() -> None:
    found = ASKED.plan(gpt_oss(), 32_768, kv_dtype="fp4_mx_block16", attention_backend="triton")
    assert found.per_device == 12 * (ROW // 2) * (32_769 + int(32_768 * 0.8) + 1)
    assert any("every element takes a byte" in note for note in found.notes)


def test_latents_with_windows() -> None:
    """dots3-note: latents of both kinds; the window pool has the latents' row."""
    states = {"w": Latent(latent_dim=512, rope_dim=64, window=1024), "f": Latent(latent_dim=512, rope_dim=64)}
    dots = model(["w*3", "f"], 8, states, "dots3_note_text", class_name="Dots3NoteForCausalLM", max_context=65_536)
    found = ASKED.plan(dots, 16_384)
    page = found.args["page_size"]
    sliding = math.floor(16_384 * 0.8) // page * page
    assert found.per_device == 1152 * (2 * (16_384 + page) + 6 * (sliding + page))


def test_what_fits_counts_a_window_and_a_page_a_sequence() -> None:
    """gpt-oss at 0.01: 4 sequences need 4 x 128 window tokens."""
    ratio = {"swa_full_tokens_ratio": 0.01}
    memory = int(60_000 * 12 * ROW * 1.01) + 1
    found = ASKED.capacity(gpt_oss(), memory, 8192, sequences=4, **ratio)
    assert (found.tokens, found.sliding_tokens) == (60_000, 600)
    assert found.fits
    assert not ASKED.capacity(gpt_oss(), memory, 8192, sequences=5, **ratio).fits
    assert ASKED.capacity(gpt_oss(), 2 * memory, 8192, sequences=5).fits


def test_decode_context_parallelism_does_not_spread_windows() -> None:
    """8 ranks, 2 of each group: priced as 1 head a rank, held as 8 // (8 / 2) = 2, and every token on each rank."""
    asked = {"tensor_parallel": 8, "decode_context_parallel": 2}
    found = ASKED.capacity(gpt_oss(), 20 * GIB, **asked)
    assert found.tokens == int(20 * GIB // (12 * 256 * 1.8))
    plan = ASKED.plan(gpt_oss(), 32_768, **asked)
    assert plan.per_device == 12 * 512 * (32_769 + int(32_768 * 0.8) + 1)


def test_a_limit_that_fills_no_page_still_bounds_the_windows() -> None:
    """The limit of 20,000 leaves 312 whole pages of 64 to the full pool; the windows keep it, in 313."""
    asked = {"disable_radix_cache": True, "max_running_requests": 100, "page_size": 64, "max_total_tokens": 20_000}
    found = ASKED.capacity(gpt_oss(), 20 * GIB, **asked)
    assert (found.tokens, found.sliding_tokens) == (19_968, 20_000)
    assert ASKED.plan(gpt_oss(), 4096, **asked).per_device == 12 * ROW * (313 * 64 + 314 * 64)


def test_unlimited_ocr_has_a_pool_of_windows_alone() -> None:
    """get_hybrid_layer_ids puts every layer into it: cell 12 x 2 x 10 x 128 x 2 B, and no pool of full layers."""
    heads = Full(kv_heads=10, head_dim=128, query_heads=10)
    ocr = replace(uniform(12, heads, family="unlimited_ocr_text", max_context=32_768), traits=Traits(sliding_window_size=128))
    cell = 12 * 2 * 10 * 128 * 2
    found = ASKED.capacity(ocr, GIB, page_size=1)
    assert (found.tokens, found.sliding_tokens) == (GIB // cell, GIB // cell)
    assert ASKED.plan(ocr, 4096, page_size=1).per_device == 4097 * cell
