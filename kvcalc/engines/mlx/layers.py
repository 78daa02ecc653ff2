"""The caches of every layer of a model, by the rules of its family."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, assert_never

from kvcalc.core.errors import UnsupportedArchitectureError
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
from kvcalc.core.units import clean
from kvcalc.engines.base.memo import per_model
from kvcalc.engines.mlx.caches import MODEL, Arrays, Chunks, Entries, Growing, Last, Pair, Recent, Rotating, Tensor

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState
    from kvcalc.engines.mlx.caches import Cache
    from kvcalc.engines.mlx.families import Family

#: States of fixed size.
Mixer = Mamba1 | Mamba2 | GatedDeltaNet | Kda | Lightning | Rwkv | ShortConv | RgLru | Fixed
#: Columns that RecurrentGemma keeps: the module does not read `conv1d_width`.
_GRIFFIN_COLUMNS = 3


@per_model
def caches_of(architecture: Architecture, family: Family) -> dict[Cache, int]:
    """Every cache of the model, and how many layers have it. Raises UnsupportedArchitectureError."""
    layers = [*caches_by_layer(architecture, family), outside_layers(architecture)]
    return dict(Counter(cache for layer in layers for cache in layer))


def caches_by_layer(architecture: Architecture, family: Family) -> list[tuple[Cache, ...]]:
    """The caches of each layer, in order. Raises UnsupportedArchitectureError."""
    states = _uniform(architecture, family) if family.uniform else _states(architecture, family)
    sources = architecture.traits.index_source_layer_ids
    if sources is not None:
        states = [kept if i in sources else tuple(s for s in kept if not isinstance(s, Index)) for i, kept in enumerate(states)]
    if family.every_index:
        states = _indexed(states)
    return [tuple(cache for state in kept for cache in _caches(architecture, family, state)) for kept in states]


def outside_layers(architecture: Architecture) -> tuple[Cache, ...]:
    """Caches that belong to no layer: the last token ids, of a model that embeds them together."""
    neighbours = architecture.traits.emb_neighbor_num
    return (Recent(neighbours - 1),) if isinstance(neighbours, int) and neighbours > 1 else ()


# ── which states a layer has, by the module's reading of the file ───────────────────────────────────────────────────────────


def _states(architecture: Architecture, family: Family) -> list[tuple[AnyState, ...]]:
    layout, traits = architecture.layers, architecture.traits
    states = [layout.states[name] for name in layout.order]
    if family.windows == "listed":
        return _listed(architecture, states)
    if family.windows == "period" or (family.windows == "listed_or_period" and not traits.layer_types):
        said = traits.sliding_window_pattern
        period = said if isinstance(said, int) and said > 0 else family.period
        full = [(i + 1) % period == 0 for i in range(layout.count)]
        return _redrawn(architecture, states, full, family.window)
    if family.windows == "letters":
        said = traits.sliding_window_pattern
        if isinstance(said, str) and said:
            return _redrawn(architecture, states, [said[i % len(said)] != "L" for i in range(layout.count)])
    return states


def _listed(architecture: Architecture, states: list[tuple[AnyState, ...]]) -> list[tuple[AnyState, ...]]:
    """Windows only where the file itself lists the layers."""
    types, window = architecture.traits.layer_types, architecture.traits.sliding_window
    if types and states:
        # The module has as many layers as the list has entries, whatever `num_hidden_layers` says.
        width = window if isinstance(window, int) else 0
        slides = [kind == "sliding_attention" and width > 0 for kind in types]
        return [tuple(_slid(state, width) if slid else _filled(state) for state in states[0]) for slid in slides]
    if len({type(state) for kept in states for state in kept}) > 1:
        return states
    return [tuple(_filled(state) for state in kept) for kept in states]


def _uniform(architecture: Architecture, family: Family) -> list[tuple[AnyState, ...]]:
    full = next((state for state in architecture.states if isinstance(state, Full)), None)
    if full is None:
        raise UnsupportedArchitectureError(
            f"mlx-lm's {family.module} gives {clean(architecture.id, 60)} full attention on every layer, and the file says no heads for it",
            "ask ideal for the model as it was released",
        )
    return [(full,)] * architecture.layers.count


def _indexed(states: list[tuple[AnyState, ...]]) -> list[tuple[AnyState, ...]]:
    """Index keys on every layer."""
    index = next((state for kept in states for state in kept if isinstance(state, Index)), None)
    return states if index is None else [(*(state for state in kept if not isinstance(state, Index)), index) for kept in states]


def _redrawn(
    architecture: Architecture, states: list[tuple[AnyState, ...]], full: list[bool], default: int = 0
) -> list[tuple[AnyState, ...]]:
    told = (architecture.traits.sliding_window, architecture.traits.window_size)
    said = next((value for value in told if isinstance(value, int)), None)
    window = said or next((state.window for kept in states for state in kept if isinstance(state, Sliding)), default)
    if not window:
        return states
    return [tuple(_filled(state) if whole else _slid(state, window) for state in kept) for kept, whole in zip(states, full, strict=True)]


def _filled(state: AnyState) -> AnyState:
    if not isinstance(state, Sliding):
        return state
    return Full(kv_heads=state.kv_heads, head_dim=state.head_dim, value_head_dim=state.value_head_dim, query_heads=state.query_heads)


def _slid(state: AnyState, window: int) -> AnyState:
    if not isinstance(state, Full | Sliding):
        return state
    return Sliding(
        window=window,
        kv_heads=state.kv_heads,
        head_dim=state.head_dim,
        value_head_dim=state.value_head_dim,
        query_heads=state.query_heads,
    )


# ── what one state becomes ──────────────────────────────────────────────────────────────────────────────────────────────────


def _caches(architecture: Architecture, family: Family, state: AnyState) -> tuple[Cache, ...]:
    found: Cache
    match state:
        case Full() | Sliding() | Chunked():
            found = _attention(architecture, family, state)
        case Latent() if state.window is not None:
            found = Last(state.latent_dim + state.rope_dim, state.window)
        case Latent():
            found = Growing(_latent(architecture, family, state))
        case Compressed():
            found = Entries("compressed", "latent", state.latent_dim, state.ratio, 2 * state.latent_dim if state.ratio > 1 else 0)
        case Index() if family.module == "deepseek_v41":
            found = Entries("index", "index", state.index_dim, state.ratio)
        case Index():
            value = state.index_dim if family.every_index else 0
            found = Growing(Pair("index", state.vectors, state.index_dim, value, split=False, listed=True))
        case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | ShortConv() | RgLru() | Fixed():
            found = Arrays(state.kind, _tensors(architecture, family, state))
        case Shared():
            return _shared(architecture, family, state)
        case Nothing():
            return ()
        case Cross():
            raise UnsupportedArchitectureError(
                f"mlx-lm {clean(family.module)} has no cross-attention, and {clean(architecture.id, 60)} does", "ask ideal for it"
            )
        case _:
            assert_never(state)
    return (found,)


def _attention(architecture: Architecture, family: Family, state: Full | Sliding | Chunked) -> Cache:
    width = _width(architecture, family, state)
    heads = 1 if family.one_head else state.kv_heads
    pair = Pair(state.kind, heads, width, state.value_head_dim or width, listed=family.listed)
    if isinstance(state, Sliding) and family.windows != "ignored":
        return Rotating(pair, state.window)
    if isinstance(state, Chunked) and family.windows != "ignored":
        return Chunks(pair, state.chunk)
    return Growing(pair)


def _width(architecture: Architecture, family: Family, state: Full | Sliding | Chunked) -> int:
    defaulted = architecture.traits.class_defaults or ()
    derived = family.derived or (not family.own_width and any(name.endswith("head_dim") for name in defaulted))
    if derived and architecture.hidden_dim and state.query_heads:
        return architecture.hidden_dim // state.query_heads
    return state.head_dim


def _latent(architecture: Architecture, family: Family, state: Latent) -> Pair:
    if family.latents == "kept":
        return Pair("latent", 1, state.latent_dim, state.rope_dim, split=False, listed=family.listed, names=("latent", "rope"))
    heads, nope, value = state.query_heads, state.nope_dim, state.value_head_dim
    if family.latents == "expanded_hidden" and architecture.hidden_dim and heads:
        value = architecture.hidden_dim // heads
    if heads is None or nope is None or value is None:
        raise UnsupportedArchitectureError(
            f"mlx-lm caches the expanded heads of {clean(architecture.id, 60)}, and the file does not say how wide they are",
            "give query_heads, nope_dim and value_head_dim of its latent",
        )
    return Pair("latent", heads, nope + state.rope_dim, value)


def _shared(architecture: Architecture, family: Family, state: Shared) -> tuple[Cache, ...]:
    if not family.shared_own or state.shares_with is None:
        return ()
    owner = architecture.layers.layer(state.shares_with)
    return tuple(cache for kept in owner if not isinstance(kept, Shared) for cache in _caches(architecture, family, kept))


def _tensors(architecture: Architecture, family: Family, state: Mixer) -> tuple[Tensor, ...]:
    """The arrays of a mixer. Matrices are fp32 unless the module keeps them in the model's type."""
    if isinstance(state, Fixed):
        return (Tensor(state.name, state.elements, MODEL if state.state_dtype in (None, "model") else state.state_dtype),)
    if isinstance(state, RgLru):
        width = architecture.hidden_dim or state.lru_dim
        return (Tensor("conv", _GRIFFIN_COLUMNS * width), Tensor("recurrent", width))
    heads, elements = state.matrix()
    own = isinstance(state, Mamba1 | Rwkv)
    if isinstance(state, Lightning) and family.module == "bailing_moe_linear":
        own, elements = True, ((architecture.hidden_dim or 0) // heads) ** 2 or elements
    found = [Tensor("shift", state.shifts * state.hidden_dim)] if isinstance(state, Rwkv) else []
    if state.conv_channels:
        found.append(Tensor("conv", (state.conv_kernel - 1) * state.conv_channels))
    if heads:
        found.append(Tensor("recurrent", heads * elements, MODEL if own else "fp32"))
    return tuple(found)
