"""Recurrent blocks of a GGUF file, alone or between blocks that attend.

Sources: llama-hparams.cpp `n_embd_r`, `n_embd_s`; src/models/*.cpp `load_arch_hparams` (llama.cpp b11549).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.states import AnyState, Fixed, GatedDeltaNet, Kda, Lightning, Mamba1, Mamba2, Rwkv, ShortConv
from kvcalc.sources.gguf.attention import NOTHING, attention, cacheless, make, plain
from kvcalc.sources.gguf.latent import index, latent

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.sources.gguf.attention import States
    from kvcalc.sources.gguf.metadata import Metadata

    Mixer = Callable[[Metadata], AnyState]
    Attend = Callable[[Metadata, int], States]


def mamba1(meta: Metadata) -> AnyState:
    """Mamba, Jamba: the convolution sees the inner width alone."""
    return make(
        Mamba1,
        inner_dim=meta.integer("ssm.inner_size", least=1),
        state_dim=meta.integer("ssm.state_size", least=1),
        conv_kernel=meta.integer("ssm.conv_kernel"),
    )


def mamba2(meta: Metadata) -> AnyState:
    """Mamba-2: the convolution also sees B and C of every group; PLaMo-2 has no groups."""
    groups = meta.integer("ssm.group_count")
    if not groups:
        return mamba1(meta)
    heads, width = _parts(meta)
    return make(
        Mamba2,
        heads=heads,
        head_dim=width,
        state_dim=meta.integer("ssm.state_size", least=1),
        groups=groups,
        conv_kernel=meta.integer("ssm.conv_kernel"),
    )


def delta_net(meta: Metadata) -> AnyState:
    """Gated DeltaNet in the names of state-space models: groups are key heads, the state size a key head's width."""
    heads, width = _parts(meta)
    return make(
        GatedDeltaNet,
        key_heads=meta.integer("ssm.group_count", least=1),
        value_heads=heads,
        key_head_dim=meta.integer("ssm.state_size", least=1),
        value_head_dim=width,
        conv_kernel=meta.integer("ssm.conv_kernel"),
    )


def _parts(meta: Metadata) -> tuple[int, int]:
    """Heads and their width: `time_step_rank` heads fill the inner size; one head does where they do not divide it."""
    inner, heads = meta.integer("ssm.inner_size", least=1), meta.integer("ssm.time_step_rank", 1)
    return (heads, inner // heads) if heads and inner % heads == 0 else (1, inner)


def kda(meta: Metadata) -> AnyState:
    """Kimi delta attention: as many heads as the first block has query heads; a kernel of 0 means 4 (llama-hparams.cpp)."""
    return make(Kda, heads=meta.heads[0], head_dim=meta.integer("kda.head_dim", least=1), conv_kernel=meta.integer("ssm.conv_kernel") or 4)


def lightning(meta: Metadata) -> AnyState:
    """MiniMax-01's linear attention."""
    return make(Lightning, heads=meta.heads[0], head_dim=meta.key)


def short_conv(meta: Metadata) -> AnyState:
    """LFM2's gated convolution."""
    return make(ShortConv, channels=meta.embedding, conv_kernel=meta.integer("shortconv.l_cache", least=1))


def rwkv(meta: Metadata) -> AnyState:
    """RWKV: heads of `wkv.head_size` fill the embedding."""
    width = meta.integer("wkv.head_size", least=1)
    if meta.embedding % width:
        raise meta.refuse("wkv.head_size", f"does not divide the embedding length {meta.embedding}")
    return make(
        Rwkv,
        heads=meta.embedding // width,
        head_dim=width,
        hidden_dim=meta.embedding,
        shifts=meta.integer("token_shift_count", 2, least=1),
    )


def pure(meta: Metadata, mixer: Mixer) -> list[States]:
    """Every block is the mixer."""
    return [(mixer(meta),)] * meta.blocks


def parallel(meta: Metadata) -> list[States]:
    """Falcon-H1: attention and Mamba-2 side by side."""
    state = mamba2(meta)
    return [(*states, state) if i < meta.trunk else states for i, states in enumerate(plain(meta))]


def by_heads(meta: Metadata, mixer: Mixer, attend: Attend = attention) -> list[States]:
    """A trunk block without KV heads is recurrent, any other attends."""
    recurrent = [i < meta.trunk and not meta.kv_heads[i] for i in range(meta.blocks)]
    state = mixer(meta) if any(recurrent) else None
    return [(state,) if here and state is not None else attend(meta, i) for i, here in enumerate(recurrent)]


def by_interval(meta: Metadata, mixer: Mixer, interval: int = 4, attend: Attend = attention) -> list[States]:
    """`recurrent_layers` marks the recurrent blocks, else all but the last of each `full_attention_interval`."""
    every = meta.integer("full_attention_interval", interval, least=1)
    default = [int(i < meta.trunk and (i + 1) % every != 0) for i in range(meta.blocks)]
    marked = meta.per_block("attention.recurrent_layers", default)
    state = mixer(meta)
    return [(state,) if marked[i] and i < meta.trunk else attend(meta, i) for i in range(meta.blocks)]


def lfm2(meta: Metadata) -> list[States]:
    """LFM2: where the file has a window, every attention slides. A file with a decision head is a classifier without a cache."""
    if meta.integer("decision.block_count", 0):
        return cacheless(meta)
    window = meta.integer("attention.sliding_window", 0)
    return by_heads(meta, short_conv, lambda m, i: attention(m, i, window if i < m.trunk else 0))


def nemotron(meta: Metadata) -> list[States]:
    """Nemotron-H: a block with a feed-forward keeps nothing; without one it is Mamba-2, or attention where it has KV heads.

    A draft block has both a feed-forward and an attention.
    """
    state = mamba2(meta)
    blocks: list[States] = []
    for i in range(meta.blocks):
        if i < meta.trunk and meta.feed_forward[i]:
            blocks.append(NOTHING)
        else:
            blocks.append((state,) if i < meta.trunk and not meta.kv_heads[i] else attention(meta, i))
    return blocks


def glm5_next(meta: Metadata) -> list[States]:
    """GLM-5-Next: KDA, and latents with a pooled index key."""
    pool = meta.integer("attention.indexer.kpool", least=2)
    owners = [*meta.per_block("attention.indexer.types", 1, blocks=meta.trunk), *([1] * meta.drafts)]
    key = index(meta, pool=pool)
    return by_heads(meta, kda, lambda m, i: (*latent(m, i), key) if owners[i] else latent(m, i))


def qwen4(meta: Metadata) -> list[States]:
    """Qwen4-exp: Qwen3-Next with an index key on its attention, and the history of an n-gram convolution on one linear block."""
    ratios = {ratio for ratio in meta.per_block("attention.compress_ratios", 0) if ratio}
    if len(ratios) > 1 or 1 in ratios:
        raise meta.refuse("attention.compress_ratios", "needs one ratio above 1 for all its blocks")
    key = index(meta, ratio=max(ratios, default=1))
    blocks = by_interval(meta, delta_net, attend=lambda m, i: (*attention(m, i), key) if i < m.trunk else attention(m, i))
    for i in meta.array("ple.layers") or ():
        if i >= meta.blocks or not blocks[i][0].is_recurrent:
            raise meta.refuse("ple.layers", "must name a linear attention block")
        kernel, grams, copies = (meta.integer(name, least=1) for name in ("ple.conv_kernel", "ple.ngram_size", "hyper_connection.count"))
        if kernel > 1:
            blocks[i] = (*blocks[i], make(Fixed, name="ple", elements=(kernel - 1) * grams * copies * meta.embedding, state_dtype="fp32"))
    return blocks
