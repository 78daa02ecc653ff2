"""What MLX-LM leaves of a Mac: Metal's recommended working set beside the weights and the buffers of one step."""

from __future__ import annotations

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share(
    (GIB // 4, GIB // 2, 2 * GIB),
    "MLX's buffers of one step, more with prefill_step_size; mlx-lm wires up to max_recommended_working_set_size (utils.py)",
    vendors=("apple", "nvidia"),
)
