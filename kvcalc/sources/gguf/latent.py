"""Blocks of a GGUF file that keep latents, index keys or compressed rows: DeepSeek and the architectures built like it.

Sources: src/models/deepseek*.cpp, glm-dsa.cpp, hy-v4.cpp, dots3note.cpp, minimax-m3.cpp (llama.cpp b11549).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.states import AnyState, Compressed, Index, Latent
from kvcalc.sources.gguf.attention import NOTHING, WINDOWS, attention, make, plain, window_blocks, window_of

if TYPE_CHECKING:
    from kvcalc.sources.gguf.attention import States
    from kvcalc.sources.gguf.metadata import Metadata

#: glm-dsa.cpp: files trained for a shorter context come from before GLM-5.2, whose blocks share indexers.
GLM_SHARED_INDEXERS_FROM = 1_048_576
#: The ratio whose rows DeepSeek-V4 indexes (llama-kv-cache-dsv4.cpp).
INDEXED_RATIO = 4


def has_mla(meta: Metadata) -> bool:
    """Both keys decide whether llama.cpp stores the latent, or the expanded heads."""
    return bool(meta.integer("attention.key_length_mla", 0) and meta.integer("attention.value_length_mla", 0))


def latent(meta: Metadata, block: int, window: int = 0) -> States:
    """The latent row of one block: `key_length` elements a KV head, of which `kv_lora_rank` are the compressed part."""
    suffix = "_swa" if window else ""
    row = (meta.key_swa if window else meta.key) * meta.kv_heads[block]
    if not row:
        return NOTHING
    rank = meta.integer(f"attention.kv_lora_rank{suffix}", meta.value)
    if not 0 < rank <= row:
        rank = row
    rope = row - rank
    return (
        make(
            Latent,
            latent_dim=rank,
            rope_dim=rope,
            window=window or None,
            query_heads=meta.heads[block] or None,
            nope_dim=max(meta.integer(f"attention.key_length_mla{suffix}", 0) - rope, 0) or None,
            value_head_dim=meta.integer(f"attention.value_length_mla{suffix}", 0) or None,
        ),
    )


def mla(meta: Metadata) -> list[States]:
    """DeepSeek-V2, V3 and kin; an old file without the MLA keys holds the same model with its heads expanded."""
    if has_mla(meta):
        return [latent(meta, i) for i in range(meta.blocks)]
    return expanded_mla(meta)


def expanded_mla(meta: Metadata) -> list[States]:
    """MiniCPM3, PLM, and DeepSeek files from before llama.cpp stored latents."""
    return [expanded(meta, i) for i in range(meta.blocks)]


def expanded(meta: Metadata, block: int) -> States:
    """A latent that the file's own tensors expand to full heads; full attention where the file does not say its parts."""
    rank, rope = meta.optional("attention.kv_lora_rank"), meta.optional("rope.dimension_count")
    heads = meta.heads[block]
    if not rank or rope is None or not heads or meta.kv_heads[block] != heads or rope >= meta.key or not meta.value:
        return attention(meta, block)
    return (make(Latent, latent_dim=rank, rope_dim=rope, query_heads=heads, nope_dim=meta.key - rope, value_head_dim=meta.value),)


def index(meta: Metadata, **fields: Any) -> AnyState:
    """The index key of sparse attention."""
    return make(
        Index,
        **({"index_dim": meta.integer("attention.indexer.key_length", least=1)} | fields),
        top_k=meta.optional("attention.indexer.top_k") or None,
    )


def indexed_blocks(meta: Metadata) -> list[bool]:
    """Which trunk blocks own an indexer: `indexer.types`, else the architecture's rule."""
    default: int | list[int] = 1
    if meta.architecture == "hy_v4":
        default = 0
    elif meta.architecture == "glm-dsa" and meta.integer("context_length", 0) >= GLM_SHARED_INDEXERS_FROM:
        default = [int(i < 2 or i % 4 == 2) for i in range(meta.trunk)]
    return [bool(item) for item in meta.per_block("attention.indexer.types", default, blocks=meta.trunk)] + [False] * meta.drafts


def dsa(meta: Metadata) -> list[States]:
    """DeepSeek-V3.2, GLM-5, Hy-V4: latents, and index keys on the trunk blocks that own an indexer."""
    blocks = mla(meta)
    if meta.architecture == "hy_v4" and not meta.integer("attention.indexer.top_k", 0):
        return blocks
    owners = [i < meta.trunk for i in range(meta.blocks)] if meta.architecture == "deepseek32" else indexed_blocks(meta)
    if not owners[0]:
        raise meta.refuse("attention.indexer.types", "the first block must own an indexer")
    key = index(meta)
    return [(*states, key) if owns else states for states, owns in zip(blocks, owners, strict=True)]


def dots3(meta: Metadata) -> list[States]:
    """dots3-note: latents with index keys on full blocks, wider latents with a window on the others.

    A window block that owns an indexer gets rows as wide as its own latents: llama-kv-cache-dsa.cpp narrows the full blocks only.
    """
    rule = WINDOWS[meta.architecture]
    window, slides = window_of(meta, rule), window_blocks(meta, rule)
    owners = meta.flags("attention.indexer.types")
    if owners is None:
        raise meta.refuse("attention.indexer.types", "this architecture needs an array with one entry a block")
    key, wide = index(meta), index(meta, index_dim=meta.key_swa) if meta.key_swa else None
    blocks = [latent(meta, i, window if slides[i] else 0) for i in range(meta.blocks)]
    keys = [wide if slides[i] else key for i in range(meta.blocks)]
    kept = [keys[i] if owners[i] and i < meta.trunk else None for i in range(meta.blocks)]
    return [states if own is None else (*states, own) for states, own in zip(blocks, kept, strict=True)]


def msa(meta: Metadata) -> list[States]:
    """MiniMax-M3: heads everywhere, and an index key behind the leading dense blocks."""
    key = index(meta, format="bf16")
    dense = meta.integer("leading_dense_block_count", 0)
    return [(*states, key) if i >= dense else states for i, states in enumerate(plain(meta))]


def dsv4(meta: Metadata) -> list[States]:
    """DeepSeek-V4: a window of latents on every block, compressed rows by its ratio, index keys where the ratio is 4."""
    width = meta.key_swa * meta.kv_heads[0]
    rope = meta.integer("rope.dimension_count", 0)
    rope = rope if rope < width else 0
    window = make(
        Latent,
        latent_dim=width - rope,
        rope_dim=rope,
        window=meta.integer("attention.sliding_window", least=1),
        query_heads=meta.heads[0] or None,
    )
    ratios = meta.array("attention.compress_ratios")
    if ratios is None or len(ratios) < meta.blocks:
        raise meta.refuse("attention.compress_ratios", f"needs an entry for each of {meta.blocks} blocks")
    blocks: list[States] = []
    for ratio in ratios[: meta.blocks]:
        kept: list[AnyState] = [window]
        if ratio:
            kept.append(make(Compressed, latent_dim=width, rope_dim=rope, ratio=ratio))
        if ratio == INDEXED_RATIO:
            kept.append(index(meta, ratio=ratio))
        blocks.append(tuple(kept))
    return blocks
