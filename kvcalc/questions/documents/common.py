"""Parts that several documents share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from kvcalc.questions.documents.kinds import AtLeast, Bytes, Count, Positive, record


@record
class Model:
    """Which model it is, and where its numbers come from."""

    id: str
    source: str
    model_type: str
    dtype: str | None
    max_context: Positive | None


@record
class Asked:
    """What was asked of it."""

    context: Positive
    sequences: Positive
    tensor_parallel: Positive
    pipeline_parallel: Positive
    decode_context_parallel: Positive
    shared_prefix: Count


@record
class Engine:
    """The engine that answers."""

    name: str
    version: str
    args: Annotated[Mapping[str, Any], "every setting in force, defaults included"]


@record
class Figures:
    """The bytes of the cache."""

    total: Annotated[Bytes, "all devices together"]
    per_device: Annotated[Bytes, "the fullest device"]
    per_sequence: Annotated[Bytes, "one sequence at this context, all devices"]
    per_token: Annotated[Bytes, "one token in every layer that still holds it"]
    growth_per_token: Annotated[
        int, "what the next token adds at this context; negative where it closes a window whose rows are then freed"
    ]
    fixed: Annotated[Bytes, "per sequence, independent of the context"]


@record
class Line:
    """One buffer of one state, over all layers that keep it, all sequences and all devices."""

    state: str
    layers: Count
    buffer: str
    width: Annotated[Count, "elements of a row, all heads of one copy together; 0 where a line is no tensor of rows"]
    format: str
    slots: Annotated[Count, "rows held per sequence"]
    bytes: Bytes
    formula: Annotated[str, "the same with the numbers put in"]


@record
class Section:
    """One page of an explanation: a title, its formula, numbers, and prose."""

    title: str
    formula: tuple[str, ...]
    text: tuple[str, ...]
    numbers: tuple[str, ...]


@record
class Fault:
    """An error, as one sentence and what to do next."""

    type: Literal[
        "usage",
        "unknown_model",
        "invalid_config",
        "engine_rejects",
        "unsupported_architecture",
        "not_found",
        "gated",
        "hub_unavailable",
        "internal",
    ]
    message: Annotated[str, AtLeast(1)]
    hint: str
    exit_code: Literal[2, 3, 70]


@record
class Device:
    """The memory of one device."""

    device: Annotated[str, "its number, from 0"]
    weights: Bytes | None
    cache: Annotated[Bytes | None, "null where it is not known how the engine spreads it"]
    overhead: Annotated[Bytes | None, "activations, graphs, buffers, the driver's context"]
    draft: Annotated[Bytes | None, "the draft model's weights"]
    projector: Annotated[Bytes | None, "the vision or audio tower's weights"]
    total: Annotated[Bytes | None, "null where weights, cache or overhead is not known"]
    limit: Annotated[Bytes | None, "the device's memory; with --kv-memory what it has for the cache; null where none was named"]


@record
class Host:
    """Bytes in host memory; 0 where there are none."""

    weights: Bytes
    cache: Bytes
    checkpoints: Bytes
    prompt_cache: Bytes
    offload: Bytes
    total: Bytes


@record
class Memory:
    """Where the memory lies."""

    devices: Annotated[tuple[Device, ...], "one entry a device, in order; none where there are more than 1,024"]
    host: Host


@record
class Basis:
    """How the figures besides the cache are known; null where the answer has no such figure."""

    weights: Literal["given", "exact", "published", "estimated"] | None
    card: Literal["measured", "nominal", "given"] | None
    overhead: Literal["given", "measured", "estimated"] | None
