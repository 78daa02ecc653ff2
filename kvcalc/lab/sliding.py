"""Sliding-window attention: each token sees the last W, itself included, and a ring buffer holds exactly those.

    bytes = 2 x layers x kv_heads x head_dim x min(T, W) x element size        does not grow any more once T reaches W
    hybrids: sliding layers as above, full layers with T; 5:1 (Gemma 3, arXiv:2503.19786) keeps five sliding for each full one

The token at position p stands in slot p mod W. Once the ring is full, the new token takes the slot of the one that has just left
the window: no shifting, no copying.

What is easy to get wrong:

* W counts the token itself: key k is in sight of query q when q - k < W. With <= the ring is one slot too small.
* Slots are out of order, so sight must be decided by positions, not by slots.
* A prompt longer than W cannot be written first and attended after: its early tokens need keys that its later tokens overwrite.
* What has left the window is out of *sight*: a layer of width W sees back W - 1 tokens, and L layers some L x (W - 1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from kvcalc.core.states import Sliding
from kvcalc.lab.attention import CAUSAL, Attention, Seen
from kvcalc.lab.frame import build
from kvcalc.lab.lesson import Lesson

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.attention import Sight
    from kvcalc.lab.frame import Decoder, Store
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial

#: One full layer after this many sliding ones, as in Gemma 3.
SLIDING_PER_FULL = 5


@dataclass(frozen=True)
class Window:
    """The last `size` positions, the query's own included."""

    size: int

    def __call__(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        """Not the future, and fewer than `size` back."""
        return (key_at <= query_at) & (query_at - key_at < self.size)

    def state(self, kv_heads: int, head_dim: int, query_heads: int) -> AnyState:
        """K and V of the window."""
        return Sliding(window=self.size, kv_heads=kv_heads, head_dim=head_dim, query_heads=query_heads)

    def store(self) -> Store:
        """A ring as large as the window."""
        return Ring(self.size)


class Ring:
    """The last `size` tokens: slot = (position - first) mod size. It grows to `size` and then turns."""

    keys: Tensor | None = None
    values: Tensor | None = None
    count = 0

    def __init__(self, size: int, first: int = 0) -> None:
        self.size = size
        self.first = first

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """What was held and the new tokens; then the last `size` of all are kept.

        A single token may be written first: it overwrites the one key that it no longer sees.
        """
        old_keys = keys[..., :0, :] if self.keys is None else self.keys
        old_values = values[..., :0, :] if self.values is None else self.values
        both = None
        if keys.shape[-2] > 1:
            held = torch.cat((self._positions(at), at))
            both = Seen(torch.cat((old_keys, keys), dim=-2), torch.cat((old_values, values), dim=-2), held)
        self.keys, self.values = self._write(old_keys, keys), self._write(old_values, values)
        self.count += keys.shape[-2]
        return both or Seen(self.keys, self.values, self._positions(at))

    def _write(self, ring: Tensor, new: Tensor) -> Tensor:
        """`new` into the ring, which first grows to its size; of what is longer than the ring, the last part."""
        end = self.count + new.shape[-2]
        grow = max(0, min(end, self.size) - self.count)
        ring = torch.cat((ring, new[..., :grow, :]), dim=-2) if grow else ring
        begin = max(self.count + grow, end - self.size)
        if begin < end:
            slots = torch.arange(begin, end, device=new.device) % self.size
            ring[..., slots, :] = new[..., begin - self.count :, :]
        return ring

    def _positions(self, at: Tensor) -> Tensor:
        """The latest position of each filled slot: computed, not stored."""
        slots = torch.arange(min(self.count, self.size), device=at.device)
        last = self.count - 1
        return self.first + last - (last - slots) % self.size

    def tensors(self) -> tuple[Tensor, ...]:
        """K and V of the window."""
        return () if self.keys is None else (self.keys, self.values)

    def reset(self) -> None:
        """An empty ring."""
        self.count = 0
        self.keys = None
        self.values = None


def window(sizes: Sizes) -> int:
    """A quarter of the text, so that the ring turns more than once."""
    return max(1, sizes.total // 4)


def sliding(sizes: Sizes) -> Decoder:
    """Every layer sees a window."""
    return build(sizes, lambda weights, _: Attention(weights, sizes, sizes.groups, Window(window(sizes))))


def hybrid(sizes: Sizes) -> Decoder:
    """Five sliding layers, then a full one: six layers at least."""
    sights: tuple[Sight, ...] = (*[Window(window(sizes))] * SLIDING_PER_FULL, CAUSAL)
    sizes = replace(sizes, layers=max(sizes.layers, len(sights)))
    return build(sizes, lambda weights, index: Attention(weights, sizes, sizes.groups, sights[index % len(sights)]))


def _sight_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    size = window(decoder.sizes)
    return (f"window of {size:,}: at {trial.longest:,} tokens, positions 0 to {trial.longest - size - 1:,} are out of a layer's sight",)


def _hybrid_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    layers = decoder.sizes.layers
    return (*_sight_note(decoder, trial), f"{layers // (SLIDING_PER_FULL + 1)} of {layers} layers are full ones")


LESSONS = {"swa": Lesson(sliding, notes=_sight_note), "swa-hybrid": Lesson(hybrid, notes=_hybrid_note)}
