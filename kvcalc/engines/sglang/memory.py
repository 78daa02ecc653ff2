"""What SGLang takes of a card: `mem_fraction_static` of it, whose default goes by the card (memory_hook.py).

    reserved   512 MiB + 1.5 MiB x tokens of a chunk + 1,024 MiB x devices / 8 + 2 MiB x requests of a graph, at least 10 GiB above 60 GiB
    fraction   (card - reserved) / card, three decimals

Activations lie in the part that is left free.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from kvcalc.core.units import GIB, MIB
from kvcalc.engines.base.memory import Share

if TYPE_CHECKING:
    from kvcalc.core.workload import Workload

#: GiB of a card below which → tokens of a chunk, requests of the largest graph.
_BY_CARD = ((20, 2048, 8), (35, 4096, 48), (60, 4096, 32), (90, 8192, 256), (160, 8192, 256), (math.inf, 16384, 512))
_LARGE, _LEAST_OF_LARGE = 60, 10 * 1024


def static_fraction(card: int, workload: Workload) -> Fraction:
    """The default of `mem_fraction_static` on a card of so many bytes: room for chunks, graphs and ranks is left out."""
    gib = card / GIB
    chunk, batch = next((chunk, batch) for limit, chunk, batch in _BY_CARD if gib < limit)
    reserved = 512 + Fraction(3, 2) * max(chunk, 2048) + Fraction(workload.devices * 1024, 8) + 2 * batch
    if gib > _LARGE:
        reserved = max(reserved, Fraction(_LEAST_OF_LARGE))
    mebibytes = Fraction(card, MIB)
    return Fraction(round((mebibytes - reserved) / mebibytes * 1000), 1000)


SHARE = Share(
    (GIB // 4, GIB // 2, 2 * GIB),
    "SGLang 0.5.23 memory_hook.py; activations lie in the part that is left free",
    setting="mem_fraction_static",
    default=static_fraction,
    how="SGLang's default for this card, from its own formula",
    vendors=("nvidia", "amd"),
)
