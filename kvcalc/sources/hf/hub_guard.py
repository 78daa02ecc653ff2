"""What kvcalc demands of every request that the Hub's client sends for it: an address that may be asked, and an answer that ends.

    request    https, the endpoint itself or this machine; not compressed, so that no answer is larger than it looks
    answer     a commit, a tag and lengths that are ones (they become names of files); at most `limit` bytes, within DEADLINE
               seconds and MOST_REQUESTS requests; no sleeping until a rate limit is over

A client belongs to the whole program, so the hooks look away from every request that is not kvcalc's own.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kvcalc.sources.addresses import may_be_asked, may_lead

if TYPE_CHECKING:
    from collections.abc import Iterator
    from urllib.parse import SplitResult

#: Seconds for one file, redirects and all.
DEADLINE = 60
#: Requests for one file: twice its head, its body, what is tried again, and redirects.
MOST_REQUESTS = 25

_COMMIT = re.compile(r"[0-9a-f]{40}", re.ASCII)
_TAG = re.compile(r'(?:W/)?"?([A-Za-z0-9][A-Za-z0-9._+-]{0,127})"?', re.ASCII)
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_RANGE = re.compile(r"bytes [0-9]{1,18}-[0-9]{1,18}/(?:[0-9]{1,18}|\*)", re.ASCII)
#: Headers from which the client makes names of files, and numbers.
_NAMES = {"X-Repo-Commit": _COMMIT, "ETag": _TAG, "X-Linked-ETag": _TAG}
_NUMBERS = {"Content-Length": _LENGTH, "X-Linked-Size": _LENGTH, "Content-Range": _RANGE}
#: What the client would wait for and ask again.
_LATER = frozenset((408, 429))


class Stopped(Exception):  # noqa: N818  it is a request that was stopped, and becomes an error for people elsewhere
    """kvcalc stopped a request. `reason` is a clause about the answer, `status` its HTTP status where that is the reason."""

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


class _Limits:
    """What one question may take: bytes of a body, seconds in all."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.until = time.monotonic() + DEADLINE
        self.requests = 0
        self.origin: SplitResult | None = None

    def count(self) -> None:
        self.requests += 1
        if self.requests > MOST_REQUESTS:
            raise Stopped("leads from address to address without end")

    def may_ask(self, address: SplitResult) -> None:
        """The first address is the endpoint's, every further one where it led to."""
        if not may_be_asked(address):
            raise Stopped("lies at an address that is not https")
        if self.origin is not None and not may_lead(self.origin, address):
            raise Stopped("leads from the web into a network inside")
        self.origin = self.origin or address

    def in_time(self) -> None:
        if time.monotonic() > self.until:
            raise Stopped(f"did not arrive within {DEADLINE} seconds")

    def hold(self, count: int) -> None:
        if count > self.limit:
            raise Stopped(f"has more than {self.limit:,} bytes")


_CURRENT: ContextVar[_Limits | None] = ContextVar("limits of the request that is running", default=None)


@contextmanager
def guarded(session: Any, limit: int) -> Iterator[None]:
    """Requests that the client `session` sends inside are held to the rules above. Raises Stopped for one that breaks them."""
    hooks = session.event_hooks
    if _before not in hooks["request"]:
        session.event_hooks = {"request": [*hooks["request"], _before], "response": [_after, *hooks["response"]]}
    outer = _CURRENT.set(_Limits(limit))
    try:
        yield
    finally:
        _CURRENT.reset(outer)


def _before(request: Any) -> None:
    limits = _CURRENT.get()
    if limits is None:
        return
    limits.in_time()
    limits.count()
    limits.may_ask(urlsplit(str(request.url)))
    request.headers["Accept-Encoding"] = "identity"


def _after(response: Any) -> None:
    limits = _CURRENT.get()
    if limits is None:
        return
    headers = response.headers
    is_head = response.request.method == "HEAD"
    for name, form in (_NAMES | _NUMBERS if is_head else _NUMBERS).items():
        if name in headers and not form.fullmatch(headers[name]):
            raise Stopped(f"makes no sense ({name})")
    if headers.get("Content-Encoding", "identity") != "identity":
        raise Stopped("is compressed, which was not asked for")
    if not is_head:
        if response.status_code in _LATER:
            raise Stopped("is refused for now", response.status_code)
        limits.hold(int(headers.get("Content-Length", "0")))
    # Small files need no second protocol with other addresses of its own.
    headers.pop("X-Xet-Hash", None)
    base = next(kind for kind in type(response.stream).__mro__ if kind.__name__ == "SyncByteStream")
    response.stream = _bounded(base)(response.stream, limits)


@cache
def _bounded(base: type) -> Any:
    """The client's own kind of stream, counting."""

    class Bounded(base):  # type: ignore[misc]  # known when the client is
        def __init__(self, stream: Any, limits: _Limits) -> None:
            self.stream = stream
            self.limits = limits

        def __iter__(self) -> Iterator[bytes]:
            count = 0
            for chunk in self.stream:
                count += len(chunk)
                self.limits.hold(count)
                self.limits.in_time()
                yield chunk

        def close(self) -> None:
            self.stream.close()

    return Bounded
