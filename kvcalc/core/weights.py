"""Types of weights, as people call a checkpoint's, and the bytes that one parameter takes in each."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean

#: Bytes a parameter, by what people call a checkpoint's type. The k-quants are the averages that llama.cpp prints for Llama models.
WEIGHT_FORMATS: dict[str, Fraction] = {
    "fp32": Fraction(4),
    "bf16": Fraction(2),
    "fp16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "int4": Fraction(1, 2) + Fraction(2, 128),
    "nvfp4": Fraction(9, 16),
    "mxfp4": Fraction(17, 32),
    "q8_0": Fraction(34, 32),
    "q6_k": Fraction(210, 256),
    "q5_k_m": Fraction(569, 800),
    "q5_0": Fraction(22, 32),
    "q4_k_m": Fraction(485, 800),
    "q4_0": Fraction(18, 32),
    "q3_k_m": Fraction(391, 800),
}
_WEIGHT_ALIASES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8_e4m3fn": "fp8",
    "q4": "q4_k_m",
    "q5": "q5_k_m",
    "q6": "q6_k",
    "q8": "q8_0",
}


def weight_format(name: str) -> str:
    """The name in WEIGHT_FORMATS. Raises UsageError naming the nearest ones."""
    key = name.strip().lower()
    found = _WEIGHT_ALIASES.get(key, key)
    if found not in WEIGHT_FORMATS:
        raise UsageError(
            f"--weight-dtype: unknown type '{clean(name, 40)}'", nearest(key, WEIGHT_FORMATS) or "one of " + ", ".join(WEIGHT_FORMATS)
        )
    return found
