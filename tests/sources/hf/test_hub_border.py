"""A Hub that lies, stalls or never ends, through the real client: an answer or a sentence, no byte outside the cache, no token abroad.

One process asks about every repository, as a batch does: what one of them does to the client must not reach the next.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from kvcalc.core.errors import UnknownModelError
from kvcalc.sources.hf import hub, hub_guard
from kvcalc.sources.hf.hub_guard import Stopped, guarded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "hf_averysecrettoken"  # noqa: S105  not a real one
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = b'{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 512}'
#: 2 layers x 2 x 64 x 2 B a token (no dtype: bf16 assumed).
PER_TOKEN = 512
FILE = {"X-Repo-Commit": COMMIT, "ETag": '"9b74c9897bac770ffc029102a200c5de"'}
ABSENT = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}


@dataclass(frozen=True)
class Answer:
    """How one request is answered; `length` is what the answer claims, `times` how often its body is sent."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: FILE)
    body: bytes = CONFIG
    length: str | None = "right"
    times: int = 1


@dataclass(frozen=True)
class Odd:
    """A repository: its answers to HEAD, to GET (the last one again and again), and to a question for its files."""

    head: tuple[Answer, ...] = (Answer(),)
    get: tuple[Answer, ...] = (Answer(),)
    listing: Answer = Answer(404)


def with_headers(**more: str) -> Answer:
    return Answer(headers=FILE | {key.replace("_", "-"): value for key, value in more.items()})


def listed(body: object) -> Odd:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Odd(head=(Answer(404, ABSENT, b"{}"),), listing=Answer(200, {}, data))


#: More than any test waits for: a client that reads to the end is seen by the server's count.
ENDLESS = 10**6
MEBIBYTE = b" " * 1024**2
BOMB = gzip.compress(b" " * 10**7)

GOOD = Odd()
#: Repositories that are answered all the same.
ANSWERED = {
    "good": GOOD,
    "unavailable-once": Odd(head=(Answer(503), Answer())),
    "unavailable-once-in-the-middle": Odd(get=(Answer(502, {}), Answer())),
    "another-protocol": Odd(head=(with_headers(X_Xet_Hash="ab" * 32, Link='<{abroad}/steal>; rel="xet-auth"'),)),
    "elsewhere": Odd(head=(with_headers(Location="{abroad}/x/y"),), get=(with_headers(Location="{abroad}/x/y"),)),
    "elsewhere-signed": Odd(head=(Answer(302, FILE | {"Location": "{abroad}/org/good?sig=1", "X-Linked-Size": str(len(CONFIG))}),)),
    "elsewhere-of-unknown-size": Odd(head=(Answer(302, FILE | {"Location": "{abroad}/org/good?sig=1"}),)),
}
#: Repositories that are not, with words of the sentence.
REFUSED = {
    "unavailable": (Odd(head=(Answer(503),)), "HTTP 503"),
    "limited": (Odd(head=(Answer(429, {"Retry-After": "3600", "RateLimit": '"api";r=0;t=3600'}),)), "HTTP 429"),
    "limited-in-the-middle": (Odd(get=(Answer(429, {"Retry-After": "3600"}),)), "HTTP 429"),
    "timed-out-in-the-middle": (Odd(get=(Answer(408, {"Retry-After": "3600"}),)), "HTTP 408"),
    "endless": (Odd(head=(Answer(length=None),), get=(Answer(body=MEBIBYTE, times=ENDLESS, length=None),)), "no copy is cached"),
    "endless-after-a-small-size": (Odd(get=(Answer(body=MEBIBYTE, times=ENDLESS, length=None),)), "more than 8,388,608 bytes"),
    "large-after-a-small-size": (Odd(get=(Answer(length=str(10**12)),)), "more than 8,388,608 bytes"),
    "longer-than-it-said": (Odd(get=(Answer(body=CONFIG + b" " * 100),)), "broke off"),
    "a-bomb": (Odd(get=(Answer(headers=FILE | {"Content-Encoding": "gzip"}, body=BOMB, times=9),)), "compressed, which was not asked for"),
    "a-page": (Odd((Answer(200, {}, b"<html>"),), (Answer(200, {}, b"<html>"),)), "broke off"),
    "a-commit-that-leads-out": (Odd(head=(with_headers(X_Repo_Commit="../../../../../escaped"),)), "makes no sense (X-Repo-Commit)"),
    "a-tag-that-leads-out": (Odd(head=(with_headers(ETag='"../../../../../escaped"'),)), "makes no sense (ETag)"),
    "a-linked-tag-that-leads-out": (Odd(head=(with_headers(X_Linked_ETag='"/tmp/escaped"'),)), "makes no sense (X-Linked-ETag)"),
    "a-tag-without-end": (Odd(head=(with_headers(ETag='"' + "a" * 5000 + '"'),)), "makes no sense (ETag)"),
    "a-size-that-is-none": (Odd(head=(with_headers(X_Linked_Size="-1"),)), "makes no sense (X-Linked-Size)"),
    "a-range-that-is-none": (Odd(get=(with_headers(Content_Range="bytes x/y"),)), "makes no sense (Content-Range)"),
    "a-length-that-is-none": (Odd(head=(Answer(length="abc"),)), "broke off"),
    "unencrypted": (Odd(head=(Answer(302, FILE | {"Location": "http://192.0.2.1/x"}),)), "not https"),
    "a-file-of-this-machine": (Odd(head=(Answer(302, FILE | {"Location": "file:///etc/passwd"}),)), "no copy is cached"),
    "round-and-round": (
        Odd(head=(Answer(302, FILE | {"Location": "/org/round-and-round/resolve/main/config.json"}),)),
        "no copy is cached",
    ),
    "ten-thousand-files": (listed({"id": "a/b", "siblings": [{"rfilename": f"p-{i}.gguf"} for i in range(10_000)]}), "and 9994 more"),
    "files-as-a-page": (listed(b"<html>"), "has no config.json"),
    "files-as-a-list": (listed([1, 2]), "has no config.json"),
    "files-of-another-shape": (listed({"siblings": [{"rfilename": 5}, 5, {}]}), "has no config.json"),
    "files-named-to-drive-a-terminal": (listed({"id": "a/b", "siblings": [{"rfilename": "\x1b[2J\n::error::x.gguf"}]}), "�[2J�::error::x"),
}


class Server(ThreadingHTTPServer):
    """The repositories, what was asked with which token, and how much was sent."""

    daemon_threads = True

    def __init__(self, repos: dict[str, Odd]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repos = repos
        self.tokens: set[str] = set()
        self.sent = 0
        self.seen: dict[tuple[str, str], int] = {}
        self.abroad = ""

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are expected."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version: ClassVar[str] = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer("HEAD")

    def do_GET(self) -> None:
        self._answer("GET")

    def _answer(self, method: str) -> None:
        self.server.tokens.add(self.headers.get("Authorization", ""))
        parts = self.path.partition("?")[0].strip("/").split("/")
        name = parts[3 if parts[0] == "api" else 1]
        repo = self.server.repos[name]
        answers = (repo.listing,) if parts[0] == "api" else repo.head if method == "HEAD" else repo.get
        count = self.server.seen.get((method, name), 0)
        self.server.seen[method, name] = count + 1
        self._send(answers[min(count, len(answers) - 1)], with_body=method == "GET")

    def _send(self, answer: Answer, *, with_body: bool) -> None:
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value.format(abroad=self.server.abroad))
        chunked = answer.length is None and with_body
        if chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif answer.length is not None:
            size = str(len(answer.body) * answer.times)
            self.send_header("Content-Length", size if answer.length == "right" else answer.length)
        self.end_headers()
        for _ in range(answer.times if with_body else 0):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(answer.body), answer.body) if chunked else answer.body)
            self.server.sent += len(answer.body)


@contextmanager
def serving(repos: dict[str, Odd]) -> Iterator[tuple[Server, Server]]:
    """The Hub, and a store on another port, which is another host to a client."""
    servers = Server(repos), Server({"good": GOOD, "y": GOOD, "steal": GOOD})
    servers[0].abroad = servers[1].url
    threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield servers
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()


def kvcalc(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(
        [sys.executable, "-m", "kvcalc", *arguments],
        input=stdin,
        env={**os.environ, "HF_TOKEN": TOKEN, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=100,
    )
    assert "Traceback" not in found.stderr
    assert TOKEN not in found.stdout + found.stderr
    return found


def test_every_way_to_answer_wrongly(tmp_path: Path) -> None:
    repos = ANSWERED | {name: repo for name, (repo, _) in REFUSED.items()}
    lines = "".join(json.dumps({"id": name, "command": "estimate", "model": f"org/{name}"}) + "\n" for name in [*repos, "good"])
    cache = tmp_path / "a" / "b" / "c" / "d" / "e" / "f"
    with serving(repos) as (hub, store):
        found = kvcalc("batch", stdin=lines, HF_ENDPOINT=hub.url, HF_HOME=str(cache))
    answers = [json.loads(line) for line in found.stdout.splitlines()]
    assert (found.returncode, found.stderr) == (3, "")
    for answer in answers:
        if answer["id"] in ANSWERED:
            assert answer["ok"], answer
            assert answer["result"]["bytes"]["per_token"] == PER_TOKEN
        else:
            said = answer["error"]
            assert REFUSED[answer["id"]][1] in said["message"], answer
            assert (said["exit_code"], said["message"].isprintable(), said["hint"].isprintable()) == (3, True, True)
    assert len(answers) == len(repos) + 1
    assert hub.tokens == {f"Bearer {TOKEN}"}
    assert store.tokens == {""}
    assert store.seen.keys() == {("GET", "good"), ("GET", "y")}  # and no address of another protocol
    assert hub.sent < 100 * 1024**2
    assert [path.name for path in tmp_path.rglob("*escaped*")] == []
    assert sum(path.stat().st_size for path in cache.rglob("*") if not path.is_symlink()) < 100 * 1024**2


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HF_ENDPOINT": "http://[::1"}, "does not start"),
        ({"HF_ENDPOINT": "https://127.0.0.1:99999"}, ""),  # an old client only cannot reach it
        ({"HF_ENDPOINT": "huggingface.co"}, "HF_ENDPOINT is not the https address of a Hub"),
        ({"HF_HUB_ETAG_TIMEOUT": "soon"}, "does not start"),
        ({"HTTPS_PROXY": "socks9://127.0.0.1:1"}, "the proxy settings"),
        ({"HTTPS_PROXY": f"http://user:{TOKEN}@127.0.0.1:9"}, "could not be reached"),
        ({"HF_TOKEN": "hf_\u00fc", "HF_ENDPOINT": "http://127.0.0.1:9"}, "HF_TOKEN"),
        ({"HF_TOKEN": "a\r\nX-Evil: b", "HF_ENDPOINT": "http://127.0.0.1:9"}, "could not be reached"),
    ],
)
def test_settings_under_which_nothing_can_be_asked(environment: dict[str, str], words: str) -> None:
    for name in ("HTTPS_PROXY", "https_proxy"):
        if "HTTPS_PROXY" in environment:
            environment = environment | {name: environment["HTTPS_PROXY"]}
    found = kvcalc("estimate", "org/good", **environment)
    assert (found.returncode, found.stdout) == (3, "")
    assert words in found.stderr
    assert found.stderr.count("\n") == 1


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with serving({"good": GOOD}) as (hub, _):
        for home in (tmp_path / "file", tmp_path / ("x" * 300)):
            found = kvcalc("estimate", "org/good", HF_ENDPOINT=hub.url, HF_HOME=str(home))
            assert (found.returncode, found.stdout) == (3, "")
            assert "the Hub's cache cannot be written" in found.stderr
            assert "set HF_HOME" in found.stderr


@pytest.mark.skipif(os.name != "posix", reason="links")
@pytest.mark.parametrize("target", ["config.json", "/dev/zero", "/nowhere", "/"])
def test_a_cache_with_links_that_lead_astray(tmp_path: Path, target: str) -> None:
    """A link to itself, to a device, to nothing, to a folder: that is no cached file, and not named as one."""
    folder = tmp_path / "hub" / "models--org--good"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots" / COMMIT).mkdir(parents=True)
    (folder / "snapshots" / COMMIT / "config.json").symlink_to(target)
    found = kvcalc("estimate", "org/good", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert (found.returncode, found.stdout) == (3, "")
    assert "org/good is not in the local cache" in found.stderr
    assert "cached:" not in found.stderr


class Session:
    """As much of a client as the guard touches."""

    def __init__(self) -> None:
        self.event_hooks: dict[str, list[Any]] = {"request": [], "response": []}


def test_a_body_that_trickles_is_stopped_and_others_are_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    class SyncByteStream:
        def __iter__(self) -> Iterator[bytes]:
            yield from (b"x", b"y")

        def close(self) -> None:
            """Nothing to close."""

    class Message:
        def __init__(self) -> None:
            self.url, self.method, self.status_code = "https://huggingface.co/x", "GET", 200
            self.headers: dict[str, str] = {}
            self.request: Any = self
            self.stream: Any = SyncByteStream()

    session = Session()
    with guarded(session, 10):
        pass
    with guarded(session, 10):
        message = Message()
        for hook in (*session.event_hooks["request"], *session.event_hooks["response"]):
            hook(message)
        assert message.headers["Accept-Encoding"] == "identity"
        assert list(message.stream) == [b"x", b"y"]
        now = time.monotonic()
        monkeypatch.setattr(hub_guard.time, "monotonic", lambda: now + hub_guard.DEADLINE + 1)
        with pytest.raises(Stopped, match="within 60 seconds"):
            list(message.stream)
        with pytest.raises(Stopped, match="within 60 seconds"):
            session.event_hooks["request"][0](Message())
    assert [len(hooks) for hooks in session.event_hooks.values()] == [1, 1]
    foreign = Message()
    for hook in (*session.event_hooks["request"], *session.event_hooks["response"]):
        hook(foreign)
    assert (foreign.headers, type(foreign.stream)) == ({}, SyncByteStream)


@pytest.mark.parametrize(
    "repo",
    [
        "org/name.git",
        "org/name-",
        "org/name.",
        "org./x",
        "org-/x",
        "-org/x",
        "org/.x",
        "a" * 97,
        "org/" + "b" * 93,
        "org//x",
        "org/x/y",
        "org/n--x",
        "org/n..x",
    ],
)
def test_a_name_that_no_repository_has(repo: str) -> None:
    with pytest.raises(UnknownModelError, match="neither a file nor a Hub repository name"):
        hub.load_repo(repo)
