"""`models list|show|validate|import`: the catalogue as a table, one model, the check of a file, a config turned into YAML.

    list_models     rows, filtered by text, technique and family
    show_model      one architecture, whatever MODEL is
    validate_files  every problem of every file, `expect` figures included
    import_model    MODEL as a catalogue YAML
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.engines import get_engine
from kvcalc.errors import KvcalcError, UsageError, nearest
from kvcalc.sources import catalogue, load
from kvcalc.units import clean
from kvcalc.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from kvcalc.architecture import Architecture
    from kvcalc.sources.yaml_reader import Problem

#: Any context gives the same bytes per token; this one is every model's.
_CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One line of `models list`.

    layers            layers of the language model, draft layers apart
    techniques        those in use, in order of first appearance: ("swa", "gqa")
    bytes_per_token   in every layer that still holds it, at the model's own type (bf16 where the file does not say), `ideal`
    fixed_bytes       per sequence whatever its length: recurrent and convolution state
    max_context       None where it is not known
    """

    id: str
    name: str
    hub: str
    family: str
    layers: int
    techniques: tuple[str, ...]
    dtype: str | None
    bytes_per_token: int
    fixed_bytes: int
    max_context: int | None

    def to_dict(self) -> dict[str, Any]:
        """One entry of `models` in `kvcalc.models/1`."""
        return {
            "id": self.id,
            "name": self.name,
            "hub": self.hub,
            "family": self.family,
            "layers": self.layers,
            "techniques": list(self.techniques),
            "dtype": self.dtype,
            "bytes_per_token": self.bytes_per_token,
            "fixed_bytes": self.fixed_bytes,
            "max_context": self.max_context,
        }


def list_models(text: str | None = None, technique: str | None = None, family: str | None = None) -> list[Row]:
    """The catalogue in order of id: `text` in id, name, hub or family; one technique; a family or its beginning.

    Raises UsageError for a technique or a family that no model has. A text that nothing matches gives no rows.
    """
    raise NotImplementedError


def show_model(model: str) -> Architecture:
    """The architecture behind MODEL. Raises what `load` raises."""
    return load(model)


def validate_files(paths: Sequence[str | Path]) -> list[Problem]:
    """Every problem of every file (of a folder: of its *.yaml), in order; `str(problem)` is `file:line: path: message`."""
    raise NotImplementedError


def import_model(model: str, model_id: str | None = None) -> str:
    """MODEL (a config.json, a GGUF, …) as a catalogue YAML. Raises what `load` raises, UsageError for an unfit id."""
    raise NotImplementedError
