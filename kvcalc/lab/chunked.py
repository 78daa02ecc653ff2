"""Chunked attention (Llama 4): the text is cut into chunks of C, and a token sees the earlier tokens of its own chunk only.

    bytes = 2 x layers x kv_heads x head_dim x min(T, C) x element size        at most one chunk is alive

The buffer is the sliding window's ring, slot = position mod C: the first token of a chunk takes slot 0 again.

What is easy to get wrong: it is not a window. The first token of a chunk sees nothing but itself, the last sees C - 1 others,
though the buffer holds C rows at both moments: the rows of the last chunk are still there, and only the sight hides them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcalc.core.states import Chunked
from kvcalc.lab.attention import Attention
from kvcalc.lab.frame import build
from kvcalc.lab.lesson import Lesson
from kvcalc.lab.sliding import Ring, window

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Decoder, Store
    from kvcalc.lab.sizes import Sizes


@dataclass(frozen=True)
class Chunk:
    """Earlier positions of the query's own chunk."""

    size: int

    def __call__(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        """Not the future, and the same chunk."""
        return (key_at <= query_at) & (key_at // self.size == query_at // self.size)

    def state(self, kv_heads: int, head_dim: int, query_heads: int) -> AnyState:
        """K and V of one chunk."""
        return Chunked(chunk=self.size, kv_heads=kv_heads, head_dim=head_dim, query_heads=query_heads)

    def store(self) -> Store:
        """A ring as large as a chunk."""
        return Ring(self.size)


def chunked(sizes: Sizes) -> Decoder:
    """Every layer sees its own chunk."""
    return build(sizes, lambda weights, _: Attention(weights, sizes, sizes.groups, Chunk(window(sizes))))


LESSONS = {"chunked": Lesson(chunked)}
