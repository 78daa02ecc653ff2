"""`fit`: the inverse question."""

from __future__ import annotations
