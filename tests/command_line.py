"""One command line in this process: `ask("estimate", "llama-2-7b")` is its exit code and what it wrote."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.cli.app import run
from kvcalc.sources import resolve

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


#: `kvcalc …` as a process that Ctrl-C reaches, also where the tests run in the background and ignore it themselves.
INTERRUPTIBLE = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, [sys.executable, '-m', 'kvcalc', *sys.argv[1:]])",
)


class Answer(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def asking(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """What runs a command line; its standard input may be text or bytes."""

    def answer(*arguments: str, stdin: str | bytes = b"") -> Answer:
        given = stdin if isinstance(stdin, bytes) else stdin.encode("utf-8", "surrogateescape")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        resolve._from_stdin.cache_clear()  # another process would read its own
        capsys.readouterr()
        code = run(arguments)
        return Answer(code, *capsys.readouterr())

    return answer
