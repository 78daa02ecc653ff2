"""Softmax attention, what a query may look at, and what a cache hands back.

    scores[q, k] = query[q] · key[k] / √d        where the query may see the key, else nothing
    output[q]    = Σ softmax(scores)[q, k] · value[k]

Two questions that are easily taken for one:

* **sight**: which positions a query may look at (all before it; the last W; its own chunk). It belongs to the model.
* **memory**: which positions the cache still holds. It must hold all that are in sight, and need not hold more.

So a store hands back keys, values and the *positions* they stand at, in whatever order it likes, and the sight decides by
positions alone. A ring buffer, a block table and a plain tensor then need no attention of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from kvcalc.core.states import Full
from kvcalc.lab.frame import Step, Weights, merge, rotate, split

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Store
    from kvcalc.lab.sizes import Sizes

#: The position of a slot that holds nothing.
EMPTY = -1


class Seen(NamedTuple):
    """What there is to look at: keys and values [..., kv_heads, t, d], and the positions [..., t] that they stand at."""

    keys: Tensor
    values: Tensor
    at: Tensor


class KvStore(Protocol):
    """A store of keys and values."""

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """Keep the new tokens' K and V, and hand back everything that the new tokens may need."""
        ...

    def tensors(self) -> tuple[Tensor, ...]:
        """What is kept."""
        ...

    def reset(self) -> None:
        """Forget it."""
        ...


class Sight(Protocol):
    """Which keys a query may look at, and the state that kvcalc calls it."""

    def __call__(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        """Whether the query at one position sees the key at another; the tensors broadcast."""
        ...

    def state(self, kv_heads: int, head_dim: int, query_heads: int) -> AnyState:
        """What is kept of it."""
        ...

    def store(self) -> Store:
        """A store that holds what is in sight."""
        ...


class Append:
    """Keys and values of every token, in order; both grow by concatenation."""

    keys: Tensor | None = None
    values: Tensor | None = None

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """Everything so far, the new tokens included."""
        self.keys = keys if self.keys is None else torch.cat((self.keys, keys), dim=-2)
        self.values = values if self.values is None else torch.cat((self.values, values), dim=-2)
        return Seen(self.keys, self.values, torch.arange(self.keys.shape[-2], device=at.device))

    def tensors(self) -> tuple[Tensor, ...]:
        """K and V."""
        return () if self.keys is None else (self.keys, self.values)

    def reset(self) -> None:
        """Drop both."""
        self.keys = None
        self.values = None


@dataclass(frozen=True)
class Causal:
    """Every token sees itself and all before it."""

    def __call__(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        """Not the future."""
        return key_at <= query_at

    def state(self, kv_heads: int, head_dim: int, query_heads: int) -> AnyState:
        """K and V of every token."""
        return Full(kv_heads=kv_heads, head_dim=head_dim, query_heads=query_heads)

    def store(self) -> Store:
        """The append cache."""
        return Append()


CAUSAL = Causal()


def visible(sight: Sight, query_at: Tensor, key_at: Tensor) -> Tensor:
    """[..., n, t]: what each query sees; an empty slot is seen by none."""
    key_at = key_at[..., None, :]
    return (key_at != EMPTY) & sight(query_at[..., :, None], key_at)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Softmax over what the mask shows: query [..., H, n, d], keys and values [..., G, t, d], mask [..., n, t] → [..., n, H x d].

    H / G heads, neighbours in order, read each K and V.
    """
    grouped = query.unflatten(-3, (keys.shape[-3], -1))
    scores = grouped @ keys.unsqueeze(-3).transpose(-1, -2) * scale
    # The least number instead of -inf: a query that sees nothing (padding) then gives no NaN.
    scores = scores.masked_fill(~mask[..., None, None, :, :], torch.finfo(scores.dtype).min)
    mixed = scores.softmax(-1) @ values.unsqueeze(-3)
    return merge(mixed.flatten(-4, -3))


class Attention:
    """Multi-head attention; with fewer KV heads than heads, grouped-query attention, with one, multi-query attention."""

    def __init__(self, weights: Weights, sizes: Sizes, kv_heads: int | None = None, sight: Sight = CAUSAL) -> None:
        self.heads = sizes.heads
        self.kv_heads = kv_heads or sizes.heads
        self.width = sizes.head_dim
        self.sight = sight
        self.to_query = weights.matrix(sizes.dim, self.heads * self.width)
        self.to_key = weights.matrix(sizes.dim, self.kv_heads * self.width)
        self.to_value = weights.matrix(sizes.dim, self.kv_heads * self.width)
        self.out = weights.matrix(self.heads * self.width, sizes.dim)

    @property
    def states(self) -> tuple[AnyState, ...]:
        """One state: K and V of the tokens in sight."""
        return (self.sight.state(self.kv_heads, self.width, self.heads),)

    def store(self) -> Store:
        """The sight's own."""
        return self.sight.store()

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """Project, rotate, keep, look."""
        turn = step.turn(self.width)
        keys = rotate(split(x @ self.to_key, self.kv_heads), turn)
        values = split(x @ self.to_value, self.kv_heads)
        seen = step.kept.extend(keys, values, step.at) if step.kept else Seen(keys, values, step.at)
        step.shared[step.layer] = seen
        query = rotate(split(x @ self.to_query, self.heads), turn)
        mask = visible(self.sight, step.at, seen.at)
        return attend(query, seen.keys, seen.values, mask, self.width**-0.5) @ self.out
