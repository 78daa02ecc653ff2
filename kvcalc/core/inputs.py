"""The files that this process has read: an output is never one of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Device and inode of each, so that another name or a link of a file is that file.
_READ: set[tuple[int, int]] = set()


def note(handle: int) -> None:
    """An open file is being read."""
    found = os.fstat(handle)
    _READ.add((found.st_dev, found.st_ino))


def has(path: str | Path) -> bool:
    """What lies at `path` was read by this process."""
    try:
        found = os.stat(path)  # noqa: PTH116  a text or a path
    except (OSError, ValueError):
        return False
    return (found.st_dev, found.st_ino) in _READ


def forget() -> None:
    """Another command line begins."""
    _READ.clear()
