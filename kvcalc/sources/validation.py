"""What Pydantic refuses, in kvcalc's own words: its texts are for those who know it.

    input should be greater than 0   →   must be more than 0, not -8

`kvcalc.sources.document` places the sentences in a file; whoever builds one state at a time wants the `first` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.fields import ContradictionError
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import ValidationError

#: Pydantic's error types, in our words; the argument is the error's own context.
_WORDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "int_type": lambda _: "must be a whole number",
    "int_parsing": lambda _: "must be a whole number",
    "int_parsing_size": lambda _: "must be a whole number",
    "int_from_float": lambda _: "must be a whole number",
    "finite_number": lambda _: "must be a whole number",
    "greater_than": lambda ctx: f"must be more than {ctx['gt']}",
    "greater_than_equal": lambda ctx: f"must be at least {ctx['ge']}",
    "less_than_equal": lambda ctx: f"must be at most {ctx['le']}",
    "string_type": lambda _: "must be text",
    "bool_type": lambda _: "must be true or false",
    "bool_parsing": lambda _: "must be true or false",
    "dict_type": lambda _: "must be a mapping",
    "dataclass_type": lambda _: "must be a mapping",
    "tuple_type": lambda _: "must be a list",
    "list_type": lambda _: "must be a list",
    "too_short": lambda ctx: "must not be empty" if ctx["min_length"] == 1 else f"must have {ctx['min_length']} entries",
    "too_long": lambda ctx: f"must have {ctx['max_length']} entries",
    "either": lambda ctx: f"must be {ctx['expected']}",
    "value_error": lambda ctx: str(ctx["error"]),
}


def sentences(error: ValidationError) -> Iterator[tuple[str, tuple[str | int, ...], str | int]]:
    """Each error in our words, with its place; a missing key, which is named, is a problem of the mapping that lacks it."""
    for found in error.errors(include_url=False):
        place = tuple(found["loc"])
        if found["type"] == "missing":
            yield f"key '{clean(place[-1], 40)}' is missing", place[:-1], place[-1]
            continue
        words = _WORDS.get(found["type"])
        message = words(found.get("ctx", {})) if words else "has a value of the wrong kind"
        given = found.get("input")
        shown = f", not {clean(repr(given), 40)}" if isinstance(given, str | int | float | bool) and found["type"] != "value_error" else ""
        yield message + shown, place, ""


def first(error: ContradictionError | ValidationError) -> str:
    """The first error as one sentence: `kv_heads: must be more than 0, not 0`. A ContradictionError is a sentence already."""
    if isinstance(error, ContradictionError):
        return str(error)
    message, place, _ = next(sentences(error))
    where = ".".join(clean(step, 40) for step in place)
    return f"{where}: {message}" if where else message
