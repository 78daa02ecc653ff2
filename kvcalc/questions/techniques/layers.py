"""Layers of an architecture changed one by one, and what a technique may ask about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.architecture import Layout
from kvcalc.core.errors import UsageError
from kvcalc.core.fields import field_names
from kvcalc.core.states import KINDS
from kvcalc.core.units import clean
from kvcalc.sources.validation import first

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState
    from kvcalc.questions.techniques.base import Case, Ratio

#: Attention that keeps K and V of each head, and attention that keeps one latent.
HEADED = frozenset({"full", "sliding", "chunked"})
ATTENTION = HEADED | {"latent"}


def build(kind: str, fields: Mapping[str, Any]) -> AnyState:
    """A state of `kind` from those of `fields` that it has. Raises UsageError for values that it refuses."""
    from pydantic import ValidationError

    from kvcalc.sources.schema import read

    found = KINDS[kind]
    try:
        return read(found, {key: value for key, value in fields.items() if key in field_names(found)})
    except ValidationError as error:
        raise UsageError(first(error), "choose values that divide") from None


def with_layers(architecture: Architecture, layers: list[tuple[AnyState, ...]]) -> Architecture:
    """`architecture` with other layers; each combination of states gets a name of its own."""
    names: dict[tuple[AnyState, ...], str] = {}
    for entry in layers:
        if entry not in names:
            stem = "_".join(dict.fromkeys(state.kind for state in entry)) or "none"
            names[entry] = stem if stem not in names.values() else f"{stem}_{len(names)}"
    layout = Layout(
        pattern=tuple(names[entry] for entry in layers), count=len(layers), states={name: entry for entry, name in names.items()}
    )
    return replace(architecture, layers=layout, expect=())


def layers_of(case: Case) -> list[tuple[AnyState, ...]]:
    """The states of every layer, in order."""
    layout = case.architecture.layers
    return [layout.states[name] for name in layout.order]


def has_attention(entry: tuple[AnyState, ...]) -> bool:
    """One of the layer's states is attention over the sequence's own tokens."""
    return any(state.kind in ATTENTION for state in entry)


def attention_states(case: Case) -> list[AnyState]:
    """Every kind of attention that the model has. Raises UsageError if there is none, or none that can be changed."""
    found = [state for state in case.architecture.states if state.kind in ATTENTION]
    if not found:
        raise UsageError(f"{clean(case.architecture.id)} has no attention layers to change", "this technique changes attention")
    if any(state.kind == "compressed" for state in case.architecture.states):
        raise UsageError(f"{clean(case.architecture.id)} compresses its cache over tokens, and has no such form", "choose another model")
    return found


def replaced(case: Case, change: Callable[[AnyState], AnyState | None]) -> Case:
    """Each attention state, and what is bound to it, through `change`; None drops it."""
    attention_states(case)
    changed: dict[AnyState, AnyState | None] = {state: change(state) for state in case.architecture.states}
    layers = [tuple(new for state in entry if (new := changed[state]) is not None) for entry in layers_of(case)]
    return replace(case, architecture=with_layers(case.architecture, layers))


def every(case: Case, ratio: Ratio, change: Callable[[AnyState], AnyState], keep: Callable[[AnyState], AnyState]) -> Case:
    """Of every `a + b` attention layers the first a through `change`, the others through `keep`."""
    attention_states(case)
    place = 0
    layers: list[tuple[AnyState, ...]] = []
    for entry in layers_of(case):
        if has_attention(entry):
            turn = change if place % sum(ratio) < ratio.changed else keep
            entry = tuple(turn(state) if state.kind in ATTENTION else state for state in entry)  # noqa: PLW2901
            place += 1
        layers.append(entry)
    return replace(case, architecture=with_layers(case.architecture, layers))


def heads_of(state: AnyState) -> dict[str, Any]:
    """A state's fields with its heads written out: those of a latent are the heads that it decompresses into."""
    fields = state.to_dict()
    if state.kind != "latent":
        return {**fields, "value_head_dim": fields["value_head_dim"] or fields["head_dim"]}
    if not (fields["query_heads"] and fields["nope_dim"]):
        raise UsageError("the latent's heads are not known", "set query_heads, nope_dim and value_head_dim")
    nope, value = fields["nope_dim"], fields["value_head_dim"]
    return {**fields, "head_dim": nope + fields["rope_dim"], "value_head_dim": value or nope}


def query_heads(case: Case) -> int:
    """Query heads of every attention layer. Raises UsageError if they are not known, or not the same."""
    found = {getattr(state, "query_heads", None) for state in attention_states(case)}
    if len(found) != 1 or None in found:
        raise UsageError(
            f"{clean(case.architecture.id)} has no single number of query heads", "give the parameters, such as gqa:kv_heads=8"
        )
    return int(found.pop() or 0)


def first_heads(case: Case) -> dict[str, Any]:
    """The fields of the first attention, its heads written out."""
    return heads_of(attention_states(case)[0])
