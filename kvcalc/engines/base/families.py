"""An engine's refusal of a family that stands in none of its tables: it names the engines that do know the family."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UnsupportedArchitectureError
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

#: Where kvcalc's own formula answers for every family.
_ALWAYS = "ideal"


def unknown_family(engine: str, architecture: Architecture, why: str = "") -> UnsupportedArchitectureError:
    """The refusal of `engine` for the family of `architecture`, and why; with the engines that have a rule for it, and `ideal`."""
    from kvcalc.engines.registry import get_engine, names

    family, class_name = architecture.family, architecture.class_name
    others = [name for name in names() if name not in (engine, _ALWAYS) and get_engine(name).knows(family, class_name)]
    return UnsupportedArchitectureError(
        f"kvcalc has no rule of {engine} for model_type '{clean(family, 60)}'" + (f": {why}" if why else ""),
        "engines that know it: " + ", ".join([*others, _ALWAYS]),
    )
