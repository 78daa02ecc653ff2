"""The size of a GGUF file's weights, from its tensor table: no weight is read.

    bytes of a tensor = rows x blocks of a row x bytes of a block        block sizes: ggml/src/ggml-common.h, QK_K = 256

All parts of a split file are counted.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.units import LARGEST, clean
from kvcalc.sources.gguf.reader import LONGEST_KEY, opened, parts_of, read_header

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvcalc.sources.gguf.reader import Header
    from kvcalc.sources.gguf.stream import Stream

#: ggml type number → elements and bytes of a block.
BLOCKS: dict[int, tuple[int, int]] = {
    0: (1, 4),  # F32
    1: (1, 2),  # F16
    2: (32, 18),  # Q4_0
    3: (32, 20),  # Q4_1
    6: (32, 22),  # Q5_0
    7: (32, 24),  # Q5_1
    8: (32, 34),  # Q8_0
    9: (32, 36),  # Q8_1
    10: (256, 84),  # Q2_K
    11: (256, 110),  # Q3_K
    12: (256, 144),  # Q4_K
    13: (256, 176),  # Q5_K
    14: (256, 210),  # Q6_K
    15: (256, 292),  # Q8_K
    16: (256, 66),  # IQ2_XXS
    17: (256, 74),  # IQ2_XS
    18: (256, 98),  # IQ3_XXS
    19: (256, 50),  # IQ1_S
    20: (32, 18),  # IQ4_NL
    21: (256, 110),  # IQ3_S
    22: (256, 82),  # IQ2_S
    23: (256, 136),  # IQ4_XS
    24: (1, 1),  # I8
    25: (1, 2),  # I16
    26: (1, 4),  # I32
    27: (1, 8),  # I64
    28: (1, 8),  # F64
    29: (256, 56),  # IQ1_M
    30: (1, 2),  # BF16
    34: (256, 54),  # TQ1_0
    35: (256, 66),  # TQ2_0
    39: (32, 17),  # MXFP4
    40: (64, 36),  # NVFP4
    41: (128, 18),  # Q1_0
    42: (64, 18),  # Q2_0
}
#: ggml's tensors have at most four dimensions.
MOST_DIMENSIONS = 4


def weights_bytes(path: Path) -> int:
    """Bytes of all tensors of a GGUF file. Raises InvalidConfigError, also where a part of a split file is missing."""
    total = 0
    parts = parts_of(path)
    for part in parts:
        with opened(part) as stream:
            header = read_header(stream)
            _check_parts(stream, header, parts)
            total += sum(_tensor_bytes(stream, header) for _ in range(header.tensors))
    return total


def _check_parts(stream: Stream, header: Header, parts: Sequence[Path]) -> None:
    """Raise InvalidConfigError where the header says that the file is split, and the names do not lead to as many parts."""
    count = header.metadata.get("split.count", len(parts))
    if not isinstance(count, int) or isinstance(count, bool) or count != len(parts):
        raise InvalidConfigError(
            f"{stream.name}: says that it is one of {clean(repr(count), 20)} parts, and its name leads to {len(parts):,}",
            "give the parts their own names back (x-00001-of-00003.gguf, …), or the size of all with --weights",
        )


def _tensor_bytes(stream: Stream, header: Header) -> int:
    """The next tensor info: name · dimensions u32 · each u64 · type u32 · offset u64."""
    order = header.order
    (length,) = struct.unpack(order + "Q", stream.take(8))
    if length > LONGEST_KEY:
        raise InvalidConfigError(f"{stream.name}: a tensor's name claims {length:,} bytes")
    name = clean(stream.take(length).decode("utf-8", "replace"), 60)
    (dimensions,) = struct.unpack(order + "I", stream.take(4))
    if dimensions > MOST_DIMENSIONS:
        raise InvalidConfigError(f"{stream.name}: tensor '{name}' has {dimensions} dimensions, and may have {MOST_DIMENSIONS}")
    shape = struct.unpack(f"{order}{dimensions}Q", stream.take(8 * dimensions))
    kind, _offset = struct.unpack(order + "IQ", stream.take(12))
    block = BLOCKS.get(kind)
    if block is None:
        raise InvalidConfigError(f"{stream.name}: tensor '{name}' has type {kind}, whose size kvcalc does not know")
    row, rest = divmod(shape[0] if shape else 1, block[0])
    size: int = row * block[1] * math.prod(shape[1:])
    if rest or size > LARGEST:
        raise InvalidConfigError(f"{stream.name}: tensor '{name}' of shape {list(shape)} cannot have type {kind}")
    return size
