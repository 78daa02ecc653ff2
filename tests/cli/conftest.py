"""`ask("estimate", "llama-2-7b")`: one command line in this process, its exit code and what it wrote."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kvcalc.cli.app import run

if TYPE_CHECKING:
    from collections.abc import Callable


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    def answer(*arguments: str, stdin: str = "") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogateescape"))))
        capsys.readouterr()
        code = run(arguments)
        written = capsys.readouterr()
        return Answer(code, written.out, written.err)

    return answer


@pytest.fixture
def refused(ask: Callable[..., Answer]) -> Callable[..., str]:
    """The one sentence of a command line that must fail with `code`, and must write nothing to stdout."""

    def sentence(code: int, *arguments: str, stdin: str = "") -> str:
        answer = ask(*arguments, stdin=stdin)
        assert answer.code == code, answer
        assert answer.out == ""
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1
        assert "Traceback" not in answer.err
        return answer.err

    return sentence
