"""Which states of a model need a cache in vLLM 0.33, and how they count: attention, latents of one row, others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.engines.vllm.families import Caches, family_of

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import State

_SKIPPED = ("shared", "none")
#: States of fixed size without a cache: past token ids come from the request, and the Transformers backend keeps none (family_caches/zaya.py).
_WITHOUT_CACHE = ("ngram_ids", "cca_conv", "cca_value")


def kept_states(architecture: Architecture) -> list[State]:
    """The model's own states that need a cache."""
    return [state for states in architecture.layers.states.values() for state in states if is_kept(state, architecture.family)]


def is_kept(state: State, family: str) -> bool:
    """Whether vLLM keeps a cache for this state; index keys only where its model reads them."""
    row = family_of(family)
    if state.kind == "short_conv" and row.caches is Caches.INKLING:
        return False  # pages of its layer's attention (family_caches/inkling.py)
    if state.kind == "fixed":
        return getattr(state, "name", "") not in _WITHOUT_CACHE
    return state.kind not in _SKIPPED and (state.kind != "index" or row.mla or row.index_keys)


def is_mla(state: State, family: str) -> bool:
    """The state is stored as one latent row."""
    return state.kind == "latent" and family_of(family).mla


def is_attention(state: State) -> bool:
    """Attention proper: neither a recurrent state nor what an attention layer keeps besides."""
    return not state.is_recurrent and state.kind not in ("index", "compressed")
