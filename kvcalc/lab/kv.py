"""The KV cache: keep each token's key and value, and compute only the new token's.

    bytes = 2 x layers x heads x head_dim x T x element size        one K and one V vector per head, token and layer
    work of T tokens = O(T d²) for the projections and O(T² d) for the scores

Queries are not kept: a query is used once, when its token is the newest. Two ways to keep the rest:

* **append**: grow by one row a token. Exact, but each step copies the whole cache to its new place.
* **preallocated**: room for the longest text at once, slot = position. Nothing is copied, and every sequence, however short, pays
  for the longest.

What is easy to get wrong: rotate K by its own position *before* it is kept, once; and hand out only the slots that are filled. A
slot never written holds whatever the memory held, and 0 x NaN is NaN, so a mask does not save a sum over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvcalc.lab.attention import Attention, Seen
from kvcalc.lab.frame import build
from kvcalc.lab.lesson import Figure, Lesson, formula, plan, stores

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.lab.frame import Decoder
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial

#: A preallocated cache is made for texts this many times longer than the one that comes.
ROOM = 2


class Preallocated:
    """Room for `capacity` tokens from the start; the token at position p stands in slot p."""

    def __init__(self, capacity: int, heads: int, width: int, device: str) -> None:
        self.keys = torch.empty(heads, capacity, width, device=device)
        self.values = torch.empty(heads, capacity, width, device=device)
        self.length = 0

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """The filled slots only. Slices are views: nothing is copied."""
        start, self.length = self.length, self.length + keys.shape[-2]
        self.keys[:, start : self.length] = keys
        self.values[:, start : self.length] = values
        return Seen(self.keys[:, : self.length], self.values[:, : self.length], torch.arange(self.length, device=at.device))

    def tensors(self) -> tuple[Tensor, ...]:
        """All the room, filled or not: that is what the memory is charged for."""
        return (self.keys, self.values)

    def reset(self) -> None:
        """Nothing is wiped: what lies beyond `length` is never handed out."""
        self.length = 0


def multi_head(sizes: Sizes) -> Decoder:
    """A key and a value for every head."""
    return build(sizes, lambda weights, _: Attention(weights, sizes))


def _preallocated(decoder: Decoder, trial: Trial) -> Preallocated:
    sizes = decoder.sizes
    return Preallocated(ROOM * trial.longest, sizes.heads, sizes.head_dim, sizes.device)


def _whole_room(decoder: Decoder, trial: Trial) -> Figure:
    found = plan(decoder.architecture(), ROOM * trial.longest)
    return Figure(found.total, formula(found))


def _room_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del decoder
    return (f"preallocated for {ROOM * trial.longest:,} tokens and filled with {trial.longest:,}: half of it is waste",)


LESSONS = {
    "kv": Lesson(multi_head),
    "kv-preallocated": Lesson(multi_head, open=stores(_preallocated), figure=_whole_room, notes=_room_note),
}
