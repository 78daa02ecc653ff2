"""What was read from a launch command, in the words of a request of kvcalc.

A value of the command is shown only where it was read as one of those below; everything else may be a secret and is named at most.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.engines.base.engine import Setting

#: Keys of a request → what the note calls them.
_LABELS = {
    "context": "context",
    "sequences": "sequences",
    "kv_dtype": "kv dtype",
    "tensor_parallel": "tensor parallel",
    "pipeline_parallel": "pipeline parallel",
    "decode_context_parallel": "decode context parallel",
    "kv_memory": "memory for the cache",
}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)
_LONGEST_SHOWN = 60


@dataclass
class Reading:
    """One launch command.

    keys           of a request: context, kv_dtype, tensor_parallel, …
    settings       of the engine, under its own names
    model          as the command names it; None = it names none
    dtype          type that the model is made to run in, where the command says one
    weight_dtype   type of the weights; `requantised`: they are made so at start, whatever the files hold
    replicas       servers that the command starts, each with a cache of its own
    notes, warnings, on_card   sentences; the last ones matter only where a card's memory is divided
    options        a key of a request → the command's own option for it
    implied        settings that the program has by itself, not by a flag
    words          a key of a remedy of `fit` → how the command says it, `{}` for the value; key and value together come first
    splits_tensors all cards of the command share every layer, though the engine by itself gives each layers of its own
    slots          parts that the command's own word for the context counts together
    """

    engine: str
    model: str | None = None
    revision: str | None = None
    keys: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    dtype: str | None = None
    weight_dtype: str | None = None
    requantised: bool = False
    replicas: int = 1
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    on_card: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    implied: set[str] = field(default_factory=set)
    words: Mapping[str, str] = field(default_factory=dict)
    splits_tensors: bool = False
    slots: int = 1

    def remedy(self, setting: str, value: int | str) -> str | None:
        """A change that `fit` names, as this command says it; None where it has no word for it."""
        word = self.words.get(f"{setting} {value}", self.words.get(setting))
        if word is None:
            return None
        if setting == "context" and isinstance(value, int):
            value *= self.slots
        return word.format(value, int(value) * self.keys.get("context", 0) if setting == "sequences" else "")

    def named(self) -> str | None:
        """The model with its revision, as kvcalc writes a repository; a path has no revision."""
        if self.model is None or not self.revision or "@" in self.model or self.model.count("/") != 1 or os.path.lexists(self.model):
            return self.model
        return self.model if self.model.startswith((".", "/", "~")) else f"{self.model}@{self.revision}"

    def sentence(self) -> str:
        """`read from the command: context 32,768, tensor parallel 2, kv dtype fp8`."""
        said = [f"{_LABELS[key]} {_shown(key, value)}" for key, value in self.keys.items() if key in _LABELS]
        said += [f"{name} {clean(_text(value), _LONGEST_SHOWN)}" for name, value in self.settings.items() if name not in self.implied]
        said += [f"dtype {self.dtype}"] if self.dtype else []
        said += [f"weights {self.weight_dtype}"] if self.weight_dtype else []
        return "read from the command: " + (", ".join(said) if said else "nothing but the engine, whose defaults hold")


def _shown(key: str, value: Any) -> str:
    if key == "context" and value == -1:
        return "the largest that fits"
    return f"{value:,}" + (" B" if key == "kv_memory" else "") if isinstance(value, int) else clean(value, _LONGEST_SHOWN)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(str(part) for part in value) if isinstance(value, list) else f"{value:,}" if isinstance(value, int) else str(value)


# ── how values are read; none of these ever repeats a value that it cannot read ─────────────────────────────────────────────


def whole(flag: str, text: str, *, least: int = 1) -> int:
    """A whole number as argparse reads one. Raises UsageError naming the flag."""
    digits = text.strip().replace("_", "")
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", digits, re.ASCII) or int(digits) < least:
        raise UsageError(f"{flag}: its value is not a whole number of at least {least}", "write it as the engine reads it")
    return int(digits)


def name(flag: str, text: str) -> str:
    """A word such as a format's name. Raises UsageError naming the flag."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,60}", text, re.ASCII):
        raise UsageError(f"{flag}: its value is not a name", "write it as the engine reads it")
    return text


def model(flag: str, text: str) -> str:
    """A model as the command names it. Raises UsageError for what kvcalc does not repeat: an address with credentials or a query."""
    if not text or not text.isprintable():
        raise UsageError(f"{flag}: its value is not the name of a model", "name it with --model")
    if _ADDRESS.match(text) and (not text.startswith("https://") or set("@?#") & set(text)):
        raise UsageError(f"{flag}: kvcalc does not read the model from this address", "name it with --model")
    return text


def of_setting(setting: Setting) -> Callable[[str, Any], Any]:
    """How an engine's setting reads a value of its flag."""

    def read(flag: str, value: Any) -> Any:
        try:
            return setting.read(value)
        except UsageError:
            raise UsageError(f"{flag}: its value is not {setting.wanted}", setting.about) from None

    return read
