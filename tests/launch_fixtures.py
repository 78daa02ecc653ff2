"""`ask("launch", …)`: one command line in this process; `read("vllm serve …")`: what is read from a launch command."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from command_line import Answer, asking

from kvcalc.launch.ask import read_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.engines.base.reading import Reading


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return asking(capsys, monkeypatch)


@pytest.fixture
def read() -> Callable[[str], Reading]:
    """What is read from a command, as words and as one text: the same."""

    def reading(command: str) -> Reading:
        words = read_command(shlex.split(command))
        assert read_command([f"{command} "]) == words
        return words

    return reading
