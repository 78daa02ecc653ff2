"""What a reader of GGUF metadata passes over, and yet says that it is there."""

from __future__ import annotations

from typing import NamedTuple


class Skipped(NamedTuple):
    """A value that was passed over: no key that the cache depends on holds such a one, so whoever reads it there refuses it."""

    what: str
    length: int

    def __repr__(self) -> str:
        """`an array of 5,000 strings`."""
        return f"{self.what} {self.length:,}" + (" characters" if self.what.startswith("a text") else " entries")
