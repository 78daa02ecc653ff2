"""DeepSeek-V4.1: a window in every layer, and compressed rows that only KV sources keep (vLLM 0.33, models/deepseek_v41).

    state                        block of tokens     row                                       page
    window of every layer        32                  584, 448 fp8 + 64 bf16 + scales           to a multiple of 576
    compressed, ratio r          128 (Hopper 64)     584 for r tokens                          to 576
    index key beside it          the same            132 for r tokens                          to 576
    ring of the open group       8 and more          2 x width fp32                            ratios above 1 alone, one block a request

Blackwell stores rows of 528 (512 fp8 + 16 scales) in pages of 512; nvfp4_ds_mla, there alone, compressed rows of 288; FlashInfer's
backend plain rows. Nothing is split by tensor parallelism. Pages of a block lie side by side, so groups are packed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import get_format
from kvcalc.core.states import Compressed, Index, Latent
from kvcalc.core.units import clean
from kvcalc.engines.vllm import dtypes
from kvcalc.engines.vllm.attention import Choice
from kvcalc.engines.vllm.backends import BLACKWELL, Ask, Backend
from kvcalc.engines.vllm.layers import index_row
from kvcalc.engines.vllm.specs import MLA, RING, SLIDING_MLA, Spec

if TYPE_CHECKING:
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.start import Kind, Start

_WINDOW_BLOCK = 32
_LEAST_RING = 8
_FP32 = 4
_PACKED = ("auto", "fp8", "fp8_ds_mla", "nvfp4_ds_mla")
_PLAIN = ("auto", "bfloat16", "fp8", "fp8_e4m3")
_HOPPER, _BLACKWELL = 9, BLACKWELL // 10
#: Query heads behind one group of the output projection, which mega attention asks for; every released model has as many.
_GROUP, _GROUPS = 8, 8

_FLASHMLA = ("FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4", "FLASHMLA_SPARSE_DSV41")
_FLASHINFER = ("FLASHINFER_MLA_SPARSE_DSV4", "FLASHINFER_MLA_SPARSE_DSV41")
_MEGA = "FLASHMLA_MEGA_ATTN_DSV41"
#: Every backend that a user can name for this family.
BACKENDS = frozenset({*_FLASHMLA, *_FLASHINFER, _MEGA})


class Layout(NamedTuple):
    """How rows are stored: bytes of a window's and of a compressed row, the multiple that pages and that blocks are rounded to."""

    window: int
    compressed: int
    page: int
    stride: int
    format: str
    compressed_format: str


def read_layout(start: Start) -> Layout:
    """The layout behind `--kv-cache-dtype`, `--attention-backend` and the card. Raises EngineRejectsError."""
    major, asked = start.card.capability // 10, start.args["attention_backend"]
    name = _default(start, major) if asked is None else asked.strip().upper()
    if name in _FLASHINFER:
        return _plain(start, major)
    if name not in BACKENDS:
        raise EngineRejectsError(f"vLLM refuses attention backend {clean(name, 40)} for DeepSeek-V4.1", "leave attention_backend out")
    if start.cache not in _PACKED or dtypes.is_plain(start.workload.kv_dtype):
        shown = clean(start.workload.kv_dtype, 40)
        raise EngineRejectsError(f"vLLM refuses a cache of {shown} for DeepSeek-V4.1", "auto or fp8")
    if name == _MEGA and not _has_mega(start, major):
        raise EngineRejectsError("vLLM refuses mega attention on this card or tensor parallel size", "leave attention_backend out")
    nvfp4 = start.cache == "nvfp4_ds_mla" or (name == _MEGA and start.cache != "fp8_ds_mla")
    if major != _BLACKWELL:
        if nvfp4:
            raise EngineRejectsError("vLLM refuses nvfp4_ds_mla before Blackwell", "auto or fp8")
        return Layout(584, 584, 576, 1, "fp8_ds_mla", "fp8_ds_mla")
    compressed = 288 if nvfp4 else 528
    return Layout(528, compressed, 512, math.lcm(528, compressed), "fp8_ds_mla", "nvfp4_ds_mla" if nvfp4 else "fp8_ds_mla")


def notes(start: Start) -> tuple[str, ...]:
    """Where the choice of a kernel rests on what the model's layers do not say."""
    if start.args["attention_backend"] is not None or not _has_mega(start, start.card.capability // 10):
        return ()
    return (f"{_GROUPS} groups of {_GROUP} heads in the output projection (o_groups) assumed: vLLM then chooses mega attention",)


def _default(start: Start, major: int) -> str:
    if major not in (_HOPPER, _BLACKWELL):
        raise UnsupportedArchitectureError("kvcalc knows DeepSeek-V4.1 under vLLM on Hopper and datacenter Blackwell")
    return _MEGA if _has_mega(start, major) else _FLASHMLA[-1]


def _has_mega(start: Start, major: int) -> bool:
    heads = {kind.state.query_heads or 0 for kind in start.kinds if isinstance(kind.state, Latent)}
    return major == _BLACKWELL and _GROUPS % start.tp == 0 and heads == {_GROUP * _GROUPS}


def _plain(start: Start, major: int) -> Layout:
    if major != _BLACKWELL:
        raise EngineRejectsError("vLLM refuses FlashInfer's backend for DeepSeek-V4.1 before Blackwell", "leave attention_backend out")
    if start.cache not in _PLAIN:
        raise EngineRejectsError(f"vLLM refuses a cache of {start.cache} with FlashInfer's backend", "auto or fp8")
    stored = "bf16" if start.cache in ("auto", "bfloat16") else "fp8"
    row = get_format(stored).row_bytes(512)
    return Layout(row, row, 512, 1, stored, stored)


def choose(kind: Kind, start: Start) -> Choice | None:
    """The kernels' blocks: 64 tokens on Hopper, else 128; windows have blocks of their own. Raises EngineRejectsError."""
    ask = Ask(0, dtypes.AUTO, start.card.capability)
    if isinstance(kind.state, Latent):
        return Choice(Backend("DEEPSEEK_SPARSE_SWA", (), multiple=_WINDOW_BLOCK), ask, dtypes.AUTO)
    size = 64 if ask.major == _HOPPER else 128
    return Choice(Backend("DEEPSEEK_V41", (), sizes=(size,)), ask, dtypes.AUTO)


def specs(layer: Layer) -> tuple[Spec, ...]:
    """Rows, and the ring of the open group where one row stands for several tokens. Raises UnsupportedArchitectureError for other states."""
    layout = read_layout(layer.start)
    state = layer.kind.state
    if isinstance(state, Latent):
        width = state.latent_dim + state.rope_dim
        return (
            Spec(
                SLIDING_MLA,
                _WINDOW_BLOCK,
                layout.window,
                (1, width, 0),
                layout.format,
                limit=state.window or 0,
                alignment=layout.page,
                stride=layout.stride,
            ),
        )
    if isinstance(state, Index):
        width, row, stored = index_row(state)
        rows = Spec(MLA, layer.sizes.size, row, (1, width, 0), stored, per_state=state.ratio, alignment=layout.page, role="index")
        return (_whole(rows, layer),)
    if not isinstance(state, Compressed):
        raise UnsupportedArchitectureError(f"kvcalc has no rule for states of kind {state.kind} beside DeepSeek-V4.1's under vLLM")
    rows = Spec(
        MLA,
        layer.sizes.size,
        layout.compressed,
        (1, state.latent_dim, 0),
        layout.compressed_format,
        per_state=state.ratio,
        alignment=layout.page,
    )
    rows = _whole(rows, layer)
    return (rows, _ring(state, layer.start.spec_tokens)) if state.ratio > 1 else (rows,)


def _whole(rows: Spec, layer: Layer) -> Spec:
    """Blocks of several kernel blocks stand a multiple of a kernel block's page apart, padding included."""
    kernel = math.gcd(layer.choice.backend.sizes[0] if layer.choice else rows.block, rows.block)
    if kernel == rows.block:
        return rows
    part = rows._replace(block=kernel)
    is_padded = part.natural != part.row * part.slots or rows.natural == rows.row * rows.slots
    return rows._replace(stride=part.natural if is_padded else rows.natural)


def _ring(state: Compressed, spec_tokens: int) -> Spec:
    """Draft tokens, the one after them and the row before, in a power of two; K and score of a row in fp32."""
    size = max(_LEAST_RING, 1 << (spec_tokens + 1).bit_length())
    return Spec(RING, size, 2 * state.latent_dim * _FP32, (1, 2 * state.latent_dim, 0), "fp32", role="ring")


def is_outermost(_start: Start) -> bool:
    """The pages of a block lie side by side, whatever the start."""
    return True
