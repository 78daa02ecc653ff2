"""`kvcalc.fit/1` and what `fit` answers besides: a table of lengths, a ranking of cards, traffic of many lengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from kvcalc.questions.documents.common import Asked, Basis, Engine, Memory, Model
from kvcalc.questions.documents.kinds import Above, Amount, AtLeast, Bytes, Count, Document, Having, Most, Positive, record

Fraction = Annotated[float, Above(0), Most(1)]
#: A figure by percentile of the requests' lengths.
PERCENTILES = Having(("p50", "p95", "p99"))


@record
class Sure:
    """How each figure of a card is known."""

    memory: str
    utilization: str
    weights: str
    overhead: str


@record
class CardShares:
    """A card, divided; weights and overhead are those of one device."""

    gpu: str
    memory: Bytes
    utilization: Fraction
    weights: Bytes
    overhead: Bytes
    kv_low: Bytes
    kv_likely: Bytes
    kv_high: Bytes
    sure: Annotated[Sure, "how each figure is known"]


@record
class GivenBudget:
    """Bytes for the cache on each device, as they were given."""

    kv_bytes_per_device: Bytes
    from_: Literal["--kv-memory"]


@record
class CardBudget:
    """Bytes for the cache on each device, as a card leaves them."""

    kv_bytes_per_device: Bytes
    from_: CardShares


@record
class Capacity:
    """What the engine itself would log; null where it has no such notion."""

    tokens: Count | None
    concurrency: Amount | None
    blocks: Count | None
    block_bytes: Bytes | None
    block_size: Count | None
    sliding_tokens: Count | None
    state_slots: Count | None


@record
class CountRemedy:
    """A number that makes the question fit, alone and as it stands."""

    setting: Literal["context", "sequences", "tensor_parallel", "pipeline_parallel"]
    value: Positive
    text: str


@record
class WordRemedy:
    """A word that makes the question fit, alone and as it stands."""

    setting: Literal["kv_dtype", "utilization", "weight_dtype"]
    value: str
    text: str


@record
class FitDocument(Document):
    """kvcalc fit: what a memory for the cache holds."""

    schema: ClassVar = "kvcalc.fit/1"
    model: Model
    workload: Asked
    engine: Engine
    kv_dtype: str
    budget: GivenBudget | CardBudget
    fits: Annotated[bool, "the asked context and sequences fit"]
    max_context: Annotated[Count | None, "null where none fits, and beside unbounded, where nothing ends it"]
    max_sequences: Annotated[Count | None, "of the asked context; null where nothing ends it"]
    needed: Annotated[Bytes | None, "the least bytes per device that hold the question; null where no memory does"]
    capacity: Capacity
    remedies: tuple[CountRemedy | WordRemedy, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    unbounded: Annotated[bool, "no context is too long: max_context is null because nothing ends it"]
    memory: Memory
    basis: Basis


@record
class GivenFitDocument(FitDocument):
    """kvcalc fit --kv-memory: what a given memory holds."""

    budget: GivenBudget


@record
class DecodeBound:
    """Tokens per second that decoding cannot exceed, from the memory's bandwidth alone: a bound, not a forecast."""

    tokens_per_second: Amount
    bytes_per_step: Positive
    text: str


@record
class NeededShare:
    """The engine's setting for its share of a card, and the least that leaves what is needed."""

    setting: str
    value: Annotated[Amount, Most(1)]


Range = tuple[Count | None, Count | None]


@record
class CardFitDocument(FitDocument):
    """kvcalc fit --gpu: what a card holds."""

    budget: CardBudget
    max_context_range: Annotated[Range, "under the high and the low overhead"]
    max_sequences_range: Annotated[Range, "under the high and the low overhead"]
    decode_bound: Annotated[DecodeBound | None, "what decoding cannot exceed"]
    smallest_devices: Annotated[Positive | None, "how many of the card are enough"]
    needed_utilization: Annotated[NeededShare | None, "the engine's setting for its share of it, and the least that leaves what is needed"]


@record
class Cell:
    """One length in one format."""

    kv_dtype: str
    per_sequence: Annotated[Bytes, "bytes of one sequence of that length, all devices"]
    max_sequences: Annotated[Count | None, "most at once; null where nothing ends it"]


@record
class LengthRow:
    """One length, in every format."""

    context: Positive
    cells: Annotated[tuple[Cell, ...], AtLeast(1)]


@record
class FitTableDocument(Document):
    """kvcalc fit --table: how many sequences of each length fit."""

    schema: ClassVar = "kvcalc.fit_table/1"
    model: Model
    workload: Asked
    engine: Engine
    kv_dtype: str
    budget: GivenBudget | CardBudget
    rows: Annotated[tuple[LengthRow, ...], AtLeast(1)]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@record
class RankedCard:
    """One accelerator, and how many of it are enough."""

    gpu: str
    name: str
    devices: Positive
    memory: Positive
    kv_bytes_per_device: Bytes


@record
class SizingDocument(Document):
    """kvcalc fit --gpus all: the cards that are enough."""

    schema: ClassVar = "kvcalc.sizing/1"
    model: Model
    workload: Asked
    engine: Engine
    kv_dtype: str
    gpus: tuple[RankedCard, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]


@record
class Allocation:
    """One way of allocating, over all requests."""

    name: str
    block_size: Positive | None
    bytes: Bytes
    waste: Annotated[Bytes, "allocated and never used"]
    utilisation: Annotated[Amount, Most(1), "bytes in use / bytes allocated"]
    fits_mixed: Annotated[Mapping[str, Count | None], PERCENTILES] | None


@record
class LengthsDocument(Document):
    """kvcalc fit --lengths: requests of different lengths."""

    schema: ClassVar = "kvcalc.lengths/1"
    origin: str
    requests: Positive
    tokens: Positive
    longest: Positive
    percentiles: Annotated[Mapping[str, Positive], PERCENTILES]
    budget: Bytes | None
    fits_at: Annotated[Mapping[str, Count | None], PERCENTILES]
    allocations: tuple[Allocation, ...]
    model: Model
    kv_dtype: str
    workload: None
    engine: None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
