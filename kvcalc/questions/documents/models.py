"""`kvcalc.models/1` and `kvcalc.gpus/1`: what the catalogue holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Required, TypedDict

from kvcalc.questions.documents.common import Model
from kvcalc.questions.documents.kinds import AtLeast, Bytes, Count, Document, Having, Known, Positive, record

#: Fields of a state that are no count; all others are heads, widths, windows.
STATE_FIELDS = {"nominal": bool, "name": str, "format": str, "state_dtype": str, "conv_dtype": str}
State = Annotated[Mapping[str, Count], Known({"kind": str, **STATE_FIELDS}), Having(("kind",))]


class Layers(TypedDict):
    """Which states the layers keep: the pattern, repeated to `count`."""

    pattern: Annotated[list[str], AtLeast(1)]
    count: Positive
    states: Annotated[Mapping[str, list[State]], AtLeast(1)]


class Source(TypedDict, total=False):
    """Where the numbers come from."""

    file: Required[str]
    where: str
    revision: str
    read: str
    assumed: Mapping[str, str]


class Expected(TypedDict, total=False):
    """A figure that the tests hold."""

    context: Required[Positive]
    bytes: Required[Positive]
    sequences: Positive
    kv_dtype: str
    engine: str
    note: str


class CatalogueEntry(TypedDict, total=False):
    """The document itself, as a kvcalc YAML holds it; what stands at its default is left out."""

    id: Required[str]
    family: Required[str]
    layers: Required[Layers]
    name: str
    hub: str
    source: Source
    license: str
    class_name: str
    dtype: str
    max_context: Positive
    parameters: Positive
    hidden_dim: Positive
    draft: Layers
    traits: Annotated[Mapping[str, Any], "facts that a single engine needs, under the config's own names"]
    assumptions: list[str]
    expect: list[Expected]


@record
class ListedModel:
    """One line of `models list`."""

    id: str
    name: str
    hub: str
    family: str
    layers: Annotated[Positive, "of the language model, draft layers apart"]
    techniques: Annotated[tuple[str, ...], "those in use, in order of first appearance"]
    dtype: str | None
    bytes_per_token: Annotated[Bytes, "in every layer that still holds it, at the model's own type, ideal"]
    fixed_bytes: Annotated[Bytes, "per sequence, whatever its length"]
    max_context: Positive | None


@record
class ModelListDocument(Document):
    """kvcalc models list: the catalogue."""

    schema: ClassVar = "kvcalc.models/1"
    model: None
    workload: None
    engine: None
    kv_dtype: None
    models: tuple[ListedModel, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@record
class KeptState:
    """How many layers keep a state."""

    kind: str
    layers: Positive
    fields: Annotated[Mapping[str, Count], Known(STATE_FIELDS)]


@record
class ModelDocument(Document):
    """kvcalc models show: one model."""

    schema: ClassVar = "kvcalc.models/1"
    model: Model
    workload: None
    engine: None
    kv_dtype: None
    architecture: CatalogueEntry
    techniques: tuple[str, ...]
    states: tuple[KeptState, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@record
class FileProblem:
    """One problem of a file."""

    file: str
    line: Count
    path: str
    message: str


@record
class ValidationDocument(Document):
    """kvcalc models validate: problems of files."""

    schema: ClassVar = "kvcalc.models/1"
    model: None
    workload: None
    engine: None
    kv_dtype: None
    files: tuple[str, ...]
    problems: tuple[FileProblem, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@record
class Card:
    """One accelerator."""

    id: str
    name: str
    vendor: str
    memory: Positive
    known: Annotated[Literal["measured", "nominal"], "the total that engines print, or the capacity as sold"]
    bandwidth: Annotated[Positive, "bytes per second"]
    capability: Annotated[Positive | None, "CUDA compute capability x 10"]
    source: str
    read: str
    prints: Annotated[Count, "how many public prints the measured total stands on"]
    low: Annotated[Positive | None, "the least of them"]
    high: Annotated[Positive | None, "the largest of them"]
    windows: Annotated[Positive | None, "the total under Windows, where a print is known"]


@record
class GpusDocument(Document):
    """kvcalc gpus list: accelerators."""

    schema: ClassVar = "kvcalc.gpus/1"
    model: None
    workload: None
    engine: None
    kv_dtype: None
    gpus: tuple[Card, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
