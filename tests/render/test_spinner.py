"""The spinner is drawn only on a terminal, and only for what takes long."""

from __future__ import annotations

import io
import sys
import threading
from typing import TYPE_CHECKING

from kvcalc.render import spinner

if TYPE_CHECKING:
    import pytest


class Terminal(io.StringIO):
    """A stderr that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_nothing_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(spinner, "PATIENCE", 0.0)
    with spinner.spinner("asking the Hub"):
        pass
    assert stream.getvalue() == ""


def test_nothing_for_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with spinner.spinner("asking the Hub"):
        pass
    assert stream.getvalue() == ""


def test_the_message_for_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    drawn = threading.Event()
    write = stream.write

    def note(text: str) -> int:
        written = write(text)
        if "asking the Hub" in stream.getvalue():
            drawn.set()
        return written

    monkeypatch.setattr(stream, "write", note)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(spinner, "PATIENCE", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with spinner.spinner("asking the Hub\x1b[31m"):
        assert drawn.wait(10)
    assert "\x1b[31m" not in stream.getvalue().replace("\x1b[32m", "")
