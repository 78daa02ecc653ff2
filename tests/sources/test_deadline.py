"""Servers that never end what they began: headers, `100 Continue`, bodies and trailers are all given up in time."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import HubUnavailableError
from kvcalc.sources.deadline import LateError, within
from kvcalc.sources.gguf import remote
from kvcalc.sources.hf import hub

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


#: What still hangs holds its socket until it ends with the process.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
def test_a_gguf_header_that_never_comes(monkeypatch: pytest.MonkeyPatch, opening: bytes) -> None:
    monkeypatch.setattr(remote, "DEADLINE", 0.3)
    with hanging(opening) as url, pytest.raises(HubUnavailableError, match="did not arrive within"):
        remote.load_url(f"{url}/m.gguf")


@pytest.mark.parametrize("opening", OPENINGS.values(), ids=OPENINGS)
def test_a_hub_that_never_answers(monkeypatch: pytest.MonkeyPatch, opening: bytes) -> None:
    monkeypatch.setattr(hub, "DEADLINE", 0.3)
    monkeypatch.setattr(hub, "PAUSE", 0)
    with hanging(opening) as url:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
        monkeypatch.setenv("HF_ENDPOINT", url)
        with pytest.raises(HubUnavailableError):
            hub.load_repo("org/name")


def test_what_ends_in_time_is_handed_on() -> None:
    place: ContextVar[int] = ContextVar("place", default=0)
    place.set(7)
    assert within(60, place.get) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)
    with pytest.raises(LateError):
        within(0, threading.Event().wait)
