"""What Toy takes of a card."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share((GIB, 2 * GIB, 3 * GIB), "measured nowhere: a toy", setting="memory_share", default=Fraction(4, 5), vendors=("nvidia",))
