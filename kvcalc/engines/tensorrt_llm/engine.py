"""The engine itself: the plan's lines, and which manager is asked for the capacity of a memory.

bytes of a pool      blocks x Σ layers   bytes of a block on one rank
sequence             Σ windows   blocks that a request of this length holds (question.py)
capacity             first.py and second.py, of fraction x free memory
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kvcalc.core.plan import Capacity, Line, Plan
from kvcalc.engines.base.engine import Engine, Fitting, context_messages
from kvcalc.engines.tensorrt_llm.families import FAMILIES
from kvcalc.engines.tensorrt_llm.first import first_capacity, first_left
from kvcalc.engines.tensorrt_llm.layers import Part, Row, Stage
from kvcalc.engines.tensorrt_llm.question import Case, Question, read_question
from kvcalc.engines.tensorrt_llm.second import second_capacity, second_least, second_left
from kvcalc.engines.tensorrt_llm.settings import SETTINGS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Setting

_Item = TypeVar("_Item", Row, Part)


class TensorRtLlm(Engine):
    """TensorRT-LLM's PyTorch backend: paged blocks of every layer, recurrent state for the largest batch."""

    name: ClassVar[str] = "tensorrt-llm"
    title: ClassVar[str] = "TensorRT-LLM"
    version: ClassVar[str] = VERSION
    settings: ClassVar[tuple[Setting, ...]] = SETTINGS
    rules: ClassVar[tuple[str, ...]] = (
        "Two cache managers: the second has GPT-OSS, Gemma 3 and 4, Llama, the hybrids and DeepSeek-V4, the first all others (and 1.0 to 1.2).",
        "KV heads of a rank are rounded up; latents stand whole on every rank; K and V are as wide as K.",
        "The first manager keeps windows in full until max_attention_window says otherwise, and then gives each an equal share of the memory.",
        "The second takes the windows of models that mix them with full layers, and divides memory in grains, for a reference batch.",
        "Recurrent state is kept for max_batch_size requests, used or not; a server whose state does not fit does not start.",
    )

    def knows(self, family: str, class_name: str = "") -> bool:  # noqa: ARG002  no class has rules of its own
        """The family has a row."""
        return family in FAMILIES

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The blocks that the asked sequences fill. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
        return self._plan(self._question(architecture, workload), workload)

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """Blocks and tokens of `kv_memory` bytes of free memory on each device, of which the engine takes its fraction.

        Raises EngineRejectsError, UnsupportedArchitectureError, UsageError.
        """
        case = self._case(self._question(architecture, workload), workload)
        return _capacity(case, kv_memory)

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Fitting:
        """A memory to be asked again and again; the question is read once. Raises what `plan` raises."""
        return TensorRtFitting(self, architecture, workload, kv_memory, self._question(architecture, workload), kv_memory, {})

    def _question(self, architecture: Architecture, workload: Workload) -> Question:
        return read_question(architecture, workload, self.read_args(workload.engine_args))

    def _case(self, question: Question, workload: Workload) -> Case:
        return question.case(self.context_of(question.architecture, workload), workload.sequences, workload.shared_prefix)

    def _plan(self, question: Question, workload: Workload) -> Plan:
        case = self._case(question, workload)
        notes, warnings = context_messages(question.architecture, workload, case.context)
        most, asked = question.args["max_tokens"], case.held(0, case.requests)[0] * question.block
        if most is not None and len(case.windows) == 1 and asked > most:
            warnings.append(f"max_tokens {most:,} is less than the {asked:,} tokens that are asked for at once")
        if case.requests > case.most:
            warnings.append(f"{case.requests:,} requests are more than max_batch_size lets run at once: {case.most:,}")
        one = case.alone()
        longer = question.case(case.context + 1, workload.sequences, workload.shared_prefix)
        return Plan(
            engine=self.name,
            version=question.release.name,
            args=_in_force(case),
            kv_dtype=question.stored.name,
            context=case.context,
            lines=_lines(case),
            per_device=max(case.rank_bytes(stage, case.requests, case.slots) for stage in case.stages),
            per_sequence=one,
            per_token=sum(row.whole * layers for stage in case.stages for row, layers in stage.rows.items()),
            growth_per_token=longer.alone() - one,
            fixed=sum(_fixed(stage, question.block) for stage in case.stages) * question.spread,
            notes=(*notes, *question.notes),
            warnings=tuple(warnings),
        )


@dataclass(frozen=True, slots=True)
class TensorRtFitting(Fitting):
    """A memory under a question that was read once.

    given    the memory that was asked about: for another one, the least that holds a context is worked out once and kept in `least`
    """

    question: Question
    given: int
    least: dict[tuple[int, int], int | None]

    @property
    def grain(self) -> int:
        """Tokens of a block."""
        return self.question.block

    def left(self, context: int, sequences: int) -> int:
        """Bytes or slots of the fullest pool that stay free."""
        case = self.question.case(context, sequences, self.workload.shared_prefix)
        budget = _budget(case, self.memory)
        if not self.question.second:
            return first_left(case, budget)
        if self.memory == self.given:
            return second_left(case, budget)
        if (context, sequences) not in self.least:
            planned = max(case.rank_bytes(stage, case.requests, case.slots) for stage in case.stages)
            self.least[context, sequences] = second_least(case, planned)
        least = self.least[context, sequences]
        return -1 if least is None else budget - least

    def admits(self, context: int, sequences: int) -> bool:
        """That many sequences of that length fit."""
        return self.left(context, sequences) >= 0

    def capacity(self, context: int) -> Capacity:
        """The engine's own figures at that context."""
        return _capacity(self.question.case(context, self.workload.sequences, self.workload.shared_prefix), self.memory)


def _capacity(case: Case, kv_memory: int) -> Capacity:
    """What the manager in charge makes of the memory that is free."""
    found = (second_capacity if case.question.second else first_capacity)(case, _budget(case, kv_memory))
    return replace(found, notes=(*_share_notes(case), *found.notes))


def _budget(case: Case, kv_memory: int) -> int:
    """Bytes of the memory that is free which the cache may take."""
    args = case.question.args
    share = int(args["free_gpu_memory_fraction"] * kv_memory)
    return share if args["max_gpu_total_bytes"] is None else min(share, args["max_gpu_total_bytes"])


def _share_notes(case: Case) -> tuple[str, ...]:
    fraction = case.question.args["free_gpu_memory_fraction"]
    return () if fraction == 1 else (f"the cache takes {fraction:g} of the free memory (free_gpu_memory_fraction)",)


def _fixed(stage: Stage, block: int) -> int:
    """Bytes of one request on one rank whatever its length: recurrent state, and DeepSeek-V4's windows in whole blocks."""
    windows = sum(-(-row.window // block) * row.block_bytes(block) * layers for row, layers in stage.rows.items() if row.kin and row.window)
    return stage.part_bytes + windows


def _in_force(case: Case) -> dict[str, Any]:
    args = dict(case.question.args) | {"tokens_per_block": case.question.block}
    if case.question.hybrid:
        args["max_batch_size"] = case.batch
    return args


def _lines(case: Case) -> tuple[Line, ...]:
    """Rows, parts, the rest of last blocks, and the slots of nobody."""
    found: list[Line] = []
    question = case.question
    copies = "" if question.ranks == 1 else f" x {question.ranks} ranks"
    rest = 0
    for row, layers in _sum(stage.rows for stage in case.stages).items():
        blocks, tokens = case.held(row.window, case.requests)
        rest += (blocks * row.block_bytes(question.block) - tokens * row.rank) * layers
        found.append(
            Line(
                row.state,
                layers,
                row.buffer,
                row.width,
                row.format,
                min(case.context, row.window or case.context),
                tokens * row.rank * layers * question.ranks,
                f"{layers} layers x {tokens:,} tokens x {row.rank:,} B{copies}",
            )
        )
    parts = _sum(stage.parts for stage in case.stages)
    for part, layers in parts.items():
        size = layers * case.reserved * part.rank * question.ranks
        text = f"{layers} layers x {case.reserved:,} requests x {part.rank:,} B{copies}"
        found.append(Line(part.state, layers, part.buffer, part.width, part.format, part.rows, size, text, fixed=True))
    if rest:
        found.append(_padding("block", rest * question.ranks, f"the rest of each last block of {question.block} tokens", question.block))
    nobody = sum(part.rank * layers for part, layers in parts.items()) * question.dummies
    if nobody:
        found.append(_padding("slot", nobody * question.ranks, f"{question.dummies} slots for requests that pad a batch", question.dummies))
    return tuple(found)


def _padding(buffer: str, size: int, formula: str, slots: int) -> Line:
    return Line("padding", 0, buffer, 0, "", slots, size, f"{formula}: {size:,} B", fixed=buffer == "slot")


def _sum(counts: Iterable[Mapping[_Item, int]]) -> dict[_Item, int]:
    """The counts of all stages together."""
    found: dict[_Item, int] = {}
    for stage in counts:
        for item, layers in stage.items():
            found[item] = found.get(item, 0) + layers
    return found
