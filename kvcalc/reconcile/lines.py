"""A log as lines fit to be read: bounded, without colours and control characters, never held in memory as a whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: No figure stands further right; the rest of a longer line is skipped.
LONGEST_LINE = 16 * 1024
#: Read at once: most of a log is skipped by the chunk, which is what makes 50 MB of other lines cheap.
CHUNK = 1024 * 1024

#: No engine prints a number so long; a line that holds one is damaged.
_ENDLESS = re.compile(rb"[0-9][0-9,]{30}")
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)")
_CONTROL = bytes(range(32)).replace(b"\t", b"") + b"\x7f"


def log_lines(stream: BinaryIO, marks: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """Number and text of every line that holds one of `marks`; a line cut short by the end of the log counts too."""
    before = 0
    rest = b""
    while block := stream.read(CHUNK):
        chunk = rest + block
        end = chunk.rfind(b"\n") + 1
        if not end and len(chunk) > CHUNK:
            end = len(chunk)  # one line longer than a chunk: taken in pieces, which count as lines
        whole, rest = chunk[:end], chunk[end:]
        yield from _marked(whole, marks, before)
        before += whole.count(b"\n")
    yield from _marked(rest, marks, before)


def _marked(chunk: bytes, marks: Sequence[bytes], before: int) -> Iterator[tuple[int, str]]:
    found = [mark for mark in marks if mark in chunk]
    if not found:
        return
    for number, line in enumerate(chunk.split(b"\n"), start=before + 1):
        if any(mark in line for mark in found) and not _ENDLESS.search(line, 0, LONGEST_LINE):
            yield number, _ESCAPES.sub(b"", line[:LONGEST_LINE]).translate(None, _CONTROL).decode("utf-8", errors="replace")
