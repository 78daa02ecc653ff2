"""The frame that every lesson shares: a small decoder whose layers differ only in how they mix tokens.

    x = embedding[tokens]
    a layer:   x = x + mixer(norm(x))        the lesson: attention of some kind, or a recurrence
               x = x + swiglu(norm(x))       each token for itself: nothing to remember
    logits = norm(x) @ embeddingᵀ

A mixer that is given no store sees the whole sequence and recomputes everything: the reference. A mixer that is given a store
sees the new tokens only, and whatever the store kept of the old ones. The two must say the same. What a mixer keeps is described
twice: by the tensors in its store, and by its `states`, from which kvcalc computes the bytes.

What is easy to get wrong, whatever the technique:

1. The prefill must fill the cache too: the first decoded token looks back at the whole prompt.
2. Positions continue: token t is rotated by t, with a cache as without one. `Cache.length` is where the next token stands.
3. A new request starts from an empty cache: `Cache.reset()`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn import functional

from kvcalc.lab.sizes import DTYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState
    from kvcalc.lab.sizes import Sizes

#: Rotary positions turn at base^(-2i/d) (RoFormer, arXiv:2104.09864).
ROPE_BASE = 10000.0


class Weights:
    """Draws every weight from one seeded generator, on the CPU, so that each device gets the same model."""

    def __init__(self, sizes: Sizes) -> None:
        self.generator = torch.Generator().manual_seed(sizes.seed)
        self.device = sizes.device
        self.count = 0

    def matrix(self, rows: int, columns: int) -> Tensor:
        """A rows x columns matrix that keeps the size of what it multiplies."""
        self.count += rows * columns
        return (torch.randn(rows, columns, generator=self.generator) * rows**-0.5).to(self.device)

    def uniform(self, count: int, least: float, most: float) -> Tensor:
        """`count` numbers between `least` and `most`."""
        self.count += count
        return (torch.rand(count, generator=self.generator) * (most - least) + least).to(self.device)


class Store(Protocol):
    """What one layer keeps of the tokens that it has seen."""

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that is kept."""
        ...

    def reset(self) -> None:
        """Forget everything: the next token is a new request's first."""
        ...


@dataclass(slots=True)
class Step:
    """One call of the decoder, as a mixer sees it.

    at       positions of the new tokens, [..., n]
    layer    the mixer's own index
    kept     its store; None: no cache, `at` starts at 0 and the call holds the whole sequence
    shared   what layers of this call leave for later layers (cross-layer sharing)
    turns    the angles of `at` by width: the same for every layer of the call
    """

    at: Tensor
    layer: int
    kept: Any
    shared: dict[int, Any]
    turns: dict[int, tuple[Tensor, Tensor]]

    def turn(self, width: int) -> tuple[Tensor, Tensor]:
        """What `rotate` turns vectors of `width` by."""
        if width not in self.turns:
            self.turns[width] = angles(self.at, width)
        return self.turns[width]


class Mixer(Protocol):
    """How a layer lets tokens see each other."""

    @property
    def states(self) -> tuple[AnyState, ...]:
        """What kvcalc says that the layer keeps."""
        ...

    def store(self) -> Store:
        """An empty store of the kind that suits the layer."""
        ...

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """[..., n, dim] → [..., n, dim]."""
        ...


@dataclass
class Cache:
    """The stores of all layers, and how many tokens they have seen."""

    stores: Sequence[Store]
    length: int = 0

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that is kept, of every layer."""
        return tuple(tensor for store in self.stores for tensor in store.tensors())

    def advance(self, tokens: Tensor) -> None:
        """The decoder has seen `tokens`: positions continue after them."""
        self.length += tokens.shape[-1]

    def reset(self) -> None:
        """Make ready for another request."""
        for store in self.stores:
            store.reset()
        self.length = 0


class FeedForward:
    """SwiGLU (arXiv:2002.05202): three matrices, no memory."""

    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        self.gate = weights.matrix(sizes.dim, sizes.hidden)
        self.up = weights.matrix(sizes.dim, sizes.hidden)
        self.down = weights.matrix(sizes.hidden, sizes.dim)

    def __call__(self, x: Tensor) -> Tensor:
        """A gate, its product, and back."""
        return (functional.silu(x @ self.gate) * (x @ self.up)) @ self.down


@dataclass
class Decoder:
    """Layers in order, between an embedding and its transpose."""

    sizes: Sizes
    embedding: Tensor
    layers: list[tuple[Mixer, FeedForward]]
    parameters: int = field(default=0)

    @property
    def mixers(self) -> list[Mixer]:
        """The mixer of every layer."""
        return [mixer for mixer, _ in self.layers]

    def start(self, make: Callable[[], Store] | None = None) -> Cache:
        """An empty cache: each layer's own kind of store, or `make()` for every layer."""
        return Cache([make() if make else mixer.store() for mixer in self.mixers])

    def hidden(self, tokens: Tensor, at: Tensor, cache: Cache | None = None) -> Tensor:
        """The last layer's output for every new token, [..., n, dim]."""
        x = self.embedding[tokens]
        shared: dict[int, Any] = {}
        turns: dict[int, tuple[Tensor, Tensor]] = {}
        for index, (mixer, feed_forward) in enumerate(self.layers):
            x = x + mixer(norm(x), Step(at, index, cache.stores[index] if cache else None, shared, turns))
            x = x + feed_forward(norm(x))
        if cache:
            cache.advance(tokens)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """[..., dim] → [..., vocabulary]."""
        return norm(x) @ self.embedding.T

    def __call__(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits of the token after `tokens`; with a cache, `tokens` are the new ones only."""
        start = cache.length if cache else 0
        at = torch.arange(start, start + tokens.shape[-1], device=tokens.device)
        return self.logits(self.hidden(tokens, at, cache)[..., -1, :])

    def architecture(self) -> Architecture:
        """The same decoder as kvcalc describes models: a layout of states."""
        from kvcalc.core.architecture import Architecture, Layout

        names: dict[tuple[AnyState, ...], str] = {}
        for mixer in self.mixers:
            names.setdefault(mixer.states, f"kind{len(names)}")
        pattern = tuple(names[mixer.states] for mixer in self.mixers)
        layout = Layout(pattern=pattern, count=len(pattern), states={name: states for states, name in names.items()})
        return Architecture(id="lab", family="lab", dtype=DTYPE, parameters=self.parameters, layers=layout)


def build(sizes: Sizes, mixer: Callable[[Weights, int], Mixer]) -> Decoder:
    """A decoder whose layer `index` mixes with `mixer(weights, index)`."""
    weights = Weights(sizes)
    embedding = weights.matrix(sizes.dim, sizes.vocabulary).T.contiguous()
    layers = [(mixer(weights, index), FeedForward(weights, sizes)) for index in range(sizes.layers)]
    return Decoder(sizes, embedding, layers, weights.count)


def norm(x: Tensor) -> Tensor:
    """RMSNorm (arXiv:1910.07467) without a gain: random weights would learn nothing by one."""
    return functional.rms_norm(x, (x.shape[-1],))


def split(x: Tensor, heads: int) -> Tensor:
    """[..., n, heads x d] → [..., heads, n, d]."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge(x: Tensor) -> Tensor:
    """[..., heads, n, d] → [..., n, heads x d]."""
    return x.transpose(-3, -2).flatten(-2)


def angles(at: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position x frequency, [..., 1, n, width / 2]: one for all heads."""
    frequency = ROPE_BASE ** (-torch.arange(0, width, 2, device=at.device) / width)
    angle = at[..., None, :, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of Q or K, [..., heads, n, width]; V is never rotated, and no byte depends on it."""
    cosine, sine = turn
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
