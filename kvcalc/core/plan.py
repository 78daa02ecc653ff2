"""What an engine answers: lines of plain integers, and their sums.

Plan.total = sum of line.bytes        always: padding, replication and null blocks are lines of their own
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InternalError
from kvcalc.core.fields import Value

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Line(Value):
    """One buffer of one state, over all layers that keep it, all sequences and all devices.

    state, buffer   what it is: "full"/"key", "gated_deltanet"/"recurrent", "padding"/"group"
    layers          layers that keep it
    width           elements of one row, all heads of one copy together; 0 where a line is no tensor of rows
    format          the storage format's name
    slots           rows held per sequence
    bytes           all sequences, all devices
    formula         the same with the numbers put in
    fixed           the line does not depend on the context
    """

    state: str
    layers: int
    buffer: str
    width: int
    format: str
    slots: int
    bytes: int
    formula: str
    fixed: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plan(Value):
    """The memory that one engine gives one model under one workload. All figures in bytes.

    context            the context that was planned (the model's maximum if the workload left it open)
    per_device         the fullest device
    per_sequence       one sequence at this context, all devices
    per_token          what one token takes in every layer that still holds it, whatever the parallelism
    growth_per_token   what the next token adds at this context; negative where it closes a window whose rows are then freed
    fixed              per sequence, independent of the context
    """

    engine: str
    version: str
    args: Mapping[str, Any]
    kv_dtype: str
    context: int
    lines: tuple[Line, ...]
    per_device: int
    per_sequence: int
    per_token: int
    growth_per_token: int
    fixed: int
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """All devices together."""
        return sum(line.bytes for line in self.lines)

    def __post_init__(self) -> None:
        if any(line.bytes < 0 for line in self.lines):
            raise InternalError("a line of the plan has negative bytes")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Capacity(Value):
    """What an engine makes of a fixed memory per device; None where it has no such notion.

    fits              the asked context and sequences fit
    tokens … state_slots   as the engine's own log would say
    """

    fits: bool
    tokens: int | None = None
    concurrency: float | None = None
    blocks: int | None = None
    block_bytes: int | None = None
    block_size: int | None = None
    sliding_tokens: int | None = None
    state_slots: int | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
