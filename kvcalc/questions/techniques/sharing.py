"""Layers that read the cache of an earlier layer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.questions.techniques.base import Case, Parameter, technique
from kvcalc.questions.techniques.layers import ATTENTION, build, has_attention, with_layers

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState


@technique(Parameter("producer_layers", lambda case: -(-len(_sharable(case.architecture)) // 2), "attention layers that keep a cache"))
def share(case: Case, producer_layers: int) -> Case:
    """Cross-layer sharing (CLA, arXiv:2405.12981; Gemma 3n and 4): the last layers read an earlier layer's cache.

        bytes = as before, over producer layers only

    16 of 32 MHA layers: 17,179,869,184 B / 2 = 8,589,934,592 B. A consumer reads the nearest earlier producer of its own kind.
    """
    return replace(case, architecture=share_layers(case.architecture, producer_layers))


def _sharable(architecture: Architecture) -> list[int]:
    """Layers with attention, or with another layer's."""
    order = [architecture.layers.states[name] for name in architecture.layers.order]
    return [index for index, entry in enumerate(order) if has_attention(entry) or any(state.kind == "shared" for state in entry)]


def _read_by(layers: list[tuple[AnyState, ...]], place: int) -> int:
    """The layer whose cache the layer at `place` reads: its producer's, else its own."""
    producer = next((getattr(state, "shares_with", None) for state in layers[place] if state.kind == "shared"), None)
    return place if producer is None or producer >= len(layers) else producer


def share_layers(architecture: Architecture, producer_layers: int) -> Architecture:
    """Only the first `producer_layers` attention layers keep a cache. Raises UsageError if that cannot be."""
    layers = [architecture.layers.states[name] for name in architecture.layers.order]
    places = _sharable(architecture)
    keeping = sum(has_attention(layers[place]) for place in places)
    if producer_layers > keeping:
        raise UsageError(f"producer_layers: {producer_layers} is more than the {keeping} attention layers that keep a cache")
    newest: dict[tuple[str, ...], int] = {}
    kinds = {place: tuple(state.kind for state in layers[_read_by(layers, place)]) for place in places}
    kept = 0
    for place in places:
        if has_attention(layers[place]) and kept < producer_layers:
            newest[kinds[place]] = place
            kept += 1
            continue
        if kinds[place] not in newest:
            raise UsageError(
                f"producer_layers: none of the first {producer_layers} attention layers is like layer {place} ({', '.join(kinds[place])})",
                "a layer shares with an earlier one of its own kind: keep more producers",
            )
        others = tuple(state for state in layers[place] if state.kind not in ATTENTION | {"index", "shared"})
        layers[place] = (build("shared", {"shares_with": newest[kinds[place]]}), *others)
    return with_layers(architecture, layers)
