"""Axes of a chart: where a value stands between 0 and 1, and the round values that are written beside it.

    logarithmic   ticks at powers of two, so far apart that at most MOST_TICKS are written
    linear        ticks at multiples of a power of two of the unit

Sizes are written in one unit, the largest that the largest size fills, and each in its own where a logarithmic axis goes below
1 of it; floats begin here, after the last byte is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvcalc.core.units import GIB, KIB, MIB, human

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.questions.documents.plot import PlotDocument

MOST_TICKS = 8
#: A linear axis may have steps of down to 1/1024 of its unit.
_HALVINGS = 10


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`, with the ticks between them and their labels."""

    low: int
    high: int
    linear: bool
    ticks: tuple[tuple[int, str], ...]
    title: str

    def place(self, value: float) -> float:
        """0 at `low`, 1 at `high`; what lies outside is drawn at the edge."""
        if self.linear:
            share = (value - self.low) / (self.high - self.low)
        elif value <= 0:
            return 0.0
        else:
            share = math.log2(value / self.low) / math.log2(self.high / self.low)
        return min(max(share, 0.0), 1.0)


def axes(document: PlotDocument) -> tuple[Axis, Axis]:
    """Contexts from left to right, sizes from the bottom up."""
    linear = document.scale == "linear"
    sizes = [point.bytes_of(document.figure) for series in document.series for point in series.points]
    if document.kv_memory:
        sizes.append(document.kv_memory)
    across = _between(document.from_, document.workload.context, linear)
    device = " of the fullest device" if document.figure == "per_device" else ""
    return across, _around([size for size in sizes if size > 0] or [KIB], linear, f"KV cache{device}")


def _between(start: int, end: int, linear: bool) -> Axis:
    """An axis that begins and ends with its values."""
    ticks = _multiples(1, start, end) if linear else [tick for tick in _powers(start, end) if start <= tick <= end]
    if len(ticks) < 2:
        ticks = [start, end]
    return Axis(start, end, linear, tuple((tick, short_tokens(tick)) for tick in ticks), "tokens per sequence")


def _around(sizes: list[int], linear: bool, title: str) -> Axis:
    """An axis that begins and ends with a tick."""
    name, unit = unit_of(max(sizes))
    ticks = _multiples(unit, 0, max(sizes), beyond=True) if linear else _powers(min(sizes), max(sizes))
    if not linear and ticks[0] < unit:
        return Axis(ticks[0], ticks[-1], linear, tuple((tick, human(tick)) for tick in ticks), title)
    labels = tuple((tick, _exact(Fraction(tick, unit))) for tick in ticks)
    return Axis(ticks[0], ticks[-1], linear, labels, f"{title}, {name}")


def unit_of(size: int) -> tuple[str, int]:
    """The unit of an axis that ends near `size`, and its bytes."""
    return next(((name, unit) for name, unit in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)) if size >= unit), ("B", 1))


def _powers(low: int, high: int) -> list[int]:
    """At least two powers of 2**step that enclose both, with the first `step` that makes few enough."""

    def powers(step: int) -> range:
        first = (low.bit_length() - 1) // step
        return range(first, max(-(-(high - 1).bit_length() // step), first + 1) + 1)

    step = _first_few(powers)
    return [2 ** (power * step) for power in powers(step)]


def _multiples(unit: int, low: int, high: int, *, beyond: bool = False) -> list[int]:
    """Multiples of a power of two of `unit` from `low` to `high`, or `beyond` it, with the first power that makes few enough."""

    def size(power: int) -> int:
        return max((unit << power) >> _HALVINGS, 1)

    def multiples(power: int) -> range:
        return range(-(-low // size(power)), (-(-high // size(power)) if beyond else high // size(power)) + 1)

    power = _first_few(multiples)
    return [count * size(power) for count in multiples(power)]


def _first_few(counts: Callable[[int], range]) -> int:
    """The first step at which there are at most MOST_TICKS."""
    step = 1
    while len(counts(step)) > MOST_TICKS:
        step += 1
    return step


def _exact(value: Fraction) -> str:
    """`0.125`, `1`, `4,096`: powers of two end after as many decimals as they have halves."""
    whole, rest = divmod(value.numerator, value.denominator)
    places = value.denominator.bit_length() - 1
    return f"{whole:,}" + (f".{rest * 10**places // value.denominator:0{places}d}" if places else "")


def short_tokens(count: int) -> str:
    """`128k`, `1m`, `1,000`: what `--ctx` reads."""
    for unit, name in ((MIB, "m"), (KIB, "k")):
        if count and count % unit == 0:
            return f"{count // unit}{name}"
    return f"{count:,}"
