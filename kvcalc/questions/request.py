"""A question as users, scripts and CI write it: the names of `kvcalc batch` and of the Python interface, read strictly.

parse_request({"model": "llama-2-7b", "context": "128k", "engine": "vllm"}) → Request(model, engine, workload)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import checked_int, clean, parse_bytes, parse_tokens
from kvcalc.core.workload import Workload
from kvcalc.engines import canonical, get_engine, is_engine

#: The keys of a request line, and the only ones.
KEYS = (
    "id",
    "command",
    "model",
    "context",
    "sequences",
    "kv_dtype",
    "engine",
    "engine_args",
    "tensor_parallel",
    "pipeline_parallel",
    "decode_context_parallel",
    "gpu",
    "kv_memory",
    "shared_prefix",
)
_COUNTS = ("sequences", "tensor_parallel", "pipeline_parallel", "decode_context_parallel")


class Question(TypedDict, total=False):
    """The keys of a request besides its model, as the Python interface takes them."""

    context: int | str
    sequences: int
    kv_dtype: str
    engine: str
    engine_args: Mapping[str, Any]
    tensor_parallel: int
    pipeline_parallel: int
    decode_context_parallel: int
    gpu: str
    kv_memory: int | str
    shared_prefix: int | str


@dataclass(frozen=True, slots=True)
class Request:
    """A model (text, or an inline document), an engine's name, and the workload."""

    model: Any
    engine: str
    workload: Workload


def parse_request(given: Mapping[str, Any]) -> Request:
    """The request behind a mapping of KEYS. Raises UsageError for an unknown key or a value of the wrong kind."""
    for key in given:
        if key not in KEYS:
            raise UsageError(f"request: unknown key '{clean(key, 40)}'", nearest(str(key), KEYS) or "keys: " + ", ".join(KEYS))
    model = given.get("model")
    if not _is_model(model):
        raise UsageError("request: 'model' is missing", "a catalogue id, a path, org/name, or an inline {hf_config: …}")
    values: dict[str, Any] = {}
    if given.get("context") is not None:
        values["context"] = parse_context(given["context"])
    for name in _COUNTS:
        if given.get(name) is not None:
            values[name] = checked_int(given[name], name, least=1)
    if given.get("shared_prefix") is not None:
        values["shared_prefix"] = parse_tokens(_not_float(given["shared_prefix"], "shared_prefix"), "shared_prefix", least=0)
    if given.get("kv_memory") is not None:
        values["kv_memory"] = parse_bytes(_not_float(given["kv_memory"], "kv_memory"), "kv_memory")
    if given.get("kv_dtype") is not None:
        values["kv_dtype"] = _text(given["kv_dtype"], "kv_dtype")
    args = given.get("engine_args")
    if args is not None:
        if not isinstance(args, Mapping):
            raise UsageError("request: 'engine_args' is not a mapping", "write it like {block_size: 32}")
        values["engine_args"] = args
    engine = "ideal" if given.get("engine") is None else _engine(_text(given["engine"], "engine"))
    if given.get("gpu") is not None:
        values |= cards(_text(given["gpu"], "gpu"), engine, values.get("tensor_parallel"), values.get("pipeline_parallel", 1))
    return Request(model, engine, Workload(**values))


def parse_context(value: object, what: str = "context") -> int:
    """Tokens as an integer; `auto`, as `-1`, is -1: the largest context that fits. Raises UsageError naming `what`."""
    given = _not_float(value, what)
    if given == -1 or (isinstance(given, str) and given.strip().lower() in ("auto", "-1")):
        return -1
    return parse_tokens(given, what)


def cards(gpu: str, engine: str, tensor: int | None, pipeline: int) -> dict[str, Any]:
    """The accelerator's id; with `NAME:COUNT` also the ranks: those given, else all cards split as the engine splits.

    Raises UsageError for an accelerator that does not exist, and for a count that is not tensor x pipeline parallel ranks.
    """
    from kvcalc.hardware import parse_gpu

    card, count = parse_gpu(gpu)
    if ":" not in gpu:
        return {"gpu": card.id}
    if tensor is None and pipeline == 1 and get_engine(engine).by_layers:
        tensor, pipeline = 1, count
    ranks = tensor or count // pipeline
    if ranks * pipeline != count:
        raise UsageError(f"--gpu: {count} devices are not --tp {ranks} x --pp {pipeline}", "leave out the count, or make them agree")
    return {"gpu": card.id, "tensor_parallel": ranks, "pipeline_parallel": pipeline}


def _is_model(model: object) -> bool:
    """A text, an inline document, or an architecture that is at hand already."""
    if isinstance(model, str | Mapping):
        return bool(model)
    from kvcalc.core.architecture import Architecture

    return isinstance(model, Architecture)


def _engine(name: str) -> str:
    """The engine's own name; what is none stays as it was written, and is an error once the model is read."""
    return canonical(name) if is_engine(name) else name


def _text(value: object, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{what}: {clean(repr(value), 40)} is not a name", "write it as text")
    return value


def _not_float(value: object, what: str) -> str | int:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise UsageError(f"{what}: {clean(repr(value), 40)} is not a whole number", "write an integer, or text such as 32k")
    return value
