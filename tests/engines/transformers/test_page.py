"""The engine's page: its example prints what it says, its arithmetic adds up to it, its settings are the engine's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pool_engines import examples, first_line, page, worked

from kvcalc.engines.transformers.engine import Transformers

if TYPE_CHECKING:
    import pytest


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = next(command for command, _ in examples("transformers") if "--ctx 4000" in command)
    printed = next(printed for asked, printed in examples("transformers") if asked == command)
    assert first_line(command, capsys, monkeypatch) == printed
    rows = worked("transformers")
    assert all(math.prod(factors) == product for factors, product in rows)
    assert sum(product for _, product in rows) == int(printed.partition(" B ")[0].replace(",", ""))


def test_settings_are_the_engines() -> None:
    text = page("transformers").partition("## Dynamic")[0]
    assert all(f"`{setting.name}`" in text for setting in Transformers.settings)
