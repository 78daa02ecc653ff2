"""What LMDeploy's builders make of a model: layers with a geometry of K and V, index keys, states of a slot, and one window for all.

Sources: pytorch/configurations/*.py, engine/cache_engine/schema.py, backends/cuda/nsa.py and v4_compressor.py, LMDeploy 0.18.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Chunked, Compressed, Full, GatedDeltaNet, Index, Latent, Sliding
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.lmdeploy.classes import ModelClass
    from kvcalc.engines.lmdeploy.settings import Server

Kind = TypeVar("Kind", Latent, Index, GatedDeltaNet)

#: Bytes of a number in the model's own type: float32 and unknown types become float16.
_ITEM = 2
#: DeepSeek-V4: tokens of a block, bytes of a packed row (448 in fp8, 64 rotary in bf16, 7 scales and a pad).
V4_BLOCK, V4_ROW = 256, 584
#: A sparse latent in fp8_ds_mla: 512 in fp8, 4 scales of 4 B, 64 rotary in bf16.
_SPARSE_ROW = 656
#: A packed index key has one fp32 scale.
_SCALE = 4
#: Wide heads have no kernel for larger blocks.
_WIDE, _WIDE_BLOCK = 512, 32
_FLASH_BLOCK = 64


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a block, in one layer and on one rank.

    bytes     of the tensor in one block          align     the pool rounds it up to a multiple of this; 1 = it stands alone
    layers    that have it                        format    its storage format
    """

    state: str
    buffer: str
    format: str
    width: int
    layers: int
    bytes: int
    align: int = 256

    @property
    def held(self) -> int:
        """Bytes with the pad."""
        return -(-self.bytes // self.align) * self.align


@dataclass(frozen=True, slots=True)
class SlotPart:
    """One tensor of a state slot, all layers together, on one rank: rounded up to 256 B."""

    state: str
    buffer: str
    format: str
    width: int
    layers: int
    bytes: int

    @property
    def held(self) -> int:
        """Bytes with the pad."""
        return -(-self.bytes // 256) * 256


@dataclass(frozen=True, slots=True)
class Cache:
    """The cache of one rank.

    kernel     tokens of a kernel's block, whose parts `parts` are       each     kernel blocks in one block of the scheduler
    slot       parts of a state slot                                     window   of all layers; None = they keep everything
    sparse     DSA, for whose scores memory is kept
    """

    kernel: int
    each: int
    parts: tuple[Part, ...]
    slot: tuple[SlotPart, ...] = ()
    window: int | None = None
    sparse: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def block(self) -> int:
        """Tokens of a block."""
        return self.kernel * self.each

    @property
    def block_bytes(self) -> int:
        """Bytes of a block over all layers."""
        return self.each * sum(part.layers * part.held for part in self.parts)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a state slot."""
        return sum(part.held for part in self.slot)


def cache_of(architecture: Architecture, row: ModelClass, server: Server, ranks: int) -> Cache:
    """The cache of one of `ranks` tensor parallel ranks. Raises EngineRejectsError, UnsupportedArchitectureError."""
    match row.builder:
        case "plain":
            return _plain(architecture, row, server, ranks)
        case "expanded":
            return _expanded(architecture, server, ranks)
        case "latent":
            return _latent(architecture, row, server, ranks)
        case "sparse":
            return _sparse(architecture, server, ranks)
        case "packed":
            return _packed(architecture, ranks)
        case "spaced" | "listed":
            return _hybrid(architecture, row, server, ranks)


def _plain(architecture: Architecture, row: ModelClass, server: Server, ranks: int) -> Cache:
    heads = _heads(architecture)
    kv = _ranked(heads.query_heads, heads.kv_heads, ranks)
    block, each = _block(server, heads.head_dim, flash=False)
    count = architecture.layers.count
    window = _window(architecture, row)
    parts = _parts("sliding" if window else "full", count, block, (kv, heads.head_dim, heads.head_dim), server.policy)
    notes = []
    if window:
        notes.append(f"LMDeploy has one window for all layers: tokens older than {window:,} are dropped from every one of the {count}")
    elif any(isinstance(state, Sliding | Chunked) for state in architecture.states):
        notes.append("LMDeploy keeps every token on the window layers of this model")
    return Cache(block, each, parts, window=window, notes=tuple(notes))


def _expanded(architecture: Architecture, server: Server, ranks: int) -> Cache:
    """MiniCPM3: K and V of every head, as wide as a query."""
    latent = _one(architecture, Latent)
    if latent.query_heads is None or latent.nope_dim is None:
        raise UnsupportedArchitectureError(f"the heads of {clean(architecture.id)} are not known, and LMDeploy caches all of them")
    width = latent.nope_dim + latent.rope_dim
    kv = _ranked(latent.query_heads, latent.query_heads, ranks)
    block, each = _block(server, width, flash=False)
    return Cache(block, each, _parts("latent", architecture.layers.count, block, (kv, width, width), server.policy))


def _latent(architecture: Architecture, row: ModelClass, server: Server, ranks: int) -> Cache:
    """One row of latent and rotary key a token on every rank, and no V. DeepSeek-VL2's smallest has plain heads."""
    if not any(isinstance(state, Latent) for state in architecture.states):
        if row.name == "DeepseekVLV2ForCausalLM":
            return _plain(architecture, row, server, ranks)
        raise EngineRejectsError(f"LMDeploy does not load {row.name} without kv_lora_rank", "ask an engine that serves it, or ideal")
    latent = _one(architecture, Latent)
    width = latent.latent_dim + latent.rope_dim
    _ranked(latent.query_heads, 1, ranks)
    block, each = _block(server, width, flash=server.flash_mla)
    notes = () if server.flash_mla else (f"without FlashMLA (Hopper or later) blocks of wide latents have {block * each} tokens",)
    return Cache(block, each, _parts("latent", architecture.layers.count, block, (1, width, 0), server.policy), notes=notes)


def _sparse(architecture: Architecture, server: Server, ranks: int) -> Cache:
    """DSA: the latent in bf16, or packed under policy 16, and an index key on the layers that have an indexer of their own."""
    latent, index = _one(architecture, Latent), _one(architecture, Index)
    if not server.flash_mla:
        raise EngineRejectsError(
            "LMDeploy: sparse latent attention requires flash_mla, which needs a card of the Hopper generation or later",
            "choose such a card, as --gpu h100-80gb",
        )
    if server.policy not in (0, 16):
        raise EngineRejectsError(
            f"LMDeploy: sparse MLA does not support quant_policy {server.policy}", "give 16 (fp8_ds_mla), or leave it out"
        )
    _ranked(latent.query_heads, 1, ranks)
    width = latent.latent_dim + latent.rope_dim
    block, each = _block(server, width, flash=True)
    if server.kernel != server.block:
        raise EngineRejectsError(
            f"LMDeploy: the index keys of DSA require block_size {server.block} and kernel_block_size {server.kernel} to be equal"
        )
    packed = server.policy == 16
    key = Part(
        "latent",
        "latent",
        "fp8_ds_mla" if packed else "bf16",
        width,
        architecture.layers.count,
        block * (_SPARSE_ROW if packed else width * _ITEM),
    )
    row = index.index_dim + _SCALE
    keys = Part("index", "index", "index_fp8", index.index_dim, architecture.states[index], block * row, align=1)
    return Cache(block, each, (key, keys), sparse=True)


def _packed(architecture: Architecture, ranks: int) -> Cache:
    """DeepSeek-V4: compressed rows in blocks of 256; windows and what is not compressed yet in a slot."""
    window = _one(architecture, Latent)
    _ranked(window.query_heads, 1, ranks)
    wide, count = window.latent_dim + window.rope_dim, architecture.layers.count
    parts: list[Part] = []
    slot = [SlotPart("latent", "window", "fp8", V4_ROW, count, count * (window.window or 0) * V4_ROW)]
    for state, layers in architecture.states.items():
        match state:
            case Compressed(ratio=4 | 128):
                parts.append(Part("compressed", "latent", "fp8", state.latent_dim, layers, V4_BLOCK // state.ratio * V4_ROW, align=1))
                rows, width = (16, 2 * wide) if state.ratio == 4 else (256, wide)
                slot.append(SlotPart("compressed", f"window of {state.ratio}", "fp32", width, layers, layers * rows * width * 4))
            case Compressed():
                raise EngineRejectsError(f"LMDeploy: DeepSeek-V4 compression only supports ratios 0, 4 and 128, and not {state.ratio}")
            case Index():
                entries = V4_BLOCK // state.ratio
                parts.append(Part("index", "index", "index_fp8", state.index_dim, layers, entries * (state.index_dim + _SCALE), align=1))
                width = 2 * state.index_dim
                slot.append(SlotPart("index", "index window", "fp32", width, layers, layers * 16 * width * 4))
            case _:
                continue
    return Cache(
        V4_BLOCK,
        1,
        tuple(parts),
        tuple(slot),
        notes=("LMDeploy packs DeepSeek-V4 in blocks of 256, whatever block_size and quant_policy say",),
    )


def _hybrid(architecture: Architecture, row: ModelClass, server: Server, ranks: int) -> Cache:
    """Qwen3-Next and Qwen3.5: blocks for the full layers, and a slot a sequence for the matrices and convolutions of all others."""
    heads, delta = _heads(architecture), _one(architecture, GatedDeltaNet)
    # Qwen3.5's query heads count twice for the split: a gate stands beside each.
    query = heads.query_heads and heads.query_heads * (2 if row.builder == "listed" else 1)
    kv = _ranked(query, heads.kv_heads, ranks)
    block, each = _block(server, heads.head_dim, flash=False)
    full, linear = _layers(architecture, row)
    value, key = delta.value_heads // ranks, delta.key_heads // ranks
    channels = 2 * key * delta.key_head_dim + value * delta.value_head_dim
    matrix = value * delta.key_head_dim * delta.value_head_dim
    item = 4 if server.args["fp32_mamba_ssm_dtype"] and row.builder == "listed" else _ITEM
    name = "fp32" if item == 4 else "bf16"
    slot = (
        SlotPart("gated_deltanet", "conv", "bf16", channels, linear, linear * channels * delta.conv_kernel * _ITEM),
        SlotPart("gated_deltanet", "recurrent", name, matrix, linear, linear * matrix * item),
    )
    return Cache(block, each, _parts("full", full, block, (kv, heads.head_dim, heads.head_dim), server.policy), slot)


def _layers(architecture: Architecture, row: ModelClass) -> tuple[int, int]:
    """Full layers and all others. Qwen3-Next's builder counts by the interval, whatever the layers are."""
    kinds = [any(isinstance(state, Full) for state in architecture.layers.layer(i)) for i in range(architecture.layers.count)]
    if row.builder == "listed" or True not in kinds:
        return sum(kinds), len(kinds) - sum(kinds)
    interval = kinds.index(True) + 1
    full = len(kinds) // interval
    return full, full * (interval - 1)


def _parts(state: str, layers: int, block: int, size: tuple[int, int, int], policy: int) -> tuple[Part, ...]:
    """K, V and their parameters for `size` = heads, K's and V's width, under a policy."""
    heads, key, value = size
    narrow = {4: (2, 2), 42: (2, 4)}.get(policy, (1, 1))
    if key % narrow[0] or value % narrow[1]:
        raise EngineRejectsError(
            f"LMDeploy: quant_policy {policy} packs {narrow[1]} elements a byte, and {key} is no multiple", "choose another policy"
        )
    item = _ITEM if policy == 0 else 1
    kind = {0: "bf16", 4: "int4", 8: "int8", 16: "fp8", 17: "fp8_e5m2", 42: "turboquant"}[policy]
    one = "latent" if not value else "key"
    found = [Part(state, one, kind, heads * key, layers, block * heads * (key // narrow[0]) * item)]
    if value:
        found.append(Part(state, "value", kind, heads * value, layers, block * heads * (value // narrow[1]) * item))
    if policy in (4, 8, 42):
        found.append(Part(state, f"{one} scales", "bf16", 2 * heads, layers, block * heads * 2 * _ITEM))
        each = 1 if policy == 42 else 2
        found.append(Part(state, "value scales", "bf16", each * heads, layers, block * heads * each * _ITEM))
    return tuple(found)


def _block(server: Server, width: int, *, flash: bool) -> tuple[int, int]:
    """Tokens of a kernel's block, and how many make a block: 64 in all with FlashMLA, 32 for wide heads without it, else as set."""
    if flash:
        if server.block != _FLASH_BLOCK:
            raise EngineRejectsError(f"LMDeploy: please set block_size to {_FLASH_BLOCK} for flash_mla, instead of {server.block}")
    elif width >= _WIDE and server.block > _WIDE_BLOCK:
        return _WIDE_BLOCK, 1
    return server.kernel, server.block // server.kernel


def _ranked(query: int | None, kv: int, ranks: int) -> int:
    """KV heads of one rank: divided, or one where there are fewer heads than ranks. Raises EngineRejectsError where neither comes out even."""
    if query and query % ranks:
        raise EngineRejectsError(
            f"LMDeploy: tensor parallel size {ranks} does not divide the {query} query heads", f"choose a size that divides {query}"
        )
    if (kv % ranks if kv >= ranks else ranks % kv) != 0:
        raise EngineRejectsError(
            f"LMDeploy: {kv} KV heads and tensor parallel size {ranks} do not divide one another", f"choose a size that divides {kv}"
        )
    return max(1, kv // ranks)


def _window(architecture: Architecture, row: ModelClass) -> int | None:
    """The window that the builder takes for all layers: `sliding_window` of the file or its class, unless it is switched off."""
    switch = architecture.traits.use_sliding_window
    if not row.windowed or switch is False or (row.switched and switch is None):
        return None
    said = architecture.traits.sliding_window
    if isinstance(said, int) and not isinstance(said, bool) and said > 0:
        return said
    return next((state.window for state in architecture.states if isinstance(state, Sliding)), None)


def _heads(architecture: Architecture) -> Full | Sliding | Chunked:
    """The first attention with heads: the builder has one geometry for all layers."""
    found = next((state for state in architecture.states if isinstance(state, Full | Sliding | Chunked)), None)
    if found is None:
        raise UnsupportedArchitectureError(f"{clean(architecture.id)} has no attention with heads, and LMDeploy caches K and V")
    return found


def _one(architecture: Architecture, kind: type[Kind]) -> Kind:
    found = next((state for state in architecture.states if isinstance(state, kind)), None)
    if found is None:
        raise UnsupportedArchitectureError(f"{clean(architecture.id)} has no layers of the kind that its class in LMDeploy caches")
    return found
