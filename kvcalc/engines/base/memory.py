"""Which part of a card an engine takes, and how much of that is neither weights nor cache.

    memory for the cache = card x share - weights - overhead                 the share is of the whole card
                         = (card - weights - overhead) x share               `free`: of what is left after them

What an engine keeps for activations, graphs and buffers is found by running it: the overhead is low, likely and high. An engine says
all of this in its folder's `memory.py`, as `SHARE`; one that does not takes what is left beside its weights, under a wide overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvcalc.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.workload import Workload

#: Vendors of the cards that people put into computers.
DESKTOP = ("nvidia", "amd", "intel", "apple")
ALL_VENDORS = (*DESKTOP, "google", "aws")
_WHOLE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Share:
    """What an engine leaves of a card for weights and cache.

    overhead    bytes a device for activations, graphs, buffers and the context of the driver: low, likely, high
    source      where these were read or measured, for people
    setting     the engine's own setting for its share; "" = it has none
    default     its default; a function where it goes by the card: (bytes of the card, workload) → share
    how         where a default of the second kind comes from, for people
    vendors     whose cards it runs on, as far as kvcalc's figures hold there
    free        the share is of what is free after weights and overhead, not of the whole card
    """

    overhead: tuple[int, int, int]
    source: str
    setting: str = ""
    default: Fraction | Callable[[int, Workload], Fraction] = _WHOLE
    how: str = ""
    vendors: tuple[str, ...] = DESKTOP
    free: bool = False

    @property
    def is_nothing(self) -> bool:
        """The engine takes nothing beside weights and cache."""
        return not any(self.overhead)

    def fraction(self, card: int, workload: Workload) -> Fraction:
        """The default share on a card of so many bytes."""
        return self.default if isinstance(self.default, Fraction) else self.default(card, workload)


#: Of an engine that does not say its own.
UNKNOWN = Share((GIB // 2, GIB, 4 * GIB), "the engine does not say its own: as that of other engines")
