"""Cross-layer sharing (CLA, arXiv:2405.12981; Gemma 3n): some layers read the keys and values of an earlier one.

    bytes = 2 x producers x kv_heads x head_dim x T x element size        readers keep nothing

Here every second layer reads its neighbour below (CLA2): half the bytes. A reader has a query projection and an output, and no
K and V projections at all.

What is easy to get wrong: a reader must look at what its producer sees *in this step*, the new token included, and must not
extend the cache a second time. A producer must be of the reader's own kind: a full layer cannot read a sliding layer's ring.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.states import Shared
from kvcalc.lab.attention import CAUSAL, Attention, attend, visible
from kvcalc.lab.frame import Step, Weights, build, rotate, split
from kvcalc.lab.lesson import Lesson

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Decoder, Mixer, Store
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial


class NoStore:
    """The store of a layer that reads another layer's rows."""

    def tensors(self) -> tuple[Tensor, ...]:
        """No tensor: the rows are the producer's."""
        return ()

    def reset(self) -> None:
        """Nothing to forget."""


class Reader:
    """Attention over another layer's keys and values."""

    def __init__(self, weights: Weights, sizes: Sizes, producer: int) -> None:
        self.producer = producer
        self.heads = sizes.heads
        self.width = sizes.head_dim
        self.to_query = weights.matrix(sizes.dim, self.heads * self.width)
        self.out = weights.matrix(self.heads * self.width, sizes.dim)

    @property
    def states(self) -> tuple[AnyState, ...]:
        """One state that owns nothing."""
        return (Shared(shares_with=self.producer),)

    def store(self) -> Store:
        """Nothing to keep."""
        return NoStore()

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """Project and rotate the queries only, and look at what the producer sees."""
        seen = step.shared[self.producer]
        query = rotate(split(x @ self.to_query, self.heads), step.turn(self.width))
        return attend(query, seen.keys, seen.values, visible(CAUSAL, step.at, seen.at), self.width**-0.5) @ self.out


def shared(sizes: Sizes) -> Decoder:
    """Producer, reader, producer, reader, and so on."""

    def mixer(weights: Weights, index: int) -> Mixer:
        return Reader(weights, sizes, index - 1) if index % 2 else Attention(weights, sizes, sizes.groups)

    return build(sizes, mixer)


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del trial
    layers = decoder.sizes.layers
    return (f"{-(-layers // 2)} of {layers} layers keep K and V, the others read them",)


LESSONS = {"share": Lesson(shared, notes=_note)}
