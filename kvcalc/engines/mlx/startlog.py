"""What `mlx_lm.server` logs of its caches (server.py, mlx-lm 0.32.2).

Prompt processing progress: 2048/4097
Prompt Cache: 2 sequences, 1.31 GB                       decimal: 1 GB = 10^9 B
- assistant: 2 sequences, 1.31 GB

The cache of finished prompts is the sum of `nbytes` of its entries. Their lengths are not printed; the prompts that were read say
between which sizes they lie.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from kvcalc.core.workload import Workload
from kvcalc.engines.base.logs import Recogniser, Row
from kvcalc.engines.base.printed import Printed
from kvcalc.engines.mlx.engine import Mlx
from kvcalc.engines.mlx.prompts import stored

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

_CACHE = re.compile(r"Prompt Cache: ([0-9]{1,6}) sequences, ([0-9]{1,9}\.[0-9]{2}) GB")
_PROGRESS = re.compile(r"Prompt processing progress: ([0-9]{1,9})/([0-9]{1,9})")
_GB = 10**9
#: Tokens that the server generates at most unless a request or `--max-tokens` says more.
_ANSWER = 512
_WORKLOAD = ("tensor_parallel", "kv_dtype", "gpu")
_WHY_EMPTY = "an empty prompt cache holds nothing"
_WHY_MORE = "the entries are longer than the prompts in the log and an answer of 512 tokens, or another type or model"
_WHY_LESS = "the entries are shorter than any prompt in the log, or another type or model"


class MlxLog(Recogniser):
    """mlx_lm.server."""

    engine: ClassVar[str] = "mlx"
    marks: ClassVar[tuple[bytes, ...]] = (b"Prompt Cache:", b"Prompt processing progress:")

    def __init__(self) -> None:
        super().__init__()
        self._prompts: list[int] = []

    def feed(self, line: str, number: int) -> None:
        """Figures of one line."""
        cache, progress = _CACHE.search(line), _PROGRESS.search(line)
        if cache:
            self.seen.add("entries", Printed(Fraction(cache[1]), Fraction(0), "", number))
            self.seen.add("prompt cache", Printed(Fraction(cache[2]) * _GB, Fraction(_GB, 200), "GB", number))
        if progress and int(progress[2]):
            shortest, longest = (self._prompts or [int(progress[2])])[0], (self._prompts or [0])[-1]
            self._prompts = [min(shortest, int(progress[2])), max(longest, int(progress[2]))]

    @property
    def recognised(self) -> bool:
        """The prompt cache was printed."""
        return "prompt cache" in self.seen.figures

    @property
    def notes(self) -> tuple[str, ...]:
        """What the range stands for."""
        if not self._prompts:
            return ("the log names no prompt's length: entries may be of any length up to the model's maximum",)
        return (
            f"entries lie between the shortest prompt of the log, {self._prompts[0]:,} tokens, and the longest and {_ANSWER} generated",
        )

    def rows(self, architecture: Architecture) -> list[Row]:
        """The last print of the prompt cache beside what so many entries can hold."""
        entries, size = self.seen.last("entries"), self.seen.last("prompt cache")
        if entries is None or size is None:
            return []
        shortest, longest = self._prompts or [1, architecture.max_context or 1]
        low = int(entries.value) * self._entry(architecture, shortest, batched=True)
        high = int(entries.value) * self._entry(architecture, longest + (_ANSWER if self._prompts else 0), batched=False)
        within = size.holds(low, high)
        why = "" if within else _WHY_EMPTY if not entries.value else _WHY_MORE if size.value > high else _WHY_LESS
        return [Row("prompt cache", "bytes", size.line, size.value, Fraction(low), Fraction(high), within, why)]

    def _entry(self, architecture: Architecture, tokens: int, *, batched: bool) -> int:
        """Bytes of one entry of so many tokens."""
        settings = dict(self.seen.settings)
        asked = {name: settings.pop(name) for name in _WORKLOAD if name in settings}
        plan = Mlx().plan(architecture, Workload(context=tokens, **asked, engine_args=settings))
        return sum(stored(line, tokens, batched=batched) for line in plan.lines)


RECOGNISER = MlxLog
