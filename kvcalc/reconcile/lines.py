"""A log as lines fit to be read: bounded, without colours and control characters, never held in memory as a whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

#: No figure stands further right; the rest of a longer line is skipped.
LONGEST_LINE = 16 * 1024

_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)")
_CONTROL = bytes(range(32)).replace(b"\t", b"") + b"\x7f"


def log_lines(stream: BinaryIO, wanted: re.Pattern[bytes]) -> Iterator[tuple[int, str]]:
    """Number and text of every line in which `wanted` occurs; a line that is cut short by the end of the log counts too."""
    number = 0
    while line := stream.readline(LONGEST_LINE):
        number += 1
        if wanted.search(line):
            yield number, _ESCAPES.sub(b"", line).translate(None, _CONTROL).decode("utf-8", errors="replace")
        while line and not line.endswith(b"\n"):
            line = stream.readline(LONGEST_LINE)
