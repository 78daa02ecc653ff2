"""The tensors that ExLlamaV3 1.6.5 allocates for the states of one layer: pages shared by all sequences, and slots of one each.

pages   one row for `ratio` tokens of the pool of `max_num_tokens`        cache/fp16.py, quant.py, mla.py, qsa.py, dsa.py
slots   `rows` rows for each of `max_batch_size` sequences                modules/sliding_attn.py, gated_delta_net.py, short_conv.py, ple.py

Storage is fp16 whatever the model's type. Only K, V and latents in pages are ever quantised: 32 elements to `bits` words of
4 B and one fp16 scale, which is bits + 0.5 bits an element. Rings, states, rotary parts and index keys stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState

#: Tokens of one page (constants.py, PAGE_SIZE).
PAGE = 256
#: What a ring keeps beyond its window, so that drafts can be taken back (sliding_attn.py, dsa.py).
_SLACK = 2 * PAGE
#: Elements that share a scale in the quantised cache.
_GROUP = 32
#: The ratio whose rows DeepSeek-V4 indexes, and the only other one ("csa", "hca").
_INDEXED, _HEAVY = 4, 128
#: Bytes of an element.
_FP16, _FP32, _INT64 = 2, 4, 8


class Tensor(NamedTuple):
    """One tensor of a layer.

    width    elements of a row        row      bytes of a row
    ratio    tokens of the pool for one row; 0 where the tensor has `rows` rows a slot instead
    """

    state: str
    buffer: str
    format: str
    width: int
    row: int
    ratio: int = 0
    rows: int = 0

    @property
    def is_ring(self) -> bool:
        """Rows of a slot that tokens take one after the other."""
        return not self.ratio and self.state in ("sliding", "latent")

    def held(self, tokens: int, slots: int) -> int:
        """Rows in all, for a pool of `tokens` and `slots` sequences."""
        return tokens // PAGE * (PAGE // self.ratio) if self.ratio else slots * self.rows

    def bytes(self, tokens: int, slots: int) -> int:
        """Bytes of the tensor in one layer."""
        return self.held(tokens, slots) * self.row


@dataclass(frozen=True, slots=True)
class Storage:
    """How a cache is asked to be: the settings that change what a layer allocates.

    key_bits, value_bits   of the quantised cache; None = fp16
    history                `max_history`: draft tokens that a recurrent state can take back
    state_bytes            of one element of a Gated DeltaNet's or KDA's matrix: 2 or 4
    ring                   what a window layer takes off its window to make its ring; None = full pages
    """

    key_bits: int | None
    value_bits: int | None
    history: int
    state_bytes: int
    ring: int | None


def layer_tensors(states: Sequence[AnyState], storage: Storage, architecture: Architecture) -> list[Tensor]:
    """All tensors of a layer with these states. Raises EngineRejectsError, UnsupportedArchitectureError."""
    return [tensor for state in states for tensor in _tensors(state, states, storage, architecture)]


def _tensors(state: AnyState, beside: Sequence[AnyState], storage: Storage, architecture: Architecture) -> Iterator[Tensor]:
    match state:
        case Full():
            yield from _pages(state, storage)
        case Sliding():
            yield from _pages(state, storage) if storage.ring is None else _ring(state, storage.ring)
        case Latent(window=None):
            yield from _latent(state, storage)
        case Latent():
            # Only DeepSeek-V4's latents have a window.
            yield Tensor(state.kind, "ring", "fp16", _width(state), _width(state) * _FP16, rows=_ring_rows(state.window or 0))
        case Index():
            yield from _index(state, beside)
        case Compressed():
            yield from _compressed(state, storage)
        case GatedDeltaNet():
            matrix = _Matrix(state.conv_channels, state.value_heads, state.key_head_dim, state.value_head_dim, state.value_heads)
            yield from _recurrent(state.kind, matrix, state.conv_kernel, storage, storage.state_bytes)
        case Kda():
            matrix = _Matrix(state.conv_channels, state.heads, state.head_dim, state.head_dim, state.heads * state.head_dim)
            yield from _recurrent(state.kind, matrix, state.conv_kernel, storage, storage.state_bytes)
        case Mamba2():
            # Mamba-2 keeps fp32 whatever is asked: its states span a far wider range.
            matrix = _Matrix(state.conv_channels, state.heads, state.state_dim, state.head_dim, state.heads)
            yield from _recurrent(state.kind, matrix, state.conv_kernel, storage, _FP32)
        case ShortConv():
            yield Tensor(state.kind, "conv", "fp16", state.channels, state.channels * _FP16, rows=state.conv_kernel + storage.history)
        case Fixed():
            yield _ngram(state, storage, architecture)
        case Nothing():
            return
        case Chunked() | Cross() | Shared() | Mamba1() | Lightning() | Rwkv() | RgLru():
            raise UnsupportedArchitectureError(
                f"ExLlamaV3 1.6.5 has no cache for {state.kind} states", "ask an engine that serves them, or ideal"
            )
        case _:
            assert_never(state)


def _quantised(width: int, bits: int | None) -> tuple[str, int]:
    """Format and bytes of `width` elements; elements beyond whole groups of 32 have no room, as in the engine."""
    if bits is None:
        return "fp16", width * _FP16
    return f"{bits} bits", width // _GROUP * (bits * 4 + _FP16)


def _pages(state: Full | Sliding, storage: Storage) -> Iterator[Tensor]:
    """K and V, both as wide as K: a narrower V is padded."""
    width = state.kv_heads * state.head_dim
    for name, bits in (("key", storage.key_bits), ("value", storage.value_bits)):
        kind, row = _quantised(width, bits)
        yield Tensor(state.kind, name, kind, width, row, ratio=1)


def _ring_rows(window: int) -> int:
    return -(-(window + _SLACK) // PAGE) * PAGE


def _ring(state: Sliding, less: int) -> Iterator[Tensor]:
    width = state.kv_heads * state.head_dim
    for name in ("key", "value"):
        yield Tensor(state.kind, name, "fp16", width, width * _FP16, rows=_ring_rows(state.window - less))


def _latent(state: Latent, storage: Storage) -> Iterator[Tensor]:
    if storage.key_bits is not None and state.latent_dim % _GROUP:
        raise EngineRejectsError(
            f"ExLlamaV3 quantises latents in groups of {_GROUP}, and {state.latent_dim} is no multiple of it", "leave out k_bits and v_bits"
        )
    kind, row = _quantised(state.latent_dim, storage.key_bits)
    yield Tensor(state.kind, "latent", kind, state.latent_dim, row, ratio=1)
    if state.rope_dim:
        yield Tensor(state.kind, "rope", "fp16", state.rope_dim, state.rope_dim * _FP16, ratio=1)


def _index(state: Index, beside: Sequence[AnyState]) -> Iterator[Tensor]:
    """Index keys, always fp16: of DeepSeek-V4 one for each compressed row, of DSA one a token, of QSA both the raw and the pooled."""
    row = state.index_dim * _FP16
    if any(isinstance(other, Compressed) for other in beside):
        wide = 2 * state.index_dim
        yield Tensor(state.kind, "index", "fp16", state.index_dim, row, ratio=state.ratio)
        yield Tensor(state.kind, "index window", "fp16", wide, wide * _FP16, rows=2 * (PAGE + state.ratio))
        yield Tensor(state.kind, "index overlap", "fp32", state.index_dim, state.index_dim * _FP32, rows=_overlap_rows(state.ratio))
    elif any(isinstance(other, Full) for other in beside):
        yield Tensor(state.kind, "index", "fp16", state.index_dim, row, ratio=1)
        yield Tensor(state.kind, "index pool", "fp16", state.index_dim, row, ratio=state.ratio)
    elif state.pool > 1:
        # A gate stands beside each key until its pool is full.
        yield Tensor(state.kind, "index", "fp16", 2 * state.index_dim, 2 * row, ratio=1)
        yield Tensor(state.kind, "index pool", "fp16", state.index_dim, row, ratio=state.pool)
    else:
        yield Tensor(state.kind, "index", "fp16", state.index_dim, row, ratio=1)


def _width(state: Latent) -> int:
    return state.latent_dim + state.rope_dim


def _compressed(state: Compressed, storage: Storage) -> Iterator[Tensor]:
    """DeepSeek-V4's pool of compressed rows, and what each sequence keeps of the tokens that are not compressed yet."""
    if state.ratio not in (_INDEXED, _HEAVY):
        raise EngineRejectsError(
            f"ExLlamaV3 knows compressed layers of ratio {_INDEXED} and {_HEAVY}, and this one has {state.ratio}",
            "ask an engine that serves it, or ideal",
        )
    nope, rope = state.latent_dim - state.rope_dim, state.rope_dim
    # A latent that does not come out in groups stays in fp16 without a word.
    kind, row = _quantised(nope, None if nope % _GROUP else storage.key_bits)
    yield Tensor(state.kind, "latent", kind, nope, row, ratio=state.ratio)
    yield Tensor(state.kind, "rope", "fp16", rope, rope * _FP16, ratio=state.ratio)
    wide = state.latent_dim * (2 if state.ratio == _INDEXED else 1)
    yield Tensor(state.kind, "window", "fp16", wide, wide * _FP16, rows=2 * (PAGE + state.ratio))
    if state.ratio == _INDEXED:
        yield Tensor(state.kind, "overlap", "fp32", state.latent_dim, state.latent_dim * _FP32, rows=_overlap_rows(state.ratio))


def _overlap_rows(ratio: int) -> int:
    """Snapshots of the last windows of a page and two more, a key and a gate for each token of a window."""
    return (PAGE // ratio + 2) * 2 * ratio


class _Matrix(NamedTuple):
    """A recurrent mixer's sizes: channels of its convolution, heads, one head's matrix, and gates a token."""

    channels: int
    heads: int
    key: int
    value: int
    gates: int


def _recurrent(kind: str, size: _Matrix, kernel: int, storage: Storage, item: int) -> Iterator[Tensor]:
    """Columns of the convolution, the matrices twice, and the inputs of a draft's tokens, which a rollback runs again."""
    elements = size.heads * size.key * size.value
    staged = size.channels * _FP16 + size.heads * _FP16 + size.gates * _FP32
    yield Tensor(kind, "conv", "bf16", size.channels, size.channels * _FP16, rows=kernel + storage.history)
    yield Tensor(kind, "recurrent", "fp16" if item == _FP16 else "fp32", elements, elements * item, rows=2)
    yield Tensor(kind, "staged inputs", "bf16", size.channels + size.heads + size.gates, staged, rows=storage.history + 1)


def _ngram(state: Fixed, storage: Storage, architecture: Architecture) -> Tensor:
    """Qwen3.8's n-gram layer: the last inputs of a dilated convolution, and the tokens that the n-grams reach back to (in host memory)."""
    if state.name == "ngram_ids":
        return Tensor(state.kind, state.name, "int64", 1, _INT64, rows=state.elements * _FP32 // _INT64 + storage.history)
    if state.name == "ngram_conv" and architecture.hidden_dim:
        streams = architecture.hidden_dim * _HYPER
        return Tensor(state.kind, state.name, "fp16", streams, streams * _FP16, rows=state.elements // streams + storage.history)
    raise UnsupportedArchitectureError(f"ExLlamaV3 1.6.5 has no cache for the state '{state.name}'", "ask ideal for it")


#: Streams of Qwen3.8's hyper-connections (qwen4_exp.py, hc_count's default).
_HYPER = 4
