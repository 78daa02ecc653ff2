"""The border: values of files, configs and requests → the dataclasses of `kvcalc.core`, checked field by field.

    read(Full, {…})           an instance, or Pydantic's ValidationError
    checked(architecture)     the same architecture, every field of every state within its bounds

There is one definition of a state or a model: Pydantic's adapters are made of the classes themselves, when the first is read.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, with_config

from kvcalc.core.architecture import Architecture, Expectation, Layout, Source
from kvcalc.core.traits import Traits

_T = TypeVar("_T")

#: Unknown keys are errors, and an instance is checked like a mapping.
_CONFIG = ConfigDict(extra="forbid", revalidate_instances="always", hide_input_in_errors=True)

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}

for _part in (Architecture, Expectation, Layout, Source, Traits):
    with_config(_CONFIG)(_part)


def read(kind: type[_T], values: object) -> _T:
    """`values`, a mapping or an instance, as `kind`: a state, or a part of an architecture. Raises ValidationError."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(with_config(_CONFIG)(kind))
    found: _T = _ADAPTERS[kind].validate_python(values)
    return found


def checked(architecture: Architecture) -> Architecture:
    """`architecture`, made in code from the figures of a file, with its fields checked. Raises ValidationError."""
    for layout in (architecture.layers, architecture.draft):
        for state in layout.counts if layout is not None else ():
            read(type(state), state)
    return read(Architecture, architecture)
