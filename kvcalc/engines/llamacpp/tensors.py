"""What one layer's states become in llama.cpp: tensors, each with the kind of rows it has.

    full, sliding, chunked     K of kv_heads x head_dim and V of kv_heads x value_head_dim
    latent                     K alone, latent and rotary part; expanded heads where the file stores them so
    index                      one K row, pooled rows beside it; a V row that nothing reads where the cache is not flagged K-only
    compressed                 K in entries, and the fp32 sums of the entry that is still open
    recurrent                  convolution and matrix, fp32, one row a sequence

(llama-kv-cache.cpp, llama-kv-cache-dsa.cpp, llama-kv-cache-msa.cpp, llama-kv-cache-dsv4.cpp, llama-memory-recurrent.cpp)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

from kvcalc.core.errors import UnsupportedArchitectureError
from kvcalc.core.states import (
    Chunked,
    Compressed,
    Cross,
    Full,
    GatedDeltaNet,
    Index,
    Latent,
    Mamba2,
    Nothing,
    Recurrent,
    Shared,
    Sliding,
)
from kvcalc.engines.base.windows import window_of
from kvcalc.engines.llamacpp.architectures import ARCHITECTURES, ArchitectureRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcalc.core.states import AnyState

Store = Literal["key", "value", "state"]
Space = Literal["full", "window", "entries", "state"]

#: DSV4_CSA_RATIO and DSV4_HCA_RATIO (llama-kv-cache-dsv4.cpp): rows of the open entry, and how many entries wide they are.
_OPEN_ENTRY = {4: (8, 2), 128: (128, 1)}


class Tensor(NamedTuple):
    """One tensor of one layer.

    state, buffer    as in a plan's line              width   elements of a row
    store            which type it has: K's, V's, or fp32
    space, size      whose rows: of the context, of the window, entries of `size` tokens, `size` rows of state
    idle             allocated, and read by nothing
    """

    state: str
    buffer: str
    width: int
    store: Store
    space: Space
    size: int = 1
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How an architecture reads states.

    name          llama.cpp architecture                expanded   latents are stored as heads
    windowed      window layers are told apart          draft      the states are a draft context's
    converted     the states come from a config.json    value      width of a V head that the converter leaves untold
    """

    name: str
    windowed: bool
    expanded: bool = False
    draft: bool = False
    converted: bool = False
    value: int = 0

    @property
    def rule(self) -> ArchitectureRule:
        """The architecture's row."""
        return ARCHITECTURES[self.name]

    def tensors(self, states: Iterable[AnyState]) -> tuple[Tensor, ...]:
        """The tensors of one layer. Raises UnsupportedArchitectureError for a state that llama.cpp has none for."""
        kept = tuple(states)
        return tuple(tensor for state in kept for tensor in _tensors(state, self, kept))

    def for_drafts(self) -> Reading:
        """The same in a draft context."""
        return replace(self, draft=True)

    def space(self, window: int | None) -> Space:
        """Where a layer with this window lies."""
        return "window" if window and self.windowed else "full"


def _tensors(state: AnyState, reading: Reading, layer: tuple[AnyState, ...]) -> tuple[Tensor, ...]:
    """The tensors of one state of a layer."""
    match state:
        case Full():
            return _pair(state, "full")
        case Sliding() | Chunked():
            return _pair(state, reading.space(window_of(state)))
        case Latent():
            return _latent(state, reading)
        case Index():
            return _index(state, reading, layer)
        case Compressed():
            return _compressed(state)
        case Shared() | Nothing():
            # A layer without KV heads has tensors of no width, and its V is widened like any other; a feed-forward block has none.
            idle = isinstance(state, Nothing) and not reading.rule.feed_forward_blocks
            return (Tensor("none", "value", 0, "value", "full"),) if idle else ()
        case Cross():
            raise UnsupportedArchitectureError(f"kvcalc has no rule for the cross-attention of llama.cpp's {reading.name}")
        case Recurrent():
            return _recurrent(state, reading)
        case _:
            assert_never(state)


def _recurrent(state: Recurrent, reading: Reading) -> tuple[Tensor, ...]:
    """Convolution and matrix: every row of a buffer that has a fixed number of them, side by side."""
    if isinstance(state, Mamba2) and reading.rule.narrow_convolution and reading.converted:
        inner = state.heads * state.head_dim
        convolution = Tensor(state.kind, "conv", inner * max(state.conv_kernel - 1, 0), "state", "state")
        return (convolution, Tensor(state.kind, "recurrent", inner * state.state_dim, "state", "state"))
    return tuple(Tensor(state.kind, buffer.name, buffer.elements * buffer.extent.size, "state", "state") for buffer in state.buffers())


def _pair(state: Full | Sliding | Chunked, space: Space) -> tuple[Tensor, ...]:
    return (
        Tensor(state.kind, "key", state.kv_heads * state.head_dim, "key", space),
        Tensor(state.kind, "value", state.kv_heads * state.value_width, "value", space),
    )


def _latent(state: Latent, reading: Reading) -> tuple[Tensor, ...]:
    if reading.expanded:
        if state.query_heads is None or state.nope_dim is None or state.value_head_dim is None:
            raise UnsupportedArchitectureError(
                f"llama.cpp stores the expanded heads of a {reading.name} model, and this model does not say their widths",
                "its latent layers need query_heads, nope_dim and value_head_dim",
            )
        value = reading.value or state.value_head_dim
        return (
            Tensor("latent", "key", state.query_heads * (state.nope_dim + state.rope_dim), "key", "full"),
            Tensor("latent", "value", state.query_heads * value, "value", "full"),
        )
    row = state.latent_dim + state.rope_dim
    space = reading.space(state.window)
    if reading.rule.compressed and reading.draft:
        return (Tensor("latent", "key", row, "key", space), Tensor("latent", "value", row, "value", space))
    # The draft context of dots3-note is one plain cache: its window layers hold everything.
    return (Tensor("latent", "latent", row, "key", "full" if reading.draft else space),)


def _index(state: Index, reading: Reading, layer: tuple[AnyState, ...]) -> tuple[Tensor, ...]:
    if reading.draft and not reading.rule.drafts.indexed:
        return ()
    width = state.vectors * state.index_dim
    if reading.rule.compressed:
        return (Tensor("index", "index", width, "key", "entries", state.ratio), *_open_entry("index", width, state.ratio))
    pooled = reading.rule.index_rows or 1
    if state.ratio == 1 and state.pool == 1:
        pooled = 1
    key = Tensor("index", "index", pooled * width, "key", "full")
    if reading.rule.index_rows or (any(isinstance(item, Latent) for item in layer) and not reading.expanded):
        return (key,)
    value = max((_value_head(item) for item in layer), default=0)
    return (key, Tensor("index", "value", value, "value", "full", idle=True))


def _value_head(state: AnyState) -> int:
    """Elements of one V head, 0 without one."""
    if isinstance(state, Full | Sliding | Chunked | Cross):
        return state.value_width
    return (state.value_head_dim or 0) if isinstance(state, Latent | GatedDeltaNet) else 0


def _compressed(state: Compressed) -> tuple[Tensor, ...]:
    if state.ratio not in _OPEN_ENTRY:
        return ()
    entry = Tensor("compressed", "latent", state.latent_dim, "key", "entries", state.ratio)
    return (entry, *_open_entry("compressed", state.latent_dim, state.ratio))


def _open_entry(state: str, width: int, ratio: int) -> tuple[Tensor, ...]:
    """Keys and scores of the tokens that have not become an entry."""
    rows, entries = _OPEN_ENTRY.get(ratio, (0, 0))
    return tuple(Tensor(state, buffer, entries * width, "state", "state", rows) for buffer in ("open_key", "open_score") if rows)
