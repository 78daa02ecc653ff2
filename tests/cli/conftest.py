"""`ask("estimate", "llama-2-7b")`: one command line in this process, its exit code and what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import Answer, asking

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    return asking(capsys, monkeypatch)


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
