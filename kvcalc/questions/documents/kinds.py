"""What the fields of a document are made of: the decorator, how one becomes plain data, and what an annotation may say for the schema.

total: Annotated[Bytes, "all devices together"]      an integer of at least 0, described
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

_Kind = TypeVar("_Kind")


@dataclass_transform(frozen_default=True)
def record(cls: type[_Kind]) -> type[_Kind]:
    """A frozen dataclass without comparison and representation: every start pays for these classes, and made so they cost half."""
    return dataclass(frozen=True, eq=False, repr=False)(cls)


class Least(NamedTuple):
    """The smallest number that a field holds."""

    value: int


class Most(NamedTuple):
    """The largest number that a field holds."""

    value: int


class Above(NamedTuple):
    """A number that a field is always larger than."""

    value: int


class AtLeast(NamedTuple):
    """How many items a list or a mapping, or characters a text, has at least."""

    number: int


class AtMost(NamedTuple):
    """How many characters a text has at most."""

    number: int


class Matching(NamedTuple):
    """The regular expression of a text."""

    pattern: str


class Having(NamedTuple):
    """Keys that a mapping always has."""

    keys: tuple[str, ...]


class Known(NamedTuple):
    """Keys of a mapping that hold a type of their own; all others hold the mapping's."""

    keys: Mapping[str, Any]


Bytes = Annotated[int, Least(0)]
Count = Annotated[int, Least(0)]
Positive = Annotated[int, Least(1)]
Amount = Annotated[float, Least(0)]


class Document:
    """A whole answer: `schema`, its first key, is `kvcalc.<command>/1`."""

    schema: ClassVar[str]


class Answer:
    """What a question gives: computed values, and the document that shows them."""

    __slots__ = ()

    def document(self) -> Document:
        """The answer as users, scripts and CI read it."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        found: dict[str, Any] = plain(self.document())
        return found


_SCALARS = frozenset({str, int, float, bool, type(None)})
#: Class → (attribute, key, left out where it is None) of each field.
_FIELDS: dict[type, tuple[tuple[str, str, bool], ...]] = {}


def plain(value: Any) -> Any:
    """A document, or a part of one, as dicts, lists, text and numbers. Raises TypeError for anything that is no part of a document."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _SCALARS else plain(item) for item in value]
    known = _FIELDS.get(kind)
    if known is None:
        if isinstance(value, Mapping):
            return {key: item if type(item) in _SCALARS else plain(item) for key, item in value.items()}
        known = _FIELDS[kind] = tuple((field.name, key_of(field.name), field.default is None) for field in fields(value))
    found: dict[str, Any] = {"schema": kind.schema} if issubclass(kind, Document) else {}
    for name, key, may_be_left_out in known:
        item = getattr(value, name)
        if item is not None or not may_be_left_out:
            found[key] = item if type(item) in _SCALARS else plain(item)
    return found


def key_of(name: str) -> str:
    """The key of a field: its name, without the underscore that Python's own words carry behind them."""
    return name.removesuffix("_")
