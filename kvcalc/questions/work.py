"""What a decoding step reads, and what T tokens cost to compute with and without a cache.

    positions(t)     positions that one query attends to at length t: t · min(t, window) · place in the chunk · min(t, top_k)
    projections      multiply-adds from the hidden state: hidden x (2 x query_heads x head_dim + elements stored)
    scores           multiply-adds against what is stored: query_heads x (key width + value width) a position
    with a cache     each token once:                        projections x T              + scores x Σ positions(t)
    without          all tokens before it again, each step:  projections x T (T + 1) / 2  + scores x Σ Σ positions(s)

    MHA, 32 layers of 32 heads x 128, hidden 4,096, 32,768 tokens: projections 4 x 4,096² x 32 x 32,768 = 70,368,744,177,664 with
    a cache. Feed-forward layers are left out: they cost the same factor (T + 1) / 2, and keep nothing.

A recurrent layer reads no positions: it updates and reads its matrix, 2 multiply-adds an element a token. Its projections are
counted for gated DeltaNet and Mamba-2. Index keys are scored at every position by few small heads, which is not counted.
All sums are closed forms of integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.questions.documents.compare import Operations, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.core.architecture import Architecture, Layout
    from kvcalc.core.states import AnyState

#: Widths of all projections of a recurrent layer, in and out, over the hidden width (the reference implementations).
#: gated DeltaNet: q, k, v through the convolution, gate and output of value width, two numbers a head
#: Mamba-2: gate, x and output of the inner width, B and C, one step size a head
_RECURRENT_WIDTHS: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "gated_deltanet": lambda at: (
        2 * at["key_heads"] * at["key_head_dim"] + 3 * at["value_heads"] * at["value_head_dim"] + 2 * at["value_heads"]
    ),
    "mamba2": lambda at: 3 * at["heads"] * at["head_dim"] + 2 * at["groups"] * at["state_dim"] + at["heads"],
}
_ATTENTION = frozenset({"full", "sliding", "chunked", "latent"})


class Reach(NamedTuple):
    """How many positions a layer's query attends to: kind and size as those of an extent."""

    kind: str
    size: int = 0

    def at(self, length: int) -> int:
        """Positions at `length` tokens, the token itself included."""
        if self.kind == "window":
            return min(length, self.size)
        if self.kind == "chunk":
            return (length - 1) % self.size + 1 if length else 0
        return length

    def sum(self, tokens: int) -> int:
        """Σ at(t) for t = 1 … tokens."""
        if self.kind == "window":
            inside = min(tokens, self.size)
            return _triangle(inside) + (tokens - inside) * self.size
        if self.kind == "chunk":
            whole, rest = divmod(tokens, self.size)
            return whole * _triangle(self.size) + _triangle(rest)
        return _triangle(tokens)

    def double_sum(self, tokens: int) -> int:
        """Σ sum(t) for t = 1 … tokens."""
        if self.kind == "window":
            inside = min(tokens, self.size)
            outside = tokens - inside
            return _pyramid(inside) + outside * _triangle(inside) + self.size * _triangle(outside)
        if self.kind == "chunk":
            whole, rest = divmod(tokens, self.size)
            one = _triangle(self.size)
            return one * self.size * (whole * (whole - 1) // 2) + whole * _pyramid(self.size) + whole * one * rest + _pyramid(rest)
        return _pyramid(tokens)


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def _pyramid(n: int) -> int:
    return n * (n + 1) * (n + 2) // 6


def attended(architecture: Architecture, length: int) -> dict[int, int] | None:
    """Positions that a query attends to at `length` tokens → how many layers do; None where a layer's reach is not known."""
    found: dict[int, int] = {}
    for layer, count in _attention_layers(architecture).items():
        if layer.reach is None:
            return None
        positions = layer.reach.at(length)
        found[positions] = found.get(positions, 0) + count
    return found


def out_of_sight(architecture: Architecture, length: int) -> dict[int, int]:
    """Leading tokens that a layer with a window or chunks cannot look back to at `length` tokens → how many layers cannot."""
    found: dict[int, int] = {}
    for layer, count in _attention_layers(architecture).items():
        hidden = length - layer.sight.at(length) if layer.sight else 0
        if hidden:
            found[hidden] = found.get(hidden, 0) + count
    return found


def work(architecture: Architecture, tokens: int) -> Work | None:
    """Multiply-adds of attention for `tokens` tokens; None where a layer's widths or reach are not known."""
    hidden = architecture.hidden_dim
    once, again = [0, 0], [0, 0]
    for state, layers in architecture.states.items():
        if state.is_recurrent:
            if state.kind not in _RECURRENT_WIDTHS or hidden is None:
                return None
            projection = layers * hidden * _RECURRENT_WIDTHS[state.kind](state.to_dict())
            elements = 2 * layers * sum(buffer.elements for buffer in state.buffers() if buffer.role == "recurrent")
            once = [once[0] + projection * tokens, once[1] + elements * tokens]
            again = [again[0] + projection * _triangle(tokens), again[1] + elements * _triangle(tokens)]
    for layer, layers in _attention_layers(architecture).items():
        if layer.reach is None or layer.widths is None or hidden is None:
            return None
        projection = layers * hidden * (2 * layer.widths.queries + layer.widths.stored)
        position = layers * layer.widths.position
        once = [once[0] + projection * tokens, once[1] + position * layer.reach.sum(tokens)]
        again = [again[0] + projection * _triangle(tokens), again[1] + position * layer.reach.double_sum(tokens)]
    return Work(Operations(*once), Operations(*again))


class _Widths(NamedTuple):
    """Elements of all queries of a token, of what it stores, and multiply-adds for one attended position."""

    queries: int
    stored: int
    position: int


class _Layer(NamedTuple):
    """A layer that attends to positions; None for what is not known of it.

    sight   how far back it can look
    reach   the positions that it reads: those in sight, or the top_k among them
    """

    sight: Reach | None
    reach: Reach | None
    widths: _Widths | None


def _attention_layers(architecture: Architecture) -> dict[_Layer, int]:
    """Layers that attend to the sequence's positions, and how many are alike; a sharing layer reads its producer's rows, stores none."""
    layout = architecture.layers
    sparse = next((top for state in architecture.states if (top := getattr(state, "top_k", None)) is not None), None)
    pairs: dict[tuple[str, str | None], int] = {}
    for name in layout.order:
        pair = (name, _producer(layout, layout.states[name]))
        pairs[pair] = pairs.get(pair, 0) + 1
    found: dict[_Layer, int] = {}
    for (name, producer), count in pairs.items():
        entry = layout.states[name]
        shares = any(state.kind == "shared" for state in entry)
        if shares or any(state.kind in _ATTENTION or state.kind == "compressed" for state in entry):
            read = entry if not shares else () if producer is None else layout.states[producer]
            widths = _widths(read)
            layer = _Layer(_sight(read), _reach(read, sparse), widths._replace(stored=0) if widths and shares else widths)
            found[layer] = found.get(layer, 0) + count
    return found


def _producer(layout: Layout, entry: tuple[AnyState, ...]) -> str | None:
    """The name of the layer that a sharing layer reads; None for any other, or where it is not known."""
    index = next((getattr(state, "shares_with", None) for state in entry if state.kind == "shared"), None)
    return None if index is None or index >= layout.count else layout.order[index]


def _attention(entry: tuple[AnyState, ...]) -> AnyState | None:
    """The layer's attention; None if it has none, or a kind whose positions kvcalc does not count."""
    if any(state.kind == "compressed" for state in entry):
        return None
    return next((state for state in entry if state.kind in _ATTENTION), None)


def _sight(entry: tuple[AnyState, ...]) -> Reach | None:
    state = _attention(entry)
    if state is None:
        return None
    if state.kind == "chunked":
        return Reach("chunk", int(getattr(state, "chunk", 0)))
    window = getattr(state, "window", None)
    return Reach("tokens") if window is None else Reach("window", window)


def _reach(entry: tuple[AnyState, ...], sparse: int | None) -> Reach | None:
    """`sparse` is the model's top_k: a latent layer without index keys of its own reuses an earlier layer's choice."""
    sight = _sight(entry)
    indexed = any(state.kind == "index" for state in entry)
    if sight is None or (indexed and sparse is None):
        return None
    if sparse is None or not (indexed or any(state.kind == "latent" for state in entry)):
        return sight
    return Reach("window", min(sight.size, sparse) if sight.kind == "window" else sparse)


def _widths(entry: tuple[AnyState, ...]) -> _Widths | None:
    state = _attention(entry)
    fields = state.to_dict() if state is not None else {}
    heads = fields.get("query_heads")
    if heads is None:
        return None
    if fields["kind"] == "latent":
        latent, rope, nope = fields["latent_dim"], fields["rope_dim"], fields["nope_dim"]
        return None if nope is None else _Widths(heads * (nope + rope), latent + rope, heads * (2 * latent + rope))
    key, value = fields["head_dim"], fields["value_head_dim"] or fields["head_dim"]
    return _Widths(heads * key, fields["kv_heads"] * (key + value), heads * (key + value))
