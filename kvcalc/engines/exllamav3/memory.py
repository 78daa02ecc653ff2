"""What ExLlamaV3 takes of a card: all that weights and activations leave, as far as the pool and the slots that are asked for go."""

from __future__ import annotations

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share(
    (GIB // 2, GIB, 3 * GIB),
    "the driver's context, and the activations of a chunk of 2,048 tokens",
    vendors=("nvidia", "amd"),
)
