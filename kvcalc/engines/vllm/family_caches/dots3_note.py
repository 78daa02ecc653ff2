"""dots3.note: latents with index keys on some layers, wider latents with a window on the others (vLLM 0.33, models/dots3_note).

    sparse layer    one row as wide as a window's latent, whatever its own width        index key: fp8 with a scale, 132 B
    window layer    one row of its latent, a window of them in blocks of the model's own size

Rows of one width let both kinds take the same pages: 1,024 + 64 for both, where a sparse layer itself has 512 + 64. Pages of a
block lie side by side. The kernels are Hopper's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import get_format
from kvcalc.core.states import Index, Latent
from kvcalc.engines.vllm import dtypes, layers
from kvcalc.engines.vllm.attention import Choice
from kvcalc.engines.vllm.backends import HOPPER, INDEXER, Ask, Backend
from kvcalc.engines.vllm.specs import MLA, SLIDING_MLA, Spec

if TYPE_CHECKING:
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.start import Kind, Start

SPARSE = Backend("DOTS3_NOTE_PADDED_MLA_SPARSE", ("auto",), multiple=64, mla=True, sparse=True, layout=lambda _ask: "BLHNC")
WINDOW = Backend("TRITON_MLA", ("auto",), multiple=16, mla=True)
_INDEX_FORMAT = "index_fp8"


def choose(kind: Kind, start: Start) -> Choice | None:
    """Every layer names its kernel itself. Raises EngineRejectsError, UnsupportedArchitectureError."""
    if start.card.capability // 10 != HOPPER // 10:
        raise UnsupportedArchitectureError("kvcalc knows dots3.note under vLLM on Hopper, which its kernels are for")
    if start.cache != dtypes.AUTO:
        raise EngineRejectsError(f"vLLM refuses a cache of {start.cache} for dots3.note, whose kernels read the model's type", "auto")
    ask = Ask(0, dtypes.AUTO, start.card.capability)
    state = kind.state
    if isinstance(state, Index):
        return Choice(INDEXER, ask, dtypes.AUTO)
    if isinstance(state, Latent) and state.window:
        return Choice(WINDOW, ask, dtypes.AUTO)
    if not kind.indexed:
        raise UnsupportedArchitectureError("kvcalc knows dots3.note under vLLM with index keys on its full layers")
    return Choice(SPARSE, ask, dtypes.AUTO)


def specs(layer: Layer) -> tuple[Spec, ...]:
    """One row a token, of the window's width."""
    state = layer.kind.state
    size = layer.sizes.size
    if isinstance(state, Index):
        row = get_format(_INDEX_FORMAT).row_bytes(state.index_dim)
        kernel = math.gcd(INDEXER.sizes[0], size)
        stride = 1 if kernel == size else row * kernel
        return (layers.index_spec(layer)._replace(row=row, format=_INDEX_FORMAT, stride=stride),)
    width = _row_width(layer.start)
    own = layer.start.own
    row = get_format(own).row_bytes(width)
    if isinstance(state, Latent) and state.window:
        return (Spec(SLIDING_MLA, size, row, (1, width, 0), own, limit=state.window),)
    return (Spec(MLA, size, row, (1, width, 0), own, stride=row),)


def is_outermost(_start: Start) -> bool:
    """The pages of a block lie side by side, whatever the start."""
    return True


def _row_width(start: Start) -> int:
    """The width of a window's latent. Raises UnsupportedArchitectureError where no layer has one."""
    states = [kind.state for kind in start.kinds if isinstance(kind.state, Latent) and kind.state.window]
    if not states:
        raise UnsupportedArchitectureError("vLLM pads dots3.note's rows to those of its window layers, and this model has none")
    return max(state.latent_dim + state.rope_dim for state in states)
