"""The second cache manager: windows of the model, pools in grains, memory divided for a reference batch. Worked out in the tests."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_engines import GIB, TENSORRT, Asked, sizes
from vllm_models import gemma3, gpt_oss, llama, model, qwen3_next, uniform

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.states import Chunked, Full, Shared, Sliding
from kvcalc.engines.tensorrt_llm.families import FAMILIES
from kvcalc.engines.tensorrt_llm.pools import Group, Reference, batch_slots, divide, grain_of, held_blocks
from kvcalc.sources import load
from kvcalc.sources.hf.families.index import INDEX

ASKED = Asked(TENSORRT)
SECOND, FIRST = {"use_kv_cache_manager_v2": True}, {"use_kv_cache_manager_v2": False}
MIB = 2**20
#: A block of 32 tokens in the 52 window layers and the 10 full ones of Gemma 3 27B.
WINDOWS, WHOLE = 52 * 16 * 2 * 128 * 2 * 32, 10 * 16 * 2 * 128 * 2 * 32


# ── windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_windows_come_from_models_that_mix_them_with_full_layers() -> None:
    """Gemma 3 27B at 128k: 10 layers of 131,072 tokens and 52 of 1,024."""
    found = ASKED.plan(load("gemma-3-27b"), 131_072)
    assert found.per_device == 11_173_625_856 == (10 * 131_072 + 52 * 1024) * 16 * 2 * 128 * 2
    assert ASKED.plan(load("gemma-3-27b"), 131_072, **FIRST).per_device == 62 * 131_072 * 16 * 2 * 128 * 2
    assert ASKED.plan(load("gpt-oss-120b"), 131_072).per_device == 4_836_556_800


def test_windows_of_all_layers_and_chunks_are_no_windows() -> None:
    alike = uniform(8, Sliding(window=1024, kv_heads=4, head_dim=128))
    assert ASKED.plan(alike, 8192, **SECOND).per_device == 8 * 8192 * 4 * 512
    chunks = {"c": Chunked(chunk=1024, kv_heads=4, head_dim=128), "f": Full(kv_heads=4, head_dim=128)}
    found = ASKED.plan(model(["c*3", "f"], 8, chunks, "llama4_text", max_context=65_536), 8192)
    assert found.per_device == 8 * 8192 * 4 * 512
    assert any("6 chunked layers are kept in full" in note for note in found.notes)


@pytest.mark.parametrize(
    ("context", "blocks"), [(1, 1), (64, 2), (127, 4), (128, 4), (129, 5), (159, 5), (160, 4), (161, 5), (32_768, 4), (32_769, 5)]
)
def test_one_block_more_while_a_window_slides(context: int, blocks: int) -> None:
    """A window of 128 in blocks of 32: L tokens hold ceil(L / 32) - floor((L - 128) / 32)."""
    assert held_blocks(128, context, context - 1, 32) == blocks
    found = ASKED.plan(gpt_oss(), context)
    assert found.per_device == (blocks + -(-context // 32)) * 32 * 12 * 8 * 128 * 2


def test_gemma_4_has_no_other_manager() -> None:
    """Its layers that share a cache have rows of their own, in the window of the layer that they read."""
    states = {
        "w": Sliding(window=1024, kv_heads=16, head_dim=256),
        "f": Full(kv_heads=4, head_dim=512),
        "s": Shared(shares_with=4),
        "t": Shared(shares_with=5),
    }
    gemma4 = model(["w*5", "f", "s*5", "t"], 12, states, "gemma4_text", max_context=131_072)
    sequence = 1024 * 10 * 16 * 1024 + 32_768 * 2 * 4 * 2048
    found = ASKED.plan(gemma4, 32_768, **FIRST)
    assert found.per_device == sequence
    assert any("says nothing here" in note for note in found.notes)
    with pytest.raises(EngineRejectsError, match=r"1\.2 has no cache manager for this model"):
        ASKED.plan(gemma4, 32_768, version="1.2")


# ── pools ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("gib", "mib"), [(0.5, 2), (1, 2), (1.9, 2), (2, 4), (7.9, 8), (8, 16), (16, 32), (200, 32)])
def test_grains(gib: float, mib: int) -> None:
    assert grain_of(int(gib * GIB)) == mib * MIB


def test_one_pool_is_rounded_up_to_grains() -> None:
    """0.9 of 1,500,000,000 B: 643.7 grains of 2 MiB, and 322 blocks of 4 MiB in 644."""
    assert ASKED.capacity(llama(), 1_500_000_000, 8192).blocks == 322
    assert ASKED.capacity(llama(), 1_500_000_000, 8192, **FIRST).blocks == 321
    assert ASKED.capacity(llama(), 1_500_000_000, 8192, free_gpu_memory_fraction=1).blocks == 357


def test_scales_are_a_pool_of_their_own() -> None:
    """NVFP4: blocks of 1 MiB and of 128 KiB of scales; 30 grains of 2 MiB hold 52 of each in 26 and 4 of them."""
    found = ASKED.capacity(llama(), -(-60 * MIB * 10 // 9), 1024, kv_dtype="nvfp4")
    assert found.block_bytes == MIB + MIB // 8 == 32 * 32 * 2 * 8 * 128 * 9 // 16
    assert found.blocks == 26 * 2
    assert -(-52 // 16) == 4


def test_window_layers_of_the_same_size_share_a_pool() -> None:
    """gpt-oss: 12 full and 12 window layers; what a request of 32,768 tokens holds is counted in one pool."""
    found = ASKED.capacity(gpt_oss(), 20 * GIB, 32_768)
    block = 32 * 12 * 8 * 128 * 2
    assert found.blocks == 18 * GIB // block
    assert found.tokens == (found.blocks - 4) * 32
    assert found.sliding_tokens is None
    most = found.blocks // (1024 + 4)
    assert ASKED.capacity(gpt_oss(), 20 * GIB, 32_768, sequences=most).fits
    assert not ASKED.capacity(gpt_oss(), 20 * GIB, 32_768, sequences=most + 1).fits


def test_memory_is_divided_for_a_request_of_2049_tokens() -> None:
    """Gemma 3 27B: 33 blocks of windows and 65 of full layers, in grains of 32 MiB; 45 GiB are 1,440 of them.

    33 x 13.6 MB are 14 grains and 65 x 2.6 MB are 6: the full layers get 6 / 20 of 1,440 grains, and the windows the rest.
    """
    grain = 32 * MIB
    assert (-(-33 * WINDOWS // grain), -(-65 * WHOLE // grain)) == (14, 6)
    found = ASKED.capacity(load("gemma-3-27b"), 50 * GIB, 131_072)
    assert found.blocks == 432 * grain // WHOLE == 5529
    assert found.sliding_tokens == (1440 - 432) * grain // WINDOWS * 32 == 79_392
    assert found.tokens == 176_928
    assert found.fits
    assert not ASKED.capacity(load("gemma-3-27b"), 50 * GIB, 131_072, sequences=2).fits


def test_memory_is_divided_as_the_pool_ratio_says() -> None:
    found = ASKED.capacity(gemma3(62, 16, 128), 50 * GIB, 131_072, pool_ratio=[0.1, "0.9"])
    assert found.blocks == (1440 - 144) * 32 * MIB // WHOLE
    with pytest.raises(EngineRejectsError, match="3 weights, and the model's layers come in 2 life cycles"):
        ASKED.capacity(gemma3(62, 16, 128), 50 * GIB, 131_072, pool_ratio=[1, 1, 1])
    with pytest.raises(UsageError, match="every weight is a number greater than 0"):
        ASKED.capacity(gemma3(62, 16, 128), 50 * GIB, 131_072, pool_ratio=[1, 0])


def test_memory_is_divided_for_the_usual_length() -> None:
    """One prefill of 8,192 tokens and 3 requests of 16,384: 256 + 3 x 32 blocks of windows, 256 + 3 x 512 of full layers."""
    question = {"avg_seq_len": 16_384, "max_batch_size": 4}
    grain = 32 * MIB
    windows, whole = -(-(256 + 3 * 32) * WINDOWS // grain), -(-(256 + 3 * 512) * WHOLE // grain)
    assert (windows, whole) == (143, 140)
    found = ASKED.capacity(gemma3(62, 16, 128), 50 * GIB, 131_072, **question)
    assert found.blocks == round(1440 * 140 / 283) * grain // WHOLE
    assert found.fits
    with pytest.raises(EngineRejectsError, match="more than the 8,192 tokens of the longest request"):
        ASKED.capacity(gemma3(62, 16, 128), 50 * GIB, 8192, **question)


def test_a_limit_on_tokens_reserves_what_can_be_resumed() -> None:
    """200,000 tokens of 131,072 B / 0.95 are 823 grains of 32 MiB, 6,584 blocks instead of 6,250."""
    found = ASKED.capacity(llama(), 60 * GIB, 131_072, max_tokens=200_000)
    assert found.blocks == -(-200_000 * 131_072 * 20 // 19 // (32 * MIB)) * 32 * MIB // (32 * 131_072) == 6584
    assert ASKED.capacity(llama(), 60 * GIB, 131_072, max_tokens=200_000, max_util_for_resume=1).blocks == 6256


def test_state_slots_are_what_the_share_buys() -> None:
    """8 requests of 16,384 tokens and a dummy: 9 states for 8 x 512 blocks, in grains of 32 MiB."""
    state = 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 2)
    found = ASKED.capacity(qwen3_next(), 40 * GIB, 32_768, max_batch_size=8)
    assert found.state_slots is not None
    assert found.state_slots > 9
    assert found.blocks is not None
    assert found.state_slots * state + found.blocks * 32 * 24_576 <= 36 * GIB
    assert any("8 requests of 16,384 tokens (avg_seq_len is not set)" in note for note in found.notes)
    shorter = ASKED.capacity(qwen3_next(), 40 * GIB, 32_768, max_batch_size=8, avg_seq_len=2048)
    assert shorter.state_slots is not None
    assert shorter.state_slots > found.state_slots


# ── the arithmetic of pools ─────────────────────────────────────────────────────────────────────────────────────────────────

_SIZES = st.lists(st.integers(1, 3 * MIB), min_size=1, max_size=3)
_GROUPS = st.lists(_SIZES.map(lambda sizes: Group(tuple(sorted(sizes, reverse=True)), (0,), (Fraction(1),))), min_size=1, max_size=3)


@given(_SIZES, st.integers(0, 500))
def test_the_most_slots_within_grains(sizes: list[int], grains: int) -> None:
    group = Group(tuple(sizes), (0,), (Fraction(1),))
    slots = group.slots(grains, 2 * MIB)
    assert group.grains(slots, 2 * MIB) <= grains
    assert group.grains(slots + 1, 2 * MIB) > grains


@given(_GROUPS, st.integers(0, 40 * GIB), st.integers(1, 8192), st.lists(st.integers(0, 50), min_size=3, max_size=3))
def test_a_division_stays_within_the_memory_and_above_its_floors(groups: list[Group], quota: int, capacity: int, floors: list[int]) -> None:
    grain = grain_of(max(1, quota))
    ratio = [group.grains(slots, grain) for group, slots in zip(groups, batch_slots(groups, [Reference(1, capacity, 0)], 32), strict=True)]
    found = divide(quota, grain, groups, ratio, floors[: len(groups)])
    assert sum(group.grains(slots, grain) for group, slots in zip(groups, found, strict=True)) * grain < quota + grain
    assert not any(found) or all(slots >= floor for slots, floor in zip(found, floors, strict=False))


# ── families and releases ───────────────────────────────────────────────────────────────────────────────────────────────────


#: Families of which TensorRT-LLM has no class: their code lives beside their weights, or in MLX-LM.
UNSERVED = {
    *("Klear", "afm7", "baichuan_m1", "bailing_moe_linear", "gear", "lille-130m"),
    *("longcat_flash_ngram", "plamo", "plamo2", "talkie", "youtu_llm"),
}


def test_every_family_has_a_row_or_is_refused() -> None:
    assert set(INDEX) - set(FAMILIES) == UNSERVED
    assert set(FAMILIES) <= set(INDEX)
    assert all(TENSORRT.knows(family) == (family not in UNSERVED) for family in INDEX)
    assert not TENSORRT.knows("zzz")
    with pytest.raises(UnsupportedArchitectureError, match="no rule of tensorrt-llm for model_type 'zzz'"):
        ASKED.plan(llama(family="zzz"), 4096)


@pytest.mark.parametrize(
    ("model_id", "second"),
    [
        ("llama-3.1-8b", True),
        ("llama-4-scout-17b-16e", True),
        ("gpt-oss-20b", True),
        ("gemma-3-4b", True),
        ("gemma-4-31b", True),
        ("qwen3-next-80b-a3b", True),
        ("kimi-linear-48b-a3b", True),
        ("deepseek-v4-flash", True),
        ("gemma-2-9b", False),
        ("qwen3-8b", False),
        ("mistral-7b-v0.3", False),
        ("deepseek-v3", False),
        ("glm-5.2", False),
    ],
)
def test_the_manager_that_a_model_prefers(model_id: str, second: bool) -> None:
    found = ASKED.plan(load(model_id), 4096)
    assert any("which the model prefers" in note for note in found.notes) is second


def test_releases() -> None:
    assert ASKED.plan(llama(), 4096, version="1.2.1").version == "1.2 (source read)"
    assert ASKED.plan(llama(), 4096, version="main").version == TENSORRT.version
    for version in ("1.3", "0.9", "main2", "1.2.x"):
        with pytest.raises(UsageError, match="not a release that kvcalc knows"):
            ASKED.plan(llama(), 4096, version=version)
    with pytest.raises(EngineRejectsError, match="a prototype there"):
        ASKED.plan(llama(), 4096, version="1.2", **SECOND)


def test_settings_of_the_second_manager_say_nothing_to_the_first() -> None:
    found = ASKED.plan(llama(), 4096, avg_seq_len=2048, pool_ratio="0.5,0.5", **FIRST)
    assert "avg_seq_len and pool_ratio say nothing to the first cache manager" in found.notes
    with pytest.raises(UsageError, match="use_kv_cache_manager_v2"):
        ASKED.plan(llama(), 4096, use_kv_cache_manager_v2="maybe")


def test_kimi_k3_asks_for_blocks_of_64() -> None:
    assert ASKED.plan(load("kimi-k3"), 4096).args["tokens_per_block"] == 64
    assert ASKED.plan(load("kimi-k3"), 4096, tokens_per_block=32).args["tokens_per_block"] == 32
    assert sizes(ASKED.plan(load("kimi-k3"), 4096))["kda", "conv"] == 69 * 4 * 3 * 96 * 128 * 2
