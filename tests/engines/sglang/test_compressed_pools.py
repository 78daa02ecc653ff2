"""DeepSeek-V4: the window pool, compressed rows, and the compressor's rings. Figures are worked out in the test."""

from __future__ import annotations

import pytest
from pool_engines import GIB, SGLANG, Asked, sizes
from vllm_models import model

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Compressed, Latent
from kvcalc.sources import load

ASKED = Asked(SGLANG)
#: A page of 256 window rows of 584 B is padded to 576 B; so is one of 64 compressed rows, and one of 2.
WINDOW_PAGE, ROWS_4_PAGE, ROWS_128_PAGE = 149_760, 37_440, 1_728
#: Bytes of a token that is held in every pool: 0.1 of it in the window pool.
STATE = 2 * 2 * 512 * 4 + 2 * 2 * 128 * 4
TOKEN = 0.1 * (WINDOW_PAGE / 256 * 43 + 8 / 256 * STATE * 21) + 21 * (ROWS_4_PAGE / 64 + 132) / 4 + 20 * ROWS_128_PAGE / 2 / 128


def test_pages_are_padded() -> None:
    assert WINDOW_PAGE == -(-256 * 584 // 576) * 576
    assert ROWS_4_PAGE == -(-64 * 584 // 576) * 576
    assert ROWS_128_PAGE == -(-2 * 584 // 576) * 576


def test_the_price_of_a_token() -> None:
    """V4-Flash: 43 layers, 21 of ratio 4 and 20 of ratio 128."""
    assert pytest.approx(7_086.75) == TOKEN


def test_capacity() -> None:
    """The rings of ratio 128 come first: 256 requests by default, two more rings and a row, in whole groups of 128."""
    flash = load("deepseek-v4-flash")
    rings = -(-(257 * 128 + 128 + 1) // 128) * 128 * 2 * 512 * 4 * 20
    tokens = int((40 * GIB - rings) / TOKEN) // 256 * 256
    found = ASKED.capacity(flash, 40 * GIB, 65_536)
    assert (found.tokens, found.block_size, found.concurrency) == (tokens, 256, 256)
    assert found.sliding_tokens == int(tokens * 0.1) // 256 * 256


def test_a_plan() -> None:
    """16 sequences of 65,536 tokens; the window pool has a tenth of the tokens."""
    flash = load("deepseek-v4-flash")
    tokens = 16 * 65_536
    sliding = int(tokens * 0.1) // 256 * 256
    found = sizes(ASKED.plan(flash, 65_536, sequences=16))
    assert found["latent", "window"] == 43 * sliding // 256 * WINDOW_PAGE
    assert found["compressed", "latent"] == tokens // 256 * (21 * ROWS_4_PAGE + 20 * ROWS_128_PAGE)
    assert found["index", "index"] == 21 * tokens // 4 * 132
    assert found["state", "compressor"] == 21 * sliding // 256 * 8 * 2048 * 4 + 20 * 257 * 128 * 1024 * 4


def test_requests_set_the_rings() -> None:
    few, many = (ASKED.plan(load("deepseek-v4-flash"), 65_536, max_running_requests=count).per_device for count in (8, 512))
    assert many - few == 20 * 504 * 128 * 1024 * 4


def test_speculation_doubles_the_rings_and_adds_a_window() -> None:
    flash = load("deepseek-v4-flash")
    plain, drafting = (
        ASKED.plan(flash, 65_536, max_running_requests=8),
        ASKED.plan(flash, 65_536, max_running_requests=8, speculative_num_draft_tokens=4),
    )
    windows = [next(line for line in found.lines if line.buffer == "window").layers for found in (plain, drafting)]
    assert windows == [43, 44]
    with pytest.raises(EngineRejectsError, match="at most 10 tokens at once"):
        ASKED.plan(flash, 65_536, speculative_num_draft_tokens=11)


def test_what_is_refused() -> None:
    flash = load("deepseek-v4-flash")
    with pytest.raises(EngineRejectsError, match="in its sliding pools only"):
        ASKED.plan(flash, 65_536, disable_hybrid_swa_memory=True)
    with pytest.raises(EngineRejectsError, match="keeps DeepSeek-V4 in fp8_e4m3"):
        ASKED.plan(flash, 65_536, kv_dtype="bf16")
    odd = {"all": (Latent(latent_dim=448, rope_dim=64, window=128), Compressed(latent_dim=512, rope_dim=64, ratio=8))}
    with pytest.raises(UnsupportedArchitectureError, match="by 1, 2, 4 or 128"):
        ASKED.plan(model(["all"], 4, odd, "deepseek_v4", max_context=65_536), 4096)
    wide = {"all": (Latent(latent_dim=448, rope_dim=64, window=128), Compressed(latent_dim=1024, rope_dim=64, ratio=4))}
    with pytest.raises(UnsupportedArchitectureError, match="rows are 512 wide"):
        ASKED.plan(model(["all"], 4, wide, "deepseek_v4", max_context=65_536), 4096)


def test_the_smallest_pool_that_starts() -> None:
    """The window pool must hold more than 128 + 256 tokens, in pages of 256: 512 of them, a tenth of 5,120."""
    found = ASKED.plan(load("deepseek-v4-flash"), 256)
    assert found.args["max_total_tokens"] == 5120
    assert any("does not start with fewer than 5,120" in note for note in found.notes)
    small = ASKED.capacity(load("deepseek-v4-flash"), GIB // 2, max_running_requests=1)
    assert not small.fits or small.tokens


def test_v41_sizes_its_windows_by_requests() -> None:
    """DeepSeek-V4.1: 256 requests of a window, 128 tokens to evict, two pages, and the tails of four cached prefixes each."""
    flash = load("deepseek-v4.1-flash")
    cap = 256 * (128 + 128 + 256 + 256) + 2 * 8192 + 256
    tails = 4 * 256 * (128 + 256)
    found = ASKED.capacity(flash, 60 * GIB, 65_536)
    assert found.sliding_tokens == -(-(-(-cap // 256) * 256 + tails) // 256) * 256
    bare = ASKED.capacity(flash, 60 * GIB, 65_536, swa_prefix_tails=0)
    assert bare.sliding_tokens == -(-cap // 256) * 256
    with pytest.raises(EngineRejectsError, match="does not run on pipeline stages"):
        ASKED.plan(flash, 4096, pipeline_parallel=2)
    with pytest.raises(EngineRejectsError, match="DSpark only"):
        ASKED.plan(flash, 4096, speculative_num_draft_tokens=2)


def test_newer_rows_on_blackwell() -> None:
    """V4.1 on one SM100 card: window rows of 528 B; elsewhere those of V4."""
    flash = load("deepseek-v4.1-flash")
    older, newer = (ASKED.plan(flash, 65_536, gpu=gpu) for gpu in ("h100-80gb", "b200-180gb"))
    rows = [next(line for line in found.lines if line.buffer == "window").format for found in (older, newer)]
    assert rows == ["dsv4_fp8", "dsv41_mxfp8"]
