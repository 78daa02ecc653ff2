"""The exact size of a model's weights, where its files can say: a GGUF's tensor table, a repository's safetensors index.

Read only when a question needs it: neither is part of an architecture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture

#: The index that lies beside a config.json on disk.
_INDEX = "model.safetensors.index.json"


def measured_weights(model: str | Mapping[str, Any] | Architecture) -> int | None:
    """Bytes of the tensors behind MODEL text; None where only an estimate is to be had. Raises InvalidConfigError, Hub errors."""
    if not isinstance(model, str):
        return None
    path = Path(model).expanduser()
    if model.lower().endswith(".gguf") and not model.startswith("https://"):
        from kvcalc.sources.gguf.tensors import weights_bytes

        return weights_bytes(path) if path.is_file() else None
    if path.exists():
        return _beside(path if path.is_dir() else path.parent)
    if model.count("/") == 1 and not model.startswith((".", "/", "~")):
        from kvcalc.sources.hf.hub import weights_bytes as of_repository

        repo, _, revision = model.partition("@")
        return of_repository(repo, revision or None)
    return None


def _beside(folder: Path) -> int | None:
    """The total that a local safetensors index gives."""
    from kvcalc.sources.files import read_bytes, read_json
    from kvcalc.sources.hf.hub import LARGEST_INDEX, total_of

    index = folder / _INDEX
    if not index.is_file():
        return None
    return total_of(read_json(read_bytes(index, LARGEST_INDEX), _INDEX))
