"""GGUF headers written by the tests: versions, byte orders, keys in any order, splits, and files that lie."""

from __future__ import annotations

import os
import re
import struct
import time
from typing import TYPE_CHECKING, Any

import pytest
from gguf_writer import ARRAY, FLOAT64, INT64, STRING, UINT8, UINT64, Tensor, Typed, gguf_bytes
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import InvalidConfigError, KvcalcError
from kvcalc.core.units import MIB
from kvcalc.sources.gguf.reader import first_part, opened, parts_of, read_gguf, read_header, stem_of
from kvcalc.sources.gguf.skipped import Skipped
from kvcalc.sources.gguf.tensors import weights_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from kvcalc.sources.gguf.reader import Header

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny Llama",
    "llama.block_count": 4,
    "llama.context_length": 2048,
    "llama.embedding_length": 256,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
}


def vocabulary(size: int) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": [f"token{i}" for i in range(size)],
        "tokenizer.ggml.scores": [0.0] * size,
        "tokenizer.ggml.merges": [f"a{i} b{i}" for i in range(size)],
    }


VOCABULARY = vocabulary(9000)


def header_of(path: Path, data: bytes) -> Header:
    path.write_bytes(data)
    with opened(path) as stream:
        return read_header(stream)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("order", ["<", ">"])
def test_both_versions_in_both_byte_orders(tmp_path: Path, version: int, order: str) -> None:
    header = header_of(tmp_path / "x.gguf", gguf_bytes(LLAMA, [Tensor("a", (32, 4))], version=version, order=order))
    assert header.metadata == LLAMA
    assert (header.version, header.order, header.tensors) == (version, order, 1)


def test_every_type_of_value(tmp_path: Path) -> None:
    values = {
        "general.architecture": "x",
        "a": Typed(UINT8, 7),
        "b": -3,
        "c": 1.5,
        "d": True,
        "e": Typed(UINT64, 2**63),
        "f": Typed(INT64, -(2**40)),
        "g": Typed(FLOAT64, 0.1),
        "h": [1, 2, 3],
        "i": [True, False],
        "j": [Typed(UINT64, 2**45)],
        "k": Typed(ARRAY, []),
        "l": "é" * 10,
        "m": ["texts", "are", "skipped"],
        "n": "long texts too" * 1000,
    }
    found = header_of(tmp_path / "x.gguf", gguf_bytes(values)).metadata
    assert [found[name] for name in "abcdefghijkl"] == [
        7,
        -3,
        1.5,
        True,
        2**63,
        -(2**40),
        0.1,
        [1, 2, 3],
        [True, False],
        [2**45],
        [],
        "é" * 10,
    ]
    assert str(found["m"]) == "a list of strings with 3 entries"
    assert str(found["n"]) == "a text of 14,000 characters"


def test_a_vocabulary_of_150_000_tokens_is_walked_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    header = header_of(path, gguf_bytes(LLAMA | vocabulary(150_000)))
    assert path.stat().st_size > 6 * MIB
    assert {key: value for key, value in header.metadata.items() if key in LLAMA} == LLAMA
    assert sum(isinstance(value, Skipped) for value in header.metadata.values()) == len(vocabulary(1)) - 1


@pytest.mark.parametrize("key", sorted(set(LLAMA) - {"general.architecture"}))
def test_a_key_behind_the_vocabulary_counts_as_much(tmp_path: Path, key: str) -> None:
    late = {name: value for name, value in LLAMA.items() if name != key} | VOCABULARY | {key: LLAMA[key]}
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes(late))
    behind = read_gguf(path)
    path.write_bytes(gguf_bytes(LLAMA | VOCABULARY))
    assert behind == read_gguf(path)


@pytest.mark.parametrize("value", ["8", ["8"] * 4, [8] * 5000, "8" * 5000, [1.5] * 4])
@pytest.mark.parametrize(
    "key", ["llama.attention.head_count_kv", "llama.block_count", "llama.attention.key_length", "llama.embedding_length"]
)
def test_a_key_of_another_type_is_an_error_and_never_absent(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(gguf_bytes(LLAMA | {key: value}))
    with pytest.raises(InvalidConfigError, match=re.escape(key)):
        read_gguf(path)


def test_an_architecture_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(LLAMA | VOCABULARY))
    found = read_gguf(path)
    assert (found.id, found.name, found.family, found.max_context) == ("tiny", "Tiny Llama", "llama", 2048)
    assert found.layers.count == 4
    assert found.source is not None
    assert found.source.file == str(path)


def test_split_files_are_read_from_their_first_part(tmp_path: Path) -> None:
    names = [tmp_path / f"big-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    names[0].write_bytes(gguf_bytes(LLAMA, [Tensor("a", (256, 2), 8)]))
    for name in names[1:]:
        name.write_bytes(gguf_bytes({"split.no": 1}, [Tensor("b", (64,), 0)]))
    assert read_gguf(names[2]).id == "big"
    assert parts_of(names[1]) == names
    # Q8_0: 256 / 32 blocks x 34 B x 2 rows; F32: 64 x 4 B in each of the other two
    assert weights_bytes(names[1]) == 8 * 34 * 2 + 2 * 64 * 4
    names[0].unlink()
    with pytest.raises(InvalidConfigError, match="only the first part"):
        read_gguf(names[1])
    with pytest.raises(InvalidConfigError, match="cannot be"):
        parts_of(tmp_path / "big-00004-of-00003.gguf")


def test_names_of_parts() -> None:
    assert first_part("m-00002-of-00009.gguf") == "m-00001-of-00009.gguf"
    assert first_part("m.gguf") == "m.gguf"
    assert stem_of("m-00002-of-00009.gguf") == "m"
    assert stem_of("m.Q4_K_M.gguf") == "m.Q4_K_M"


def test_weights_from_the_tensor_table(tmp_path: Path) -> None:
    tensors = [Tensor("token_embd.weight", (4096, 1000), 12), Tensor("norm", (4096,), 0), Tensor("blk.0", (4096, 16, 8), 39)]
    path = tmp_path / "w.gguf"
    path.write_bytes(gguf_bytes(LLAMA | VOCABULARY, tensors))
    # Q4_K: 256 elements in 144 B; F32: 4 B; MXFP4: 32 elements in 17 B
    assert weights_bytes(path) == 4096 // 256 * 144 * 1000 + 4096 * 4 + 4096 // 32 * 17 * 16 * 8


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (Tensor("a", (100,), 8), "cannot have type 8"),
        (Tensor("a", (32,), 4), "type 4, whose size"),
        (Tensor("a", (2**62, 2**62), 0), "cannot have type 0"),
        (Tensor("a", (1, 1, 1, 1, 1), 0), "5 dimensions"),
    ],
)
def test_tensors_that_cannot_be(tmp_path: Path, tensor: Tensor, why: str) -> None:
    path = tmp_path / "w.gguf"
    path.write_bytes(gguf_bytes(LLAMA, [tensor]))
    with pytest.raises(InvalidConfigError, match=why):
        weights_bytes(path)


def raw(keys: int, *parts: bytes, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, 0, keys) + b"".join(parts)


def key(name: str, kind: int, value: bytes = b"") -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + value


HOSTILE = {
    "no GGUF": (b"PK\x03\x04" + bytes(100), "begins with"),
    "empty": (b"", "ends at byte 0"),
    "magic alone": (b"GGUF", "ends at byte 4"),
    "version 1": (b"GGUF" + struct.pack("<III", 1, 0, 0), "version 1"),
    "version 4": (raw(0, version=4), "version 4"),
    "cut": (gguf_bytes(LLAMA)[:100], "ends at byte 100"),
    "keys without end": (raw(2**63), "counts"),
    "key length 2^63": (raw(1, struct.pack("<Q", 2**63)), "claims"),
    "text length 2^63": (raw(1, key("a", STRING, struct.pack("<Q", 2**63))), "ends at byte"),
    "array of 2^63 numbers": (raw(1, key("a", ARRAY, struct.pack("<IQ", 10, 2**63))), "ends at byte"),
    "array of 2^63 texts": (raw(1, key("a", ARRAY, struct.pack("<IQ", STRING, 2**63))), "ends at byte"),
    "array of arrays": (raw(1, key("a", ARRAY, struct.pack("<IQ", ARRAY, 1) + struct.pack("<IQ", ARRAY, 1))), "nests arrays"),
    "type 99": (raw(1, key("a", 99)), "type 99"),
    "a key twice": (raw(2, key("a", 7, b"\x01"), key("a", 7, b"\x01")), "stands twice"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_files_that_lie_are_refused_at_once(tmp_path: Path, name: str) -> None:
    data, why = HOSTILE[name]
    started = time.monotonic()
    with pytest.raises(InvalidConfigError, match=why):
        header_of(tmp_path / "x.gguf", data)
    assert time.monotonic() - started < 1


def test_a_list_of_empty_texts_costs_no_time(tmp_path: Path) -> None:
    count = 5_000_000
    data = raw(1, key("a", ARRAY, struct.pack("<IQ", STRING, count)), bytes(8 * count))
    with pytest.raises(InvalidConfigError, match="no vocabulary has so many"):
        header_of(tmp_path / "x.gguf", data)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path, tmp_path / "pipe.gguf", tmp_path / "absent.gguf"):
        with pytest.raises(InvalidConfigError), opened(path):
            pass


SMALL = gguf_bytes(
    LLAMA | {"llama.attention.sliding_window_pattern": [True, False] * 4, "tokenizer.ggml.tokens": ["a", "bc", ""], "z": 1.0},
    [Tensor("t", (32, 2))],
)


@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8), st.integers(0, len(SMALL)))
def test_mutated_headers_never_surprise(tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], end: int) -> None:
    data = bytearray(SMALL)
    for position, byte in changes:
        data[position] = byte
    path = tmp_path_factory.getbasetemp() / "fuzzed.gguf"
    for cut in (len(data), end):
        path.write_bytes(data[:cut])
        for read in (read_gguf, weights_bytes):
            try:
                read(path)
            except KvcalcError as error:
                assert "Traceback" not in error.message  # noqa: PT017  any KvcalcError will do


def test_a_renamed_part_of_a_split_file_has_no_known_size(tmp_path: Path) -> None:
    split = LLAMA | {"split.no": Typed(UINT8, 0), "split.count": Typed(UINT8, 2)}
    path = tmp_path / "renamed.gguf"
    path.write_bytes(gguf_bytes(split, [Tensor("a", (32, 4))]))
    assert read_gguf(path).layers.count == 4
    with pytest.raises(InvalidConfigError, match="one of 2 parts"):
        weights_bytes(path)
    for number in (1, 2):
        (tmp_path / f"x-0000{number}-of-00002.gguf").write_bytes(gguf_bytes(split, [Tensor("a", (32, 4))]))
    assert weights_bytes(tmp_path / "x-00002-of-00002.gguf") == 2 * 32 * 4 * 2
