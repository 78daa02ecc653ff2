"""The engine's page: its commands print what it says, its arithmetic adds up to their totals, its settings are the engine's."""

from __future__ import annotations

import math

import pytest
from pool_engines import GIB, TENSORRT, Asked, described, examples, first_line, page, worked
from vllm_models import qwen3_next

from kvcalc.sources import load

ASKED = Asked(TENSORRT)


@pytest.mark.parametrize(("command", "printed"), examples("tensorrt-llm"))
def test_commands_print_what_the_page_says(
    command: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first_line(command, capsys, monkeypatch) == printed


def test_arithmetic_adds_up() -> None:
    rows = worked("tensorrt-llm")
    assert all(math.prod(factors) == product for factors, product in rows)
    totals = [int(printed.partition(" B ")[0].replace(",", "")) for _, printed in examples("tensorrt-llm")]
    products = [product for _, product in rows]
    assert totals == [sum(products[:2]), products[2]]


def test_equal_shares_of_40_gib() -> None:
    question = {"max_attention_window": [128, 32_768], "sequences": 16, "use_kv_cache_manager_v2": "false"}
    found = ASKED.capacity(load("gpt-oss-120b"), 40 * GIB, 32_768, **question)
    assert (found.tokens, found.sliding_tokens, found.fits) == (524_288, 524_288, True)
    assert not ASKED.capacity(load("gpt-oss-120b"), 40 * GIB, 32_768, **question | {"sequences": 17}).fits
    assert 16 * 128 == 2048


def test_one_pool_of_40_gib() -> None:
    """18 layers x 2 x 8 x 64 x 2 B x 32 tokens; a sequence takes 1,024 blocks in full layers and 4 in the others."""
    block = 18 * 2 * 8 * 64 * 2 * 32
    found = ASKED.capacity(load("gpt-oss-120b"), 40 * GIB, 32_768, sequences=31)
    assert (block, found.blocks, found.fits) == (1_179_648, 36 * GIB // block, True)
    assert found.blocks == 32_768
    assert 32_768 // (1024 + 4) == 31
    assert not ASKED.capacity(load("gpt-oss-120b"), 40 * GIB, 32_768, sequences=32).fits


def test_state_of_the_default_batch() -> None:
    assert round(2049 * ASKED.plan(qwen3_next(), 8192).fixed / GIB) == 75
    assert "75 GiB for Qwen3-Next" in " ".join(page("tensorrt-llm").split())


def test_settings_are_the_engines() -> None:
    assert described("tensorrt-llm") == {setting.name for setting in TENSORRT.settings}
    assert "read in source" in page("tensorrt-llm")
