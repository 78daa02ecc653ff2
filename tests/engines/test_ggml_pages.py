"""The pages of llama.cpp and Ollama: their commands run, their arithmetic adds up, their settings are the engines'."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import pytest

from kvcalc.cli.app import main
from kvcalc.engines import get_engine

PAGES = Path(__file__).parents[2] / "docs" / "engines"
NAMES = ("llama.cpp", "ollama")


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


EXAMPLES = [(name, *example) for name in NAMES for example in re.findall(r"^\$ kvcalc (.*)\n(.*)$", page(name), re.MULTILINE)]


@pytest.mark.parametrize(("name", "command", "first_line"), EXAMPLES, ids=[command for _, command, _ in EXAMPLES])
def test_commands_print_what_the_page_says(
    name: str, command: str, first_line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["kvcalc", *shlex.split(command)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code in (0, None)
    assert capsys.readouterr().out.splitlines()[0] == first_line, name


@pytest.mark.parametrize("name", NAMES)
def test_arithmetic_adds_up(name: str) -> None:
    rows = re.findall(r"^\| [^|]+ \| ([0-9x ]+) \| ([0-9,]+) \|$", page(name), re.MULTILINE)
    assert rows
    for factors, product in rows:
        assert math.prod(int(factor) for factor in factors.split(" x ")) == int(product.replace(",", ""))


@pytest.mark.parametrize("name", NAMES)
def test_settings_are_the_engines(name: str) -> None:
    table = page(name).partition("## Settings")[2].partition("\n## ")[0]
    described = {word for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for word in re.findall(r"`(\w+)`", cell)}
    assert described == {setting.name for setting in get_engine(name).settings}
