"""What LMDeploy takes of a card: its executor measures what is free after the weights, and divides that itself (executor/base.py).

States and runtime memory come off first, and `cache_max_entry_count` is a share of the rest: all of that is the engine's capacity.
"""

from __future__ import annotations

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share((GIB // 2, GIB, 3 * GIB), "the driver's context and the graphs that are captured", vendors=("nvidia",))
