"""`kvcalc.lab/1`: reference attention of each technique, measured here."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from kvcalc.questions.documents.common import Asked, Engine, Model
from kvcalc.questions.documents.kinds import Amount, AtLeast, Bytes, Count, Document, Positive, record


@record
class Decoder(Model):
    """The small decoder that ran."""

    layers: Positive
    heads: Positive
    dim: Positive
    parameters: Positive


@record
class Generated(Asked):
    """A prompt, then tokens one by one."""

    prompt: Positive
    tokens: Positive


@record
class Machine:
    """What it ran on."""

    device: Literal["cpu", "cuda", "mps"]
    name: str
    torch: str
    threads: Positive


@record
class MeasuredBytes:
    """The cache's real bytes beside kvcalc's."""

    measured: Annotated[Bytes, "of the cache's own tensors"]
    expected: Annotated[Bytes, "kvcalc's figure"]
    equal: bool
    allocated: Annotated[Bytes, "of the memory behind the tensors"]
    formula: str


@record
class MeasuredOutput:
    """Cached output beside recomputed output."""

    error: Annotated[Amount | None, "largest difference of a logit, relative to the largest logit"]
    tolerance: Annotated[Amount | None, "null where the cache is meant to lose something"]
    equal: bool | None
    same_next_token: Count | None
    steps: Count | None


@record
class Seconds:
    """Seconds a token takes."""

    cached: Amount | None
    uncached: Amount


@record
class Trial:
    """One technique, measured."""

    name: str
    technique: str
    about: str
    sequences: Positive
    tokens: Annotated[Positive, "of all sequences together, at the end"]
    decoded: Annotated[Count, "tokens decoded one by one: what the seconds are divided by"]
    bytes: MeasuredBytes
    output: MeasuredOutput
    seconds_per_token: Seconds
    speedup: Amount | None
    notes: tuple[str, ...]


@record
class LabDocument(Document):
    """kvcalc lab: reference attention, measured."""

    schema: ClassVar = "kvcalc.lab/1"
    model: Decoder
    workload: Generated
    engine: Engine
    kv_dtype: str
    machine: Machine
    passed: Annotated[bool, "bytes are equal in every row, and the output wherever it must be"]
    rows: Annotated[tuple[Trial, ...], AtLeast(1)]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
