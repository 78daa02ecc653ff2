"""DeepSeek-V4: rows that grow at a fraction of a token, and windows that every request holds. It has the second manager only.

    growing   block // ratio whole rows a block, plus as many index keys at ratio 4        row: 512 x dtype, fp8_ds_mla 584 B
    window    128 tokens of rows on every layer
    open windows of the compressor, in fp32, K and V's score each: ratio 4: 8 tokens x 2 x 512, ratio 128: 128 tokens x 512
    the same of the indexer at ratio 4: 8 tokens x 2 x index_dim
    each window in whole blocks, and one block more while it slides over an edge

Blocks have 128 or 256 tokens. On Hopper the rows are fp8_ds_mla; elsewhere those need blocks of 256.

Source: TensorRT-LLM, _torch/attention/backends/sparse/deepseek_v4 (cache manager).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import FORMATS
from kvcalc.core.states import Compressed, Index, Latent
from kvcalc.engines.tensorrt_llm.formats import DS_MLA
from kvcalc.engines.tensorrt_llm.layers import Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.states import AnyState

BLOCKS = (128, 256)
#: Bytes of a row of fp8_ds_mla at width 512: 448 + 64 x 2 + 8.
DS_MLA_ROW = 584
#: Bytes of the compressor's numbers; the ratio whose windows overlap, and so hold twice their tokens, twice as wide.
STATE, OVERLAPPING, OVERLAP = 4, 4, 2
HOPPER = 90


def is_v4(architecture: Architecture) -> bool:
    """Layers hold compressed rows. Raises UnsupportedArchitectureError for DeepSeek-V4.1, which shares them between layers."""
    if architecture.family.startswith("deepseek_v41"):
        raise UnsupportedArchitectureError("kvcalc has no rule for TensorRT-LLM's cache of DeepSeek-V4.1")
    return any(isinstance(state, Compressed) for state in architecture.states)


def v4_format(stored: Format, kv_dtype: str, capability: int | None) -> Format:
    """The type of the rows. Raises EngineRejectsError for one that DeepSeek-V4 does not have there."""
    on_hopper = capability == HOPPER
    if on_hopper and kv_dtype.strip().lower() == "auto":
        return FORMATS[DS_MLA]
    if stored.name not in ("bf16", "fp8", DS_MLA) or (on_hopper and stored.name != DS_MLA):
        known = DS_MLA if on_hopper else f"bf16, fp8 or {DS_MLA}"
        raise EngineRejectsError(f"TensorRT-LLM keeps DeepSeek-V4 in {known} on this card, not in {stored.name}", "leave the type at auto")
    return stored


def v4_block(asked: int | None, stored: Format, capability: int | None) -> int:
    """Tokens of a block. Raises EngineRejectsError for a size that DeepSeek-V4 cannot have."""
    wide = stored.name == DS_MLA and capability is not None and capability != HOPPER
    sizes = BLOCKS[1:] if wide else BLOCKS
    found = sizes[0] if asked is None else asked
    if found not in sizes:
        raise EngineRejectsError(
            f"TensorRT-LLM stores DeepSeek-V4 in blocks of {' or '.join(map(str, sizes))} tokens here, not of {found}",
            f"set tokens_per_block to {sizes[0]}",
        )
    return found


def v4_rows(architecture: Architecture, names: Sequence[str], stored: Format) -> dict[Row, int]:
    """Growing rows and windows of the named layers."""
    rows: Counter[Row] = Counter()
    for name, layers in Counter(names).items():
        states = architecture.layers.states[name]
        index = next((state for state in states if isinstance(state, Index)), None)
        ratio = next((state.ratio for state in states if isinstance(state, Compressed)), 1)
        for state in states:
            for row in _state_rows(state, index, stored, ratio):
                rows[row] += layers
    return dict(rows)


def _state_rows(state: AnyState, index: Index | None, stored: Format, kin: int) -> Iterator[Row]:
    match state:
        case Latent() if state.window:
            width = state.latent_dim + state.rope_dim
            yield _window("latent", "window", width, stored.name, _row_bytes(stored, width), state.window, kin)
        case Compressed():
            yield _growing("compressed", "latent", state.latent_dim, stored.name, _row_bytes(stored, state.latent_dim), state.ratio)
            yield from _compressor("compressor", state.ratio, state.latent_dim)
            if index is not None:
                yield _growing("index", "index", index.index_dim, "index_fp8", FORMATS["index_fp8"].row_bytes(index.index_dim), state.ratio)
                yield from _compressor("index compressor", state.ratio, index.index_dim)
        case _:
            return


def _row_bytes(stored: Format, width: int) -> int:
    return DS_MLA_ROW if stored.name == DS_MLA else stored.row_bytes(width)


def _growing(state: str, buffer: str, width: int, name: str, size: int, ratio: int) -> Row:
    return Row(state, buffer, width, name, size // ratio, size // ratio, ratio=ratio, row=size, kin=ratio)


def _window(state: str, buffer: str, width: int, name: str, size: int, window: int, kin: int) -> Row:
    return Row(state, buffer, width, name, size, 0, window=window, kin=kin)


def _compressor(buffer: str, ratio: int, width: int) -> Iterator[Row]:
    factor = OVERLAP if ratio == OVERLAPPING else 1
    for half in ("kv", "score"):
        yield _window("state", f"{buffer} {half}", factor * width, "fp32", factor * width * STATE, ratio * factor, ratio)
