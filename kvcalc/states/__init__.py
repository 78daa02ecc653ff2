"""The states that a layer can keep, one file a family.

attention.py   full · sliding · chunked · cross · shared · none
latent.py      latent (MLA) · index (DSA) · compressed (DeepSeek-V4)
recurrent.py   mamba1 · mamba2 · gated_deltanet · kda · lightning · rwkv · short_conv · rg_lru · fixed
"""

from __future__ import annotations

from kvcalc.states.attention import Chunked, Cross, Full, Nothing, Shared, Sliding
from kvcalc.states.base import CACHE, MODEL, Buffer, Extent, State
from kvcalc.states.latent import Compressed, Index, Latent
from kvcalc.states.recurrent import (
    Fixed,
    GatedDeltaNet,
    Kda,
    Lightning,
    Mamba1,
    Mamba2,
    Recurrent,
    RgLru,
    Rwkv,
    ShortConv,
)

#: Every state by its `kind`, the word that YAML files use.
KINDS: dict[str, type[State]] = {
    "full": Full,
    "sliding": Sliding,
    "chunked": Chunked,
    "cross": Cross,
    "shared": Shared,
    "none": Nothing,
    "latent": Latent,
    "index": Index,
    "compressed": Compressed,
    "mamba1": Mamba1,
    "mamba2": Mamba2,
    "gated_deltanet": GatedDeltaNet,
    "kda": Kda,
    "lightning": Lightning,
    "rwkv": Rwkv,
    "short_conv": ShortConv,
    "rg_lru": RgLru,
    "fixed": Fixed,
}

__all__ = [
    "CACHE",
    "KINDS",
    "MODEL",
    "Buffer",
    "Chunked",
    "Compressed",
    "Cross",
    "Extent",
    "Fixed",
    "Full",
    "GatedDeltaNet",
    "Index",
    "Kda",
    "Latent",
    "Lightning",
    "Mamba1",
    "Mamba2",
    "Nothing",
    "Recurrent",
    "RgLru",
    "Rwkv",
    "Shared",
    "ShortConv",
    "Sliding",
    "State",
]
