"""A local GGUF file → Architecture, from its header alone.

    "GGUF" · version u32 · n_tensors u64 · n_kv u64 · n_kv x (key · type u32 · value) · n_tensors x info · data
    string = length u64 + UTF-8        array = element type u32 + count u64 + elements

Versions 2 and 3, in the byte order in which the version makes sense. Every key is read: converters write the tokenizer's last, but
nothing binds them to, and a key of the architecture that stands behind a vocabulary counts as much. Arrays of numbers are jumped
over, arrays of strings walked by their lengths. Every length is checked against the file before it is believed. (ggml/docs/gguf.md)
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcalc.core import inputs
from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.units import clean
from kvcalc.sources.gguf.skipped import Skipped
from kvcalc.sources.gguf.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcalc.core.architecture import Architecture

MAGIC = b"GGUF"
VERSIONS = (2, 3)
#: The specification's longest key.
LONGEST_KEY = 2**16 - 1
#: Longer texts (chat templates) hold nothing about the cache and are skipped.
LONGEST_TEXT = 4096
#: Longer arrays (tokens, merges, scores) hold nothing about the cache and are skipped.
LONGEST_ARRAY = 4096
#: More keys or tensors than any model has.
MOST_KEYS = 2**16
MOST_TENSORS = 2**17
#: Strings in all arrays together: the largest vocabularies have 262,144 tokens and twice as many merges.
MOST_TEXTS = 2_000_000

_STRING, _ARRAY = 8, 9
#: Type number → struct code.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_PART = re.compile(r"^(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf$", re.ASCII | re.IGNORECASE)


@dataclass(slots=True)
class Header:
    """What was read of a header.

    metadata     keys and values; of texts and arrays too long to matter, that they are there (Skipped)
    bytes_read   bytes that were fetched for it
    """

    version: int
    order: str
    tensors: int
    metadata: dict[str, Any] = field(default_factory=dict)
    bytes_read: int = 0


def read_gguf(path: Path) -> Architecture:
    """The architecture of a GGUF file; of the first part where the file is split. Raises InvalidConfigError, UnsupportedArchitectureError."""
    from kvcalc.core.architecture import Source
    from kvcalc.sources.gguf.architecture import read_metadata

    first = parts_of(path)[0]
    with opened(first) as stream:
        header = read_header(stream)
    return read_metadata(header.metadata, model_id=stem_of(path.name), source=Source(file=clean(path, 200)))


def stem_of(name: str) -> str:
    """A file's name without its suffix and its part number."""
    part = _PART.match(name)
    return part["stem"] if part else name.removesuffix(".gguf")


def first_part(name: str) -> str:
    """The name of the part that holds the keys: `x-00001-of-00003.gguf` for each of the three."""
    part = _PART.match(name)
    return f"{part['stem']}-00001-of-{part['count']}.gguf" if part else name


def parts_of(path: Path) -> list[Path]:
    """Every part of a split file in order, else the file itself. Raises InvalidConfigError where the first part is missing."""
    part = _PART.match(path.name)
    if part is None:
        return [path]
    if not 1 <= int(part["number"]) <= int(part["count"]):
        raise InvalidConfigError(f"{clean(path, 200)}: part {int(part['number'])} of {int(part['count'])} cannot be")
    names = [path.with_name(f"{part['stem']}-{number:05d}-of-{part['count']}.gguf") for number in range(1, int(part["count"]) + 1)]
    if path != names[0] and not names[0].exists():
        raise InvalidConfigError(
            f"{clean(names[0].name, 120)}: is missing, and only the first part of a split GGUF file holds the model's keys"
        )
    return names


@contextmanager
def opened(path: Path) -> Iterator[Stream]:
    """A local file as a stream. Raises InvalidConfigError for what is not a readable regular file."""
    name = clean(path, 200)
    try:
        if not path.is_file():
            raise InvalidConfigError(f"{name}: is not a regular file", "give a .gguf file")
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError as error:
        raise InvalidConfigError(f"{name}: cannot be opened ({clean(error.strerror or 'unreadable').lower()})") from None
    try:

        def fetch(offset: int, size: int) -> bytes:
            try:
                os.lseek(handle, offset, os.SEEK_SET)
                return os.read(handle, size)
            except OSError as error:
                raise InvalidConfigError(f"{name}: cannot be read ({clean(error.strerror or 'unreadable').lower()})") from None

        inputs.note(handle)
        yield Stream(fetch, name, os.fstat(handle).st_size)
    finally:
        os.close(handle)


def read_header(stream: Stream) -> Header:
    """The keys of a GGUF header. Raises InvalidConfigError for one that no GGUF file has."""
    reader = _Reader(stream)
    header = reader.begin()
    keys = reader.count("keys", MOST_KEYS)
    seen: set[str] = set()
    for _ in range(keys):
        key = reader.text(LONGEST_KEY, "key")
        if key in seen:
            raise InvalidConfigError(f"{stream.name}: key '{clean(key, 60)}' stands twice in the GGUF header")
        seen.add(key)
        header.metadata[key] = reader.value()
    header.bytes_read = stream.fetched
    return header


class _Reader:
    """The values of a header, in the file's byte order."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.order = "<"
        self._size = struct.Struct("<Q")
        self._kind = struct.Struct("<I")
        self._texts_left = MOST_TEXTS

    def begin(self) -> Header:
        """Magic, version and the number of tensors; sets the byte order."""
        magic = self.stream.take(4)
        if magic != MAGIC:
            raise InvalidConfigError(f"{self.stream.name}: begins with {clean(repr(magic)[1:], 20)}, and a GGUF file begins with 'GGUF'")
        raw = self.stream.take(4)
        (version,) = struct.unpack("<I", raw)
        if version & 0xFFFF == 0:
            self.order = ">"
            (version,) = struct.unpack(">I", raw)
        self._size, self._kind = struct.Struct(self.order + "Q"), struct.Struct(self.order + "I")
        if version not in VERSIONS:
            raise InvalidConfigError(
                f"{self.stream.name}: is GGUF version {version}, and kvcalc and llama.cpp read versions 2 and 3",
                "convert the model again with a current converter",
            )
        return Header(version, self.order, self.count("tensors", MOST_TENSORS))

    def count(self, what: str, most: int) -> int:
        """A u64 that counts `what`."""
        (number,) = self._size.unpack(self.stream.take(8))
        if number > most:
            raise InvalidConfigError(
                f"{self.stream.name}: counts {number:,} {what} in its GGUF header, and no model has more than {most:,}"
            )
        return int(number)

    def text(self, longest: int, what: str) -> str:
        """A string of at most `longest` bytes."""
        (length,) = self._size.unpack(self.stream.take(8))
        if length > longest:
            raise InvalidConfigError(f"{self.stream.name}: a {what} of the GGUF header claims {length:,} bytes, and may have {longest:,}")
        return self.stream.take(length).decode("utf-8", "replace")

    def value(self) -> Any:
        """The next value; Skipped where it is too long to matter."""
        kind = self._type()
        if kind == _STRING:
            return self._short_text()
        if kind == _ARRAY:
            return self._array()
        return self._scalars(kind, 1)[0]

    def _type(self) -> int:
        (kind,) = self._kind.unpack(self.stream.take(4))
        if kind not in _SCALARS and kind not in (_STRING, _ARRAY):
            raise InvalidConfigError(f"{self.stream.name}: knows no value type {kind} in a GGUF header")
        return int(kind)

    def _scalars(self, kind: int, count: int) -> tuple[Any, ...]:
        packed = struct.Struct(f"{self.order}{count}{_SCALARS[kind]}")
        return packed.unpack(self.stream.take(packed.size))

    def _short_text(self) -> str | Skipped:
        (length,) = self._size.unpack(self.stream.take(8))
        if length <= LONGEST_TEXT:
            return self.stream.take(length).decode("utf-8", "replace")
        self.stream.skip(length)
        return Skipped("a text of", length)

    def _array(self) -> list[Any] | Skipped:
        kind = self._type()
        (count,) = self._size.unpack(self.stream.take(8))
        if kind == _ARRAY:
            raise InvalidConfigError(f"{self.stream.name}: nests arrays in its GGUF header, which no reader of GGUF accepts")
        if kind == _STRING:
            self._skip_texts(count)
            return Skipped("a list of strings with", count)
        width = struct.calcsize(f"{self.order}{_SCALARS[kind]}")
        if count > LONGEST_ARRAY:
            self.stream.skip(count * width)
            return Skipped("an array of", count)
        return list(self._scalars(kind, count))

    def _skip_texts(self, count: int) -> None:
        """Pass over `count` strings: one length at a time, within the block in hand as far as it goes."""
        self.stream.require(8 * count)
        self._texts_left -= count
        if self._texts_left < 0:
            raise InvalidConfigError(
                f"{self.stream.name}: lists more than {MOST_TEXTS:,} strings in its GGUF header, and no vocabulary has so many"
            )
        unpack = self._size.unpack_from
        while count:
            if not self.stream.at_least(8):
                self.stream.skip(self._size.unpack(self.stream.take(8))[0])
                count -= 1
                continue
            block, position = self.stream.peek()
            last = len(block) - 8
            while count and position <= last:
                position += 8 + unpack(block, position)[0]
                count -= 1
            self.stream.move(position)
            self.stream.require(0)
