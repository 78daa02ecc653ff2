"""`ideal`: the bytes that the mathematics needs, and no policy.

bytes = Σ over states   layers x rows x row bytes x sequences

rows      min(T, W) for windows and chunks, T // r for ratios, no rounding, no padding, no spare slots
copies    none, except where tensor parallelism forces them: heads divide, at least one a rank; latents and index keys
          stand on every rank; recurrent heads and convolution channels divide. A split that is impossible is an error.
prefix    shared rows once, all others once a sequence
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from kvcalc.core.architecture import count_states
from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import KvFormat, get_format, get_kv_format
from kvcalc.core.plan import Line, Plan
from kvcalc.core.states.base import CACHE, MODEL, Buffer
from kvcalc.engines.base.engine import Engine, check_query_heads, context_messages, default_format
from kvcalc.engines.base.memo import per_model

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture, Layout
    from kvcalc.core.states import State
    from kvcalc.core.workload import Workload


@dataclass(frozen=True, slots=True)
class Split:
    """How one buffer lies on tensor parallel ranks: elements of a rank's row, and how many ranks hold each row.

    vectors, width, rope   one rank's share of a row
    copies                 ranks that hold the same elements: 1 = split without replication
    """

    vectors: int
    width: int
    rope: int
    copies: int


def split_buffer(buffer: Buffer, ranks: int, what: str) -> Split:
    """`buffer` over `ranks` tensor parallel ranks. Raises EngineRejectsError where heads or channels do not divide."""
    if ranks == 1 or buffer.shard == "replicated":
        return Split(buffer.vectors, buffer.width, buffer.rope, ranks)
    if buffer.shard == "width":
        if buffer.width % ranks:
            raise _uneven(what, buffer.name, buffer.width, "channels", ranks)
        return Split(buffer.vectors, buffer.width // ranks, 0, 1)
    if buffer.vectors % ranks == 0:
        return Split(buffer.vectors // ranks, buffer.width, 0, 1)
    if ranks % buffer.vectors == 0 and buffer.role in ("key", "value"):
        return Split(1, buffer.width, 0, ranks // buffer.vectors)
    raise _uneven(what, buffer.name, buffer.vectors, "heads", ranks)


def _uneven(what: str, name: str, count: int, unit: str, ranks: int) -> EngineRejectsError:
    return EngineRejectsError(
        f"tensor parallel size {ranks} cannot split the {count} {name} {unit} of {what}", f"choose a size that divides {count}"
    )


def row_bytes(buffer: Buffer, formats: KvFormat, model_dtype: str, vectors: int, width: int, rope: int) -> tuple[int, str]:
    """Bytes of one row of `vectors` x `width` of this buffer, and the name of the format it is stored in."""
    if buffer.dtype != CACHE:
        fixed = get_format(model_dtype if buffer.dtype == MODEL else buffer.dtype, "dtype")
        return fixed.row_bytes(width, vectors), fixed.name
    if buffer.role == "value":
        return formats.value.value_bytes(width, vectors), formats.value.name
    if buffer.role == "latent":
        return formats.key.latent_bytes(width - rope, rope), formats.key.name
    return formats.key.key_bytes(width, vectors), formats.key.name


def stages_of(layout: Layout, stages: int) -> list[tuple[str, ...]]:
    """The layers of each pipeline stage: as even as possible, the last stages the shorter ones."""
    order, count = layout.order, layout.count
    if stages > count:
        raise EngineRejectsError(f"pipeline parallel size {stages} is more than the model's {count} layers", f"at most {count}")
    short, long = divmod(count, stages)
    cuts = [0]
    for stage in range(stages):
        cuts.append(cuts[-1] + short + (1 if stage < long else 0))
    return [order[start:end] for start, end in itertools.pairwise(cuts)]


class StoredBuffer(NamedTuple):
    """One buffer of one state, for any context and number of sequences.

    whole    bytes of a row, once          row      bytes of a row on one rank
    spread   ranks that share the buffer's tokens under decode context parallelism
    """

    state: State
    layers: int
    buffer: Buffer
    format: str
    whole: int
    row: int
    spread: int


class Ideal(Engine):
    """The engine with no policy."""

    name: ClassVar[str] = "ideal"
    version: ClassVar[str] = "1"

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """Exact bytes of every state, added up. Raises EngineRejectsError for a split that is impossible."""
        self.read_args(workload.engine_args)
        context = self.context_of(architecture, workload)
        notes, warnings = context_messages(architecture, workload, context)
        model_dtype, assumed = default_format(architecture)
        if assumed:
            notes.append(assumed)
        tp, dcp = workload.tensor_parallel, workload.decode_context_parallel
        kv_dtype, stored = _stored(architecture, model_dtype if workload.kv_dtype == "auto" else workload.kv_dtype, tp, dcp)

        lines: list[Line] = []
        held_bytes: list[int] = []
        per_sequence = fixed = growth = per_token = 0
        per_entry: dict[int, int] = {}
        copies = "" if tp == 1 else f" x {tp} ranks"
        for state, layers, buffer, form, whole, row, spread in stored:
            extent = buffer.extent
            slots = extent.slots(context)
            alone = -(-slots // spread)
            rows = self._rows(buffer, context, workload)
            held = -(-rows // spread) if workload.shared_prefix else alone * workload.sequences
            held_bytes.append(row * held)
            lines.append(
                Line(
                    state=state.kind,
                    layers=layers,
                    buffer=buffer.name,
                    width=buffer.elements,
                    format=form,
                    slots=slots,
                    bytes=layers * held * row * tp,
                    formula=f"{layers} layers x {self._rows_text(buffer, context, rows, spread, workload)} x {row:,} B{copies}",
                    fixed=extent.is_fixed,
                )
            )
            per_sequence += layers * alone * row * tp
            if extent.is_fixed:
                fixed += layers * alone * row * tp
            else:
                if extent.kind == "ratio":
                    per_entry[extent.size] = per_entry.get(extent.size, 0) + layers * whole
                else:
                    per_token += layers * whole
                growth += layers * row * tp * (-(-extent.slots(context + 1) // spread) - alone)
        return Plan(
            engine=self.name,
            version=self.version,
            args={},
            kv_dtype=kv_dtype,
            context=context,
            lines=tuple(lines),
            per_device=self._fullest(architecture, workload.pipeline_parallel, stored, held_bytes),
            per_sequence=per_sequence,
            per_token=per_token + ceil(sum(Fraction(size, ratio) for ratio, size in per_entry.items())),
            growth_per_token=growth,
            fixed=fixed,
            notes=tuple(notes),
            warnings=tuple(warnings),
        )

    @staticmethod
    def _rows(buffer: Buffer, context: int, workload: Workload) -> int:
        """Rows of all sequences: those of the shared prefix once."""
        held = buffer.extent.slots(context)
        if buffer.extent.is_fixed or not workload.shared_prefix:
            return held * workload.sequences
        if buffer.extent.kind == "ratio":
            shared = buffer.extent.slots(workload.shared_prefix)
        else:
            shared = max(0, held - (context - workload.shared_prefix))
        return shared + workload.sequences * (held - shared)

    @staticmethod
    def _rows_text(buffer: Buffer, context: int, rows: int, spread: int, workload: Workload) -> str:
        text = buffer.extent.text(context)
        if workload.shared_prefix and not buffer.extent.is_fixed:
            text = f"{rows:,} rows ({workload.sequences} sequences, shared prefix once)"
        elif workload.sequences > 1:
            text += f" x {workload.sequences} sequences"
        return text if spread == 1 else f"({text} / {spread})"

    @staticmethod
    def _fullest(architecture: Architecture, stages: int, stored: tuple[StoredBuffer, ...], held: list[int]) -> int:
        """Bytes on the fullest rank: the pipeline stage whose layers weigh most; `held` are the bytes of one layer's buffers."""
        if stages == 1:
            return sum(item.layers * size for item, size in zip(stored, held, strict=True))
        rank_bytes: dict[State, int] = {}
        for item, size in zip(stored, held, strict=True):
            rank_bytes[item.state] = rank_bytes.get(item.state, 0) + size
        layouts = [count_states(architecture.layers, order) for order in stages_of(architecture.layers, stages)]
        return max(sum(layers * rank_bytes.get(state, 0) for state, layers in counts.items()) for counts in layouts)


@per_model
def _stored(architecture: Architecture, kv_dtype: str, tp: int, dcp: int) -> tuple[str, tuple[StoredBuffer, ...]]:
    """The name of the cache's format, and every buffer with its rows in it. Raises EngineRejectsError, UsageError."""
    formats = get_kv_format(kv_dtype)
    model_dtype, _ = default_format(architecture)
    if tp % dcp:
        raise EngineRejectsError(f"decode context parallel size {dcp} does not divide the tensor parallel size {tp}")
    check_query_heads(architecture, tp)
    found: list[StoredBuffer] = []
    for state, layers in architecture.states.items():
        for buffer in state.buffers():
            whole, form = row_bytes(buffer, formats, model_dtype, buffer.vectors, buffer.width, buffer.rope)
            part = split_buffer(buffer, tp, state.kind)
            row = whole if tp == 1 else row_bytes(buffer, formats, model_dtype, part.vectors, part.width, part.rope)[0]
            found.append(StoredBuffer(state, layers, buffer, form, whole, row, _token_spread(buffer, part, dcp, state.kind)))
    return formats.name, tuple(found)


def _token_spread(buffer: Buffer, part: Split, dcp: int, what: str) -> int:
    """Over how many ranks decode context parallelism spreads this buffer's tokens."""
    if dcp == 1 or buffer.extent.kind != "tokens":
        return 1
    if part.copies % dcp:
        raise EngineRejectsError(
            f"decode context parallel size {dcp} needs {dcp} copies of the {what} {buffer.name} rows, and there are {part.copies}",
            "decode context parallelism spreads tokens over ranks that hold the same heads",
        )
    return dcp
