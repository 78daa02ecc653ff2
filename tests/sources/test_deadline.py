"""Servers that never end what they began: headers, `100 Continue`, bodies and trailers are all given up in time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import EXIT_NOT_EVALUATED
from kvcalc.sources.deadline import LateError, within

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENINGS = {
    "nothing": b"",
    "status line": b"HTTP/1.1 200 OK\r\nX-",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n",
    "header": b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-65535/65536\r\nContent-Length: 65536\r\nX-A: b\r\n",
    "body": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nGGUF\r\n",
    "trailer": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nGGUF\r\n0\r\nX-A: b\r\n",
}


@contextmanager
def hanging(opening: bytes) -> Iterator[str]:
    """A server that sends `opening` to whoever asks, and then a little more whenever the last little was taken, without end."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            while not over.is_set():
                client, _ = listener.accept()
                threading.Thread(target=trickle, args=(client,), daemon=True).start()

    def trickle(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            client.sendall(opening)
            while not over.wait(0.02):
                client.sendall(opening if b"100 Continue" in opening else b"a")

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        listener.close()


def asked(call: str, model: str, **environment: str) -> tuple[int, str]:
    """Exit code and message of a question in a process of its own, whose patience is short: what hangs ends with it."""
    module, _, function = call.rpartition(".")
    code = (
        f"import sys; import {module} as module; from kvcalc.core.errors import KvcalcError; module.DEADLINE = 0.3; module.PAUSE = 0\n"
        f"try: module.{function}({model!r})\n"
        "except KvcalcError as error: print(error.message); sys.exit(error.exit_code)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60
    )
    return found.returncode, found.stdout + found.stderr


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
def test_a_gguf_header_that_never_comes(opening: bytes) -> None:
    with hanging(opening) as url:
        code, said = asked("kvcalc.sources.gguf.remote.load_url", f"{url}/m.gguf")
    assert code == EXIT_NOT_EVALUATED
    assert "did not arrive within" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
def test_a_hub_that_never_answers(opening: bytes) -> None:
    with hanging(opening) as url:
        code, said = asked("kvcalc.sources.hf.hub.load_repo", "org/name", HF_ENDPOINT=url)
    assert code == EXIT_NOT_EVALUATED
    assert "Traceback" not in said


def test_what_ends_in_time_is_handed_on() -> None:
    place: ContextVar[int] = ContextVar("place", default=0)
    place.set(7)
    assert within(60, place.get) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)
    with pytest.raises(LateError):
        within(0, threading.Event().wait)
