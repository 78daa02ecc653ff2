"""A small GGUF writer for the tests: metadata, and tensor infos without data.

ggml/docs/gguf.md: magic, version u32, n_tensors u64, n_kv u64, keys, tensor infos. Version 1 counts with u32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64 = range(13)
_CODES = {
    UINT8: "B",
    INT8: "b",
    UINT16: "H",
    INT16: "h",
    UINT32: "I",
    INT32: "i",
    FLOAT32: "f",
    BOOL: "?",
    UINT64: "Q",
    INT64: "q",
    FLOAT64: "d",
}


@dataclass(frozen=True)
class Typed:
    """A value that is to be written in a type of its own: `Typed(UINT64, 7)`."""

    type: int
    value: Any


@dataclass(frozen=True)
class Tensor:
    """A tensor info: name, dimensions with the row first, ggml type number."""

    name: str
    shape: tuple[int, ...]
    type: int = 1
    offset: int = 0


def type_of(value: object) -> int:
    """The type that a value is written in."""
    if isinstance(value, Typed):
        return value.type
    if isinstance(value, int) and not isinstance(value, bool):
        return INT32 if value < 0 else UINT32
    return {bool: BOOL, str: STRING, list: ARRAY, tuple: ARRAY, float: FLOAT32}[type(value)]


def gguf_bytes(metadata: Mapping[str, Any], tensors: Sequence[Tensor] = (), *, version: int = 3, order: str = "<") -> bytes:
    """A whole GGUF header. Integers become uint32, floats float32, lists arrays of their first element's type."""
    size = "I" if version == 1 else "Q"

    def pack(code: str, *values: object) -> bytes:
        return struct.pack(order + code, *values)

    def text(value: str) -> bytes:
        data = value.encode()
        return pack(size, len(data)) + data

    def payload(value: Any) -> bytes:
        kind = type_of(value)
        if isinstance(value, Typed):
            value = value.value
        if kind == STRING:
            return text(value)
        if kind == ARRAY:
            inner = type_of(value[0]) if value else UINT32
            if inner in _CODES:
                items = [item.value if isinstance(item, Typed) else item for item in value]
                return pack("I" + size, inner, len(items)) + pack(f"{len(items)}{_CODES[inner]}", *items)
            return pack("I" + size, inner, len(value)) + b"".join(payload(item) for item in value)
        return pack(_CODES[kind], value)

    parts = [b"GGUF", pack("I" + size + size, version, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [text(key), pack("I", type_of(value)), payload(value)]
    for tensor in tensors:
        parts += [text(tensor.name), pack(f"I{len(tensor.shape)}{size}IQ", len(tensor.shape), *tensor.shape, tensor.type, tensor.offset)]
    return b"".join(parts)
