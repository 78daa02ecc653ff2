"""Inkling: attention, and four short convolutions whose last inputs are kept as pages of a window (vLLM 0.33, models/inkling).

    K and V       as any attention, windows in blocks of the model's own size
    convolutions  one page for the four of a layer: bf16, a window and a block of as many tokens as the kernel has taps,
                  heads x 2^k elements a token, the least that hold 2 x head_dim + 2 x hidden / heads

Inkling with 4 heads of 128 and a hidden width of 1,536: 4 x 1,024 x 2 B = 8,192 B a token, where the inputs are 4 x 1,024 of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import get_format
from kvcalc.core.states import Chunked, Cross, Full, ShortConv, Sliding
from kvcalc.engines.vllm import attention, layers
from kvcalc.engines.vllm.attention import Choice
from kvcalc.engines.vllm.backends import FLASH_ATTN, HOPPER
from kvcalc.engines.vllm.selection import require
from kvcalc.engines.vllm.specs import SLIDING, Spec

if TYPE_CHECKING:
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.start import Kind, Start


def choose(kind: Kind, start: Start) -> Choice | None:
    """FlashAttention, whatever the card prefers. Raises EngineRejectsError, UnsupportedArchitectureError."""
    if start.card.capability < HOPPER:
        raise UnsupportedArchitectureError("kvcalc knows Inkling under vLLM on Hopper and Blackwell, which its FlashAttention 4 is for")
    if start.own != "bf16":
        raise EngineRejectsError(f"vLLM refuses Inkling in {start.own}: its convolutions are bf16 only")
    ask = attention.ask_of(kind, start)._replace(cache_dtype=start.cache)
    return Choice(require(FLASH_ATTN, ask), ask, start.cache)


def specs(layer: Layer) -> tuple[Spec, ...]:
    """The convolutions before the attention, as vLLM registers them."""
    (found,) = layers.specs(layer)
    return _convolutions(layer), found._replace(block=layer.sizes.size, padded=0)


def _convolutions(layer: Layer) -> Spec:
    """Raises EngineRejectsError for more ranks than heads, UnsupportedArchitectureError for attention without KV heads."""
    state = layer.kind.state
    if not isinstance(state, (Full, Sliding, Chunked, Cross)):
        raise UnsupportedArchitectureError(
            f"kvcalc knows Inkling under vLLM with KV heads, and this layer keeps a state of kind {state.kind}"
        )
    ranks = layer.start.tp
    if ranks > state.kv_heads:
        raise EngineRejectsError(
            f"vLLM refuses: tensor parallel size {ranks} is more than the {state.kv_heads} KV heads that Inkling's convolutions divide into"
        )
    hidden, taps = _hidden(layer)
    needed = 2 * state.head_dim + 2 * (hidden // state.kv_heads)
    width, heads = 1 << (needed - 1).bit_length(), state.kv_heads // ranks
    row = get_format("bf16").row_bytes(width) * heads
    return Spec(SLIDING, taps, row, (heads, width, 0), "bf16", limit=taps, role="conv")


def _hidden(layer: Layer) -> tuple[int, int]:
    """The hidden width, and the taps of a convolution: those of the last one in the layer."""
    every = layer.start.architecture.layers.states.values()
    beside = [state for states in every if any(item is layer.kind.state for item in states) for state in states]
    last = next(state for state in reversed(beside) if isinstance(state, ShortConv))
    return last.channels, last.conv_kernel
