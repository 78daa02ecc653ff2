"""What vLLM takes of a card: `gpu_memory_utilization` of the whole of it (worker/utils.py), weights and activations included."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share(
    (GIB, 5 * GIB // 2, 6 * GIB),
    "vLLM 0.33 worker/utils.py; overhead as start-up logs report it",
    setting="gpu_memory_utilization",
    default=Fraction(92, 100),
    vendors=("nvidia", "amd"),
)
