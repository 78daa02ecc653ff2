"""YAML read with suspicion: a tree of plain values, and the line on which each of them stands.

Read from the events of PyYAML's safe loader (the C one where it exists), so nothing is ever constructed but None, bool, int,
float, str, list and dict. Refused: anchors and aliases (a few lines of them make gigabytes), tags, keys that stand twice, keys
that are no plain text, several documents, nesting deeper than DEEPEST, files larger than LARGEST_FILE.

Plain scalars follow YAML 1.2: `yes`, `on` and `2026-11-29` are text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.units import MIB, clean

if TYPE_CHECKING:
    from collections.abc import Iterator

#: No catalogue entry or budget file comes near either.
LARGEST_FILE = MIB
DEEPEST = 32
#: Values in one file; the largest budget file that LARGEST_FILE allows has about half as many.
MOST_VALUES = 150_000

Path = tuple[str | int, ...]

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    ".inf": float("inf"),
    "-.inf": float("-inf"),
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]{0,29})", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,40}\.[0-9]{0,40}|\.[0-9]{1,40}|[0-9]{1,40}(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file; printed as `models/foo.yaml:12: layers.states.local: unknown key 'kv_head'`."""

    file: str
    line: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return ": ".join(part for part in (place, self.path, self.message) if part)


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and the line of every key and list entry by its path."""

    file: str
    value: Any
    lines: dict[Path, int] = field(default_factory=dict)

    def problem(self, path: Path, message: str, *, at: Path | None = None) -> Problem:
        """A problem of `path`, on the line of `at` (or of `path`, or of the nearest that encloses it)."""
        place = path if at is None else at
        while place and place not in self.lines:
            place = place[:-1]
        return Problem(self.file, self.lines.get(place, 0), show_path(path), message)


def problem_from(file: str, message: str) -> Problem:
    """The problem behind an error's message, which begins with the file and mostly with the line."""
    match = re.fullmatch(r":([0-9]+): (.*)", message.removeprefix(file), re.DOTALL)
    return Problem(file, int(match[1]), "", match[2]) if match else Problem(file, 0, "", message.removeprefix(f"{file}: "))


def show_path(path: Path) -> str:
    """`layers.states.local[1]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{clean(step, 40)}" for step in path)
    return text.removeprefix(".")


def read_yaml(data: bytes | str, file: str) -> Document:
    """The document in `data`; `file` is what messages call it. Raises InvalidConfigError naming file and line."""
    if len(data) > LARGEST_FILE:
        raise InvalidConfigError(f"{file}: larger than {LARGEST_FILE:,} bytes, which no kvcalc YAML is")
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except UnicodeDecodeError as error:
        raise InvalidConfigError(f"{file}: is not UTF-8 text (byte {error.start:,})", "save it as UTF-8") from None
    return _Reader(file, text).document()


def plain_scalar(text: str) -> Any:
    """What an unquoted scalar means: null, a truth value, a number, or text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def _line(event: Any) -> int:
    """The line on which an event begins, counted from 1."""
    return int(event.start_mark.line) + 1


class _Reader:
    """One pass over the events of one document."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.events = self._guarded(text)
        self.lines: dict[Path, int] = {}

    def document(self) -> Document:
        """The only document of the stream; an empty one is None."""
        next(self.events)  # StreamStart
        event = next(self.events)
        if isinstance(event, yaml.StreamEndEvent):
            return Document(self.file, None)
        value = self._node(next(self.events), ())
        next(self.events)  # DocumentEnd
        event = next(self.events)
        if not isinstance(event, yaml.StreamEndEvent):
            raise self._error(event, "a second document begins here, and one is expected")
        return Document(self.file, value, self.lines)

    def _guarded(self, text: str) -> Iterator[Any]:
        try:
            yield from yaml.parse(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise InvalidConfigError(f"{self.file}:{line}: is not YAML: {clean(error.problem)}") from None
        except (yaml.YAMLError, UnicodeError) as error:
            raise InvalidConfigError(
                f"{self.file}: is not YAML: {clean(getattr(error, 'reason', 'a character that YAML forbids'))}"
            ) from None

    def _error(self, event: Any, message: str, hint: str = "") -> InvalidConfigError:
        return InvalidConfigError(f"{self.file}:{_line(event)}: {message}", hint)

    def _node(self, event: Any, path: Path) -> Any:
        """The value that begins with `event`."""
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise self._error(event, f"'{'*' if isinstance(event, yaml.AliasEvent) else '&'}{clean(event.anchor, 40)}': "
                              "anchors and aliases are not read", "write the value out")  # fmt: skip
        if event.tag is not None:
            raise self._error(event, f"tag '{clean(event.tag, 40)}' is not read", "write plain YAML without tags")
        self.lines.setdefault(path, _line(event))
        if len(self.lines) > MOST_VALUES:
            raise self._error(event, f"more than {MOST_VALUES:,} values, which no kvcalc YAML has")
        if len(path) > DEEPEST:
            raise self._error(event, f"nested deeper than {DEEPEST} levels")
        if isinstance(event, yaml.ScalarEvent):
            return plain_scalar(event.value) if event.implicit[0] else event.value
        return self._mapping(path) if isinstance(event, yaml.MappingStartEvent) else self._sequence(path)

    def _sequence(self, path: Path) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            found.append(self._node(event, (*path, len(found))))
        return found

    def _mapping(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
                raise self._error(event, "a key is not plain text")
            key = event.value
            if key in found:
                raise self._error(event, f"key '{clean(key, 40)}' stands twice in one mapping", "keep one of them")
            inner = (*path, key)
            self.lines[inner] = _line(event)
            found[key] = self._node(next(self.events), inner)
        return found
