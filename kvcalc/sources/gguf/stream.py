"""Bytes of a file, fetched as they are needed: the same reader for a local file and for HTTP ranges.

    take(n) ──▶ inside the block in hand? ── no ──▶ fetch(position, at least one block)
    skip(n) moves on without fetching

`fetched` counts every byte that was asked for. A header longer than `LARGEST_HEADER` is refused: the largest published ones
(a vocabulary of 262,144 tokens and its merges) have 16 MiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.units import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable

#: The first block: holds the architecture's keys of every published file.
FIRST_BLOCK = 64 * KIB
#: Blocks double up to this size.
LARGEST_BLOCK = 4 * MIB
#: A longer header is no model's.
LARGEST_HEADER = 64 * MIB


class Stream:
    """A position in a file whose bytes `fetch(offset, size)` returns; fewer bytes than asked mean the end."""

    def __init__(self, fetch: Callable[[int, int], bytes], name: str, size: int | None = None) -> None:
        self.name = name
        self.size = size
        self.fetched = 0
        self._fetch = fetch
        self._block = b""
        self._start = 0
        self._position = 0
        self._next = FIRST_BLOCK

    @property
    def position(self) -> int:
        """Offset of the next byte."""
        return self._start + self._position

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises InvalidConfigError where the file ends before."""
        end = self._position + count
        if end > len(self._block):
            self._load(count)
            end = count
        data = self._block[self._position : end]
        self._position = end
        return data

    def skip(self, count: int) -> None:
        """Move on. Raises InvalidConfigError where the file ends before."""
        self._position += count
        self.require(0)

    def peek(self) -> tuple[bytes, int]:
        """The block in hand and where in it the next byte is: for loops that read many small values."""
        return self._block, self._position

    def move(self, position: int) -> None:
        """Continue at `position` of the block that `peek` returned."""
        self._position = position

    def at_least(self, count: int) -> bool:
        """Whether the block in hand has `count` more bytes."""
        return self._position + count <= len(self._block)

    def require(self, count: int) -> None:
        """Raise InvalidConfigError unless the file can have `count` more bytes: no length of a file is believed unchecked."""
        end = self.position + count
        if self.size is not None and end > self.size:
            raise self._cut()
        if end > LARGEST_HEADER:
            raise InvalidConfigError(
                f"{self.name}: the header is longer than {LARGEST_HEADER:,} bytes, and no model's is", "is this a model's GGUF file?"
            )

    def _load(self, count: int) -> None:
        """A block that begins at the next byte and holds at least `count`."""
        self.require(count)
        offset = self.position
        want = max(count, self._next)
        if self.size is not None:
            want = min(want, self.size - offset)
        data = self._block[self._position :] if self._position < len(self._block) else b""
        while len(data) < count:
            more = self._fetch(offset + len(data), want - len(data))
            if not more:
                self._block, self._start, self._position = data, offset, 0
                raise self._cut()
            self.fetched += len(more)
            data += more
        self._next = min(2 * self._next, LARGEST_BLOCK)
        self._block, self._start, self._position = data, offset, 0

    def _cut(self) -> InvalidConfigError:
        at = self.size if self.size is not None else self._start + len(self._block)
        return InvalidConfigError(f"{self.name}: ends at byte {at:,}, inside its GGUF header", "the file is cut short: fetch it again")
