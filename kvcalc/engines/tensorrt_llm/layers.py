"""What a layer stores for one token on one rank, and for one request whatever its length.

    heads         ⌈kv_heads / tp⌉ x head_dim, K and V alike; tp counts as 1 with attention data parallelism
    latents       lora + rope, one row, the same on every rank
    index keys    index_dim + index_dim // 128 x 4 bytes on the layers that own an indexer, whatever the cache's type;
                  up to 1.2 on every layer with latents
    no cache      nothing; layers that read another layer's cache are given one of their own

Source: TensorRT-LLM, _torch/pyexecutor/resource_manager.py (KVCacheManager) and _util.py (_create_kv_cache_manager).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import FORMATS
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
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.states import AnyState

#: Elements behind one scale of an NVFP4 cache.
FP4_BLOCK = 16


class Row(NamedTuple):
    """One tensor of a pool: what a layer stores for a token.

    rank     bytes on one rank        whole    bytes of the whole model, once
    window   tokens that the layer's pool keeps of a sequence; 0: all of them
    scales   bytes of `rank` that are scales, in a buffer of their own
    ratio    tokens behind one row of `row` bytes, of which a block holds whole ones; 1: a row a token
    kin      compression ratio of the layer, where rows of one size belong to layers of several
    """

    state: str
    buffer: str
    width: int
    format: str
    rank: int
    whole: int
    window: int = 0
    scales: int = 0
    ratio: int = 1
    row: int = 0
    kin: int = 0

    def block_bytes(self, block: int) -> int:
        """Bytes of a block of one layer, on one rank."""
        return block // self.ratio * self.row if self.ratio > 1 else block * self.rank

    def buffers(self, block: int) -> tuple[int, ...]:
        """The same, buffer by buffer."""
        scales = block * self.scales
        return (self.block_bytes(block) - scales, scales) if scales else (self.block_bytes(block),)


class Part(NamedTuple):
    """One tensor that a request holds whatever its length: `rows` rows, `rank` bytes in all on one rank."""

    state: str
    buffer: str
    width: int
    format: str
    rows: int
    rank: int


@dataclass(frozen=True, slots=True)
class Stage:
    """What the layers of one pipeline stage keep, each row and part with its number of layers."""

    rows: Mapping[Row, int]
    parts: Mapping[Part, int]

    @property
    def part_bytes(self) -> int:
        """Bytes that one request holds on one rank of this stage, whatever its length."""
        return sum(part.rank * layers for part, layers in self.parts.items())

    def windows(self) -> tuple[int, ...]:
        """The windows of this stage's pools, in order of first appearance."""
        return tuple(dict.fromkeys(row.window for row in self.rows))

    def token_bytes(self, window: int) -> int:
        """Bytes of one token in the pool of that window, on one rank."""
        return sum(row.rank * layers for row, layers in self.rows.items() if row.window == window)

    def block_bytes(self, window: int, block: int) -> int:
        """Bytes of one block in the pool of that window, on one rank."""
        return sum(row.block_bytes(block) * layers for row, layers in self.rows.items() if row.window == window)


class LayerReader:
    """Turns the states of layers into rows.

    every_index: layers with latents have index keys wherever the model has any, as up to release 1.2
    """

    def __init__(self, architecture: Architecture, stored: Format, ranks: int, *, every_index: bool) -> None:
        self.architecture, self.stored, self.ranks, self.every_index = architecture, stored, ranks, every_index
        index = [state for state in architecture.states if isinstance(state, Index)]
        self.index = index[0] if index else None
        if self.index is not None and not any(isinstance(state, Latent) for state in architecture.states):
            raise UnsupportedArchitectureError(
                f"kvcalc knows TensorRT-LLM's index keys beside latents only, and {clean(architecture.id)} has none"
            )
        if any(state.pool > 1 or state.ratio > 1 for state in index):
            raise UnsupportedArchitectureError("kvcalc has no rule for TensorRT-LLM's pooled index keys")

    def rows(self, names: Sequence[tuple[str, int]]) -> dict[Row, int]:
        """Rows of the named layers, each name with the window that its layer was given."""
        found: Counter[Row] = Counter()
        for (name, window), layers in Counter(names).items():
            states = self.architecture.layers.states[name]
            own_index = any(isinstance(state, Index) for state in states)
            for state in states:
                for row in self._state_rows(state, own_index=own_index):
                    found[row._replace(window=window)] += layers
        return dict(found)

    def _state_rows(self, state: AnyState, *, own_index: bool) -> Iterable[Row]:
        match state:
            case Shared():
                return self._state_rows(owner_of(self.architecture, state), own_index=own_index)
            case Full() | Sliding() | Chunked():
                return self._head_rows(state)
            case Latent():
                return self._latent_rows(state, own_index=own_index)
            case Nothing() | Index():
                return ()
            case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | ShortConv() | RgLru() | Fixed():
                return ()  # states.py
            case Cross() | Compressed():
                raise UnsupportedArchitectureError(f"kvcalc has no rule for TensorRT-LLM's cache of {state.kind} layers")
            case _:
                assert_never(state)

    def _head_rows(self, state: Full | Sliding | Chunked) -> Iterable[Row]:
        heads, width = -(-state.kv_heads // self.ranks), state.head_dim
        self._check_width(heads * width, f"{heads} heads of {width}")
        for buffer in ("key", "value"):
            rank, whole = self._bytes(heads * width), self._bytes(state.kv_heads * width)
            scales = heads * width // FP4_BLOCK if self.stored.block > 1 else 0
            yield Row(state.kind, buffer, state.kv_heads * width, self.stored.name, rank, whole, scales=scales)

    def _bytes(self, elements: int) -> int:
        return -(-elements // self.stored.block) * self.stored.block_bytes

    def _check_width(self, elements: int, what: str) -> None:
        if self.stored.block > 1 and elements % self.stored.block:
            raise EngineRejectsError(
                f"TensorRT-LLM's NVFP4 cache scales {FP4_BLOCK} elements at a time, and {what} do not divide by it", "choose fp8"
            )

    def _latent_rows(self, state: Latent, *, own_index: bool) -> Iterable[Row]:
        if self.stored.block > 1:
            raise UnsupportedArchitectureError(
                "kvcalc has no rule for TensorRT-LLM's 4-bit latents, which depend on the attention backend", "choose fp8 or auto"
            )
        width = state.latent_dim + state.rope_dim
        size = self.stored.row_bytes(width)
        yield Row("latent", "latent", width, self.stored.name, size, size)
        if self.index is not None and (own_index or self.every_index):
            key = FORMATS["index_fp8"].row_bytes(self.index.index_dim)
            yield Row("index", "index", self.index.index_dim, "index_fp8", key, key)


def owner_of(architecture: Architecture, state: Shared) -> Full | Sliding | Chunked | Latent:
    """The state whose shape and window a sharing layer has: TensorRT-LLM gives it rows of its own that nothing fills.

    Raises UnsupportedArchitectureError where nothing says whose cache it reads.
    """
    layers, owner = architecture.layers, state.shares_with
    kept = layers.layer(owner) if owner is not None and owner < layers.count else ()
    found = next((item for item in kept if isinstance(item, Full | Sliding | Chunked | Latent)), None)
    if found is None:
        raise UnsupportedArchitectureError(
            f"a layer of {clean(architecture.id)} shares another's cache, and nothing says whose", "name it with shares_with"
        )
    return found
