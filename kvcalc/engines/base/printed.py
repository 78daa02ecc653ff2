"""Numbers as a log prints them: a value, and how far the number behind it may lie from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from kvcalc.core.units import GIB, MIB

_UNITS = {"GiB": GIB, "MiB": MIB, "GB": GIB, "MB": MIB, "KiB": 1024, "B": 1}
_NUMBER = re.compile(r"[0-9][0-9,]*(?:\.([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as a log prints it: its value, and half of its last digit. Bytes if it had a unit."""

    value: Fraction
    half: Fraction
    unit: str = ""
    line: int = 0

    @property
    def low(self) -> Fraction:
        """The smallest number that prints like this."""
        return self.value - self.half

    @property
    def high(self) -> Fraction:
        """The largest number that prints like this (cut, not rounded, by some engines: one digit more)."""
        return self.value + self.half * 2

    def holds(self, low: Fraction | float, high: Fraction | float) -> bool:
        """Some number between `low` and `high` prints like this."""
        return Fraction(low) <= self.high and Fraction(high) >= self.low


def printed(text: str, line: int, unit: str = "", *, digits: int = 0) -> Printed:
    """`"16.05"` with unit "GiB" → bytes, and half a hundredth of a GiB. A whole number without a unit is exact.

    digits    decimals to which the engine rounds though it drops trailing zeros: with 2, `16.5` is 16.50
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    scale = _UNITS.get(unit, 1)
    digits = max(len(match[1] or ""), digits)
    half = Fraction(scale, 2 * 10**digits) if digits or scale > 1 else Fraction(0)
    return Printed(Fraction(text.replace(",", "")) * scale, half, unit, line)
