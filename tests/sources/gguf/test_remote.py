"""GGUF over HTTP, against a local server that speaks ranges, redirects and refusals."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from gguf_writer import gguf_bytes

from kvcalc.core.errors import GatedError, HubUnavailableError, InvalidConfigError, KvcalcError, NotFoundError, UsageError
from kvcalc.core.units import KIB, MIB
from kvcalc.sources.gguf import remote as gguf_remote
from kvcalc.sources.gguf.remote import load_url

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.context_length": 2048,
    "llama.embedding_length": 256,
    "llama.attention.head_count": 4,
}
#: Half a mebibyte of keys before the architecture's, so that one block is not enough.
SLOW = {"general.architecture": "llama"} | {f"general.tag{i}": "x" * 4000 for i in range(130)} | LLAMA
DATA = gguf_bytes(LLAMA) + bytes(2 * MIB)


@dataclass
class File:
    """How the server answers for one path."""

    data: bytes = DATA
    status: int = 206
    location: str = ""
    ranges: bool = True
    cut: bool = False
    content_range: str = ""
    total: str = ""


@dataclass
class Seen:
    """What the server was asked."""

    ranges: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    sent: int = 0


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files: dict[str, File]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.seen = Seen()

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are expected."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        seen = self.server.seen
        seen.ranges.append(self.headers.get("Range", ""))
        seen.tokens.append(self.headers.get("Authorization", ""))
        file = self.server.files.get(self.path.partition("?")[0])
        if file is None:
            self.send_error(404)
        elif file.location:
            self.send_response(302)
            self.send_header("Location", file.location)
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
        elif file.status >= 400:
            self.send_error(file.status)
        else:
            self._send(file)

    def _send(self, file: File) -> None:
        start, end = 0, len(file.data) - 1
        if file.ranges:
            asked = self.headers["Range"].removeprefix("bytes=").split("-")
            start, end = int(asked[0]), min(int(asked[1]), end)
            if start > end:
                self.send_error(416)
                return
        body = file.data[start : end + 1]
        self.send_response(206 if file.ranges else 200)
        if file.ranges:
            self.send_header("Content-Range", file.content_range or f"bytes {start}-{end}/{file.total or len(file.data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: len(body) // 2] if file.cut else body
        for i in range(0, len(body), 64 * KIB):
            self.wfile.write(body[i : i + 64 * KIB])
            self.server.seen.sent += 64 * KIB
        self.close_connection = True


@contextmanager
def serving(**files: File) -> Iterator[tuple[str, Seen]]:
    server = Server({f"/{name}.gguf": file for name, file in files.items()})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_one_range_is_enough_for_a_normal_file() -> None:
    with serving(m=File()) as (url, seen):
        found = load_url(f"{url}/m.gguf?signature=secret")
    assert (found.id, found.layers.count) == ("m", 4)
    assert seen.ranges == ["bytes=0-65535"]
    assert found.source is not None
    assert "secret" not in found.source.file


def test_ranges_grow_as_the_header_needs_them() -> None:
    with serving(m=File(gguf_bytes(SLOW) + bytes(MIB))) as (url, seen):
        assert load_url(f"{url}/m.gguf").layers.count == 4
    sizes = [int(end) - int(start) + 1 for start, end in (text.removeprefix("bytes=").split("-") for text in seen.ranges)]
    assert len(sizes) > 2
    assert sizes == sorted(sizes)
    assert sum(sizes) < 2 * MIB


def test_a_redirect_keeps_the_range_and_loses_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(real=File()) as (store, seen), serving(m=File(location=f"{store}/real.gguf?sig=1")) as (hub, asked):
        monkeypatch.setenv("HF_ENDPOINT", hub)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        found = load_url(f"{hub}/m.gguf")
    assert asked.tokens == ["Bearer hf_secret"]
    assert (seen.tokens, seen.ranges) == ([""], ["bytes=0-65535"])
    assert found.source is not None
    assert found.source.revision == COMMIT
    assert "hf_secret" not in repr(found)


def test_a_redirect_on_the_same_host_keeps_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(real=File(), m=File(location="/real.gguf")) as (hub, seen):
        monkeypatch.setenv("HF_ENDPOINT", hub)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        load_url(f"{hub}/m.gguf")
    assert seen.tokens == ["Bearer hf_secret"] * 2


def test_a_server_without_ranges_is_hung_up_on() -> None:
    with serving(m=File(gguf_bytes(LLAMA) + bytes(64 * MIB), ranges=False)) as (url, seen):
        assert load_url(f"{url}/m.gguf").layers.count == 4
    assert seen.sent < 32 * MIB


def test_a_split_file_is_read_from_its_first_part() -> None:
    name = "m-0000{}-of-00002"
    with serving(**{name.format(1): File(), name.format(2): File(b"GGUF")}) as (url, _):
        assert load_url(f"{url}/{name.format(2)}.gguf").id == "m"


@pytest.mark.parametrize(
    ("file", "error", "why"),
    [
        (File(status=401), GatedError, "401"),
        (File(status=403), GatedError, "may not be read"),
        (File(status=404), NotFoundError, "does not exist"),
        (File(status=429), HubUnavailableError, "limits the rate"),
        (File(status=500), HubUnavailableError, "HTTP 500"),
        (File(cut=True), HubUnavailableError, "broke off"),
        (File(gguf_bytes(SLOW), cut=True, ranges=False), HubUnavailableError, "broke off"),
        (File(content_range="bytes 5-9/10"), HubUnavailableError, "makes no sense"),
        (File(content_range="lines 0-9"), HubUnavailableError, "makes no sense"),
        (File(location="file:///etc/passwd"), HubUnavailableError, "not https"),
        (File(location="http://example.com/x.gguf"), HubUnavailableError, "not https"),
        (File(gguf_bytes(LLAMA)[:100]), InvalidConfigError, "ends at byte 100"),
        (File(gguf_bytes(LLAMA)[:100], total="*"), InvalidConfigError, "ends at byte 100"),
        (File(gguf_bytes(LLAMA)[:100], ranges=False), InvalidConfigError, "ends at byte 100"),
        (File(b"<html>not found</html>"), InvalidConfigError, "begins with"),
    ],
)
def test_answers_that_are_no_file(file: File, error: type[KvcalcError], why: str) -> None:
    with serving(m=file) as (url, _), pytest.raises(error, match=why):
        load_url(f"{url}/m.gguf")


@pytest.mark.parametrize(
    ("environment", "location"),
    [
        ({"HF_TOKEN": "hf_secret\r\nX-Evil: b"}, ""),
        ({"http_proxy": "socks5://user:hf_secret@127.0.0.1:9"}, ""),
        ({"http_proxy": "http://[::1"}, ""),
        ({}, "http://[::1"),
    ],
)
def test_what_cannot_even_be_sent(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], location: str) -> None:
    with serving(m=File(location=location)) as (url, _):
        for name, value in ({"HF_ENDPOINT": url} | environment).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(HubUnavailableError, match=r"cannot be asked for|could not be read") as caught:
            load_url(f"{url}/m.gguf")
    said = caught.value.message + caught.value.hint
    assert "secret" not in said
    assert said.isprintable()
    assert not any(word in said.lower() for word in ("valueerror", ": str", "urlopen"))


@pytest.mark.parametrize("total", ["0", "10", "999999999999999999"])
def test_a_size_that_lies_is_not_believed(total: str) -> None:
    """What arrived is what counts."""
    with serving(m=File(total=total)) as (url, _):
        assert load_url(f"{url}/m.gguf").layers.count == 4


def test_redirects_end() -> None:
    with serving(m=File(location="/m.gguf")) as (url, seen), pytest.raises(HubUnavailableError, match="without end"):
        load_url(f"{url}/m.gguf")
    assert len(seen.ranges) <= gguf_remote.MOST_REDIRECTS + 1


def test_nobody_listens() -> None:
    with serving() as (url, _):
        pass
    with pytest.raises(HubUnavailableError, match="could not be read"):
        load_url(f"{url}/m.gguf")


def test_a_header_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_remote, "DEADLINE", -1)
    with serving(m=File()) as (url, _), pytest.raises(HubUnavailableError, match="did not arrive"):
        load_url(f"{url}/m.gguf")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/m.gguf",
        "ftp://example.com/m.gguf",
        "https://user:password@example.com/m.gguf",
        "https:///m.gguf",
        "https://example.com/a b.gguf",
        "https://[::1/m.gguf",
        "https://example.com:port/m.gguf",
    ],
)
def test_addresses_that_are_not_asked(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_url(url)
    assert "password" not in caught.value.message.replace("a password", "")


def test_offline_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubUnavailableError, match="switched off"):
        load_url("https://example.com/m.gguf")
