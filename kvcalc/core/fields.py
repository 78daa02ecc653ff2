"""What a field of a state or of a model may be, said beside its type, and read wherever values come from outside.

    kv_heads: PositiveInt        a whole number of at least 1; "8", 8.0 and true are none

The marks are plain Python. They answer the protocol by which Pydantic asks an annotation for its schema, so that the adapters of
`kvcalc.sources.schema` check files and requests against these same classes; nothing here imports Pydantic.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class ContradictionError(ValueError):
    """Fields that exclude each other, such as 32 query heads over 3 KV heads; the message is a sentence without its place."""


class Exactly:
    """A value of just this type, and within bounds (Pydantic's words for them); nothing is converted on the way."""

    __slots__ = ("bounds",)

    def __init__(self, **bounds: int) -> None:
        self.bounds = bounds

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {**handler(source), "strict": True, **self.bounds}


class Either:
    """A value of one of several types; `expected` says which, so that a refusal is one sentence and not one for each."""

    __slots__ = ("expected",)

    def __init__(self, expected: str) -> None:
        self.expected = expected

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        words = {"custom_error_type": "either", "custom_error_message": "{expected}", "custom_error_context": {"expected": self.expected}}
        return {**handler(source), **words}


Whole = Annotated[int, Exactly()]
PositiveInt = Annotated[int, Exactly(gt=0)]
NaturalInt = Annotated[int, Exactly(ge=0)]
Flag = Annotated[bool, Exactly()]


class Value:
    """What frozen dataclasses of one value share: equality, hash and text by their fields.

    Written once here and not generated for each class, because that is paid at every start: `@dataclass(eq=False, repr=False)`.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in field_names(self))})"


_GETTERS: dict[type, Callable[[Any], Any]] = {}


def _values(value: Any) -> Any:
    """The values of every field: a tuple, but for a class of one field."""
    kind = type(value)
    if kind not in _GETTERS:
        names = field_names(kind)
        _GETTERS[kind] = attrgetter(*names) if names else type
    return _GETTERS[kind](value)


def field_names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass, or of one of its instances, in order."""
    return tuple(field.name for field in fields(kind))


def plain(value: Any) -> Any:
    """`value` as JSON has it: dataclasses as mappings of the fields that are set, a state's `kind` first, tuples as lists."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {"kind": value.kind} if hasattr(value, "kind") else {}
        found = {name: getattr(value, name) for name in field_names(value)}
        return own | {name: plain(inner) for name, inner in found.items() if inner is not None}
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value
