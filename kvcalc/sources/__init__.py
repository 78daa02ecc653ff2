"""MODEL text → Architecture.

    catalogue id         llama-2-7b                      catalogue.py
    path                 ./config.json, a folder, x.gguf, x.yaml, - (standard input)     resolve.py, files.py
    Hub repository       org/name, org/name@revision     hub.py
    URL                  https://…/x.gguf                gguf_remote.py
    inline               {"hf_config": …} {"gguf_metadata": …} {"architecture": …}

A local path wins over a Hub repository of the same spelling only when it starts with `.`, `/` or `~` or exists on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

_INLINE = ("hf_config", "gguf_metadata", "architecture")


def load(model: str | Mapping[str, Any] | Architecture) -> Architecture:
    """The architecture behind MODEL; an Architecture is its own answer.

    Raises UnknownModelError, InvalidConfigError, UnsupportedArchitectureError, Hub errors.
    """
    if isinstance(model, str):
        from kvcalc.sources.resolve import resolve

        return resolve(model)
    return _load_inline(model) if isinstance(model, Mapping) else model


def _load_inline(model: Mapping[str, Any]) -> Architecture:
    if len(model) != 1 or next(iter(model)) not in _INLINE:
        key = next((str(key) for key in model if key not in _INLINE), "")
        raise UsageError(f"model: unknown inline document '{clean(key, 40)}'", nearest(key, _INLINE) or "one of " + ", ".join(_INLINE))
    kind, document = next(iter(model.items()))
    if not isinstance(document, Mapping):
        raise UsageError(f"model: '{kind}' is not a mapping", "give the document itself")
    if kind == "hf_config":
        from kvcalc.sources.hf.reader import read_config

        return read_config(document)
    if kind == "gguf_metadata":
        from kvcalc.sources.gguf.architecture import read_metadata

        return read_metadata(document)
    from kvcalc.sources.catalogue import read_mapping

    return read_mapping(document)
