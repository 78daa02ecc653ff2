"""`kvcalc.yaml`: found upwards, read strictly, every problem with file and line.

    defaults: {engine: vllm}            any key of a budget but its name
    budgets:
      - name: chat-prod                 unique
        model: llama-3.1-8b             any MODEL; a relative path is relative to this file
        context: 32k
        limits: {total: 24GiB, min_context: 32k, max_growth: 5%}
        message: ask the serving team before raising this

Sizes are text such as 24GiB or 80GB, or bytes; tokens such as 32k. A limit of 0, an unknown key, two budgets of one name and
limits that exclude each other are errors: a gate that cannot fail is not a gate.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError, KvcalcError, UsageError, nearest
from kvcalc.core.units import clean, human, parse_bytes, parse_tokens
from kvcalc.questions.request import Request, parse_request
from kvcalc.sources import catalogue
from kvcalc.sources.files import read_bytes
from kvcalc.sources.yaml_reader import LARGEST_FILE, Document, read_yaml
from kvcalc.sources.yaml_reader import Path as Place

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kvcalc.launch.budget import Said

#: Names that are looked for, nearest folder first.
FILE_NAMES = ("kvcalc.yaml", "kvcalc.yml", ".kvcalc.yaml")
MOST_BUDGETS = 10_000
LONGEST_NAME = 100
LONGEST_MESSAGE = 1000

#: Upper limits, in bytes, on figures of the plan of these names.
BYTE_LIMITS = ("total", "per_device", "per_sequence", "per_token")
#: A figure and one that it contains: the limit of the second can never be reached above that of the first.
_CONTAINS = (("total", "per_device"), ("total", "per_sequence"), ("per_sequence", "per_token"))
#: Lower limits, in tokens or sequences, that need a memory (`gpu` or `kv_memory`).
MEMORY_LIMITS = ("min_context", "min_sequences", "min_tokens")
_GROWTH = "max_growth"
LIMITS = (*BYTE_LIMITS, *MEMORY_LIMITS, _GROWTH)

#: Keys of a budget that are those of a request.
_REQUEST_KEYS = (
    "model",
    "context",
    "sequences",
    "engine",
    "engine_args",
    "kv_dtype",
    "tensor_parallel",
    "pipeline_parallel",
    "decode_context_parallel",
    "gpu",
    "kv_memory",
    "shared_prefix",
)
#: Keys that turn a GPU into a budget of bytes.
_MEMORY_KEYS = ("weights", "weight_dtype", "overhead", "utilization")
KEYS = ("name", "command", *_REQUEST_KEYS, *_MEMORY_KEYS, "limits", "message")
_TOP = ("defaults", "budgets")
_PERCENT = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*%", re.ASCII)


@dataclass(frozen=True, slots=True)
class Budget:
    """One budget, as it stands in the file.

    line        where it begins; `limit_lines` where each limit stands
    request     what is asked
    limits      bytes, tokens or sequences; max_growth as a Fraction of the baseline
    memory      weights, weight_dtype, overhead and utilization, where given
    notes       what was read from a launch command; `says`: its own words for a change of a key
    """

    name: str
    file: str
    line: int
    request: Request
    limits: dict[str, int | Fraction]
    limit_lines: dict[str, int] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    notes: tuple[str, ...] = ()
    says: Callable[[str, Any], str | None] | None = None

    def change(self, key: str, value: int | str) -> str:
        """A change of one key, as the file would write it: `context: 20480`, or in the words of its launch command."""
        own = self.says(key, value) if self.says is not None else None
        return own or f"{key}: {value}"

    def without_growth(self) -> Budget:
        """The same budget without its limit on growth."""
        return replace(self, limits={key: limit for key, limit in self.limits.items() if key != _GROWTH})


def find_file(start: Path) -> Path:
    """The nearest budget file at or above `start`. Raises UsageError if there is none, and as `file_in` does."""
    for folder in (start, *start.parents):
        found = file_in(folder)
        if found is not None:
            return found
    raise UsageError(
        f"no {FILE_NAMES[0]} in this folder or above it",
        "`kvcalc init MODEL` writes one, or name a file: `kvcalc check path/to/kvcalc.yaml`",
    )


def file_in(folder: Path) -> Path | None:
    """The budget file of one folder, None where it has none.

    Whatever bears the name counts: a broken link must not let a parent's file answer in its place. Raises UsageError for one that is
    no file, and where a folder has two.
    """
    there = [folder / name for name in FILE_NAMES if os.path.lexists(folder / name)]
    if not there:
        return None
    if len(there) > 1:
        raise UsageError(f"{_shown(there[0])} and {_shown(there[1])} both hold budgets, and only one can be meant", "keep one of them")
    if not there[0].is_file():
        raise UsageError(f"{_shown(there[0])} is not a file that can be read", "mend the link, or put the budgets there")
    return there[0]


def read_budgets(path: Path) -> tuple[Budget, ...]:
    """Every budget of the file. Raises InvalidConfigError with file and line of the first problem, and how many there are."""
    document = read_yaml(read_bytes(path, LARGEST_FILE), _shown(path))
    reader = _Reader(document, path.parent)
    budgets = reader.budgets()
    if reader.problems:
        others = len(reader.problems) - 1
        raise InvalidConfigError(
            reader.problems[0], f"and {others} more like it" if others else "`kvcalc init gpt2 -o -` prints a file that is right"
        )
    return budgets


def _shown(path: Path) -> str:
    try:
        return clean(os.path.relpath(path), 200)
    except ValueError:
        return clean(path, 200)


def _from_here(path: Path) -> str:
    """A path inside the working folder as `./…`, so that reports say the same on every machine; any other as it is."""
    try:
        inside = os.path.relpath(path)
    except ValueError:
        return str(path)
    return str(path) if inside.startswith("..") else f"./{inside}"


class _Reader:
    """One document, and the problems found so far."""

    def __init__(self, document: Document, folder: Path) -> None:
        self.document = document
        self.folder = folder
        self.problems: list[str] = []

    def say(self, place: Place, message: str, *, at: Place | None = None) -> None:
        self.problems.append(str(self.document.problem(place, message, at=at)))

    def budgets(self) -> tuple[Budget, ...]:
        value = self.document.value
        if not isinstance(value, dict):
            self.say((), "is empty: it holds no budgets" if value is None else "is not a mapping with a list of budgets")
            return ()
        self.known(value, (), _TOP)
        defaults = value.get("defaults")
        if defaults is None:
            defaults = {}
        if not isinstance(defaults, dict):
            self.say(("defaults",), "is not a mapping")
            defaults = {}
        self.known(defaults, ("defaults",), KEYS[1:])
        entries = value.get("budgets")
        if not isinstance(entries, list) or not entries or len(entries) > MOST_BUDGETS:
            self.say(("budgets",), f"is not a list of 1 to {MOST_BUDGETS:,} budgets")
            return ()
        found: list[Budget] = []
        names: dict[str, int] = {}
        for index, entry in enumerate(entries):
            place: Place = ("budgets", index)
            if not isinstance(entry, dict):
                self.say(place, "is not a mapping")
                continue
            self.known(entry, place, KEYS)
            limits = self.merged(defaults.get("limits"), entry.get("limits"), place)
            launched = self.launched(defaults, entry, place)
            budget = self.budget({**launched[0], "limits": limits}, place, launched[1]) if launched is not None else None
            if budget is None:
                continue
            if budget.name in names:
                self.say(
                    place, f"a budget named '{clean(budget.name, 60)}' already stands on line {names[budget.name]}", at=(*place, "name")
                )
            names.setdefault(budget.name, budget.line)
            found.append(budget)
        return tuple(found)

    def launched(self, defaults: dict[str, Any], entry: dict[str, Any], place: Place) -> tuple[dict[str, Any], Said | None] | None:
        """The entry over the defaults, and what its launch command says in the place of keys; None for a command that cannot be read."""
        own = entry.get("command") is not None
        command = entry["command"] if own else defaults.get("command")
        if command is None:
            return {**defaults, **entry}, None
        from kvcalc.launch.budget import SAID, of_command

        try:
            said = of_command(command, self.folder)
        except UsageError as error:
            at = (*place, "command") if own else ("defaults", "command")
            self.say(at, f"{error.message}; {error.hint}" if error.hint else error.message)
            return None
        for key, value in said.keys.items():
            if entry.get(key) is not None and key != "model" and value != {}:
                self.say(place, f"'{key}' is what the command says already; keep one of them", at=(*place, key))
        kept = {key: value for key, value in defaults.items() if key not in SAID}
        named = {} if own or defaults.get("model") is None else {"model": defaults["model"]}
        asked = {**kept, **said.keys, **named, **entry}
        sized = asked.get("gpu") is None or any(asked.get(key) is not None for key in ("weights", "weight_dtype"))
        if said.weight_dtype and not sized and (said.requantised or catalogue.has(str(asked.get("model")))):
            asked["weight_dtype"] = said.weight_dtype
        return asked, said

    def known(self, value: Mapping[str, Any], place: Place, keys: tuple[str, ...]) -> None:
        for key in value:
            if key not in keys:
                hint = nearest(key, keys) or "known keys: " + ", ".join(keys)
                self.say(place, f"unknown key '{clean(key, 40)}'; {hint}", at=(*place, key))

    def merged(self, defaults: Any, own: Any, place: Place) -> dict[str, Any]:
        for value, where in ((defaults, ("defaults", "limits")), (own, (*place, "limits"))):
            if value is not None and not isinstance(value, dict):
                self.say(where, "is not a mapping")
                return {}
        return {**(defaults or {}), **(own or {})}

    def budget(self, entry: dict[str, Any], place: Place, said: Said | None) -> Budget | None:
        before = len(self.problems)
        name = entry.get("name")
        if not isinstance(name, str) or not name.strip():
            self.say(place, "has no name; a budget is told apart by its name")
        elif len(name) > LONGEST_NAME or not name.isprintable():
            self.say(place, f"has a name that is longer than {LONGEST_NAME} characters or cannot be printed", at=(*place, "name"))
        elif clean(name, LONGEST_NAME) != name:
            self.say(place, "has a name that a CI system takes for a command to itself", at=(*place, "name"))
        message = "" if entry.get("message") is None else entry["message"]
        if not isinstance(message, str):
            self.say((*place, "message"), "is not text; quote it")
        limits = self.limits(entry["limits"], (*place, "limits"))
        if not limits and len(self.problems) == before:
            self.say(place, "has no limits, so that it can never fail; limits: " + ", ".join(LIMITS))
        request = self.request(entry, place)
        memory = self.memory(entry, place)
        if request is not None:
            self.contradictions(request, limits, memory, (*place, "limits"))
        if request is None or len(self.problems) > before:
            return None
        return Budget(
            name=str(name),
            file=self.document.file,
            line=self.line(place),
            request=request,
            limits=limits,
            limit_lines={key: self.line((*place, "limits", key), ("defaults", "limits", key)) for key in limits},
            memory=memory,
            message=clean(" ".join(message.split()), LONGEST_MESSAGE),
            notes=said.notes if said else (),
            says=said.says if said else None,
        )

    def line(self, *places: Place) -> int:
        return next((self.document.lines[place] for place in places if place in self.document.lines), 0)

    def limits(self, given: dict[str, Any], place: Place) -> dict[str, int | Fraction]:
        self.known(given, place, LIMITS)
        found: dict[str, int | Fraction] = {}
        for key, value in given.items():
            read = _LIMIT_READERS.get(key)
            if read is None:
                continue
            try:
                limit = read(value)
            except UsageError as error:
                self.say((*place, key), f"{error.message}; {error.hint}" if error.hint else error.message)
                continue
            if limit <= 0 and key != _GROWTH:
                self.say((*place, key), "is 0, which no cache can meet; remove the limit or give it a size")
                continue
            found[key] = limit
        return found

    def request(self, entry: dict[str, Any], place: Place) -> Request | None:
        asked = {key: entry[key] for key in _REQUEST_KEYS if entry.get(key) is not None}
        asked["model"] = self.model(asked.get("model"))
        try:
            request = parse_request(asked)
        except KvcalcError as error:
            said = error.message.removeprefix("--")
            key = next((key for key in _REQUEST_KEYS if said.startswith(key)), "model" if "'model'" in said else "")
            self.say(place, f"{error.message}; {error.hint}" if error.hint else error.message, at=(*place, key) if key else None)
            return None
        if request.workload.context == -1:
            self.say((*place, "context"), "is -1, the largest that fits, which no limit can be held against; name a context")
        if ":" in str(asked.get("gpu", "")):
            self.say((*place, "gpu"), "is the name of one card; how many there are is tensor_parallel x pipeline_parallel")
        return request

    def model(self, model: Any) -> Any:
        """A relative path as seen from this file, whatever the working folder holds; every other MODEL as it is."""
        if not isinstance(model, str) or model.startswith(("/", "~", "https:")) or catalogue.has(model):
            return model
        beside = self.folder / model
        is_path = model.startswith(".") or (model and (os.path.lexists(beside) or os.path.lexists(model)))
        return _from_here(beside) if is_path else model

    def memory(self, entry: dict[str, Any], place: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key in _MEMORY_KEYS:
            value = entry.get(key)
            if value is None:
                continue
            try:
                found[key] = _MEMORY_READERS[key](value)
            except UsageError as error:
                self.say(place, f"{error.message}; {error.hint}" if error.hint else error.message, at=(*place, key))
        return found

    def contradictions(self, request: Request, limits: dict[str, int | Fraction], memory: dict[str, Any], place: Place) -> None:
        workload = request.workload
        if workload.gpu is not None and workload.kv_memory is not None and any(key in limits for key in MEMORY_LIMITS):
            self.say(place, "both gpu and kv_memory say how much memory there is; keep one of them")
        if memory and workload.gpu is None:
            self.say(place, f"{', '.join(memory)} only mean something together with a gpu")
        if workload.gpu is None and workload.kv_memory is None:
            for key in MEMORY_LIMITS:
                if key in limits:
                    self.say((*place, key), "needs a memory to hold it in: add gpu or kv_memory")
        for larger, smaller in _CONTAINS:
            if larger in limits and smaller in limits and limits[smaller] > limits[larger]:
                self.say(
                    (*place, smaller),
                    f"{human(int(limits[smaller]))} can never be reached under {larger} {human(int(limits[larger]))}; one of them is a mistake",
                )
        if workload.context is not None and limits.get("min_context", 0) > workload.context > 0:
            self.say((*place, "min_context"), f"is more than the context of {workload.context:,} that the budget asks for")


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UsageError(f"{clean(repr(value), 40)} is not a size", "write it like 24GiB, 80GB or 1073741824")
    return parse_bytes(value, "the limit")


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UsageError(f"{clean(repr(value), 40)} is not a whole number", "write it like 500000 or 32k")
    return parse_tokens(value, "the limit", least=0)


def _growth(value: Any) -> Fraction:
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise UsageError(f"{clean(repr(value), 40)} is not a percentage", "write it like 5%")
    return Fraction(match[1]) / 100


def _fraction(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise UsageError(f"utilization {clean(repr(value), 40)} is not a fraction", "write it like 0.9")
    return float(value)


def _word(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"weight_dtype {clean(repr(value), 40)} is not a format", "write it like bf16, fp8 or int4")
    return value


_LIMIT_READERS: dict[str, Callable[[Any], int | Fraction]] = {
    **dict.fromkeys(BYTE_LIMITS, _bytes),
    **dict.fromkeys(MEMORY_LIMITS, _count),
    _GROWTH: _growth,
}
_MEMORY_READERS: dict[str, Callable[[Any], Any]] = {
    "weights": _bytes,
    "overhead": _bytes,
    "utilization": _fraction,
    "weight_dtype": _word,
}
