"""A local server that speaks the Hub's routes, for tests of the real client.

HEAD, GET  /{repo}/resolve/{revision}/{file}          X-Repo-Commit, ETag, Content-Length; X-Error-Code where it refuses
GET        /api/models/{repo}/revision/{revision}     the list of files
"""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    """A repository: its files, and how it refuses or breaks."""

    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    error_code: str = ""
    moved_to: str = ""
    cut: bool = False
    silent: bool = False


class Hub(ThreadingHTTPServer):
    """The server; `requests` records "METHOD path" in order, `tokens` the Authorization headers."""

    daemon_threads = True

    def __init__(self, repos: dict[str, Repo]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos = repos
        self.requests: list[str] = []
        self.tokens: list[str] = []
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.tokens.append(self.headers.get("Authorization", ""))
        parts = self.path.split("?")[0].strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if api else parts[:2])
        repo = self.server.repos.get(name)
        if repo is None:
            self._send(401, b"{}", {"X-Error-Code": "RepoNotFound"}, body=body)
        elif repo.silent:
            self.server.closing.wait(30)
        elif repo.moved_to:
            self._send(307, b"", {"Location": self.path.replace(name, repo.moved_to)}, body=body)
        elif repo.status != 200:
            self._send(repo.status, b"{}", {"X-Error-Code": repo.error_code} if repo.error_code else {}, body=body)
        elif api:
            listing = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in repo.files]}
            self._send(200, json.dumps(listing).encode(), {}, body=body)
        elif parts[3] not in ("main", COMMIT):
            self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Repo-Commit": COMMIT}, body=body)
        else:
            self._file(repo, "/".join(parts[4:]), body=body)

    def _file(self, repo: Repo, file: str, *, body: bool) -> None:
        data = repo.files.get(file)
        if data is None:
            self._send(404, b"{}", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, body=body)
            return
        tag = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        self._send(200, data, {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'}, body=body, cut=repo.cut)

    def _send(self, status: int, data: bytes, headers: dict[str, str], *, body: bool, cut: bool = False) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True


@contextmanager
def serve(repos: dict[str, Repo]) -> Iterator[Hub]:
    """The server on a free port of the loopback address, for the length of a `with` block."""
    hub = Hub(repos)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        hub.shutdown()
        hub.server_close()
        thread.join()
