"""The catalogue compiled: the plain values of every model in one file, of which a question about one model reads one entry.

    length of the index │ index: digest, ids, Hub names, the place of each entry │ entries, one a model

Written by `write` when the package is built or installed (hatch_build.py), from entries that Pydantic has checked; read without
Pydantic and without YAML. Inside an installed package the file is that of the YAML beside it. In a checkout it is believed only
while it holds the digest of the YAML files' names, sizes and times of change; a checkout that was edited, or never built, reads YAML.

The values are Python's own (`marshal`, in the format that every release since 2.5 reads): it costs nothing to import.
"""

from __future__ import annotations

import marshal
import os
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kvcalc.core.architecture import Architecture, Layout

FILE = "catalogue.compiled"
#: The format of the values, and kvcalc's own of what they mean: a file of another is not read.
_MARSHAL, _FORMAT = 2, 1
_LENGTH = 8


class Compiled(NamedTuple):
    """A compiled catalogue: its ids, Hub repository in lower case → id, and what is needed to find an entry."""

    ids: tuple[str, ...]
    hubs: dict[str, str]
    places: dict[str, tuple[int, int]]
    data: bytes

    def load(self, model_id: str) -> Architecture:
        """The model of an id that it has. Raises KeyError."""
        start, end = self.places[model_id]
        return decode(marshal.loads(self.data[start:end]))  # noqa: S302  our own file, written with the package


def digest(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of change of every YAML file of a folder, in order."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat()) for entry in entries if entry.name.endswith(".yaml")]
    return tuple(sorted((name, status.st_size, status.st_mtime_ns) for name, status in found))


def write(folder: Path, models: Mapping[str, Architecture], hubs: Mapping[str, str]) -> None:
    """Compile `models` (id → checked architecture, in the order of lists) into the folder of their YAML files."""
    entries = {model_id: marshal.dumps(encode(model), _MARSHAL) for model_id, model in models.items()}
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for model_id, entry in entries.items():
        places[model_id] = (end, end := end + len(entry))
    index = marshal.dumps((_FORMAT, digest(folder), tuple(models), dict(hubs), places), _MARSHAL)
    place = folder / FILE
    # Whole or not at all: another process may be reading it.
    unfinished = place.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(b"".join((len(index).to_bytes(_LENGTH, "big"), index, *entries.values())))
    unfinished.replace(place)


def read(folder: Path, *, installed: bool) -> Compiled | None:
    """The compiled catalogue of a folder; None where there is none, or none that is provably of these YAML files."""
    try:
        with open(folder / FILE, "rb") as file:  # noqa: PTH123  a method of Path would do the same, later
            data = file.read()
        length = int.from_bytes(data[:_LENGTH], "big")
        version, made_of, ids, hubs, places = marshal.loads(data[_LENGTH : _LENGTH + length])  # noqa: S302  as above
    except (OSError, ValueError, EOFError, TypeError):
        return None
    if version != _FORMAT or not (installed or made_of == digest(folder)):
        return None
    return Compiled(ids, hubs, places, data[_LENGTH + length :])


def encode(model: Architecture) -> dict[str, Any]:
    """A model as plain values: the fields that are not at their default, states as (kind, fields)."""
    found = _fields(model)
    for name in ("layers", "draft"):
        layout = getattr(model, name)
        if layout is not None:
            states = {key: tuple((state.kind, _fields(state)) for state in kept) for key, kept in layout.states.items()}
            found[name] = (layout.pattern, layout.count, states)
    for name in ("source", "traits"):
        if name in found:
            found[name] = _fields(found[name])
    found["expect"] = tuple(_fields(entry) for entry in model.expect)
    return found


def decode(values: dict[str, Any]) -> Architecture:
    """The model behind `encode`'s values, which were checked before they were written."""
    from kvcalc.core.architecture import Architecture, Expectation, Source
    from kvcalc.core.traits import Traits

    for name, kind in (("source", Source), ("traits", Traits)):
        if name in values:
            values[name] = kind(**values[name])
    for name in ("layers", "draft"):
        if name in values:
            values[name] = _layout(*values[name])
    values["expect"] = tuple(Expectation(**entry) for entry in values["expect"])
    return Architecture(**values)


def _layout(pattern: tuple[str, ...], count: int, states: dict[str, tuple[tuple[str, dict[str, Any]], ...]]) -> Layout:
    from kvcalc.core.architecture import Layout
    from kvcalc.core.states import KINDS

    return Layout(pattern, count, {name: tuple(KINDS[kind](**fields) for kind, fields in kept) for name, kept in states.items()})


def _fields(part: Any) -> dict[str, Any]:
    from dataclasses import fields

    return {field.name: value for field in fields(part) if (value := getattr(part, field.name)) != field.default}
