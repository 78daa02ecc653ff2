"""What llama.cpp leaves of a card: all of it beside weights, compute buffers and a margin."""

from __future__ import annotations

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share((GIB // 2, 3 * GIB // 2, 3 * GIB), "llama.cpp compute buffers and its 1,024 MiB margin")
