"""What the Python interface is given, checked at the door: a value of the wrong kind is a UsageError that names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kvcalc.core.architecture import Architecture
from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean


def texts(given: object, what: str) -> tuple[str, ...]:
    """A list of names. Raises UsageError; a single text is one too, because its letters are no names."""
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(item, str) for item in given):
        raise UsageError(f"{what}: {clean(repr(given), 60)} is not a list of names", f"write it like {what}=['one', 'two']")
    return tuple(given)


def settings(given: object) -> dict[str, str]:
    """`{"kv_heads": 8}` as `--set` has it: text by field. Raises UsageError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(f"settings: {clean(repr(given), 60)} is not a mapping", "write it like settings={'kv_heads': 8}")
    for key, value in given.items():
        if not isinstance(key, str) or isinstance(value, bool) or not isinstance(value, str | int):
            said = f"{clean(repr(key), 40)}: {clean(repr(value), 40)}"
            raise UsageError(f"settings: {said} is not a field and its value", "write it like settings={'kv_heads': 8}")
    return {key: str(value) for key, value in given.items()}


def model(given: object) -> Any:
    """A text, an inline document, an architecture, or a path as the text that means it. Raises UsageError."""
    if isinstance(given, Path):
        return str(given) if given.is_absolute() else f"./{given}"
    if (isinstance(given, str | Mapping) and given) or isinstance(given, Architecture):
        return given
    hint = "a catalogue id, a path, org/name, or an inline {'hf_config': {…}}"
    raise UsageError(f"model: {clean(repr(given), 60)} is not a model", hint)


def models(given: object) -> tuple[Any, ...]:
    """One model, or several. Raises UsageError."""
    return tuple(model(item) for item in (given if isinstance(given, list | tuple) else (given,)))


def path(given: object, what: str) -> str | Path | None:
    """A file's name. Raises UsageError."""
    if given is not None and (not isinstance(given, str | Path) or "\0" in str(given)):
        raise UsageError(f"{what}: {clean(repr(given), 60)} is not a file's name", "give a text or a path")
    return given
