"""`--set FIELD=VALUE`: what-ifs on an architecture.

    kv_heads=8           every state that has the field
    local.window=512     only the states that the pattern calls `local`
    layers=48            the pattern, repeated to another count
    producer_layers=8    only the first 8 layers keep a cache of their own (cross-layer sharing)
    dtype, max_context, hidden_dim, parameters, family     the model itself

All fields are set together, then checked together: `query_heads=24` with `kv_heads=24` is no contradiction on the way.
Errors: `UsageError` for a field that nothing has, or a value that the state refuses.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.fields import field_names
from kvcalc.core.formats import get_format
from kvcalc.core.units import clean, parse_tokens
from kvcalc.sources.validation import sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.core.states import AnyState


def _word(text: str) -> str:
    if not text:
        raise UsageError("--set family: the name is empty", "write it like --set family=llama")
    return text


#: Fields of the model itself, and how their text is read.
_MODEL_FIELDS: dict[str, Callable[[str], Any]] = {
    "dtype": lambda text: get_format(text, "--set dtype").name,
    "family": _word,
    "hidden_dim": lambda text: parse_tokens(text, "--set hidden_dim"),
    "max_context": lambda text: parse_tokens(text, "--set max_context"),
    "parameters": lambda text: parse_tokens(text, "--set parameters"),
}
#: How a truth value is written.
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
#: Fields of the layers as a whole.
_LAYOUT_FIELDS = ("layers", "producer_layers")


def override(architecture: Architecture, fields: Mapping[str, str]) -> Architecture:
    """`architecture` with `fields` set, and an assumption that says so. Raises UsageError."""
    model = {name: _MODEL_FIELDS[name](value) for name, value in fields.items() if name in _MODEL_FIELDS}
    states = {name: value for name, value in fields.items() if name not in model and name not in _LAYOUT_FIELDS}
    layout = _with_fields(architecture.layers, states)
    if "layers" in fields:
        layout = _checked(
            Layout, {"pattern": layout.pattern, "count": parse_tokens(fields["layers"], "--set layers"), "states": layout.states}, "layers"
        )
    said = ", ".join(f"{name}={clean(value, 40)}" for name, value in fields.items())
    changed = replace(architecture, **model, layers=layout, assumptions=(*architecture.assumptions, f"what-if: {said}"), expect=())
    if "producer_layers" in fields:
        from kvcalc.questions.techniques import share_layers

        changed = share_layers(changed, parse_tokens(fields["producer_layers"], "--set producer_layers"))
    return changed


def _with_fields(layout: Layout, fields: Mapping[str, str]) -> Layout:
    """The layout with `fields` set on every state that has them."""
    if not fields:
        return layout
    unused = dict(fields)
    states = {name: tuple(_state(name, state, fields, unused) for state in entry) for name, entry in layout.states.items()}
    if unused:
        raise _unknown(layout, next(iter(unused)))
    # Not a copy: the counts that a layout remembers are those of its own states.
    return Layout(pattern=layout.pattern, count=layout.count, states=states)


def _state(name: str, state: AnyState, fields: Mapping[str, str], unused: dict[str, str]) -> AnyState:
    """One state of the layers called `name`; the fields that it has are struck out of `unused`."""
    found: dict[str, str] = {}
    for key, value in fields.items():
        where, dot, field = key.rpartition(".")
        if field in field_names(state) and (not dot or where == name):
            found[field] = value
            unused.pop(key, None)
    if not found:
        return state
    own = {field: getattr(state, field) for field in field_names(state)}
    changed: AnyState = _checked(type(state), own | {key: _value(text) for key, text in found.items()}, ", ".join(found))
    return changed


def _value(text: str) -> Any:
    """Numbers as numbers (k = 1024), `none` as None, `true` as true, other words as they are: the state checks them."""
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in _TRUTH:
        return _TRUTH[text.lower()]
    return parse_tokens(text, "--set", least=0) if text[:1].isdigit() else text


def _checked(kind: type[Any], values: dict[str, Any], what: str) -> Any:
    from pydantic import ValidationError

    from kvcalc.sources.schema import read

    try:
        return read(kind, values)
    except ValidationError as error:
        message, place, _ = next(sentences(error))
        where = next((str(step) for step in place if step in what.split(", ")), what)
        raise UsageError(f"--set {where}: {message}", "" if place else "set the fields that belong together at once") from None


def _unknown(layout: Layout, key: str) -> UsageError:
    known = [*_MODEL_FIELDS, *_LAYOUT_FIELDS]
    for name, entry in layout.states.items():
        fields = [field for state in entry for field in field_names(state)]
        known.extend([*fields, *(f"{name}.{field}" for field in fields)] if "." in key else fields)
    known = list(dict.fromkeys(known))
    return UsageError(
        f"--set: no layer of this model has the field '{clean(key, 60)}'", nearest(key, known) or "fields: " + ", ".join(known)
    )
