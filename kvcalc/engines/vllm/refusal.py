"""vLLM's words for a server that does not start.

To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available
KV cache memory (10.0 GiB)
No available memory for the cache blocks
Available KV cache memory: -1.25 GiB
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvcalc.core.units import GIB
from kvcalc.engines.base.printed import printed

if TYPE_CHECKING:
    from kvcalc.engines.base.printed import Printed

#: Words of which one stands in every line of interest, those of wrapped pastes included.
MARKS = (
    b"KV cache is needed",
    b"No available memory for the cache blocks",
    b"KV cache memory: -",
    b"max seq",
    b"GiB KV",
    b"available KV",
    b" GiB)",
)
_NOTHING_LEFT = re.compile(r"No available memory for the cache blocks")
_BELOW_NOTHING = re.compile(r"Available KV cache memory: -([0-9]{1,6}(?:\.[0-9]{1,6})?) GiB")
_NEEDED = re.compile(r"KV cache is needed, which is larger than")
#: The same as a whole, for pastes that a terminal has wrapped: blanks may be ends of lines.
_WHOLE = re.compile(
    r"max seq len \(([0-9]{1,12})\), \(?[0-9.]{1,12} GiB KV cache is needed, which is larger than the available KV cache memory \(([0-9.]{1,12}) (GiB)\)"
)
#: How much of the lines before is kept, to read what was wrapped.
_LONGEST_PASTE = 1000


@dataclass(slots=True)
class RefusalReader:
    """The last refusal of a log: its line, the length that was asked for, and the memory that was left."""

    line: int = 0
    nothing: bool = False
    below: Fraction = Fraction(0)
    context: int | None = None
    left: Printed | None = None
    _last: int = 0
    _text: str = ""

    def hear(self, line: str, number: int) -> None:
        """Take what the line says of a server that does not start."""
        self._text = " ".join((self._text[-_LONGEST_PASTE:] if number == self._last + 1 else "", *line.split()))
        self._last = number
        whole = _WHOLE.search(self._text)
        if whole:
            with suppress(ValueError):
                self.left = printed(whole[2].rstrip("."), number, whole[3], digits=2)
            self.context, self.line, self._text = int(whole[1]), number, ""
        below = _BELOW_NOTHING.search(line)
        if below:
            self.below = max(self.below, Fraction(below[1]) * GIB)
        self.nothing = self.nothing or bool(_NOTHING_LEFT.search(line))
        if _NEEDED.search(line) or _NOTHING_LEFT.search(line):
            self.line = number
