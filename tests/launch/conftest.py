"""`ask("launch", …)`: one command line in this process; `read("vllm serve …")`: what is read from a launch command."""

from __future__ import annotations

import io
import json
import shlex
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kvcalc.cli.app import run
from kvcalc.launch.ask import read_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.launch.reading import Reading


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def answer(*arguments: str, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = run(arguments)
        written = capsys.readouterr()
        return Answer(code, written.out, written.err)

    return answer


@pytest.fixture
def read() -> Callable[[str], Reading]:
    """What is read from a command, as words and as one text: the same."""

    def reading(command: str) -> Reading:
        words = read_command(shlex.split(command))
        assert read_command([f"{command} "]) == words
        return words

    return reading
