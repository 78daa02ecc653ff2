"""Inert stand-ins for what an engine imports and this machine lacks: kernels, tokenizers, drivers.

A stand-in answers every attribute and every call with itself, so that an engine's Python runs up to the sizes of its caches
and never beyond: a stand-in has no arithmetic, and a size that touched one would not come out as a whole number.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Anything:
    """An object of which everything may be asked."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...
    def __call__(self, *args: Any, **_kwargs: Any) -> Any:
        # A decorator gives back what it decorates.
        return args[0] if len(args) == 1 and callable(args[0]) else _Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __getitem__(self, _key: Any) -> Any:
        return _Anything()

    def __or__(self, _other: Any) -> Any:
        return _Anything()

    __ror__ = __or__

    def __mro_entries__(self, _bases: Any) -> tuple[type, ...]:
        return (object,)


class _Stub(types.ModuleType):
    """A module of which every name exists."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Anything()


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=f"{fullname}.so", is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__version__ = "0"  # type: ignore[attr-defined]


def stub(*names: str) -> None:
    """From now on these packages, and everything in them, can be imported and do nothing."""
    sys.meta_path.insert(0, _Finder(names))
