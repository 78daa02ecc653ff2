"""What transformers leaves of a card: it has no share of its own, and keeps the activations of one step."""

from __future__ import annotations

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share((GIB // 2, GIB, 4 * GIB), "driver context and the activations of one step")
