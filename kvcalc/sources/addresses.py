"""Addresses on the web: which of them kvcalc asks, where one may lead to, and how much of one it shows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from kvcalc.core.units import clean

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address
    from urllib.parse import SplitResult

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
#: How far from the public web a host is: nothing leads further inside than where it started.
_PUBLIC, _PRIVATE, _THIS_MACHINE = 0, 1, 2


def may_be_asked(address: SplitResult) -> bool:
    """Https; unencrypted only this machine and the endpoint that HF_ENDPOINT names."""
    if address.scheme == "https":
        return True
    return address.scheme == "http" and (
        address.hostname in _LOOPBACK or address.netloc == urlsplit(os.environ.get("HF_ENDPOINT", "")).netloc
    )


def may_lead(origin: SplitResult, target: SplitResult) -> bool:
    """A redirect from `origin` to `target` may be followed: an address that may be asked, and no step from the web into a network inside.

    Only an origin on this machine leads to this machine, and only a private one to private and link-local addresses.
    """
    return may_be_asked(target) and target.username is None and _depth(target) <= _depth(origin)


def _depth(address: SplitResult) -> int:
    import ipaddress
    import socket

    host = (address.hostname or "").rstrip(".").lower()
    if host in _LOOPBACK or host.endswith(".localhost"):
        return _THIS_MACHINE
    try:
        return _depth_of(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)}
    except (OSError, UnicodeError):
        return _PUBLIC  # a name that only a proxy knows, or none: asking for it fails by itself
    return max((_depth_of(ipaddress.ip_address(str(name).partition("%")[0])) for name in found), default=_PUBLIC)


def _depth_of(address: IPv4Address | IPv6Address) -> int:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        return _depth_of(mapped)
    if address.is_loopback or address.is_unspecified:
        return _THIS_MACHINE
    return _PUBLIC if address.is_global else _PRIVATE


def shown(address: SplitResult) -> str:
    """The address without its query, which may carry a signature, and without a user name and a password."""
    host = address.netloc.rpartition("@")[2]
    return clean(urlunsplit((address.scheme, host, address.path, "", "")), 200)
