"""Which states of a model need a cache in vLLM 0.33, and how they count: attention, latents of one row, others."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from kvcalc.core.states import (
    Chunked,
    Compressed,
    Cross,
    Fixed,
    Full,
    GatedDeltaNet,
    Index,
    Kda,
    Latent,
    Lightning,
    Mamba1,
    Mamba2,
    Nothing,
    RgLru,
    Rwkv,
    Shared,
    ShortConv,
    Sliding,
)
from kvcalc.engines.vllm.families import Caches, family_of

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState

#: States of fixed size without a cache: past token ids come from the request, and the Transformers backend keeps none (family_caches/zaya.py).
_WITHOUT_CACHE = ("ngram_ids", "cca_conv", "cca_value")


def kept_states(architecture: Architecture) -> list[AnyState]:
    """The model's own states that need a cache."""
    return [state for states in architecture.layers.states.values() for state in states if is_kept(state, architecture.family)]


def is_kept(state: AnyState, family: str) -> bool:
    """Whether vLLM keeps a cache for this state; index keys only where its model reads them."""
    row = family_of(family)
    match state:
        case ShortConv():
            return row.caches is not Caches.INKLING  # there: pages of its layer's attention (family_caches/inkling.py)
        case Fixed():
            return state.name not in _WITHOUT_CACHE
        case Shared() | Nothing():
            return False
        case Index():
            return row.mla or row.index_keys
        case Full() | Sliding() | Chunked() | Cross() | Latent() | Compressed():
            return True
        case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | RgLru():
            return True
        case _:
            assert_never(state)


def is_mla(state: AnyState, family: str) -> bool:
    """The state is stored as one latent row."""
    return isinstance(state, Latent) and family_of(family).mla


def is_attention(state: AnyState) -> bool:
    """Attention proper: neither a recurrent state nor what an attention layer keeps besides."""
    return not state.is_recurrent and not isinstance(state, (Index, Compressed))
