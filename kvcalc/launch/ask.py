"""From what was read to an answer: the fit where a memory is known, else the estimate."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from kvcalc.core.errors import GatedError, HubUnavailableError, NotFoundError, UnknownModelError, UsageError
from kvcalc.core.units import clean
from kvcalc.engines.registry import module
from kvcalc.hardware import parse_gpu
from kvcalc.launch.given import read_words
from kvcalc.launch.launchers import find, launchers
from kvcalc.questions.card import on_card
from kvcalc.questions.request import parse_request
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.base.launcher import Found
    from kvcalc.engines.base.reading import Reading
    from kvcalc.questions.documents.estimate import EstimateDocument
    from kvcalc.questions.documents.fit import FitDocument
    from kvcalc.questions.request import Request

_Document = TypeVar("_Document", "EstimateDocument", "FitDocument")

#: Ends and parts of the names of variables that change no byte of the cache, whatever the engine.
_IDLE_VARIABLES = ("_API_KEY", "_HOST_IP", "_PORT", "_CACHE_ROOT", "_CONFIG_ROOT", "_USAGE_STATS", "_USE_MODELSCOPE", "_TARGET_DEVICE")
_IDLE_WORDS = ("LOG", "TRACE", "USAGE", "MEDIA", "HTTP", "DO_NOT_TRACK", "ASSETS", "TIMEOUT")
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Told:
    """What kvcalc itself was told beside the command.

    shares   of a card's memory: weights, weight_dtype, overhead, utilization, memory
    """

    model: str | None = None
    sequences: int | None = None
    gpu: str | None = None
    kv_memory: int | None = None
    shares: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Launch:
    """A request of kvcalc, what divides a card's memory, and the sentences about the command."""

    reading: Reading
    request: Request
    shares: Mapping[str, Any]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def has_memory(self) -> bool:
        """There is a memory to fit into."""
        return self.request.workload.kv_memory is not None or self.on_card

    @property
    def on_card(self) -> bool:
        """The memory for the cache is what a card leaves."""
        return on_card(self.request.workload, self.shares)


def read_command(given: Sequence[str], folder: Path | None = None) -> Reading:
    """What a launch command says, as words or as one text; files that it names are looked for in `folder`. Raises UsageError."""
    found = find(read_words(given))._replace(folder=folder)
    reader = module(found.engine, "launch")
    if reader is None:
        raise UsageError(f"kvcalc does not read the flags of {found.engine}", "ask kvcalc fit or estimate, with -e and -E")
    reading: Reading = reader.read(found)
    reading.warnings.extend(_unread(found))
    return reading


def _unread(found: Found) -> list[str]:
    """A warning that names the engine's own variables, which kvcalc does not read."""
    prefixes = launchers()[found.engine].variables
    names = [name for name in found.environment if name.startswith(prefixes) and prefixes and not _is_idle(name)]
    if not names:
        return []
    named = ", ".join(clean(name, 60) for name in names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return [f"variables of the engine that kvcalc does not read: {named}"]


def _is_idle(name: str) -> bool:
    return name.endswith(_IDLE_VARIABLES) or any(word in name for word in _IDLE_WORDS)


def launch(reading: Reading, told: Told) -> Launch:
    """The question that the command and kvcalc's own options ask together. Raises UsageError where they contradict, and what loading raises."""
    keys = dict(reading.keys)
    for key, option, value in (("sequences", "--sequences", told.sequences), ("kv_memory", "--kv-memory", told.kv_memory)):
        if value is not None and keys.get(key, value) != value:
            raise UsageError(f"{option} says something else than {reading.options[key]} of the command", "leave one of them out")
        if value is not None:
            keys[key] = value
    model = told.model or reading.named()
    if model is None:
        raise UsageError("the command does not name a model that kvcalc can read", "name it with --model, before the command")
    architecture = _load(model, told)
    notes = [reading.sentence(), *reading.notes]
    gpu, replicas = _cards(told.gpu, reading)
    if gpu is not None and ":" in gpu and reading.splits_tensors:
        keys.setdefault("tensor_parallel", parse_gpu(gpu)[1])
    request = parse_request(
        {**keys, "model": _retyped(architecture, model, reading), "engine": reading.engine, "engine_args": reading.settings, "gpu": gpu}
    )
    if replicas > 1:
        each = request.workload.devices
        notes.append(
            f"{replicas:,} replicas, each with a cache of its own: the figures are those of one, on {each:,} of {replicas * each:,} GPUs"
        )
    found = Launch(reading, request, _shares(reading, told, model), tuple(notes), tuple(reading.warnings))
    if request.workload.context == -1 and not found.has_memory:
        raise UsageError(
            f"{reading.options['context']} asks for the largest context that fits, and no memory is named",
            "name one with --gpu or --kv-memory",
        )
    return replace(found, warnings=(*found.warnings, *(reading.on_card if found.on_card else ())))


def _load(model: str, told: Told) -> Architecture:
    """The model, with a word about --model where the command's own name leads nowhere."""
    try:
        return load(model)
    except (UnknownModelError, NotFoundError, GatedError, HubUnavailableError) as error:
        if told.model is not None:
            raise
        hint = f"{error.hint}{' ' if error.hint.endswith('?') else '; '}" if error.hint else ""
        raise type(error)(error.message, f"{hint}--model says which model it is, such as --model llama-3.1-8b") from error


def _retyped(architecture: Architecture, model: str, reading: Reading) -> Any:
    """The model as it was named, or with the type that the command makes it run in."""
    if reading.dtype is None or reading.dtype == architecture.dtype:
        return model
    said = f"the command runs the model in {reading.dtype}"
    return replace(architecture, dtype=reading.dtype, assumptions=(*architecture.assumptions, said), expect=())


def _cards(gpu: str | None, reading: Reading) -> tuple[str | None, int]:
    """The card as one replica sees it, and the replicas; all cards of all replicas may be named."""
    if gpu is None or reading.replicas == 1 or ":" not in gpu:
        return gpu, reading.replicas
    name, _, count = gpu.partition(":")
    each = reading.keys.get("tensor_parallel", 1) * reading.keys.get("pipeline_parallel", 1)
    return (name if count == str(each * reading.replicas) else gpu), reading.replicas


def _shares(reading: Reading, told: Told, model: str) -> dict[str, Any]:
    """What divides a card's memory; the command's type of weights where nothing better is known."""
    shares = dict(told.shares)
    if reading.weight_dtype is None or told.kv_memory is not None or {"weights", "weight_dtype"} & shares.keys():
        return shares
    if not (told.gpu or "memory" in shares):
        return shares
    from kvcalc.sources.weights import measured_weights

    if reading.requantised or measured_weights(model) is None:
        shares["weight_dtype"] = reading.weight_dtype
    return shares


def answer(found: Launch) -> tuple[FitDocument, bool]:
    """`kvcalc.fit/1`, and whether it fits, for a launch with a memory. Raises what planning raises."""
    from kvcalc.questions.fit_card import fit_or_size

    fitted = fit_or_size(found.request, **found.shares)
    return fitted.document(), fitted.fits


def with_notes(document: _Document, found: Launch) -> _Document:
    """The document with what there is to say about the command before what there is to say about the answer."""
    return replace(document, notes=(*found.notes, *document.notes), warnings=(*found.warnings, *document.warnings))
