"""An answer within so many seconds, whatever the other end does.

A socket's own timeout is asked anew at every byte, so that headers which trickle, or `100 Continue` without end, would hold a reader for
ever. The call runs beside the caller, who stops waiting when time is over; what still hangs then ends with the process.
"""

from __future__ import annotations

import threading
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class LateError(Exception):
    """No answer in time; no timeout of a socket is one."""


def within(seconds: float, call: Callable[[], _T]) -> _T:
    """What `call` returns, or raises. Raises LateError where it does not end within `seconds`."""
    answer: list[_T] = []
    failure: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            answer.append(context.run(call))
        except BaseException as error:  # noqa: BLE001  the caller gets it, whatever it is
            failure.append(error)

    thread = threading.Thread(target=run, name="kvcalc-network", daemon=True)
    thread.start()
    thread.join(max(seconds, 0))
    if failure:
        raise failure[0]
    if not answer:
        raise LateError
    return answer[0]
