"""A log as lines fit to be read: bounded, without colours and control characters, never held in memory as a whole."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, BinaryIO

from kvcalc.core.errors import UsageError

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
#: What a server says of its cache every few seconds for as long as it runs: no figure, and most of the lines of a long log.
_PERIODIC = b"KV cache usage"
#: How compressed files begin: gzip, Zstandard, xz, bzip2.
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh")
#: Byte order marks other than that of UTF-8, the longer ones first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def log_lines(stream: BinaryIO, marks: Sequence[bytes]) -> Iterator[tuple[int, str]]:
    """Number and text of every line that holds one of `marks`; a line cut short by the end of the log counts too.

    A log of PowerShell is UTF-16. Raises UsageError for one that is compressed.
    """
    before = 0
    rest = b""
    for block in _blocks(stream):
        chunk = rest + block
        end = chunk.rfind(b"\n") + 1
        if not end and len(chunk) > CHUNK:
            end = len(chunk)  # one line longer than a chunk: taken in pieces, which count as lines
        whole, rest = chunk[:end], chunk[end:]
        yield from _marked(whole, marks, before)
        before += whole.count(b"\n")
    yield from _marked(rest, marks, before)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """The log as UTF-8, a chunk at a time."""
    block = stream.read(CHUNK)
    if block.startswith(_COMPRESSED):
        raise UsageError("the log is compressed", "unpack it: zcat LOG | kvcalc reconcile -")
    encoding = _encoding(block)
    decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
    while block:
        yield block if decoder is None else decoder.decode(block).encode()
        block = stream.read(CHUNK)


def _encoding(beginning: bytes) -> str:
    """What the byte order mark says, or zeros in every other place; empty for UTF-8 and everything like it."""
    marked = next((encoding for mark, encoding in _MARKS if beginning.startswith(mark)), "")
    if marked:
        return marked
    pairs = beginning[:200]
    return next(
        (name for name, zeros in (("utf-16-le", pairs[1::2]), ("utf-16-be", pairs[::2])) if zeros and zeros.count(0) > len(zeros) * 3 // 4),
        "",
    )


def _marked(chunk: bytes, marks: Sequence[bytes], before: int) -> Iterator[tuple[int, str]]:
    found = [mark for mark in marks if mark in chunk]
    if not found:
        return
    for number, line in enumerate(chunk.split(b"\n"), start=before + 1):
        if any(mark in line for mark in found) and _PERIODIC not in line and not _ENDLESS.search(line, 0, LONGEST_LINE):
            yield number, _ESCAPES.sub(b"", line[:LONGEST_LINE]).translate(None, _CONTROL).decode("utf-8", errors="replace")
