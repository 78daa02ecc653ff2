"""config.json → Architecture: descend to the language model, find the family, let it lay out the layers.

Unknown is never a guess: a model_type without a family is refused with the fields that the file carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError
from kvcalc.sources.hf.families import read_family

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture, Source


def read_config(raw: Mapping[str, Any], *, model_id: str = "", source: Source | None = None) -> Architecture:
    """The architecture of a config.json. Raises InvalidConfigError, UnsupportedArchitectureError."""
    if not isinstance(raw, Mapping):
        raise InvalidConfigError("config.json is not a JSON object")
    return read_family(raw, model_id=model_id, source=source)
