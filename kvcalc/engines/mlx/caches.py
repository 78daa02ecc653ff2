"""From states to MLX-LM's cache objects: what each layer of a model holds, by the rules of its family.

    Growing    KVCache: every token             Rotating   RotatingKVCache: the last `window` tokens
    Chunks     ChunkedKVCache                   Arrays     ArraysCache: tensors of fixed size

`listed` caches stand in a CacheList, whose members `--kv-bits` does not reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvcalc.engines.mlx.rows import Schedule

from kvcalc.engines.mlx import rows

#: An array in the model's own type.
MODEL = "model"


@dataclass(frozen=True, slots=True)
class Pair:
    """K and V of one attention: `heads` of `key` and `value` elements.

    state   which attention it is, in kvcalc's word
    split   tensor parallelism divides the heads; else every rank holds all of it
    listed  in a CacheList
    """

    state: str
    heads: int
    key: int
    value: int
    split: bool = True
    listed: bool = False
    names: tuple[str, str] = ("key", "value")


@dataclass(frozen=True, slots=True)
class Growing:
    """`KVCache`."""

    pair: Pair

    def rows(self, schedule: Schedule) -> int:
        """Rows held after the calls."""
        return rows.growing(schedule.segments)


@dataclass(frozen=True, slots=True)
class Rotating:
    """`RotatingKVCache`."""

    pair: Pair
    window: int

    def rows(self, schedule: Schedule) -> int:
        """Rows held after the calls."""
        return rows.rotating(schedule.segments, self.window)


@dataclass(frozen=True, slots=True)
class Chunks:
    """`ChunkedKVCache`."""

    pair: Pair
    chunk: int

    def rows(self, schedule: Schedule) -> int:
        """Rows held after the calls."""
        return rows.growing(schedule.segments, self.chunk)


class Tensor(NamedTuple):
    """One tensor of an `ArraysCache`: elements of one sequence, in a format (MODEL: the model's own); `split` as of Pair."""

    name: str
    elements: int
    format: str = MODEL
    split: bool = True


@dataclass(frozen=True, slots=True)
class Arrays:
    """`ArraysCache`: the same from the first token on."""

    state: str
    tensors: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Recent:
    """The last `most` token ids, 8 bytes each: what an n-gram embedding looks back to."""

    most: int


@dataclass(frozen=True, slots=True)
class Entries:
    """One row for every `ratio` tokens, in fp32, and `pending` elements for each token that waits for a row (DeepSeek-V4.1's LayerCache)."""

    state: str
    name: str
    width: int
    ratio: int
    pending: int = 0

    def elements(self, context: int) -> int:
        """Elements held at this context."""
        return context // self.ratio * self.width + context % self.ratio * self.pending


@dataclass(frozen=True, slots=True)
class Last:
    """The last `window` rows of one latent, no more and no step (the same)."""

    width: int
    window: int


Cache = Growing | Rotating | Chunks | Arrays | Recent | Entries | Last
