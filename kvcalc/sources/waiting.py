"""What surrounds a request over the network: nothing, unless the command line puts its spinner here.

`sources` draw nothing themselves; whoever shows progress sets `around` to a function that gives a context manager.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def _nothing(_message: str) -> AbstractContextManager[Any]:
    return nullcontext()


around: Callable[[str], AbstractContextManager[Any]] = _nothing


def waiting(message: str) -> AbstractContextManager[Any]:
    """The context in which a request runs."""
    return around(message)
