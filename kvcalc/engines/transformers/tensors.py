"""The tensors that a layer's cache object holds after a decode step (transformers 5.24.0, cache_utils.py).

    keys, values       every token; a sliding or chunked layer min(T, W) rows, because its W - 1 tokens are a view of a tensor of W
    latent             the compressed latent as `keys`, the rotary key as `values`; before 5.15 every head's expanded K and V
    index keys         every token, in the model's own type, whatever the family compresses or skips elsewhere
    conv, recurrent    K columns of a convolution of kernel K; the matrices in fp32
    DeepSeek-V4        see `_compressed`: K and V in one tensor, compressed rows, open windows, overlaps

Slots per sequence are rows here; bytes = rows x vectors x width x bytes of the type.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.states import (
    Chunked,
    Compressed,
    Cross,
    Fixed,
    Full,
    GatedDeltaNet,
    Index,
    Kda,
    Latent,
    Lightning,
    Mamba1,
    Mamba2,
    Nothing,
    RgLru,
    Rwkv,
    Shared,
    ShortConv,
    Sliding,
)
from kvcalc.core.states.base import CACHE, MODEL
from kvcalc.engines.transformers.families import FP32, Quirk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kvcalc.core.states import AnyState, Recurrent
    from kvcalc.core.states.base import Buffer, Extent

RowsKind = Literal["tokens", "window", "entries", "open", "after", "since", "fixed", "reserved"]

INT64 = "int64"
#: DeepSeek-V4's two compressions: the one with index keys overlaps its windows and so projects every token twice.
_OVERLAPPED, _PLAIN = 2, 1


class Rows(NamedTuple):
    """How many rows of a tensor one sequence of T tokens holds.

    tokens T · window W min(T, W) · entries r T // r · open r the 1 to r tokens of the window in work · after r (r rows once the
    first window of r is full) · since n the tokens after the n-th · fixed, reserved n
    """

    kind: RowsKind
    size: int = 0

    def held(self, context: int) -> int:
        """Rows of a sequence of `context` tokens."""
        if self.kind == "tokens":
            return context
        if self.kind == "window":
            # keys[-W + 1:] of a window of one token is keys[0:]: such a layer never drops anything.
            return min(context, self.size) if self.size > 1 else context
        if self.kind == "entries":
            return context // self.size
        if self.kind == "open":
            return (context - 1) % self.size + 1
        if self.kind == "after":
            return self.size if context >= self.size else 0
        return max(context - self.size, 0) if self.kind == "since" else self.size

    def text(self, context: int) -> str:
        """The rows as a formula."""
        if self.kind == "tokens":
            return f"{context:,} tokens"
        if self.kind == "window":
            return f"min({context:,}, {self.size:,}) tokens"
        if self.kind == "entries":
            return f"({context:,} // {self.size}) entries"
        if self.kind == "open":
            return f"{self.held(context)} tokens of a window of {self.size}"
        if self.kind == "since":
            return f"{self.held(context):,} tokens decoded"
        if self.kind == "reserved":
            return f"{self.size:,} slots reserved"
        return f"{self.held(context):,} rows"

    def reserve(self, length: int | None) -> Rows:
        """The rows of a static cache of `length` tokens; None: of as many as there are."""
        if self.kind == "window" and (length is not None or self.size == 1):
            return Rows("reserved", min(self.size, length or 1))
        return Rows("reserved", length) if self.kind == "tokens" and length is not None else self

    @property
    def share(self) -> Fraction:
        """Rows that one token takes while it is held."""
        if self.kind == "entries":
            return Fraction(1, self.size)
        return Fraction(self.kind in ("tokens", "window", "since", "reserved"))

    @property
    def is_fixed(self) -> bool:
        """The rows do not depend on the context."""
        return self.kind in ("fixed", "reserved")


EVERY = Rows("tokens")


class CacheTensor(NamedTuple):
    """One tensor of a layer: `vectors` x `width` elements of `dtype` (MODEL, or a type's name) in each row."""

    state: str
    name: str
    vectors: int
    width: int
    rows: Rows
    dtype: str = MODEL

    @property
    def elements(self) -> int:
        """Elements of one row."""
        return self.vectors * self.width


class Layer(NamedTuple):
    """How a family's layers turn states into tensors: its departures from the rule.

    broadcast: KV heads are repeated to every query head. expanded: MLA is cached as K and V of every head. least_source: tokens
    that an encoder sees at least, where the config does not say how many. alone: a decoder without its encoder.
    """

    quirk: Quirk
    broadcast: bool = False
    expanded: bool = False
    least_source: int = 0
    alone: bool = False

    def tensors(self, states: Sequence[AnyState]) -> tuple[CacheTensor, ...]:
        """Every tensor of a layer that keeps `states`."""
        if any(isinstance(state, Compressed) for state in states):
            return tuple(_compressed(states))
        return tuple(tensor for state in states for tensor in self._state(state))

    def _state(self, state: AnyState) -> Iterable[CacheTensor]:
        match state:
            case Full() | Sliding() | Chunked() | Cross():
                return self._heads(state)
            case Latent():
                return self._latent(state)
            case Index():
                (keys,) = state.buffers()
                width = 2 * keys.width + 1 if self.quirk.gated_index else keys.width
                return [CacheTensor(state.kind, keys.name, keys.vectors, width, EVERY, self.quirk.index)]
            case Fixed():
                return () if self.quirk.modules else [_fixed(state, buffer) for buffer in state.buffers()]
            case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | ShortConv() | RgLru():
                return () if self.quirk.modules else [self._recurrent(state, buffer) for buffer in state.buffers()]
            case Compressed():
                return _compressed((state,))
            case Shared() | Nothing():
                return ()
            case _:
                assert_never(state)

    def _heads(self, state: Full | Sliding | Chunked | Cross) -> Iterator[CacheTensor]:
        for buffer in state.buffers():
            rows = _rows(buffer.extent)
            if isinstance(state, Sliding):
                # The file's word counts here, also for a window that the released model never reaches (`nominal`).
                rows = Rows("window", state.window)
            elif isinstance(state, Cross):
                rows = Rows("fixed", 0 if self.alone else max(buffer.extent.size, self.least_source))
            heads = state.query_heads if self.broadcast else None
            yield CacheTensor(state.kind, buffer.name, heads or buffer.vectors, buffer.width, rows)

    def _recurrent(self, state: Recurrent, buffer: Buffer) -> CacheTensor:
        if buffer.role == "conv":
            columns = Rows("fixed", buffer.extent.size + self.quirk.extra_columns)
            return CacheTensor(state.kind, buffer.name, buffer.vectors, buffer.width, columns, self.quirk.conv)
        return CacheTensor(state.kind, buffer.name, buffer.vectors, buffer.width, _rows(buffer.extent), self.quirk.recurrent)

    def _latent(self, state: Latent) -> Iterator[CacheTensor]:
        (row,) = state.buffers()
        rows = _rows(row.extent)
        if self.quirk.latent_is_kv:
            yield CacheTensor(state.kind, "key", 1, row.width, rows)
            yield CacheTensor(state.kind, "value", 1, row.width, rows)
            return
        if not self.expanded:
            yield CacheTensor(state.kind, "latent", 1, row.width - row.rope, rows)
            if row.rope:
                yield CacheTensor(state.kind, "rope", 1, row.rope, rows)
            return
        heads, nope, value = state.query_heads, state.nope_dim, state.value_head_dim
        if heads is None or nope is None or value is None:
            raise EngineRejectsError(
                "transformers before 5.15 caches the expanded heads of latent attention, and this model does not say its "
                "query_heads, nope_dim and value_head_dim",
                "add them to the latent state, or ask for version=5.24",
            )
        yield CacheTensor(state.kind, "key", heads, nope + row.rope, rows)
        yield CacheTensor(state.kind, "value", heads, value, rows)


def _fixed(state: Fixed, buffer: Buffer) -> CacheTensor:
    dtype = MODEL if buffer.dtype == CACHE else buffer.dtype
    return CacheTensor(state.kind, buffer.name, buffer.vectors, buffer.width, _rows(buffer.extent), dtype)


def windowed(kept: tuple[CacheTensor, ...], window: int) -> tuple[CacheTensor, ...]:
    """A layer's tensors with the rows of a window where they had every token's; 0: as they are."""
    if not window:
        return kept
    return tuple(tensor._replace(rows=Rows("window", window)) if tensor.rows == EVERY else tensor for tensor in kept)


def _rows(extent: Extent) -> Rows:
    if extent.kind == "tokens":
        return EVERY
    if extent.kind in ("window", "chunk"):
        return Rows("window", extent.size)
    return Rows("fixed", extent.size)


def _compressed(states: Sequence[AnyState]) -> Iterator[CacheTensor]:
    """A compressing layer of DeepSeek-V4 (modeling_deepseek_v4.py, DeepseekV4HCACache and DeepseekV4CSACache).

    window            D, K and V in one tensor (a layer that only slides cats them into two)
    compressed        T // r rows of D, and of I for the index keys
    open window       the projected kv and gate of the tokens since the last full window: D, twice D where windows overlap
    overlap           r rows of D and I of the last full window, gates in fp32
    """
    windows = [state for state in states if isinstance(state, Latent)]
    (entry,) = (buffer for state in states if isinstance(state, Compressed) for buffer in state.buffers())
    indexed = [buffer for state in states if isinstance(state, Index) for buffer in state.buffers()]
    ratio, kind = entry.extent.size, "compressed"
    for window in windows:
        for buffer in window.buffers():
            yield CacheTensor(window.kind, "latent", 1, buffer.width, _rows(buffer.extent))
    series = _OVERLAPPED if indexed else _PLAIN
    for name, width in [("latent", entry.width), *(("index", buffer.width) for buffer in indexed)]:
        yield CacheTensor(kind, name, 1, width, Rows("entries", ratio))
        for part in ("open_kv", "open_gate"):
            yield CacheTensor(kind, f"{name}_{part}", 1, series * width, Rows("open", ratio))
        if indexed:
            yield CacheTensor(kind, f"{name}_overlap_kv", 1, width, Rows("after", ratio))
            yield CacheTensor(kind, f"{name}_overlap_gate", 1, width, Rows("after", ratio), FP32)
