"""The engine's page: its commands print what it says, its arithmetic adds up to their totals, its settings are the engine's."""

from __future__ import annotations

import math

import pytest
from pool_engines import described, examples, first_line, worked

from kvcalc.engines.exllamav3.engine import ExllamaV3


@pytest.mark.parametrize(("command", "printed"), examples("exllamav3"))
def test_commands_print_what_the_page_says(
    command: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first_line(command, capsys, monkeypatch) == printed


def test_arithmetic_adds_up() -> None:
    rows = worked("exllamav3")
    assert all(math.prod(factors) == product for factors, product in rows)
    totals = [int(printed.partition(" B ")[0].replace(",", "")) for _, printed in examples("exllamav3")]
    products = [product for _, product in rows]
    assert totals == [products[0], products[1] + products[2], products[3] + products[4]]


def test_settings_are_the_engines() -> None:
    assert described("exllamav3") == {setting.name for setting in ExllamaV3.settings}
