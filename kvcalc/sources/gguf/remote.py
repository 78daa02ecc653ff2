"""A GGUF file on the web → Architecture, from the first bytes of its header.

    GET, Range: bytes=0-65535 ── 206 ──▶ more ranges as the header needs them, doubling
                              └─ 200 ──▶ the server knows no ranges: read what is needed, and hang up

Redirects are followed with the range; a token goes to the Hub's own host and nowhere else. Only https, except to this machine
or to the endpoint that HF_ENDPOINT names. No query of an address is ever shown: it may carry a signature.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager
from http.client import HTTPException
from typing import IO, TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit, urlunsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from kvcalc.core.errors import GatedError, HubUnavailableError, KvcalcError, NotFoundError, UsageError
from kvcalc.core.units import clean
from kvcalc.sources.addresses import may_be_asked, may_lead, shown
from kvcalc.sources.deadline import LateError, within
from kvcalc.sources.gguf.reader import first_part, read_header, stem_of
from kvcalc.sources.gguf.stream import LARGEST_HEADER, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPMessage, HTTPResponse

    from kvcalc.core.architecture import Architecture

#: Seconds to wait for a connection or a byte.
PATIENCE = 10
#: Seconds for the whole header.
DEADLINE = 60
MOST_REDIRECTS = 5
_HUB = "https://huggingface.co"
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19}|\*)", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_OFFLINE = frozenset(("1", "on", "yes", "true"))


def load_url(url: str) -> Architecture:
    """The architecture of a GGUF file at an https address. Raises UsageError, InvalidConfigError, UnsupportedArchitectureError, Hub errors."""
    from kvcalc.core.architecture import Source
    from kvcalc.sources.gguf.architecture import read_metadata
    from kvcalc.sources.waiting import waiting

    address = _address(url)
    folder, _, name = address.path.rpartition("/")
    address = address._replace(path=f"{folder}/{first_part(name)}", fragment="")
    with waiting(f"reading {shown(address)}"), opened(address) as remote:
        header = read_header(remote.stream)
    source = Source(file=shown(address), where="web", revision=remote.commit)
    return read_metadata(header.metadata, model_id=stem_of(clean(name, 120)), source=source)


def _address(url: str) -> SplitResult:
    """The address, if it is one that may be asked. Raises UsageError."""
    try:
        address = urlsplit(url)
        host, _port = address.hostname, address.port
    except ValueError:
        raise UsageError("the address is not one", "write it like https://host/path/model.gguf") from None
    if not host or any(ord(ch) <= 32 or ord(ch) > 126 for ch in url):
        raise UsageError("the address is not one", "write it like https://host/path/model.gguf")
    if address.username is not None:
        raise UsageError("an address with a user name or a password in it is not asked", "use a public address, or download the file")
    if not may_be_asked(address):
        raise UsageError(
            f"'{clean(address.scheme, 20)}://{clean(host, 80)}' is not https", "use https, or download the file and give its path"
        )
    return address


class _Redirects(HTTPRedirectHandler):
    """Redirects to allowed addresses, with the range, and with the token only on the same host."""

    max_redirections = MOST_REDIRECTS

    def __init__(self) -> None:
        self.commit = ""

    def http_error_302(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage) -> Any:
        """The answer at the new address; this one is hung up on whatever the new one is."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except (ValueError, KvcalcError):
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> Request | None:
        """The request to the new address. Raises HubUnavailableError for one that may not be asked."""
        commit = headers.get("X-Repo-Commit", "")
        self.commit = commit if _COMMIT.fullmatch(commit) else self.commit
        target, origin = urlsplit(newurl), urlsplit(req.full_url)
        if not may_be_asked(target) or target.username is not None:
            raise HubUnavailableError(f"{shown(origin)} redirects to an address that is not https", "download the file and give its path")
        if not may_lead(origin, target):
            raise HubUnavailableError(
                f"{shown(origin)} redirects from the web into a network inside", "download the file and give its path"
            )
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.get_header("Authorization")
        if new is not None and token and target.netloc == origin.netloc and target.scheme == origin.scheme:
            new.add_unredirected_header("Authorization", token)
        return new


class Remote:
    """One file on the web as a stream of ranges.

    stream   its bytes                commit   the Hub's commit, where a redirect named it
    """

    def __init__(self, address: SplitResult) -> None:
        self.stream = Stream(self._fetch, shown(address))
        self._address = address
        self._redirects = _Redirects()
        self._opener = OpenerDirector()
        for handler in (ProxyHandler(), UnknownHandler(), HTTPHandler(), HTTPSHandler(), HTTPDefaultErrorHandler(), HTTPErrorProcessor()):
            self._opener.add_handler(handler)
        self._opener.add_handler(self._redirects)
        self._until = time.monotonic() + DEADLINE
        self._whole: HTTPResponse | None = None
        self._read = 0

    @property
    def commit(self) -> str:
        """The Hub's commit of the file, or an empty text."""
        return self._redirects.commit

    def close(self) -> None:
        """Hang up on a server that sends the whole file."""
        if self._whole is not None:
            self._whole.close()

    def _fetch(self, offset: int, size: int) -> bytes:
        ask = self._sequentially if self._whole is not None else self._range
        try:
            return within(self._until - time.monotonic(), lambda: ask(offset, size))
        except LateError:
            self._whole = None  # closing it would wait for whoever still reads it
            raise self._late() from None
        except HTTPError as error:
            with error:
                if error.code == 416:
                    return b""
                raise self._refused(error.code) from None
        except (URLError, HTTPException, OSError, ValueError) as error:
            if isinstance(error, KvcalcError):
                raise
            reason = _reason(error)
            if not reason:
                raise HubUnavailableError(
                    f"{self.stream.name} cannot be asked for: a proxy, a redirect or HF_TOKEN is not what it should be",
                    "check the proxy settings and HF_TOKEN, or download the file",
                ) from None
            raise HubUnavailableError(
                f"{self.stream.name} could not be read: {reason}", "check the network, or download the file"
            ) from None

    def _range(self, offset: int, size: int) -> bytes:
        request = Request(  # noqa: S310  the scheme was checked
            urlunsplit(self._address),
            headers={"Range": f"bytes={offset}-{offset + size - 1}", "Accept-Encoding": "identity", "User-Agent": "kvcalc"},
        )
        token = os.environ.get("HF_TOKEN", "").strip()
        if token and self._address.netloc == urlsplit(os.environ.get("HF_ENDPOINT") or _HUB).netloc:
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        response: Any = self._opener.open(request, timeout=PATIENCE)
        if response.status == 200:
            self._whole = response
            length = response.headers.get("Content-Length", "")
            self.stream.size = int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None
            return self._sequentially(offset, size)
        with response:
            match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if response.status != 206 or match is None or int(match[1]) != offset or not offset <= int(match[2]) < offset + size:
                raise HubUnavailableError(
                    f"{self.stream.name}: the server's answer to a range request makes no sense (HTTP {response.status})"
                )
            self.stream.size = None if match[3] == "*" else int(match[3])
            return self._exactly(response, int(match[2]) - offset + 1)

    def _sequentially(self, offset: int, size: int) -> bytes:
        """From a response that is the whole file: pass over what comes before `offset`."""
        response = self._whole
        if response is None or offset < self._read or offset > LARGEST_HEADER:
            raise HubUnavailableError(
                f"{self.stream.name}: the server knows no ranges, and the header is out of order", "download the file"
            )
        while self._read < offset:
            if not self._some(response, offset - self._read):
                return b""
        available = size if self.stream.size is None else max(min(size, self.stream.size - offset), 0)
        if self.stream.size is not None:
            return self._exactly(response, available)
        parts: list[bytes] = []
        while available and (chunk := self._some(response, available)):
            parts.append(chunk)
            available -= len(chunk)
        return b"".join(parts)

    def _exactly(self, response: HTTPResponse, count: int) -> bytes:
        parts: list[bytes] = []
        while count:
            chunk = self._some(response, count)
            if not chunk:
                raise HubUnavailableError(
                    f"{self.stream.name}: the connection broke off in the middle of the header", "try again, or download the file"
                )
            parts.append(chunk)
            count -= len(chunk)
        return b"".join(parts)

    def _some(self, response: HTTPResponse, count: int) -> bytes:
        if time.monotonic() > self._until:
            raise self._late()
        chunk = response.read1(min(count, 1 << 16))
        self._read += len(chunk)
        return chunk

    def _late(self) -> HubUnavailableError:
        return HubUnavailableError(f"{self.stream.name}: the header did not arrive within {DEADLINE} seconds", "download the file")

    def _refused(self, status: int) -> KvcalcError:
        name = self.stream.name
        if status in (401, 403):
            return GatedError(
                f"{name} may not be read (HTTP {status})",
                "accept the model's licence and set HF_TOKEN, or download the file and give its path",
            )
        if status in (404, 410):
            return NotFoundError(f"{name} does not exist (HTTP {status})", "check the address")
        if status < 400:
            return HubUnavailableError(
                f"{name} redirects without end, or to an address that is not https", "download the file and give its path"
            )
        if status == 429:
            return HubUnavailableError(f"{name}: the server limits the rate of requests (HTTP 429)", "wait, or set HF_TOKEN")
        return HubUnavailableError(f"{name}: the server answered HTTP {status}", "try again later, or download the file")


@contextmanager
def opened(address: SplitResult) -> Iterator[Remote]:
    """A remote file; closed whatever happens. Raises HubUnavailableError where the network is switched off."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in _OFFLINE:
        raise HubUnavailableError(
            f"{shown(address)} cannot be read: the network is switched off (offline)", "download the file and give its path"
        )
    remote = Remote(address)
    try:
        yield remote
    finally:
        remote.close()


def _reason(error: Exception) -> str:
    """What the system says about a connection; an empty text for an address or a header that could not even be sent."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, str | ValueError) and not isinstance(reason, OSError):
        return ""
    if isinstance(reason, TimeoutError):
        return f"no answer within {PATIENCE} seconds"
    return clean(getattr(reason, "strerror", None) or type(reason).__name__, 80).lower()
