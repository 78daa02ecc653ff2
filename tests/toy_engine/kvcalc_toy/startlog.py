"""Toy's log.

toy: model meta-llama/Llama-3.1-8B
toy: cache of 512.00 MiB for 4096 tokens
toy: cache of 16.00 GiB needed for 131072 tokens, 10.00 GiB left
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.logs import Recogniser, Row, explained
from kvcalc.engines.base.printed import printed
from kvcalc.engines.base.trouble import Refusal

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

_MODEL = re.compile(r"toy: model (\S{1,200})")
_CACHE = re.compile(r"toy: cache of ([0-9.]+) (MiB|GiB) for ([0-9]+) tokens")
_REFUSED = re.compile(r"toy: cache of [0-9.]+ GiB needed for ([0-9]+) tokens, ([0-9.]+) (GiB) left")


class ToyLog(Recogniser):
    engine: ClassVar[str] = "toy"
    marks: ClassVar[tuple[bytes, ...]] = (b"toy: ",)
    refusal: Refusal | None = None

    def feed(self, line: str, number: int) -> None:
        model, cache = _MODEL.search(line), _CACHE.search(line)
        if model:
            self.seen.model = model[1]
        if cache:
            self.seen.add("cache", printed(cache[1], number, cache[2]))
            self.seen.settings["context"] = int(cache[3])

    def hear(self, line: str, number: int) -> None:
        found = _REFUSED.search(line)
        if found:
            left = printed(found[2], number, found[3])
            self.refusal = Refusal(number, Workload(context=int(found[1])), left, Fraction(0), nothing=False)

    @property
    def complains(self) -> bool:
        return self.refusal is not None

    def complaint(self) -> Refusal | None:
        return self.refusal

    def rows(self, architecture: Architecture) -> list[Row]:
        cache = self.seen.last("cache")
        if cache is None:
            return []

        def closed(changed: dict[str, int]) -> list[Row]:
            asked = Workload(context=self.seen.settings["context"], engine_args=changed)
            size = Fraction(get_engine("toy").plan(architecture, asked).total)
            return [Row("cache", "bytes", cache.line, cache.value, size, size, cache.holds(size, size))]

        return explained(closed({}), ((("pages of 64 tokens", {"page": 64}),),), closed)


RECOGNISER = ToyLog
