"""The modules of an engine's folder that it may have or not: memory, launcher, launch, startlog."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def folder_of(module: str) -> str:
    """The folder of the engine whose class is in that module, or the module itself where it is all that there is."""
    return module.removesuffix(".engine")


@cache
def beside(folder: str, part: str) -> ModuleType | None:
    """The module `part` of a folder; None where it has none."""
    wanted = f"{folder}.{part}"
    try:
        return import_module(wanted)
    except ModuleNotFoundError as error:
        if error.name != wanted:
            raise
        return None
