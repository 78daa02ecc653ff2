"""What SGLang takes of a card: `mem_fraction_static` of it, whose default goes by the card (memory_hook.py).

    reserved   512 MiB + 1.5 MiB x tokens of a chunk (chunked_prefill_size) + 1,024 MiB x devices / 8 + 2 MiB x requests of a graph, at least 10 GiB above 60 GiB
    fraction   (card - reserved) / card, three decimals

Activations lie in the part that is left free.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.units import GIB, MIB
from kvcalc.engines.base.memory import Share

if TYPE_CHECKING:
    from kvcalc.core.workload import Workload


class Card(NamedTuple):
    """SGLang's choices for cards of less than `below` GiB.

    chunk     tokens of a prefill chunk
    graph     requests of the largest graph of a decode step; `wide` from tensor parallel size WIDE on
    """

    below: float
    chunk: int
    graph: int
    wide: int


#: By the card's memory, the smallest first.
CARDS = (
    Card(20, 2048, 8, 8),
    Card(35, 4096, 48, 160),
    Card(60, 4096, 32, 160),
    Card(90, 8192, 256, 512),
    Card(160, 8192, 256, 512),
    Card(math.inf, 16384, 512, 512),
)
#: Tensor parallel size from which larger graphs are recorded; tokens that the smallest chunk counts for.
WIDE, _LEAST_CHUNK = 4, 2048
#: GiB above which at least so many MiB are left free.
_LARGE, _LEAST_OF_LARGE = 60, 10 * 1024
#: Digits of a number that no server is told.
_DIGITS = 12


def static_fraction(card: int, workload: Workload) -> Fraction:
    """The default of `mem_fraction_static` on a card of so many bytes: room for chunks, graphs and ranks is left out."""
    gib = card / GIB
    found = next(choice for choice in CARDS if gib < choice.below)
    told = {str(key).lstrip("-").replace("-", "_"): value for key, value in workload.engine_args.items()}
    chunk = _whole(told.get("chunked_prefill_size")) or found.chunk
    graph = found.graph if workload.tensor_parallel < WIDE else found.wide
    graph = min(graph, _whole(told.get("max_running_requests")) or graph)
    reserved = 512 + Fraction(3, 2) * max(chunk, _LEAST_CHUNK) + Fraction(workload.devices * 1024, 8) + 2 * graph
    if gib > _LARGE:
        reserved = max(reserved, Fraction(_LEAST_OF_LARGE))
    mebibytes = Fraction(card, MIB)
    return Fraction(round((mebibytes - reserved) / mebibytes * 1000), 1000)


def _whole(value: object) -> int | None:
    """A setting that is a positive number, however it is written; the engine refuses what is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else None


SHARE = Share(
    (GIB // 4, GIB // 2, 2 * GIB),
    "SGLang 0.5.23 memory_hook.py; activations lie in the part that is left free",
    setting="mem_fraction_static",
    default=static_fraction,
    how="SGLang's default for this card, from its own formula",
    vendors=("nvidia", "amd"),
)
