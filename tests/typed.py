"""Documents from plain data, for tests that write one down: the way back from `plain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from kvcalc.questions.documents.kinds import key_of

Kind = TypeVar("Kind")
Result = TypeVar("Result")


def read(kind: type[Kind], given: Mapping[str, Any]) -> Kind:
    """`given` as a document of that class; a key that a test leaves out is no attribute of it."""
    found = object.__new__(kind)
    hints = get_type_hints(kind, include_extras=True)
    for field in fields(kind):  # type: ignore[arg-type]
        if key_of(field.name) in given:
            object.__setattr__(found, field.name, _read(hints[field.name], given[key_of(field.name)]))
    return found


def _read(hint: Any, value: Any) -> Any:
    if get_origin(hint) is Annotated:
        return _read(get_args(hint)[0], value)
    if isinstance(value, list | tuple):
        return tuple(_read(next(iter(_items(hint)), Any), item) for item in value)
    kind = next((one for one in _classes(hint, value)), None)
    return read(kind, value) if kind and isinstance(value, Mapping) else value


def _items(hint: Any) -> list[Any]:
    """What a list of that type holds."""
    if get_origin(hint) is tuple:
        return [get_args(hint)[0]]
    return [found for argument in get_args(hint) for found in _items(argument)]


def _classes(hint: Any, value: Any) -> list[type]:
    """The classes of a choice; those first whose words are the value's."""
    if get_origin(hint) is Annotated:
        return _classes(get_args(hint)[0], value)
    if is_dataclass(hint):
        return [hint]  # type: ignore[list-item]
    found = [kind for argument in get_args(hint) for kind in _classes(argument, value)]
    return sorted(found, key=lambda kind: not _suits(kind, value))


def _suits(kind: type, value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    for name, hint in get_type_hints(kind).items():
        said = value.get(key_of(name))
        if get_origin(hint) is Literal and said not in get_args(hint):
            return False
        if is_dataclass(hint) and not isinstance(said, Mapping):
            return False
    return True


def of_plain(function: Callable[..., Result], kind: type) -> Callable[..., Result]:
    """The function, but its document may be written down as plain data."""

    def called(document: Any, *others: Any) -> Result:
        return function(read(kind, document) if isinstance(document, Mapping) else document, *others)

    return called
