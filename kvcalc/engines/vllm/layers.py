"""The specs of one kind of layer: what vLLM 0.33 keeps for it, once its kernel and the block size are known.

Families with caches of their own (family_caches/) start from these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from kvcalc.core.errors import UnsupportedArchitectureError
from kvcalc.core.formats import get_format
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
from kvcalc.engines.vllm import dtypes, recurrent
from kvcalc.engines.vllm.attention import heads_of, token_bytes
from kvcalc.engines.vllm.kept import is_mla
from kvcalc.engines.vllm.selection import rows_apart
from kvcalc.engines.vllm.specs import CHUNKED, CROSS, FULL, MLA, RECURRENT, SLIDING, SLIDING_MLA, Spec

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState
    from kvcalc.engines.vllm.attention import Choice
    from kvcalc.engines.vllm.blocksize import Blocks
    from kvcalc.engines.vllm.start import Kind, Start


class Layer(NamedTuple):
    """One kind of layer, and what is known of it by then.

    choice   its kernel; None for recurrent layers
    tensors  those of a recurrent layer
    sizes    the block size, and what pages are padded to
    step     the alignment of prefill checkpoints, None where not every recurrent layer hands one out
    """

    kind: Kind
    choice: Choice | None
    tensors: tuple[recurrent.Tensor, ...]
    sizes: Blocks
    start: Start
    step: int | None


def specs(layer: Layer) -> tuple[Spec, ...]:
    """The spec of an ordinary layer."""
    if layer.choice is None:
        return (recurrent_spec(layer),)
    if isinstance(layer.kind.state, Index):
        return (index_spec(layer),)
    return (attention_spec(layer, layer.choice),)


def recurrent_spec(layer: Layer) -> Spec:
    """States of a mixer, padded to the page of attention layers."""
    start, sizes, tensors = layer.start, layer.sizes, layer.tensors
    return Spec(
        RECURRENT,
        block=sizes.size if start.align else 0,
        row=sum(tensor.bytes for tensor in tensors),
        shape=tuple(part for tensor in tensors for part in (tensor.rows, tensor.elements)),
        format=tensors[-1].format,
        limit=start.spec_tokens,
        padded=sizes.recurrent_page,
        checkpoint=(1, layer.step or 1) if recurrent.keeps_checkpoint(layer.kind.state, start.prefill, layer.step) else (0, 0),
    )


def attention_spec(layer: Layer, choice: Choice) -> Spec:
    """Keys and values, or latents, of one layer. Raises UnsupportedArchitectureError for a kind of state without a rule."""
    start, sizes = layer.start, layer.sizes
    state = layer.kind.state
    kind, limit = _kind_and_limit(state, start)
    heads = heads_of(state, start)
    row = token_bytes(heads, choice.dtype, start.own)
    block, padded = sizes.size, 0
    if kind == SLIDING:
        padded = sizes.window_page
        block = choice.backend.largest_within(padded // row if padded else block, choice.ask)
    return Spec(
        kind,
        block,
        row,
        (heads.kv, heads.key, heads.value),
        dtypes.format_of(choice.dtype, start.own),
        limit=limit,
        padded=padded,
        stride=row * rows_apart(choice.backend, choice.ask, block) if choice.ask.sparse else 1,
    )


def _kind_and_limit(state: AnyState, start: Start) -> tuple[str, int]:
    """The word for what is stored, and the tokens that it sees (0: all). Raises UnsupportedArchitectureError."""
    match state:
        case Full():
            return FULL, 0
        case Sliding():
            return SLIDING, state.window + start.row.wider
        case Chunked():
            return CHUNKED, state.chunk
        case Cross():
            return CROSS, 0
        case Latent() if not is_mla(state, start.family):
            return FULL, 0
        case Latent():
            return (SLIDING_MLA, state.window) if state.window else (MLA, 0)
        case Shared() | Nothing() | Index() | Compressed():
            pass
        case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | ShortConv() | RgLru() | Fixed():
            pass
        case _:
            assert_never(state)
    raise UnsupportedArchitectureError(f"kvcalc has no rule for states of kind {state.kind} of {start.family} under vLLM")


def index_spec(layer: Layer) -> Spec:
    """Index keys, one row for as many tokens as the state says. Raises UnsupportedArchitectureError for another state."""
    state = layer.kind.state
    if not isinstance(state, Index):
        raise UnsupportedArchitectureError(f"kvcalc reads index keys of states of kind index under vLLM, and this one is {state.kind}")
    width, row, stored = index_row(state)
    return Spec(MLA, layer.sizes.size, row, (1, width, 0), stored, per_state=state.ratio, role="index")


def index_row(state: AnyState) -> tuple[int, int, str]:
    """Elements, bytes and format of one row of index keys."""
    (buffer,) = state.buffers()
    return buffer.elements, get_format(buffer.dtype).row_bytes(buffer.width, buffer.vectors), buffer.dtype
