"""Qwen4-exp: gated DeltaNet, GQA that reads what an index selects, and n-gram embeddings (vLLM 0.33, models/qwen4_exp).

    sparse layer   K and V as any attention
                   compressed keys, bf16: one row for `ratio` tokens
                   a ring of raw keys, bf16: ⌈(ratio + s) / ratio⌉ x ratio rows, one block a request      s = draft tokens
                   with three int64 positions a row where images have positions of their own (M-RoPE)
    n-gram layer   the last inputs of a dilated convolution, whole on every tensor parallel rank

Pages of a block lie side by side, so groups are packed. Qwen3.8-Flash-Next on one H100: blocks of 1,600, and a block id of
12 x 1,600 x (2 x 2 x 256 x 2 B + 128 x 2 B / 4) = 40,550,400 B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import get_format
from kvcalc.core.states import Fixed, Index
from kvcalc.engines.vllm import attention, dtypes, layers, recurrent
from kvcalc.engines.vllm.attention import Choice
from kvcalc.engines.vllm.backends import Ask, Backend
from kvcalc.engines.vllm.selection import require
from kvcalc.engines.vllm.specs import RING, Spec

if TYPE_CHECKING:
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.start import Kind, Start

_INT64, _AXES = 8, 3

SPARSE = Backend("QWEN4_EXP_QSA_TRITON", ("auto", "bfloat16", "fp8", "fp8_e4m3"), multiple=16, dcp=False)
STATE = Backend("QWEN4_EXP_EXP_QSA_STATE", (), multiple=1, leads=True, layout=lambda _ask: "BLNHC")
#: Streams of the residual, by the class's default.
_STREAMS = 4


def choose(kind: Kind, start: Start) -> Choice | None:
    """Sparse layers name their kernels themselves. Raises EngineRejectsError."""
    if isinstance(kind.state, Index):
        return Choice(STATE, Ask(0, dtypes.AUTO, start.card.capability), dtypes.AUTO)
    if not kind.indexed or kind.state.is_recurrent:
        return attention.choose(kind, start)
    ask = attention.ask_of(kind, start)._replace(mm_prefix=False)
    return Choice(require(SPARSE, ask), ask, kind.dtype)


def specs(layer: Layer) -> tuple[Spec, ...]:
    """The ring of raw keys before the compressed ones, as vLLM registers them."""
    state = layer.kind.state
    if isinstance(state, Index):
        return _ring(layer, state), layers.index_spec(layer)
    found = layers.specs(layer)
    return tuple(spec._replace(copied=True) for spec in found) if isinstance(state, Fixed) else found


def is_outermost(start: Start) -> bool:
    """Only the side caches insist on it."""
    return any(isinstance(kind.state, Index) for kind in start.kinds)


def least_page(start: Start) -> int:
    """The n-gram convolution takes part in choosing the block also where no layer keeps it (get_mamba_specs_from_config)."""
    width = (start.architecture.hidden_dim or 0) * _STREAMS
    types = recurrent.read_types(start.family, start.architecture.traits, start.args, start.own)
    kept = any(isinstance(kind.state, Fixed) for kind in start.kinds)
    return 0 if kept else get_format(types.conv).row_bytes(width) * (recurrent.NGRAM_ROWS + start.spec_tokens)


def notes(start: Start) -> tuple[str, ...]:
    """A config that is silent about its recurrent states."""
    if start.architecture.traits.mamba_ssm_dtype is not None or start.args["mamba_ssm_cache_dtype"] != "auto":
        return ()
    return ("the config does not say mamba_ssm_dtype: recurrent states in the model's type; -E mamba_ssm_cache_dtype=float32 sets another",)


def _ring(layer: Layer, state: Index) -> Spec:
    rows = -(-(state.ratio + layer.start.spec_tokens) // state.ratio) * state.ratio
    if layer.sizes.size % rows:
        raise EngineRejectsError(
            f"vLLM refuses: the ring of {rows} tokens does not divide blocks of {layer.sizes.size}", "other num_speculative_tokens"
        )
    row = get_format("bf16").row_bytes(state.index_dim)
    if _has_positions(layer.start):
        row = -(-row // _INT64) * _INT64 + _AXES * _INT64
    return Spec(RING, rows, row, (1, state.index_dim, 0), "bf16", role="ring")


def _has_positions(start: Start) -> bool:
    return start.architecture.traits.is_multimodal is True
