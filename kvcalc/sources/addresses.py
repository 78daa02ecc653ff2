"""Addresses on the web: which of them kvcalc asks, and how much of one it shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from kvcalc.core.units import clean

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def may_be_asked(address: SplitResult) -> bool:
    """Https; unencrypted only this machine and the endpoint that HF_ENDPOINT names."""
    if address.scheme == "https":
        return True
    return address.scheme == "http" and (
        address.hostname in _LOOPBACK or address.netloc == urlsplit(os.environ.get("HF_ENDPOINT", "")).netloc
    )


def shown(address: SplitResult) -> str:
    """The address without its query, which may carry a signature."""
    return clean(urlunsplit((address.scheme, address.netloc, address.path, "", "")), 200)
