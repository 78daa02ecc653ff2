"""MiniMax-M3: GQA, and on sparse layers one index key a token beside it (vLLM 0.33, models/minimax_m3).

    K and V     H x 2 x D, as any attention; sparse layers read blocks of 128, dense ones go to the card's backend
    index key   one vector in bf16, whatever the cache's type, on every tensor parallel rank

All layers need the same slots, so they share one table, and a kernel block that all their kernels read: a block of 128 of
MiniMax-M3 on one GPU is 60 x 128 x 2 x 4 x 128 x 2 B + 57 x 128 x 128 x 2 B = 17,596,416 B.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UnsupportedArchitectureError
from kvcalc.core.states import Index
from kvcalc.engines.vllm import attention, backends, dtypes, layers
from kvcalc.engines.vllm.attention import Choice
from kvcalc.engines.vllm.backends import Ask, Backend
from kvcalc.engines.vllm.selection import require

if TYPE_CHECKING:
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.specs import Spec
    from kvcalc.engines.vllm.start import Kind, Start

_BLOCK, _HEAD = 128, 128


def _objection(ask: Ask) -> str | None:
    if ask.cache_dtype == "nvfp4" and ask.major != backends.BLACKWELL // 10:
        return "an nvfp4 cache needs Blackwell"
    return None


SPARSE = Backend(
    "MINIMAX_M3_SPARSE",
    ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4"),
    sizes=(_BLOCK,),
    heads=(_HEAD,),
    dcp=False,
    layout=lambda ask: backends.HEADS_FIRST if ask.cache_dtype == "nvfp4" else "",
    refuse=_objection,
)
INDEXER = Backend("MINIMAX_M3_SPARSE_INDEXER", (), sizes=(_BLOCK,))


def choose(kind: Kind, start: Start) -> Choice | None:
    """Sparse layers name their kernel themselves and read the cache's type for every layer. Raises EngineRejectsError."""
    if isinstance(kind.state, Index):
        return Choice(INDEXER, Ask(0, dtypes.AUTO, start.card.capability), dtypes.AUTO)
    if not kind.indexed:
        return attention.choose(kind, start)
    if start.cache not in SPARSE.dtypes:
        raise UnsupportedArchitectureError(
            f"kvcalc has no rule for a cache of {start.cache} in the sparse layers of MiniMax-M3, whose kernels speak of bf16, fp8 and nvfp4"
        )
    ask = attention.ask_of(kind, start)._replace(cache_dtype=start.cache)
    return Choice(require(SPARSE, ask), ask, start.cache)


def specs(layer: Layer) -> tuple[Spec, ...]:
    """As ordinary layers; those of a kernel with blocks of its own never merge with others of the same bytes."""
    found = layers.specs(layer)
    return tuple(spec._replace(role=spec.role or "sparse") for spec in found) if layer.kind.indexed else found
