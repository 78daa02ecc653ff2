"""What TensorRT-LLM takes of a card: `free_gpu_memory_fraction` of what is free after the weights and a dry run (llm_args.py)."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.core.units import GIB
from kvcalc.engines.base.memory import Share

SHARE = Share(
    (GIB, 3 * GIB, 8 * GIB),
    "TensorRT-LLM llm_args.py; overhead measured by its dry run",
    setting="free_gpu_memory_fraction",
    default=Fraction(9, 10),
    vendors=("nvidia",),
    free=True,
)
