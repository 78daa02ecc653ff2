"""What stands in a budget file reaches the log of a CI job, and must not command it: GitHub, Azure and TeamCity obey lines of a log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.units import clean
from kvcalc.render import FORMATS
from kvcalc.render.reports import REPORTS

if TYPE_CHECKING:
    from conftest import Repository

COMMANDS = (
    *("::set-output name=x::y", "  ::add-mask::y", "::stop-commands::z", "x\r\n::error::y", "x\u2028::error::y", "%0A::error::y"),
    *("##[add-mask]y", "x ##[stop-commands]y", "##vso[task.setvariable variable=x]y", "##teamcity[buildStop]", "###[error]y"),
    *("\x1b[31m::error::y", "\u202e", "]]>", "<script>", "|a|\n|-|", "`kvcalc`"),
)
#: The only commands that kvcalc gives: annotations of a file.
OURS = re.compile(r"::(?:error|warning) (?:file=[^,:\r\n]+,line=[1-9][0-9]*,)?title=[^,:\r\n]+::[^\r\n]+")
OBEYED = re.compile(r"##\w*\[")
BUDGET: dict[str, Any] = {"context": 16_384, "limits": {"total": "1GiB"}}


def commanded(text: str) -> list[str]:
    """The lines that a runner would obey, or a terminal."""
    lines = text.split("\n")
    return [
        line
        for line in lines
        if (line.lstrip().startswith("::") and not OURS.fullmatch(line)) or OBEYED.search(line) or not line.isprintable()
    ]


@pytest.mark.parametrize("place", ["name", "message", "model", "engine", "kv_dtype", "gpu", "context", "unknown key", "limit", "setting"])
def test_no_text_of_a_budget_is_a_command(repository: Repository, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    summary = repository.folder / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    for text in COMMANDS:
        changed = {
            "unknown key": {text: 1},
            "limit": {"limits": {text: "1GiB"}},
            "setting": {"engine": "vllm", "engine_args": {text: 1}},
        }.get(place, {place: text})
        repository.budgets(BUDGET | changed)
        for name in dict.fromkeys((*FORMATS, *REPORTS)):
            code, out, err = repository.kvcalc("check", "--format", name)
            assert code in (1, 2), (text, name)
            assert commanded(err) == [], (text, name)
            assert commanded(out) == [], (text, name)
    assert not summary.exists() or commanded(summary.read_text()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate"],
        ["estimate", "gpt2", "-e"],
        ["estimate", "gpt2", "--set"],
        ["explain"],
        ["compare", "-t"],
        ["check"],
        ["check", "--only"],
        [],
    ],
)
def test_no_argument_is_a_command(repository: Repository, arguments: list[str]) -> None:
    """A pull request's title or a file's name, handed on by a workflow."""
    for text in COMMANDS:
        code, out, err = repository.kvcalc(*arguments, text)
        assert code in (2, 3), text
        assert commanded(out) + commanded(err) == [], text


def test_what_is_no_command_stays_as_it_is() -> None:
    for text in ("a::b", "std::vector", "## [x]", "#[x]", "x # y", "llama-3.1-8b", "org/name@v1", "C::D"):
        assert clean(text) == text
    assert clean("::error::x") == ": :error::x"
    assert clean("see ##vso[x]") == "see # #vso[x]"
