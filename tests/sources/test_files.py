"""Local files: bounded, regular, decoded strictly; JSON without contradictions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import InvalidConfigError, KvcalcError, UnknownModelError
from kvcalc.sources.files import read_bytes, read_json


def test_reads_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"12345")
    assert read_bytes(file, 5) == b"12345"
    with pytest.raises(InvalidConfigError, match="is 5 bytes, and a model's configuration is at most 4"):
        read_bytes(file, 4)


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as handle:
        handle.truncate(200 * 10**6)
    with pytest.raises(InvalidConfigError, match="is 200,000,000 bytes"):
        read_bytes(file)


def test_only_regular_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(InvalidConfigError, match="is not a regular file"):
            read_bytes(path)


def test_missing_and_unusable_paths(tmp_path: Path) -> None:
    with pytest.raises(UnknownModelError, match="no such file"):
        read_bytes(tmp_path / "none")
    with pytest.raises(InvalidConfigError, match="cannot be opened"):
        read_bytes(tmp_path / ("x" * 5000))
    with pytest.raises(InvalidConfigError, match="cannot be opened"):
        read_bytes(Path("a\0b"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_permissions(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("{}")
    file.chmod(0)
    with pytest.raises(InvalidConfigError, match="permission denied"):
        read_bytes(file)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks(encoding: str) -> None:
    assert read_json('{"a": "é"}'.encode(encoding), "c.json") == {"a": "é"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1,\n "b" 2}', "c.json:2:6: is not JSON: a colon is missing here"),
        (b"", "c.json: is empty, and a JSON object is expected"),
        (b"\xff\xfe{", "c.json: is not UTF-16 text (byte 2)"),
        (b'{"a": "\xe9"}', "c.json: is not UTF-8 text (byte 7)"),
        (b"[1]", "c.json: is a JSON list, and an object is expected"),
        (b"null", "c.json: is a JSON null, and an object is expected"),
        (b"true", "c.json: is a JSON truth value, and an object is expected"),
        (b"3", "c.json: is a JSON number, and an object is expected"),
        (b'{"a": 1, "a": 2}', "c.json: key 'a' stands twice with different values"),
        (b'{"a": ' + b"9" * 5000 + b"}", "c.json: holds a number with thousands of digits"),
    ],
)
def test_what_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        read_json(data, "c.json")
    assert caught.value.message == message


def test_deep_json_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="nested too deeply"):
        read_json('{"a": ' + "[" * 100_000, "c.json")


def test_published_habits_are_read() -> None:
    # Mamba configurations hold Infinity; some files repeat a key with the same value.
    assert read_json('{"time_step_limit": [0.0, Infinity], "a": 1, "a": 1}', "c.json")["time_step_limit"][1] == float("inf")


def refusal(data: bytes) -> KvcalcError | None:
    try:
        read_json(data, "c.json")
    except KvcalcError as error:
        return error
    return None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    error = refusal(data)
    assert error is None or (error.exit_code == 2 and error.message.isprintable())
