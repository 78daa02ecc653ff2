"""The engine's page: its commands print what it says, its arithmetic adds up to their totals, its settings are the engine's."""

from __future__ import annotations

import math

import pytest
from pool_engines import GIB, described, examples, first_line, page, worked

from kvcalc.core.workload import Workload
from kvcalc.engines.lmdeploy.engine import LmDeploy
from kvcalc.sources import load


@pytest.mark.parametrize(("command", "printed"), examples("lmdeploy"))
def test_commands_print_what_the_page_says(
    command: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first_line(command, capsys, monkeypatch) == printed


def test_arithmetic_adds_up() -> None:
    rows = worked("lmdeploy")
    assert all(math.prod(factors) == product for factors, product in rows)
    totals = [int(printed.partition(" B ")[0].replace(",", "")) for _, printed in examples("lmdeploy")]
    assert totals == [rows[0][1], rows[1][1] + rows[2][1]]


def test_blocks_of_60_gib() -> None:
    assert (8192 + 2 * 1024) * 128_256 * 2 == 2_626_682_880
    found = LmDeploy().capacity(load("llama-3.1-8b"), Workload(context=8192, gpu="h100-80gb"), 60 * GIB)
    assert (found.blocks, found.tokens, found.block_bytes) == (5_893, 377_088, 8_388_608)
    assert "5,893 blocks" in page("lmdeploy")


def test_slots_of_qwen3_next() -> None:
    plan = LmDeploy().plan(load("qwen3-next-80b-a3b"), Workload(context=64, gpu="h100-80gb"))
    assert (plan.fixed, 1_026 * plan.fixed // 10**9) == (40_108_032, 41)


def test_settings_are_the_engines() -> None:
    assert described("lmdeploy") == {setting.name for setting in LmDeploy.settings}
