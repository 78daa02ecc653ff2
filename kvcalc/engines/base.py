"""What an engine is: a policy that turns an architecture and a workload into a plan.

A new engine is one file with one class: its settings, `plan()`, and where it has a notion of its own capacity, `capacity()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.errors import UsageError, nearest
from kvcalc.units import clean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.architecture import Architecture
    from kvcalc.plan import Capacity, Plan
    from kvcalc.workload import Workload

_TRUE = {"true", "1", "yes", "on"}
_FALSE = {"false", "0", "no", "off"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting under the engine's own name.

    type      "int", "float", "bool", "str", "list" (comma-separated); None is allowed wherever the default is None
    choices   the words that a "str" may be; empty = any
    least     smallest value of a number
    """

    name: str
    type: str
    default: Any
    about: str
    choices: tuple[str, ...] = ()
    least: float | None = None

    def read(self, value: object) -> Any:
        """`value` (from JSON, or text from the command line) in the setting's type. Raises UsageError."""
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null") and self.default is None):
            return self.default
        result = self._convert(value)
        if result is None or (self.least is not None and isinstance(result, int | float) and result < self.least):
            wanted = self.type if self.least is None else f"{self.type} of at least {self.least:g}"
            raise UsageError(f"engine setting {self.name}: {clean(repr(value), 40)} is not a valid {wanted}", self.about)
        if self.choices and result not in self.choices:
            raise UsageError(
                f"engine setting {self.name}: unknown value {clean(repr(value), 40)}",
                nearest(str(result), self.choices) or "one of " + ", ".join(self.choices),
            )
        return result

    def _convert(self, value: object) -> Any:
        text = value.strip() if isinstance(value, str) else None
        if self.type == "bool":
            if isinstance(value, bool):
                return value
            word = text.lower() if text is not None else str(value) if isinstance(value, int) else ""
            return True if word in _TRUE else False if word in _FALSE else None
        if isinstance(value, bool):
            return None
        if self.type == "int":
            if isinstance(value, int):
                return value if abs(value) <= 10**18 else None
            return (
                int(text) if text is not None and text.lstrip("+-").isascii() and text.lstrip("+-").isdigit() and len(text) < 20 else None
            )
        if self.type == "float":
            return _float(value)
        if self.type == "list":
            return (
                [part.strip() for part in text.split(",")] if text is not None else list(value) if isinstance(value, list | tuple) else None
            )
        return text if text is not None else str(value) if isinstance(value, int | float) else None


def _float(value: object) -> float | None:
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and number == number and abs(number) < 1e18 else None  # noqa: PLR0124  rejects NaN


class Engine(ABC):
    """A serving engine, or `ideal`, the engine without a policy."""

    name: ClassVar[str]
    version: ClassVar[str]
    #: Every setting that changes a byte; any other name is an error.
    settings: ClassVar[tuple[Setting, ...]] = ()

    def read_args(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All settings in force, defaults included; `-` and `_` are the same. Raises UsageError for an unknown name."""
        known = {setting.name: setting for setting in self.settings}
        args = {setting.name: setting.default for setting in self.settings}
        for raw, value in given.items():
            name = str(raw).strip().lstrip("-").replace("-", "_")
            setting = known.get(name)
            if setting is None:
                hint = nearest(name, known) or ("settings: " + ", ".join(known) if known else "this engine has no settings")
                raise UsageError(f"{self.name} has no setting '{clean(name, 60)}'", hint)
            args[name] = setting.read(value)
        return args

    @abstractmethod
    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The bytes that this engine allocates. Raises EngineRejectsError, UsageError, UnsupportedArchitectureError."""

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity | None:
        """What the engine makes of `kv_memory` bytes per device; None: `fit` searches `plan()` alone."""
        return None

    def context_of(self, architecture: Architecture, workload: Workload) -> int:
        """The context in force: the workload's, else the model's maximum. Raises UsageError if neither is known."""
        if workload.context is not None and workload.context > 0:
            return workload.context
        if architecture.max_context is None:
            raise UsageError(
                f"{clean(architecture.id)} does not say its maximum context, and none was given", "give one with --ctx, such as --ctx 32k"
            )
        return architecture.max_context


def context_messages(architecture: Architecture, workload: Workload, context: int) -> tuple[list[str], list[str]]:
    """Notes and warnings that every engine gives: the assumptions, a defaulted context, a context beyond the maximum."""
    notes = list(architecture.assumptions)
    warnings: list[str] = []
    if workload.context is None:
        notes.append(f"context defaulted to the model's maximum, {context:,} tokens")
    if architecture.max_context is not None and context > architecture.max_context:
        warnings.append(f"context {context:,} is beyond the {architecture.max_context:,} tokens that the model was trained for")
    return notes, warnings


def default_format(architecture: Architecture) -> tuple[str, str | None]:
    """The format that `auto` means by itself: the checkpoint's type, else bf16 with a note that says so."""
    if architecture.dtype is None:
        return "bf16", "the config does not say its dtype: bf16 assumed"
    return architecture.dtype, None
