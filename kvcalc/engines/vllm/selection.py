"""The kernel that runs a layer, and the blocks that the kernels of a model share (vLLM 0.33, platforms/cuda.py, worker/utils.py).

backend = first of the card's priority list that accepts the layer      an asked backend that refuses it is an error
block   = 16 if every backend of the model reads blocks of 16, else the smallest size that all of them read
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UsageError, nearest
from kvcalc.core.units import clean
from kvcalc.engines.vllm.backends import (
    ADA,
    BACKENDS,
    BLACKWELL,
    CUTLASS_MLA,
    DEFAULT_BLOCK,
    FA3,
    FLASH_ATTN,
    FLASH_ATTN_MLA,
    FLASH_ATTN_MLA_SPARSE,
    FLASH_ATTN_MLA_SPARSE_FA4,
    FLASHINFER,
    FLASHINFER_MLA,
    FLASHINFER_MLA_SPARSE,
    FLASHINFER_MLA_SPARSE_SM90,
    FLASHMLA,
    FLASHMLA_SPARSE,
    FLEX,
    HOPPER,
    TRITON,
    TRITON_FLASH_ATTN,
    TRITON_FLASHINFER,
    TRITON_MLA,
    TURBOQUANT,
    Ask,
    Backend,
    flash_version,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Query heads up to which a bf16 cache of sparse MLA on Blackwell goes to FlashAttention 4 first.
_FEW_HEADS = 16


def priorities(ask: Ask) -> tuple[Backend, ...]:
    """The card's backends, the preferred first (platforms/cuda.py, _get_backend_priorities)."""
    if ask.mla and ask.major == BLACKWELL // 10:
        dense = (FLASHINFER_MLA, CUTLASS_MLA, TRITON_MLA)
        if ask.quantized:
            return (*dense, FLASHINFER_MLA_SPARSE, FLASHMLA_SPARSE)
        if ask.query_heads <= _FEW_HEADS:
            return (*dense, FLASH_ATTN_MLA_SPARSE_FA4, FLASHINFER_MLA_SPARSE, FLASHMLA_SPARSE)
        return (*dense, FLASHMLA_SPARSE, FLASHINFER_MLA_SPARSE)
    if ask.mla:
        tail = (FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE)
        # Rows of 512, without a rotary part, go to FlashInfer first.
        sparse = (FLASHINFER_MLA_SPARSE_SM90, *tail) if ask.head_size == 512 else (*tail, FLASHINFER_MLA_SPARSE_SM90)
        return (FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, TRITON_MLA, *sparse)
    if ask.major == BLACKWELL // 10:
        return (*((TRITON_FLASHINFER,) if ask.mm_prefix else ()), FLASHINFER, FLASH_ATTN, TRITON, FLEX, TURBOQUANT)
    composite = (TRITON_FLASH_ATTN,) if ask.mm_prefix and ask.major == HOPPER // 10 else ()
    return (*composite, FLASH_ATTN, FLASHINFER, TRITON, FLEX, TURBOQUANT)


def select_backend(ask: Ask, asked: str | None = None) -> Backend:
    """The backend that runs a layer. Raises EngineRejectsError where none does, or where the asked one does not."""
    if asked is not None:
        return _runnable(require(get_backend(asked), ask, "leave attention_backend out"), ask)
    reasons: list[str] = []
    for backend in priorities(ask):
        reason = backend.objection(ask)
        if reason is None:
            return _runnable(backend, ask)
        reasons.append(f"{backend.name}: {reason}")
    raise EngineRejectsError(
        f"vLLM has no attention backend for heads of {ask.head_size} with a cache of {ask.cache_dtype} on this card",
        "; ".join(reasons[:4]),
    )


def require(backend: Backend, ask: Ask, hint: str = "leave --kv-dtype out") -> Backend:
    """`backend`, for a layer that names it. Raises EngineRejectsError where it does not run the layer."""
    reason = backend.objection(ask)
    if reason:
        raise EngineRejectsError(f"vLLM refuses attention backend {backend.name} here: {reason}", hint)
    return backend


def uneven_backend(ask: Ask) -> Backend:
    """The kernel of a model that names one for K and V of different widths: FlashAttention from version 3 on, else Triton's."""
    if flash_version(ask) < FA3:
        return _runnable(TRITON, ask)
    if ask.quantized and (ask.major != HOPPER // 10 or ask.cache_dtype not in FLASH_ATTN.dtypes):
        raise EngineRejectsError(f"vLLM refuses a cache of {ask.cache_dtype} with K and V of different widths here", "leave --kv-dtype out")
    return FLASH_ATTN


def _runnable(backend: Backend, ask: Ask) -> Backend:
    """`backend`, unless it is chosen and then fails: Triton's fp8 before Ada, sparse FlashMLA's bf16 over several ranks' tokens."""
    if backend in (TRITON, TRITON_MLA) and ask.cache_dtype.startswith("fp8") and ask.capability < ADA:
        raise EngineRejectsError(
            f"vLLM refuses a cache of {ask.cache_dtype} in Triton before compute capability 8.9", "leave --kv-dtype out"
        )
    if backend is FLASHMLA_SPARSE and ask.dcp and not ask.quantized:
        raise EngineRejectsError("vLLM refuses decode context parallelism in sparse FlashMLA without an fp8 cache", "--kv-dtype fp8_ds_mla")
    return backend


def get_backend(name: str) -> Backend:
    """The backend of that name. Raises UsageError naming the nearest ones."""
    found = BACKENDS.get(name.strip().upper())
    if found is None:
        raise UsageError(
            f"engine setting attention_backend: unknown backend '{clean(name, 40)}'", nearest(name.upper(), BACKENDS) or ", ".join(BACKENDS)
        )
    return found


def layouts(pairs: Iterable[tuple[Backend, Ask]]) -> frozenset[str]:
    """The memory layouts that backends insist on."""
    return frozenset(backend.layout(ask) for backend, ask in pairs if backend.layout is not None) - {""}


def check_layouts(pairs: Iterable[tuple[Backend, Ask]]) -> None:
    """Raises EngineRejectsError where two backends of the model insist on different memory layouts."""
    wanted = {backend.layout(ask): backend.name for backend, ask in pairs if backend.layout is not None}
    wanted.pop("", None)
    if len(wanted) > 1:
        raise EngineRejectsError(
            "vLLM refuses: no memory layout suits both " + " and ".join(sorted(wanted.values())), "choose another --kv-dtype"
        )


#: FlashInfer's larger pages, for grouped query heads on Blackwell (flashinfer.py).
_LARGE_PAGES = (128, 256, 512, 1024)


def rows_apart(backend: Backend, ask: Ask, block: int) -> int:
    """Rows of sparse MLA that blocks stand a multiple of apart: kernels see the cache as pages of so many rows (mla/*_sparse.py)."""
    if backend is FLASHINFER_MLA_SPARSE:
        return backend.multiple
    if backend is FLASHMLA_SPARSE and ask.quantized and ask.major != BLACKWELL // 10 and block != backend.multiple:
        return backend.multiple
    return 1


def check_shared_kernel(pairs: Iterable[tuple[Backend, Ask]], block: int) -> None:
    """Raises EngineRejectsError where layers behind one table share no kernel block that divides `block` (worker/utils.py)."""
    known = list(pairs)

    def reads(backend: Backend, ask: Ask, size: int) -> bool:
        exact, multiple = backend.kernel_sizes(ask)
        if backend is FLASHINFER and ask.major == BLACKWELL // 10:
            exact = (*exact, *_LARGE_PAGES)
        return size in exact or bool(multiple and size % multiple == 0)

    exact_sizes = {size for backend, ask in known for size in (*backend.kernel_sizes(ask)[0], *_LARGE_PAGES) if block % size == 0}
    if not any(all(reads(backend, ask, size) for backend, ask in known) for size in (block, *exact_sizes)):
        names = " and ".join(dict.fromkeys(backend.name for backend, _ in known))
        raise EngineRejectsError(f"vLLM refuses: {names} share no kernel block within blocks of {block}", "choose another --kv-dtype")


def preferred_block(pairs: Iterable[tuple[Backend, Ask]], default: int = DEFAULT_BLOCK) -> int:
    """The smallest block that every backend of the model reads, `default` if they all read it. Raises EngineRejectsError."""
    distinct = list({backend.name: (backend, ask) for backend, ask in pairs}.values())
    if all(backend.reads(default, ask) for backend, ask in distinct):
        return default
    options = [(*backend.kernel_sizes(ask)[0], *filter(None, (backend.kernel_sizes(ask)[1],))) for backend, ask in distinct]
    for candidate in sorted({math.lcm(*sizes) for sizes in itertools.product(*options)}):
        if all(backend.reads(candidate, ask) for backend, ask in distinct):
            return candidate
    raise EngineRejectsError(
        "vLLM refuses: the model's attention backends share no block size", ", ".join(backend.name for backend, _ in distinct)
    )
