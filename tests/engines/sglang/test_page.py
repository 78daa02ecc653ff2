"""The engine's page: its commands print what it says, its arithmetic adds up to their totals, its settings are the engine's."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from pool_engines import SGLANG, described, examples, first_line, page, worked

from kvcalc.engines.sglang.classes import CLASSES


@pytest.mark.parametrize(("command", "printed"), examples("sglang"))
def test_commands_print_what_the_page_says(
    command: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first_line(command, capsys, monkeypatch) == printed


def test_arithmetic_adds_up() -> None:
    rows = worked("sglang")
    assert all(math.prod(factors) == product for factors, product in rows)
    totals = [int(printed.partition(" B ")[0].replace(",", "")) for _, printed in examples("sglang")]
    products = [product for _, product in rows]
    assert totals == [sum(products[:3]), sum(products[3:])]
    assert int(0.8 * 131_072) == 104_857


def test_settings_and_classes_are_the_engines() -> None:
    assert described("sglang") == {setting.name for setting in SGLANG.settings}
    assert f"for {sum(rule.windows is not None for rule in CLASSES.values())} classes only" in page("sglang")
    measured = (Path(__file__).parent / "measured.jsonl").read_text(encoding="utf-8")
    assert f"{measured.count('kv_memory')} of their answers" in page("sglang")
