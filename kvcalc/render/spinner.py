"""A spinner on stderr, only on a terminal, and only for what takes longer than a second."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds before anything is drawn.
PATIENCE = 1.0


@contextmanager
def spinner(message: str) -> Iterator[None]:
    """Draw `message` beside a spinner while the block runs, if it runs longer than PATIENCE."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    drawn: list[Any] = []
    ended = threading.Event()

    def draw() -> None:
        if not ended.wait(PATIENCE):
            from rich.console import Console
            from rich.text import Text

            status = Console(stderr=True).status(Text(clean(message)))
            status.start()
            drawn.append(status)

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        for status in drawn:
            status.stop()
