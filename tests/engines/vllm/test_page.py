"""The page of vLLM: its commands run, its arithmetic adds up, its settings are the engine's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kvcalc.cli.app import main
from kvcalc.engines import get_engine
from kvcalc.questions.fit import fit
from kvcalc.questions.request import parse_request

PAGE = (Path(__file__).parents[3] / "docs" / "engines" / "vllm.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\$ kvcalc (.*)\n(.*)$", PAGE, re.MULTILINE)
ROWS = re.findall(r"^\| [^|]+ \| ([0-9,x/ ]+) \| ([0-9,]+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("command", "first_line"), EXAMPLES, ids=[command for command, _ in EXAMPLES])
def test_commands_print_what_the_page_says(
    command: str, first_line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["kvcalc", *shlex.split(command)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code in (0, None)
    assert capsys.readouterr().out.splitlines()[0] == first_line


@pytest.mark.parametrize(("arithmetic", "result"), ROWS)
def test_arithmetic_adds_up(arithmetic: str, result: str) -> None:
    first, *steps = arithmetic.replace(",", "").split()
    value = int(first)
    for sign, number in zip(steps[::2], steps[1::2], strict=True):
        value = value * int(number) if sign == "x" else value // int(number)
    assert value == int(result.replace(",", ""))


def test_the_log_line() -> None:
    tokens, context, concurrency = re.findall(r"cache size: ([0-9,]+) tokens.* for ([0-9,]+) tokens per request: ([0-9.]+)x", PAGE)[0]
    asked = {"model": "llama-3.1-8b", "engine": "vllm", "gpu": "h100-80gb", "kv_memory": "60GiB", "context": int(context.replace(",", ""))}
    found = fit(parse_request(asked)).capacity
    assert (f"{found.tokens:,}", f"{found.concurrency:.2f}") == (tokens, concurrency)


def test_settings_are_the_engines() -> None:
    table = PAGE.partition("## Settings")[2].partition("\n## ")[0]
    described = {word for cell in re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE) for word in re.findall(r"`(\w+)`", cell)}
    assert described == {setting.name for setting in get_engine("vllm").settings}
