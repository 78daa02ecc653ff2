"""Local files read with suspicion: bounded, regular, decoded strictly, JSON without contradictions.

    read_bytes    a regular file of at most `limit` bytes, refused by its size before a byte is read
    read_json     a JSON object from bytes, with file:line:column for what cannot be parsed

Every error is one sentence that names the file as the user wrote it.
"""

from __future__ import annotations

import codecs
import json
import os
import stat
from typing import TYPE_CHECKING, Any

from kvcalc.core import inputs
from kvcalc.core.errors import InvalidConfigError, UnknownModelError, UsageError
from kvcalc.core.units import MIB, clean

if TYPE_CHECKING:
    from pathlib import Path

#: The largest published config.json (with per-layer quantization lists) is under 1 MiB.
LARGEST_CONFIG = 8 * MIB

#: Byte order marks, the longer ones first: UTF-32-LE begins like UTF-16-LE.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


#: How the complaints of Python's JSON reader begin, and what they mean.
_NOT_JSON = {
    "Expecting value": "a value is missing here",
    "Expecting property name": "a key in double quotes is missing here",
    "Expecting ','": "a comma is missing here",
    "Expecting ':'": "a colon is missing here",
    "Extra data": "something stands behind its end",
    "Unterminated string": "a text begins here and does not end",
    "Invalid control character": "a control character stands in a text",
    "Invalid \\": "a text holds an escape that JSON does not have",
    "Illegal trailing comma": "a comma stands before a closing bracket",
}


def user_path(text: str) -> Path:
    """`text` as a path, `~` and `~name` as home folders. Raises UsageError where nobody has that name."""
    from pathlib import Path

    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"{shown(text)}: no such home folder", "write the whole path") from None


def exists(path: Path) -> bool:
    """Something is there; no name that a file cannot have is."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """A folder is there; no name that a folder cannot have is."""
    return exists(path) and path.is_dir()


def shown(path: str | Path) -> str:
    """A path fit for a message."""
    return clean(path, 200)


def read_bytes(path: Path, limit: int = LARGEST_CONFIG) -> bytes:
    """The bytes of a regular file. Raises InvalidConfigError for any other file and for one larger than `limit`."""
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to must not hang.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except FileNotFoundError:
        raise UnknownModelError(f"{shown(path)}: no such file", "check the path, or see `kvcalc models list`") from None
    except (OSError, ValueError) as error:
        raise InvalidConfigError(f"{shown(path)}: cannot be opened ({_reason(error)})") from None
    try:
        inputs.note(handle)
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidConfigError(f"{shown(path)}: is not a regular file", "give a file, or `-` to read standard input")
        if found.st_size > limit:
            raise _too_large(shown(path), found.st_size, limit)
        with os.fdopen(handle, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InvalidConfigError(f"{shown(path)}: cannot be read ({_reason(error)})") from None
    finally:
        os.close(handle)
    if len(data) > limit:
        raise _too_large(shown(path), len(data), limit)
    return data


def _too_large(name: str, size: int, limit: int) -> InvalidConfigError:
    return InvalidConfigError(f"{name}: is {size:,} bytes, and a model's configuration is at most {limit:,}", "give the config.json itself")


def _reason(error: Exception) -> str:
    return clean(getattr(error, "strerror", None) or "not a path").lower()


def decode(data: bytes, name: str) -> str:
    """`data` as text: UTF-8, or what its byte order mark says. Raises InvalidConfigError."""
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InvalidConfigError(f"{name}: is not {encoding.removesuffix('-sig').upper()} text (byte {error.start:,})") from None


def read_json(data: bytes | str, name: str) -> dict[str, Any]:
    """The JSON object in `data`; `name` is what messages call it. Raises InvalidConfigError.

    `NaN` and `Infinity` are read, because published files hold them (`time_step_limit`); no count or width may be one.
    """
    text = decode(data, name) if isinstance(data, bytes) else data
    try:
        value = json.loads(text, object_pairs_hook=lambda pairs: unambiguous(pairs, name))
    except json.JSONDecodeError as error:
        if not text.strip():
            raise InvalidConfigError(f"{name}: is empty, and a JSON object is expected") from None
        reason = next(
            (words for beginning, words in _NOT_JSON.items() if error.msg.startswith(beginning)), "it cannot be read from here on"
        )
        raise InvalidConfigError(f"{name}:{error.lineno}:{error.colno}: is not JSON: {reason}") from None
    except RecursionError:
        raise InvalidConfigError(f"{name}: is nested too deeply") from None
    except ValueError:
        raise InvalidConfigError(f"{name}: holds a number with thousands of digits") from None
    if not isinstance(value, dict):
        raise InvalidConfigError(f"{name}: is a JSON {_kind(value)}, and an object is expected")
    return value


def unambiguous(pairs: list[tuple[str, Any]], name: str) -> dict[str, Any]:
    """A JSON object; a key that stands twice must say the same both times. Raises InvalidConfigError."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise InvalidConfigError(f"{name}: key '{clean(key, 40)}' stands twice with different values", "keep the right one")
        found[key] = value
    return found


def _kind(value: object) -> str:
    return {list: "list", str: "string", bool: "truth value", type(None): "null"}.get(type(value), "number")
