"""What an engine is: a policy that turns an architecture and a workload into a plan.

A new engine is one folder with one class: its name, version, settings and `plan()` are enough. Everything else has a default here:

    capacity(), fitting()      what the engine makes of a memory                      default: the plan, asked again and again
    by_layers                  a model is split over devices by its layers            default: by its heads
    share                      of a card (memory.py, SHARE)                           default: what is left beside the weights
    server_flags               how a remedy is said on the engine's command line      default: not at all
    remedy_formats             formats that a remedy tries                            default: the common ones
    remedy_weights             narrower weights that a remedy tries                   default: fp8, int4
    usual_weights              type of weights where nothing says another             default: that of the checkpoint
    rules                      plain sentences with which `explain ENGINE` opens      default: none

A launch command and a start-up log are read by modules beside the class: launcher.py, launch.py, startlog.py.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import EngineRejectsError, UsageError, nearest
from kvcalc.core.units import LARGEST, clean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Capacity, Plan
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.memory import Share

#: Formats that a remedy tries where the engine names none of its own.
REMEDY_FORMATS = ("fp8", "q8_0", "int8", "q5_1", "q4_0", "nvfp4", "int4", "turboquant_k8v4", "int4_per_token_head")

_TRUTH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)


def _read_bool(value: object) -> bool | None:
    return _TRUTH.get(str(value).lower()) if isinstance(value, bool | int | str) else None


def _read_int(value: object) -> int | None:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST else None


def _read_float(value: object) -> float | None:
    if isinstance(value, str) and not _DECIMAL.fullmatch(value):
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _read_text(value: object) -> str | None:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _read_list(value: object) -> list[Any] | None:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, list | tuple) else None


#: How a value of each type is read; None where it cannot be.
_READERS: dict[str, Callable[[object], Any]] = {
    "bool": _read_bool,
    "int": _read_int,
    "float": _read_float,
    "str": _read_text,
    "list": _read_list,
}


_TYPES = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "a text", "list": "a list"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting under the engine's own name.

    type      "int", "float", "bool", "str", "list" (comma-separated); None is allowed wherever the default is None
    choices   the words that a "str" may be; empty = any
    least     smallest value of a number
    most      largest value of a number
    """

    name: str
    type: str
    default: Any
    about: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    def read(self, value: object) -> Any:
        """`value` (from JSON, or text from the command line) in the setting's type. Raises UsageError."""
        if value is None or (isinstance(value, str) and value.lower() in ("none", "null") and self.default is None):
            return self.default
        result = _READERS[self.type](value.strip() if isinstance(value, str) else value)
        if result is None or not self._in_range(result):
            raise UsageError(f"engine setting {self.name}: {clean(repr(value), 40)} is not {self.wanted}", self.about)
        if self.choices and result not in self.choices:
            raise UsageError(
                f"engine setting {self.name}: unknown value {clean(repr(value), 40)}",
                nearest(str(result), self.choices) or "one of " + ", ".join(self.choices),
            )
        return result

    @property
    def wanted(self) -> str:
        """What a value has to be, in words: `a whole number of at least 1`."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        ends = [f"{word} {end:g}" for word, end in (("at least", self.least), ("at most", self.most)) if end is not None]
        return _TYPES[self.type] + (f" of {' and '.join(ends)}" if ends else "")

    def _in_range(self, number: Any) -> bool:
        if not isinstance(number, int | float):
            return True
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)


class Engine(ABC):
    """A serving engine, or `ideal`, the engine without a policy."""

    name: ClassVar[str]
    version: ClassVar[str]
    #: As it writes itself, in sentences; empty = as `name`.
    title: ClassVar[str] = ""
    #: Further names that people type, of an engine from another package; kvcalc's own stand in the registry.
    aliases: ClassVar[tuple[str, ...]] = ()
    #: Every setting that changes a byte; any other name is an error.
    settings: ClassVar[tuple[Setting, ...]] = ()
    #: Several devices divide the model's layers, unless told otherwise; else its heads.
    by_layers: ClassVar[bool] = False
    #: A setting of kvcalc → the flag of the engine's server, where its values are kvcalc's too: `context` → `--max-model-len`.
    server_flags: ClassVar[Mapping[str, str]] = {}
    #: Formats that a remedy tries, the nearest to the full width first; what the engine refuses is passed over.
    remedy_formats: ClassVar[tuple[str, ...]] = REMEDY_FORMATS
    #: Narrower weights that a remedy tries, the nearest to the full width first.
    remedy_weights: ClassVar[tuple[str, ...]] = ("fp8", "int4")
    #: The type of weights that a model has under this engine where nothing says another; None = that of the checkpoint.
    usual_weights: ClassVar[str | None] = None
    #: What a reader of `explain ENGINE` has to know first: one plain sentence a rule.
    rules: ClassVar[tuple[str, ...]] = ()

    @property
    def share(self) -> Share:
        """What the engine leaves of a card: `SHARE` of its folder's memory.py, else that of an engine that does not say."""
        from kvcalc.engines.base.folder import beside, folder_of
        from kvcalc.engines.base.memory import UNKNOWN

        own = beside(folder_of(type(self).__module__), "memory")
        share: Share = UNKNOWN if own is None else own.SHARE
        return share

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

    def knows(self, family: str, class_name: str = "") -> bool:  # noqa: ARG002  a default for engines without a table of families
        """The engine has a rule for models of that model_type (and Hugging Face class); it refuses all others."""
        return True

    @abstractmethod
    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The bytes that this engine allocates. Raises EngineRejectsError, UsageError, UnsupportedArchitectureError."""

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity | None:  # noqa: ARG002  a default for engines without a notion of capacity
        """What the engine makes of `kv_memory` bytes per device; None: `fit` searches `plan()` alone."""
        return None

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Fitting:
        """`kv_memory` bytes per device, to be asked again and again: what `fit` searches."""
        kind = PlanFitting if type(self).capacity is Engine.capacity else Fitting
        return kind(self, architecture, workload, kv_memory)

    def context_of(self, architecture: Architecture, workload: Workload) -> int:
        """The context in force: the workload's, else the model's maximum.

        Raises UsageError if neither is known, for a prefix that is longer, and for -1, which only a memory answers.
        """
        if workload.context == -1:
            raise UsageError("context -1 is the largest that fits, and there is no memory here to fit into", "ask kvcalc fit for it")
        context = workload.context or architecture.max_context
        if context is None:
            raise UsageError(
                f"{clean(architecture.id)} does not say its maximum context, and none was given", "give one with --ctx, such as --ctx 32k"
            )
        workload.check_prefix(context)
        return context


@dataclass(frozen=True, slots=True)
class Fitting:
    """A fixed memory per device under one engine: what it admits. Engines that can answer faster have their own."""

    engine: Engine
    architecture: Architecture
    workload: Workload
    memory: int

    @property
    def grain(self) -> int:
        """Tokens of context that cost the same, where the engine rounds: the search looks at multiples of it."""
        return 1

    def left(self, context: int, sequences: int) -> int:
        """At least 0 where that many sequences of that length fit, below 0 where not; never more for a longer context or one more.

        Engines that know how much of their memory stays free, in any unit, say so here: the search then guesses well.
        """
        return 0 if self.admits(context, sequences) else -1

    def admits(self, context: int, sequences: int) -> bool:
        """That many sequences of that length fit: by the engine's own word, else by its plan."""
        asked = self._asked(context, sequences)
        capacity = self.engine.capacity(self.architecture, asked, self.memory)
        return capacity.fits if capacity is not None else self.engine.plan(self.architecture, asked).per_device <= self.memory

    def capacity(self, context: int) -> Capacity | None:
        """The engine's own figures at that context; None where it has no notion of a capacity."""
        return self.engine.capacity(self.architecture, self._asked(context, self.workload.sequences), self.memory)

    def plan(self, workload: Workload) -> Plan:
        """The engine's plan of `workload`, which differs from the asked one in nothing but its context."""
        return self.engine.plan(self.architecture, workload)

    def _asked(self, context: int, sequences: int) -> Workload:
        return replace(self.workload, context=context, sequences=sequences, shared_prefix=min(context, self.workload.shared_prefix))


@dataclass(frozen=True, slots=True)
class PlanFitting(Fitting):
    """A fixed memory per device under an engine that fills what its plan says, and has no word of its own about a capacity."""

    def left(self, context: int, sequences: int) -> int:
        """Bytes of the fullest device that stay free."""
        return self.memory - self.engine.plan(self.architecture, self._asked(context, sequences)).per_device

    def admits(self, context: int, sequences: int) -> bool:
        """That many sequences of that length fit."""
        return self.left(context, sequences) >= 0


def check_query_heads(architecture: Architecture, ranks: int) -> None:
    """Raise EngineRejectsError where query heads do not divide over the tensor parallel ranks; where they are not known, nothing is said."""
    for state in architecture.states:
        heads = getattr(state, "query_heads", None)
        if heads and heads % ranks:
            raise EngineRejectsError(
                f"tensor parallel size {ranks} cannot split the {heads} query heads of {state.kind} attention",
                f"choose a size that divides {heads}",
            )


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
