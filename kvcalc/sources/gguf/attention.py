"""Blocks of a GGUF file that attend: full, sliding, chunked, sharing, looped, or none.

Sources: src/models/*.cpp `load_arch_hparams`, llama-hparams.cpp, llama-model.cpp `load_swa_pattern` (llama.cpp b11549).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Chunked, Full, Nothing, Shared, Sliding
from kvcalc.core.units import LARGEST
from kvcalc.sources.schema import read
from kvcalc.sources.validation import first

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState
    from kvcalc.sources.gguf.metadata import Metadata

#: What one block keeps.
States = tuple["AnyState", ...]

#: gemma3n.cpp: the blocks from this one on read the caches of earlier ones.
GEMMA3N_OWNERS = 20
#: exaone4.cpp: only the 32B has windows, and its number of blocks is how it is told apart.
EXAONE4_WINDOWED_BLOCKS = 64
#: LLAMA_MAX_LAYERS, which holds for the loops of all blocks together (nanbeige.cpp).
MOST_LOOPED = 512


@lru_cache(maxsize=4096)
def make(kind: type[AnyState], **fields: Any) -> AnyState:
    """A state of the file's figures, built once for all blocks and files that have the same. Raises InvalidConfigError."""
    try:
        return read(kind, fields)
    except ValidationError as error:
        raise InvalidConfigError(f"GGUF metadata: {kind.__name__.lower()} block: {first(error)}") from None


NOTHING: States = (Nothing(),)


#: Architectures whose window is no cache's, or whose caches are made apart.
_WINDOWS_APART = ("phi3", "dots3note", "dflash", "gemma4-assistant")


class Windows(NamedTuple):
    """How an architecture finds its window blocks.

    period        every period-th block is full, the last of each period, or the first if `dense_first`; None: an array is required
    missing       the window where the file has no key; None: the key is required; 0: no window blocks without it
    constant      a window that the loader sets whatever the file says
    kind          what a window block is
    """

    period: int | None
    dense_first: bool = False
    missing: int | None = None
    constant: int = 0
    kind: type[AnyState] = Sliding


WINDOWS: dict[str, Windows] = {
    "gemma2": Windows(2, missing=4096),
    "gpt-oss": Windows(2),
    "gemma3": Windows(6, missing=0),
    "gemma3n": Windows(5),
    "cohere2": Windows(4),
    "llama4": Windows(4, missing=8192, constant=8192, kind=Chunked),
    "olmo2": Windows(4, missing=0),
    "exaone4": Windows(4, missing=4096),
    "exaone-moe": Windows(4, missing=128),
    "afmoe": Windows(4, missing=0),
    "mellum": Windows(4, missing=0),
    "muse-glimmer": Windows(4),
    "plamo3": Windows(8, missing=0),
    "cohere2moe": Windows(4, dense_first=True),
    "laguna": Windows(4, dense_first=True, missing=0),
    "smallthinker": Windows(4, dense_first=True, missing=0, constant=4096),
    "gemma4": Windows(None),
    "gemma4-assistant": Windows(None),
    "mimo2": Windows(None),
    "step35": Windows(None),
    "spark2_5": Windows(None),
    "maple": Windows(None),
    "granite_swa": Windows(None),
    "dots3note": Windows(None),
    "dflash": Windows(None, missing=0),
    # Every block of Phi-3 slides in its config; llama.cpp keeps the key and does not read it.
    "phi3": Windows(0, missing=0),
}


def window_of(meta: Metadata, rule: Windows) -> int:
    """The window's length; 0: the file has no window blocks."""
    found = meta.optional("attention.sliding_window")
    if found is None:
        found = rule.missing
        if found is None:
            found = meta.integer("attention.sliding_window", least=1)
    elif found == 0 and rule.missing is None:
        raise meta.refuse("attention.sliding_window", "this architecture has window blocks")
    return (rule.constant or found) if found else 0


def window_blocks(meta: Metadata, rule: Windows) -> list[bool]:
    """Which blocks are window blocks: an array of the file wins, then its period, then the architecture's. Draft blocks are full."""
    key = "attention.sliding_window_pattern"
    listed = meta.flags(key)
    if listed is not None:
        return listed
    if rule.period is None:
        raise meta.refuse(key, "this architecture needs an array with one truth value a block")
    period = meta.integer(key, rule.period)
    if period == 0:
        trunk = [True] * meta.trunk
    elif rule.dense_first:
        trunk = [i % period != 0 for i in range(meta.trunk)]
    else:
        trunk = [i % period < period - 1 for i in range(meta.trunk)]
    return trunk + [False] * meta.drafts


def attention(meta: Metadata, block: int, window: int = 0, kind: type[AnyState] = Sliding) -> States:
    """K and V heads of one block; nothing where its K row has no elements."""
    kv_heads = meta.kv_heads[block]
    of_window = window and meta.architecture != "phi3"
    key, value = (meta.key_swa, meta.value_swa) if of_window else (meta.key, meta.value)
    if not kv_heads or not key:
        return NOTHING
    query = meta.heads[block]
    fields: dict[str, Any] = {
        "kv_heads": kv_heads,
        "head_dim": key,
        "value_head_dim": value,
        "query_heads": query if query and query % kv_heads == 0 else None,
    }
    if not window:
        return (make(Full, **fields),)
    if kind is Chunked:
        return (make(Chunked, chunk=window, **fields),)
    nominal = meta.architecture == "phi3" and window >= meta.integer("context_length", LARGEST)
    return (make(Sliding, window=window, nominal=nominal, **fields),)


def plain(meta: Metadata) -> list[States]:
    """Full attention on every block."""
    return [attention(meta, i) for i in range(meta.blocks)]


def windowed(meta: Metadata) -> list[States]:
    """Window blocks between full ones, by the architecture's row of WINDOWS."""
    rule = WINDOWS[meta.architecture]
    window = _window_in_force(meta, rule)
    if not window:
        return plain(meta)
    flags = window_blocks(meta, rule)
    return [attention(meta, i, window if flags[i] else 0, rule.kind) for i in range(meta.blocks)]


def _window_in_force(meta: Metadata, rule: Windows) -> int:
    window = window_of(meta, rule)
    return 0 if meta.architecture == "exaone4" and meta.trunk != EXAONE4_WINDOWED_BLOCKS else window


def lacks_window_blocks(meta: Metadata) -> bool:
    """The file has a window, and a pattern by which no block slides (llama-model.cpp `create_memory` asserts that one does)."""
    rule = WINDOWS.get(meta.architecture)
    if rule is None or meta.architecture in _WINDOWS_APART or not _window_in_force(meta, rule):
        return False
    return not any(window_blocks(meta, rule))


def shared_from(meta: Metadata, owners: int) -> list[States]:
    """Blocks from `owners` on read the last owner of their own kind: the last block before them if full, the one before it if not."""
    flags = window_blocks(meta, WINDOWS[meta.architecture])
    blocks = windowed(meta)
    for i in range(owners, meta.blocks):
        blocks[i] = (make(Shared, shares_with=max(owners - (2 if flags[i] else 1), 0)),)
    return blocks


def gemma4(meta: Metadata) -> list[States]:
    """Gemma 4: the last `shared_kv_layers` blocks own nothing."""
    shared = meta.integer("attention.shared_kv_layers", 0)
    if shared >= meta.blocks:
        raise meta.refuse("attention.shared_kv_layers", f"the file has {meta.blocks} blocks")
    return shared_from(meta, meta.blocks - shared)


def dflash(meta: Metadata) -> list[States]:
    """A draft model of DFlash; built on DeepSeek-V4 (hyper-connections), every block of it slides."""
    if not meta.integer("hyper_connection.count", 0):
        return windowed(meta)
    window = meta.integer("attention.sliding_window", least=1)
    return [attention(meta, i, window) for i in range(meta.blocks)]


def looped(meta: Metadata) -> list[States]:
    """Nanbeige: the stack of trunk blocks runs `num_loops` times, each time with a cache of its own."""
    loops = meta.integer("num_loops", 1, least=1)
    if loops * meta.blocks > MOST_LOOPED:
        raise meta.refuse("num_loops", f"llama.cpp reads at most {MOST_LOOPED} blocks in all loops")
    return plain(meta) if loops == 1 else plain(meta)[: meta.trunk] * loops


def routed(meta: Metadata) -> list[States]:
    """Granite-Switch: one single-head block after the trunk's keeps the routing signal, and takes the place of draft blocks (granite-switch.cpp)."""
    return [*plain(meta)[: meta.trunk], (make(Full, kv_heads=1, head_dim=meta.key, value_head_dim=meta.value),)]


def cacheless(meta: Metadata) -> list[States]:
    """Encoders and diffusion models: llama.cpp gives them no cache."""
    return [NOTHING] * meta.blocks


def borrowing(meta: Metadata) -> list[States]:
    """Gemma 4's assistant: every block reads the target's cache."""
    return [(make(Shared),)] * meta.blocks
