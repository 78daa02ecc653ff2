"""DeepSeek-V4: every layer's window, compressed rows, index keys and compressor states (vLLM 0.33, models/deepseek_v4).

    state                          block of tokens    row                page
    window of every layer          64                 584                ⌈64 x 584⌉ to 576 = 37,440
    compressed, ratio r            256                584 / r tokens     r = 4: 37,440 · r = 128: ⌈2 x 584⌉ = 1,728
    index key, ratio 4             256                132 / 4 tokens     8,640
    compressor, ratio 4            4                  4 x 512 fp32       32,832        a window of 2 x 4 tokens
    compressor, ratio 128          8                  2 x 512 fp32       32,832        a window of 128 tokens
    compressor of the index, 4     4                  4 x 128 fp32       8,640

A packed row is 448 fp8 + 64 bf16 + 8 of scales. FlashInfer's backend for Blackwell stores plain rows instead, rounded to 512.
Nothing is split by tensor parallelism. Blocks are outermost in memory, so groups are packed (groups.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
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
from kvcalc.core.units import clean
from kvcalc.engines.vllm.specs import MLA, SLIDING_MLA, Spec

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState

#: Tokens per block, and the only size that the kernels read.
BLOCK = 256
WINDOW_BLOCK = 64
#: Bytes of a packed row: 448 fp8, 64 bf16, seven scales and a pad.
PACKED_ROW = 584
PACKED_ALIGNMENT, PLAIN_ALIGNMENT = 576, 512
#: Block of a compressor's state by ratio, and how many ratios wide its window is.
_COMPRESSOR = {4: (4, 2), 128: (8, 1)}
_FP32 = 4

PACKED_BACKENDS = ("FLASHMLA_SPARSE", "FLASHMLA_SPARSE_DSV4")
PLAIN_BACKEND = "FLASHINFER_MLA_SPARSE_DSV4"
#: Every backend that only this family has, or has in a form of its own.
BACKENDS = frozenset({*PACKED_BACKENDS, PLAIN_BACKEND})


class Layout(NamedTuple):
    """How rows are stored: packed fp8, or plain in a type."""

    format: str
    packed: bool

    @property
    def alignment(self) -> int:
        """Pages are rounded up to a multiple of this."""
        return PACKED_ALIGNMENT if self.packed else PLAIN_ALIGNMENT

    def row(self, width: int) -> int:
        """Bytes of one latent row."""
        return PACKED_ROW if self.packed else get_format(self.format).row_bytes(width)


def read_layout(dtype: str, backend: str | None, capability: int) -> Layout:
    """The layout behind `--kv-cache-dtype` and `--attention-backend`. Raises EngineRejectsError."""
    name = None if backend is None else backend.strip().upper()
    if name == PLAIN_BACKEND:
        if capability < 100:
            raise EngineRejectsError(f"vLLM refuses attention backend {PLAIN_BACKEND} before Blackwell", "leave attention_backend out")
        if dtype not in ("auto", "fp8", "fp8_e4m3"):
            raise EngineRejectsError(f"vLLM refuses a cache of {dtype} with {PLAIN_BACKEND}", "auto or fp8")
        return Layout("bf16" if dtype == "auto" else "fp8", packed=False)
    if name is not None and name not in PACKED_BACKENDS:
        raise EngineRejectsError(f"vLLM refuses attention backend {clean(name, 40)} for DeepSeek-V4", f"{PLAIN_BACKEND}, or leave it out")
    if dtype != "auto" and not dtype.startswith("fp8"):
        raise EngineRejectsError(f"vLLM refuses a cache of {dtype} for DeepSeek-V4", "auto or fp8")
    return Layout("fp8_ds_mla", packed=True)


def specs(state: AnyState, layout: Layout) -> tuple[Spec, ...]:
    """What vLLM keeps for one state of a layer: the rows, and the compressor's own state.

    Raises UnsupportedArchitectureError for a state that DeepSeek-V4 has no layer of.
    """
    match state:
        case Latent():
            return _window(state, layout)
        case Compressed():
            return _compressed(state, layout)
        case Index():
            return _index(state, layout)
        case Full() | Sliding() | Chunked() | Cross() | Shared() | Nothing():
            pass
        case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | ShortConv() | RgLru() | Fixed():
            pass
        case _:
            assert_never(state)
    raise UnsupportedArchitectureError(f"kvcalc has no rule for states of kind {state.kind} beside DeepSeek-V4's under vLLM")


def check_block(asked: int | None) -> int:
    """The block size. Raises EngineRejectsError for one that the kernels do not read."""
    if asked is not None and asked % BLOCK:
        raise EngineRejectsError(
            f"vLLM refuses blocks of {asked} for DeepSeek-V4, whose kernels read blocks of {BLOCK}", "leave block_size out"
        )
    return asked or BLOCK


def _window(state: Latent, layout: Layout) -> tuple[Spec, ...]:
    width = state.latent_dim + state.rope_dim
    row = layout.row(width)
    return (Spec(SLIDING_MLA, WINDOW_BLOCK, row, (1, width, 0), layout.format, limit=state.window or 0, alignment=layout.alignment),)


def _compressed(state: Compressed, layout: Layout) -> tuple[Spec, ...]:
    row = layout.row(state.latent_dim)
    rows = Spec(MLA, BLOCK, row, (1, state.latent_dim, 0), layout.format, per_state=state.ratio, alignment=layout.alignment)
    return rows, _compressor(state.latent_dim, state.ratio, layout)


def _index(state: Index, layout: Layout) -> tuple[Spec, ...]:
    row = get_format(state.format).row_bytes(state.index_dim)
    keys = Spec(MLA, BLOCK, row, (1, state.index_dim, 0), state.format, per_state=state.ratio, alignment=layout.alignment, role="index")
    return keys, _compressor(state.index_dim, state.ratio, layout)


def _compressor(width: int, ratio: int, layout: Layout) -> Spec:
    found = _COMPRESSOR.get(ratio)
    if found is None:
        raise EngineRejectsError(f"vLLM refuses a compression ratio of {ratio} for DeepSeek-V4", "it knows 4 and 128")
    block, overlap = found
    elements = 2 * overlap * width
    return Spec(
        SLIDING_MLA, block, elements * _FP32, (1, elements, 0), "fp32", limit=overlap * ratio, alignment=layout.alignment, role="compressor"
    )
