"""Attention backends: what each kernel accepts, and which block sizes it can read (vLLM 0.33, v1/attention/backends).

A kernel reads exact sizes (FlashMLA: 64) or any multiple of one (FlashAttention: 16); a block of the cache may hold several
kernel blocks, so it has to be a multiple. Every optional kernel (FlashInfer, FlashAttention 3 and 4, FlashMLA) is taken as
installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: Tokens per block where nothing asks for another size (config/cache.py, DEFAULT_BLOCK_SIZE).
DEFAULT_BLOCK = 16

AMPERE, ADA, HOPPER, BLACKWELL = 80, 89, 90, 100

_PLAIN = ("auto", "float16", "bfloat16")
_FP8 = ("fp8", "fp8_e4m3")
_NVFP4 = ("nvfp4", "nvfp4_4over6")
_TURBOQUANT = ("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc")
_PER_HEAD = ("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head")


class Ask(NamedTuple):
    """What a layer asks of its kernel.

    head_size, value_size   width of a K and of a V vector; an MLA row counts as the K vector
    cache_dtype             the layer's --kv-cache-dtype
    block_size              --block-size, None where it was not given
    capability              compute capability x 10
    query_heads, kv_heads   on one GPU
    nope_dim, rope_dim      of MLA; index_topk of sparse MLA
    fa2                     FlashAttention is held to version 2 (TurboQuant)
    """

    head_size: int
    cache_dtype: str
    capability: int
    value_size: int = 0
    block_size: int | None = None
    mla: bool = False
    sparse: bool = False
    sink: bool = False
    mm_prefix: bool = False
    sliding: bool = False
    cross: bool = False
    dcp: bool = False
    query_heads: int = 1
    nope_dim: int = 0
    rope_dim: int = 0
    index_topk: int = 0
    softcap: bool = False
    fa2: bool = False

    @property
    def major(self) -> int:
        """9 for Hopper."""
        return self.capability // 10

    @property
    def quantized(self) -> bool:
        """The cache is not in the model's own type."""
        return self.cache_dtype not in _PLAIN


class Backend(NamedTuple):
    """A kernel: sizes it reads, and what it accepts.

    sizes     kernel blocks, exact
    multiple  any multiple of this instead; 0 = exact sizes only
    dtypes    accepted --kv-cache-dtype
    majors    compute capabilities
    heads     accepted head sizes; () = any
    refuse    everything else: a reason, or None
    """

    name: str
    dtypes: tuple[str, ...]
    majors: tuple[int, ...] = (8, 9, 10, 12)
    sizes: tuple[int, ...] = ()
    multiple: int = 0
    heads: tuple[int, ...] = ()
    mla: bool = False
    sparse: bool = False
    sink: bool = False
    mm_prefix: bool = False
    cross: bool = False
    sliding: bool = True
    dcp: bool = True
    #: Whether K and V of a block lie head by head or token by token in memory, where the kernel insists.
    layout: Callable[[Ask], str] | None = None
    refuse: Callable[[Ask], str | None] | None = None
    #: Sizes that depend on the layer: FlashAttention 4 alone.
    special: Callable[[Ask], int] | None = None
    #: Registers before the attention of its layer, so that the model's block size starts from it.
    leads: bool = False

    def kernel_sizes(self, ask: Ask) -> tuple[tuple[int, ...], int]:
        """Exact sizes and the multiple, for this layer."""
        exact = self.special(ask) if self.special else 0
        return ((exact,), 0) if exact else (self.sizes, self.multiple)

    def smallest(self, ask: Ask) -> int:
        """The smallest kernel block."""
        exact, multiple = self.kernel_sizes(ask)
        return min((*exact, multiple) if multiple else exact)

    def reads(self, block: int, ask: Ask) -> bool:
        """A cache block of `block` tokens is made of whole kernel blocks."""
        exact, multiple = self.kernel_sizes(ask)
        return any(block % size == 0 for size in ((*exact, multiple) if multiple else exact))

    def largest_within(self, block: int, ask: Ask) -> int:
        """The largest kernel block of at most `block` tokens, else the smallest one."""
        exact, multiple = self.kernel_sizes(ask)
        candidates = [*exact, *([max(multiple, block // multiple * multiple)] if multiple else [])]
        return max((size for size in candidates if size <= block), default=min(candidates))

    def objection(self, ask: Ask) -> str | None:
        """Why this backend cannot run the layer, or None."""
        wrong = (
            (ask.mla and not self.mla, "it does not run MLA"),
            (self.mla and not ask.mla, "it runs MLA only"),
            (ask.sparse and not self.sparse, "it does not run sparse attention"),
            (self.sparse and not ask.sparse, "it runs sparse attention only"),
            (ask.major not in self.majors, f"it does not run on compute capability {ask.capability / 10}"),
            (bool(self.heads) and ask.head_size not in self.heads, f"it has no kernel for heads of {ask.head_size}"),
            (ask.cache_dtype not in self.dtypes, f"it cannot read a cache of {ask.cache_dtype}"),
            (ask.block_size is not None and not self.reads(ask.block_size, ask), f"it cannot read blocks of {ask.block_size}"),
            (ask.sink and not self.sink, "it does not support attention sinks"),
            (ask.mm_prefix and not self.mm_prefix, "it does not support bidirectional attention over image tokens"),
            (ask.sliding and not self.sliding, "it does not support sliding windows"),
            (ask.cross and not self.cross, "it does not run cross-attention"),
            (ask.dcp and not self.dcp, "it does not support decode context parallelism"),
        )
        reason = next((text for is_wrong, text in wrong if is_wrong), None)
        return reason if reason or self.refuse is None else self.refuse(ask)


# --- FlashAttention (v1/attention/backends/flash_attn.py, fa_utils.py) -----------------------------------------------------------


def flash_version(ask: Ask) -> int:
    """FlashAttention's version for this layer: 3 on Hopper, 4 there beyond heads of 256 and on Blackwell, else 2."""
    if ask.fa2:
        return 2
    if ask.major == HOPPER // 10:
        return 4 if ask.head_size > _FA3_HEADS else 3
    if ask.major == BLACKWELL // 10:
        if ask.head_size == _FA4_PAGED_HEADS and ask.value_size in (0, _FA4_PAGED_HEADS):
            return 2 if _no_paged_256(ask) else 4
        narrow = ask.head_size <= _FA4_HEADS or (ask.head_size, ask.value_size) == (192, 128)
        return 4 if narrow else 2
    return 2


FA3, _FA3_HEADS = 3, 256
_FA4_HEADS = 128
_FA4_PAGED_HEADS = 256
#: FlashAttention 4's kernel for heads of 256 on Blackwell reads pages of 128, its fp8 kernel for heads of 512 on Hopper pages of 64.
_FA4_PAGE, _FA4_FP8_PAGE, _FA4_FP8_HEADS = 128, 64, 512


def _no_paged_256(ask: Ask) -> bool:
    uneven = ask.block_size is not None and ask.block_size % _FA4_PAGE != 0
    return ask.sink or ask.softcap or ask.quantized or uneven or ask.mm_prefix or ask.dcp


def _flash_page(ask: Ask) -> int:
    if ask.major == HOPPER // 10 and ask.cache_dtype in _FP8 and ask.head_size == _FA4_FP8_HEADS and not ask.fa2:
        return _FA4_FP8_PAGE
    if ask.major == BLACKWELL // 10 and ask.head_size == _FA4_PAGED_HEADS and flash_version(ask) == 4:
        return _FA4_PAGE
    return 0


def _flash_objection(ask: Ask) -> str | None:
    version = flash_version(ask)
    most = _FA4_FP8_HEADS if ask.major in (9, 10) else _FA3_HEADS
    if ask.head_size % 8 or ask.head_size > most:
        return f"it has no kernel for heads of {ask.head_size}"
    if ask.sink and (ask.major < HOPPER // 10 or version not in (3, 4)):
        return "attention sinks need FlashAttention 3 or 4"
    if ask.mm_prefix and ask.quantized and ask.major == HOPPER // 10:
        return "an fp8 cache with bidirectional image tokens needs Triton on Hopper"
    if ask.quantized:
        hopper = ask.major == HOPPER // 10 and (version == 3 or (version == 4 and ask.head_size == _FA4_FP8_HEADS))
        if not hopper and not (ask.major == BLACKWELL // 10 and version == 4):
            return "an fp8 cache needs FlashAttention 3 on Hopper or FlashAttention 4"
    if ask.mm_prefix and version != 4:
        return "bidirectional image tokens need FlashAttention 4"
    return None


FLASH_ATTN = Backend(
    "FLASH_ATTN", (*_PLAIN, *_FP8), multiple=16, sink=True, mm_prefix=True, cross=True, refuse=_flash_objection, special=_flash_page
)

# --- FlashInfer, Triton, Flex, TurboQuant ----------------------------------------------------------------------------------------


def _flashinfer_objection(ask: Ask) -> str | None:
    if ask.sink and ask.major not in (9, 10, 12):
        return "attention sinks need Hopper or Blackwell"
    if ask.cache_dtype in _NVFP4 and ask.major != BLACKWELL // 10:
        if ask.cache_dtype != "nvfp4":
            return f"it cannot read a cache of {ask.cache_dtype} before Blackwell"
        if ask.head_size == 64:
            return "its nvfp4 kernel misreads heads of 64"
        if ask.sink:
            return "its nvfp4 kernel has no attention sinks"
    return None


TOKENS_FIRST, HEADS_FIRST = "NHD", "HND"

FLASHINFER = Backend(
    "FLASHINFER",
    (*_PLAIN, *_FP8, "fp8_e5m2", *_NVFP4),
    layout=lambda ask: HEADS_FIRST if ask.major == BLACKWELL // 10 else "",
    sizes=(16, 32, 64),
    heads=(64, 128, 256, 512),
    sink=True,
    refuse=_flashinfer_objection,
)
TRITON = Backend(
    "TRITON_ATTN",
    (*_PLAIN, *_FP8, "fp8_e5m2", *_PER_HEAD),
    multiple=16,
    sink=True,
    mm_prefix=True,
    cross=True,
    dcp=False,
    refuse=lambda ask: None if ask.head_size >= 32 else f"it has no kernel for heads of {ask.head_size}",
)
FLEX = Backend("FLEX_ATTENTION", _PLAIN, multiple=16, mm_prefix=True, dcp=False, layout=lambda _ask: TOKENS_FIRST)
TURBOQUANT = Backend("TURBOQUANT", _TURBOQUANT, sizes=(16, 32, 64, 128), sliding=False, dcp=False, layout=lambda _ask: TOKENS_FIRST)


def _both(*parts: Backend) -> Callable[[Ask], str | None]:
    """The first objection of two backends that share a layer; the second never sees image tokens."""
    first, second = parts
    return lambda ask: first.objection(ask) or second.objection(ask._replace(mm_prefix=False))


TRITON_FLASHINFER = Backend(
    "TRITON_FLASHINFER",
    (*_PLAIN, *_FP8, "fp8_e5m2"),
    layout=lambda _ask: HEADS_FIRST,
    majors=(10,),
    sizes=(64,),
    heads=(256, 512),
    sink=True,
    mm_prefix=True,
    dcp=False,
    refuse=_both(TRITON, FLASHINFER),
)
TRITON_FLASH_ATTN = Backend(
    "TRITON_FLASH_ATTN",
    (*_PLAIN, *_FP8),
    majors=(9,),
    multiple=16,
    heads=(256, 512),
    sink=True,
    mm_prefix=True,
    dcp=False,
    refuse=_both(TRITON, FLASH_ATTN),
    special=lambda ask: _flash_page(ask._replace(mm_prefix=False)),
)

# --- MLA -------------------------------------------------------------------------------------------------------------------------

_MLA_HEADS = (320, 512, 576)


def _flashinfer_mla_objection(ask: Ask) -> str | None:
    return None if ask.nope_dim in (64, 128, 192) else f"it has no kernel for a qk_nope_head_dim of {ask.nope_dim}"


FLASH_ATTN_MLA = Backend("FLASH_ATTN_MLA", _PLAIN, majors=(9,), multiple=16, heads=_MLA_HEADS, mla=True)
FLASHMLA = Backend("FLASHMLA", (*_PLAIN, *_FP8), majors=(9,), sizes=(64,), heads=_MLA_HEADS, mla=True)
FLASHINFER_MLA = Backend(
    "FLASHINFER_MLA", (*_PLAIN, *_FP8), majors=(10,), sizes=(32, 64), heads=_MLA_HEADS, mla=True, refuse=_flashinfer_mla_objection
)
CUTLASS_MLA = Backend("CUTLASS_MLA", (*_PLAIN, *_FP8), majors=(10,), sizes=(128,), heads=_MLA_HEADS, mla=True)
TRITON_MLA = Backend("TRITON_MLA", (*_PLAIN, *_FP8), multiple=16, mla=True)

_INDEX_TILE = 128


def _flashmla_sparse_objection(ask: Ask) -> str | None:
    if ask.head_size == 512:
        if ask.major != HOPPER // 10 or ask.cache_dtype not in ("auto", "bfloat16", "float16", "fp8_ds_mla"):
            return "it runs rows of 512 on Hopper in bf16 or fp8_ds_mla only"
        if ask.rope_dim:
            return "it runs rows of 512 only without a rotary part"
    if ask.cache_dtype == "nvfp4_ds_mla" and ask.major != BLACKWELL // 10:
        return "nvfp4_ds_mla needs Blackwell"
    return None


def _flashinfer_sparse_objection(ask: Ask) -> str | None:
    if not ask.rope_dim:
        return None if (ask.nope_dim, ask.head_size) == (256, 512) else "its rows without a rotary part have one shape, 512 with 256"
    return None if ask.nope_dim in (128, 192) else f"it has no kernel for a qk_nope_head_dim of {ask.nope_dim}"


def _fa4_sparse_objection(ask: Ask) -> str | None:
    if ask.index_topk % _INDEX_TILE:
        return f"it needs an index_topk that is a multiple of {_INDEX_TILE}"
    if ask.rope_dim != 64:
        return "it needs rows of 512 + 64"
    return _flashinfer_sparse_objection(ask)


FLASH_ATTN_MLA_SPARSE = Backend("FLASH_ATTN_MLA_SPARSE", _PLAIN, majors=(9,), multiple=64, mla=True, sparse=True, dcp=False)
FLASHMLA_SPARSE = Backend(
    "FLASHMLA_SPARSE",
    ("auto", "bfloat16", "fp8_ds_mla", "fp8", "nvfp4_ds_mla"),
    majors=(9, 10),
    multiple=64,
    heads=(576, 512),
    mla=True,
    sparse=True,
    refuse=_flashmla_sparse_objection,
)
FLASHINFER_MLA_SPARSE = Backend(
    "FLASHINFER_MLA_SPARSE",
    (*_PLAIN, *_FP8),
    majors=(10,),
    multiple=32,
    heads=(512, 576),
    mla=True,
    sparse=True,
    refuse=_flashinfer_sparse_objection,
)
FLASH_ATTN_MLA_SPARSE_FA4 = Backend(
    "FLASH_ATTN_MLA_SPARSE_FA4",
    ("auto", "bfloat16"),
    majors=(10,),
    multiple=64,
    heads=(576,),
    mla=True,
    sparse=True,
    refuse=_fa4_sparse_objection,
)
FLASHINFER_MLA_SPARSE_SM90 = Backend(
    "FLASHINFER_MLA_SPARSE_SM90", ("auto", "bfloat16", *_FP8), majors=(9,), multiple=64, heads=(512, 576), mla=True, sparse=True, dcp=False
)

#: The index keys beside sparse MLA are read in blocks of 64 (v1/attention/backends/mla/indexer.py).
INDEXER = Backend("DEEPSEEK_V32_INDEXER", (), sizes=(64,), mla=True, sparse=True, leads=True)

#: Backends that a user can name with --attention-backend.
BACKENDS: dict[str, Backend] = {
    item.name: item
    for item in (
        FLASH_ATTN,
        FLASHINFER,
        TRITON,
        FLEX,
        TURBOQUANT,
        TRITON_FLASHINFER,
        TRITON_FLASH_ATTN,
        FLASH_ATTN_MLA,
        FLASHMLA,
        FLASHINFER_MLA,
        CUTLASS_MLA,
        TRITON_MLA,
        FLASH_ATTN_MLA_SPARSE,
        FLASHMLA_SPARSE,
        FLASHINFER_MLA_SPARSE,
        FLASH_ATTN_MLA_SPARSE_FA4,
        FLASHINFER_MLA_SPARSE_SM90,
    )
}
