"""A kvcalc document (a catalogue YAML, or the same as JSON) → Architecture, or every problem that it has.

    check(document) ── plain values ── unknown keys, set aside ── states, one by one ── Architecture ── formats and layers named
                                              each problem: file, line, path, one sentence of our own

`schema` checks the types, strictly (no `"32"`, no `true` for a number); Pydantic's texts are translated, because users do not know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from kvcalc.core.architecture import Architecture, Expectation, Layout, Source
from kvcalc.core.errors import InvalidConfigError, UsageError, nearest
from kvcalc.core.fields import field_names
from kvcalc.core.formats import get_format
from kvcalc.core.states import KINDS
from kvcalc.core.states.attention import Nothing
from kvcalc.core.states.base import CACHE, MODEL
from kvcalc.core.traits import Traits
from kvcalc.core.units import LARGEST, clean
from kvcalc.sources.schema import read
from kvcalc.sources.validation import sentences
from kvcalc.sources.yaml_reader import DEEPEST, Document, Path, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.states import AnyState

_Class = TypeVar("_Class")


def read_document(document: Document) -> Architecture:
    """The architecture of a document. Raises InvalidConfigError with the first problem and the number of the others."""
    architecture, problems = check(document)
    if architecture is None or problems:
        others = len(problems) - 1
        hint = (
            f"and {others} more; `kvcalc models validate` lists all" if others else "`kvcalc models import gpt2` prints one that is right"
        )
        raise InvalidConfigError(str(problems[0]), hint)
    return architecture


def check(document: Document) -> tuple[Architecture | None, list[Problem]]:
    """The architecture if it could be built, and every problem found on the way."""
    return _Checker(document).run()


class _Checker:
    """One document, and what is wrong with it so far."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        #: Keys that a misspelt one stands for: that they are missing is no second problem.
        self.misspelt: set[tuple[str | int | None, ...]] = set()

    def say(self, path: Path, message: str, *, at: Path | None = None) -> None:
        self.problems.append(self.document.problem(path, message, at=at))

    def run(self) -> tuple[Architecture | None, list[Problem]]:
        value = self._plain(self.document.value, ())
        if not isinstance(value, dict):
            self.say((), "is not a mapping; a kvcalc model begins with `id:`, `family:` and `layers:`")
            return None, self.problems
        self._known(value, (), Architecture)
        for name, model in (("source", Source), ("layers", Layout), ("draft", Layout), ("traits", Traits)):
            self._known(value.get(name), (name,), model)
        expected = value.get("expect")
        if isinstance(expected, list):
            for index, entry in enumerate(expected):
                self._known(entry, ("expect", index), Expectation)
        for name in ("layers", "draft"):
            self._states(value.get(name), name)
        architecture = self._built(Architecture, value, ())
        if architecture is not None:
            self._names(architecture)
            architecture = _with_assumed(architecture)
        return architecture, self.problems

    def _plain(self, value: Any, path: Path) -> Any:
        """`value` with plain dicts and lists all through, no number out of range, no deep nesting."""
        if len(path) > DEEPEST:
            self.say(path[:4], f"nested deeper than {DEEPEST} levels")
            return None
        if isinstance(value, Mapping):
            return {str(key): self._plain(inner, (*path, str(key))) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(inner, (*path, index)) for index, inner in enumerate(value)]
        if isinstance(value, int) and abs(value) > LARGEST:
            self.say(path, f"is out of range; at most {LARGEST:,}")
            return 1
        return value

    def _known(self, value: Any, path: Path, kind: type) -> None:
        """Report the keys that `kind` does not have, and set them aside."""
        if not isinstance(value, dict):
            return
        fields = field_names(kind)
        for key in [key for key in value if key not in fields]:
            meant = next(iter(get_close_matches(key, fields, n=1, cutoff=0.5)), None)
            hint = f"did you mean '{meant}'?" if meant else "known keys: " + ", ".join(fields)
            self.say(path, f"unknown key '{clean(key, 40)}'; {hint}", at=(*path, key))
            self.misspelt.add((*path, meant))
            del value[key]

    def _states(self, layout: Any, name: str) -> None:
        """Read every state of a layout in place, so that its problems name it; a bad one becomes a layer without a cache."""
        states = layout.get("states") if isinstance(layout, dict) else None
        if not isinstance(states, dict):
            return
        for key, value in states.items():
            path: Path = (name, "states", key)
            items = value if isinstance(value, list) else [value]
            places = [(*path, index) for index in range(len(items))] if isinstance(value, list) else [path]
            states[key] = tuple(self._state(item, place) for item, place in zip(items, places, strict=True))

    def _state(self, value: Any, path: Path) -> AnyState:
        if not isinstance(value, dict):
            self.say(path, "is not a mapping; write it like {kind: full, kv_heads: 8, head_dim: 128}")
            return Nothing()
        kind = value.get("kind")
        found = KINDS.get(kind) if isinstance(kind, str) else None
        if found is None:
            known = "known kinds: " + ", ".join(KINDS)
            hint = nearest(kind, KINDS, most=1) if isinstance(kind, str) else ""
            self.say(path, f"unknown kind '{clean(kind, 40)}'; {hint or known}" if "kind" in value else f"key 'kind' is missing; {known}")
            return Nothing()
        fields = {key: inner for key, inner in value.items() if key != "kind"}
        self._known(fields, path, found)
        return self._built(found, fields, path) or Nothing()

    def _built(self, kind: type[_Class], value: dict[str, Any], path: Path) -> _Class | None:
        try:
            return read(kind, value)
        except ValidationError as error:
            for message, place, missing in sentences(error):
                if (*path, *place, missing) not in self.misspelt:
                    self.say((*path, *place), message)
            return None

    def _names(self, architecture: Architecture) -> None:
        """Problems that only the whole shows: formats that do not exist, layers that are not there."""
        for path, name in _formats(architecture):
            try:
                get_format(name)
            except UsageError as error:
                self.say(path, f"unknown format '{clean(name, 40)}'; {error.hint}")
        for layout_name, layout in (("layers", architecture.layers), ("draft", architecture.draft)):
            for key, states in layout.states.items() if layout else ():
                for state in states:
                    producer = getattr(state, "shares_with", None)
                    if producer is not None and producer >= architecture.layers.count:
                        self.say(
                            (layout_name, "states", key), f"shares_with {producer} is no layer; the last is {architecture.layers.count - 1}"
                        )


def assumed_sentence(source: Source | None) -> str:
    """What the file says was not read from the released config: `head_dim (class default), window (catalogue)`."""
    if source is None or not source.assumed:
        return ""
    fields = ", ".join(f"{name} ({how})" for name, how in source.assumed.items())
    return f"not read from the released config: {fields}"


def _with_assumed(architecture: Architecture) -> Architecture:
    """Every answer says what the file's `source.assumed` says."""
    sentence = assumed_sentence(architecture.source)
    if not sentence or sentence in architecture.assumptions:
        return architecture
    return replace(architecture, assumptions=(*architecture.assumptions, sentence))


def _formats(architecture: Architecture) -> Iterator[tuple[Path, str]]:
    """Every storage format that the document names, with its place."""
    if architecture.dtype is not None:
        yield ("dtype",), architecture.dtype
    for layout_name, layout in (("layers", architecture.layers), ("draft", architecture.draft)):
        for key, states in layout.states.items() if layout else ():
            for state in states:
                for buffer in state.buffers():
                    if buffer.dtype not in (CACHE, MODEL):
                        yield (layout_name, "states", key), buffer.dtype
