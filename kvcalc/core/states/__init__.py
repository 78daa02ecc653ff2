"""The states that a layer can keep, a closed union; one file a family, each imported when one of its states is asked for.

attention.py   full · sliding · chunked · cross · shared · none
latent.py      latent (MLA) · index (DSA) · compressed (DeepSeek-V4)
recurrent.py   mamba1 · mamba2 · gated_deltanet · kda · lightning · rwkv · short_conv · rg_lru · fixed

`AnyState` is the union of them all: code that tells states apart matches on the classes and ends in `assert_never`, so that a
new state fails the type check wherever nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from importlib import import_module
from operator import or_
from typing import TYPE_CHECKING, Any

from kvcalc.core.states.base import CACHE, MODEL, Buffer, Extent, State

if TYPE_CHECKING:
    from kvcalc.core.states.attention import Chunked, Cross, Full, Nothing, Shared, Sliding
    from kvcalc.core.states.latent import Compressed, Index, Latent
    from kvcalc.core.states.recurrent import (
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

    AnyState = (
        Full
        | Sliding
        | Chunked
        | Cross
        | Shared
        | Nothing
        | Latent
        | Index
        | Compressed
        | Mamba1
        | Mamba2
        | GatedDeltaNet
        | Kda
        | Lightning
        | Rwkv
        | ShortConv
        | RgLru
        | Fixed
    )

#: The word that YAML files use → the class, by file.
_FILES: dict[str, dict[str, str]] = {
    "attention": {
        "full": "Full",
        "sliding": "Sliding",
        "chunked": "Chunked",
        "cross": "Cross",
        "shared": "Shared",
        "none": "Nothing",
    },
    "latent": {"latent": "Latent", "index": "Index", "compressed": "Compressed"},
    "recurrent": {
        "mamba1": "Mamba1",
        "mamba2": "Mamba2",
        "gated_deltanet": "GatedDeltaNet",
        "kda": "Kda",
        "lightning": "Lightning",
        "rwkv": "Rwkv",
        "short_conv": "ShortConv",
        "rg_lru": "RgLru",
        "fixed": "Fixed",
    },
}
_HOME = {name: file for file, kinds in _FILES.items() for name in kinds.values()} | {"Recurrent": "recurrent"}
_CLASS = {kind: name for kinds in _FILES.values() for kind, name in kinds.items()}


class _Kinds(Mapping[str, "type[AnyState]"]):
    """Every state by its `kind`; making a class takes longer than using it, so only those asked for are made."""

    def __getitem__(self, kind: str) -> type[AnyState]:
        found: type[AnyState] = __getattr__(_CLASS[kind])
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASS)

    def __len__(self) -> int:
        return len(_CLASS)

    def __contains__(self, kind: object) -> bool:
        return kind in _CLASS


KINDS: Mapping[str, type[AnyState]] = _Kinds()


def __getattr__(name: str) -> Any:
    if name == "AnyState":
        return reduce(or_, KINDS.values())
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


__all__ = [
    "CACHE",
    "KINDS",
    "MODEL",
    "AnyState",
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
