"""The nearest changes under which a question that does not fit would: one setting at a time, each tried before it is named.

    in a memory, and in a budget      a shorter context, fewer sequences, a narrower format, more tensor parallel ranks
    on a card                         the first three, a larger share of it, more cards, narrower weights

An engine says which formats and weights are worth trying; a launch command and a log say them in the engine's own words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from kvcalc.core.errors import KvcalcError
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import last_between
from kvcalc.questions.card import holds_on_card, memory_budget
from kvcalc.questions.documents.fit import CountRemedy, WordRemedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from fractions import Fraction

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Fitting
    from kvcalc.questions.card import MemoryBudget
    from kvcalc.questions.request import Request

#: How far the tensor parallel size is doubled.
_MOST_RANKS = 64


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change that makes the question fit, alone and as it stands."""

    setting: str
    value: int | str
    text: str

    def document(self) -> CountRemedy | WordRemedy:
        """One of the `remedies` of a document."""
        if isinstance(self.value, int):
            return CountRemedy(cast("Any", self.setting), self.value, self.text)
        return WordRemedy(cast("Any", self.setting), self.value, self.text)


@dataclass(frozen=True, slots=True)
class Room:
    """What of a question may change, and how far.

    context     the largest context with which it would hold; None where there is none, or where it is the asked one
    sequences   those that were asked for; fewer are searched, first about `part` of them
    formats     tried in this order, and so are `ranks`
    """

    context: int | None
    sequences: int
    part: Fraction
    formats: Iterable[str]
    ranks: Iterable[int]


def nearest_changes(room: Room, holds: Callable[[str, int | str], bool]) -> Iterator[tuple[str, int | str]]:
    """Setting and value of each change that does; `holds` tries one. Raises what `holds` raises."""
    if room.context is not None:
        yield "context", room.context
    fewer = last_between(1, room.sequences - 1, int(room.sequences * room.part), lambda count: holds("sequences", count))
    if fewer is not None:
        yield "sequences", fewer
    for setting, values in (("kv_dtype", room.formats), ("tensor_parallel", room.ranks)):
        found: int | str | None = next((value for value in values if holds(setting, value)), None)
        if found is not None:
            yield setting, found


def in_memory(fitting: Fitting, workload: Workload, longest: int | None, part: Fraction) -> Iterator[Remedy]:
    """The changes under which the sequences of `workload` fit the memory of `fitting`.

    longest     the largest context that fits, which is known already
    part        of the memory that is needed, this much is there

    Raises what planning the asked question with fewer sequences raises.
    """
    engine, architecture = fitting.engine, fitting.architecture
    context, sequences = engine.context_of(architecture, workload), workload.sequences

    def holds(setting: str, value: int | str) -> bool:
        if setting == "sequences":
            return fitting.admits(context, int(value))
        try:
            changed: Any = {setting: value}
            return engine.fitting(architecture, replace(workload, **changed), fitting.memory).admits(context, sequences)
        except KvcalcError:
            return False

    room = Room(
        longest if longest is not None and longest < context else None,
        sequences,
        part,
        engine.remedy_formats,
        _doubled(workload.tensor_parallel, _MOST_RANKS),
    )
    for setting, value in nearest_changes(room, holds):
        yield Remedy(setting, value, _sentence(setting, value, context, sequences))


def _doubled(ranks: int, most: int) -> Iterator[int]:
    while (ranks := ranks * 2) <= most:
        yield ranks


def _sentence(setting: str, value: int | str, context: int, sequences: int) -> str:
    if setting == "context":
        return f"a context of {value:,} tokens instead of {context:,}"
    if setting == "sequences":
        return f"{value:,} sequence{'' if value == 1 else 's'} instead of {sequences:,}"
    return f"a cache of {value}" if setting == "kv_dtype" else f"tensor parallel over {value} devices with as much memory each"


def on_card(
    known: Iterable[Remedy],
    architecture: Architecture,
    request: Request,
    memory: MemoryBudget,
    shares: Mapping[str, Any],
    *,
    enough: int | None,
    share: tuple[str, Fraction] | None,
) -> Iterator[Remedy]:
    """The remedies of a memory, but with the weights spread over more devices, or narrower: then each leaves more for the cache.

    enough      devices of this kind that hold the question        share       the engine's setting for its share, and the least that does
    """
    yield from (remedy for remedy in known if remedy.setting != "tensor_parallel")
    engine, devices = get_engine(request.engine), request.workload.devices
    if share is not None:
        yield Remedy("utilization", str(float(share[1])), f"{share[0]} {float(share[1]):g} instead of {float(memory.utilization):g}")
    if enough is not None and enough > devices:
        yield Remedy("pipeline_parallel" if engine.by_layers else "tensor_parallel", enough, f"{enough} devices instead of {devices}")
    if shares.get("weights") is not None or architecture.parameters is None:
        return
    for name in engine.remedy_weights:
        narrower = {**shares, "weight_dtype": name, "measured": None}
        weights = memory_budget(architecture, request, **narrower).weights
        if weights < memory.weights and holds_on_card(architecture, request, narrower):
            yield Remedy("weight_dtype", name, f"weights in {name}, if there is such a checkpoint")
            return
