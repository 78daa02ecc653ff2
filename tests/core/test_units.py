"""Tokens and bytes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import UsageError
from kvcalc.core.units import LARGEST, clean, human, parse_bytes, parse_tokens, show_bytes, show_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("4096", 4096),
        ("32k", 32 * 1024),
        ("128K", 131_072),
        ("1m", 1024**2),
        ("1.5k", 1536),
        (" 8k ", 8192),
        ("1,000", 1000),
        ("1_000", 1000),
        ("12,345,678", 12_345_678),
        ("1,024.5k", 1_049_088),
        ("0.0009765625k", 1),
    ],
)
def test_tokens(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize(
    "text", ["12q", "", "k", "-4k", "0", "-1", "1e6", "0.3k", "nan", "4 k k", "٤٠٩٦", "9" * 400, "1" + "0" * 30, "\x1b[31m8k"]
)
def test_tokens_that_are_none(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_tokens(text)
    assert caught.value.exit_code == 2
    assert "\x1b" not in caught.value.message


#: Numbers of other notations, other alphabets and other habits, and what people leave behind or before a number.
NO_NUMBERS = (
    *("1e3", "0x10", "1,5", "1,5k", "1,0,0", "1_0", "1__000", "1,0000", "10,00", "1,", "1_", ",1", ".5", "1.", "1.2.3", "+5", "1/2", "1k5"),
    *("\uff11\uff12\uff18k", "\u0663", "\xb2", "\u2167", "inf", "nan", "\u221e", "1\u200bk", "1k\0", "8k tokens", "8k # why", "1k,2k"),
)


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_no_size_of_any_kind(text: str) -> None:
    for read, unit in ((parse_tokens, ""), (parse_bytes, ""), (parse_bytes, "GiB")):
        with pytest.raises(UsageError) as caught:
            read(text + unit)
        assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("24GiB", 24 * 1024**3),
        ("512 MiB", 512 * 1024**2),
        ("64KiB", 65_536),
        ("80GB", 80 * 10**9),
        ("1MB", 10**6),
        ("4kB", 4000),
        ("100", 100),
        ("100B", 100),
        ("1.5GiB", 3 * 1024**3 // 2),
    ],
)
def test_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["24GiBB", "0.1B", "x", "-1GiB", "1e9", "99999999999TiB"])
def test_bytes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text)


@pytest.mark.parametrize("value", [-1, LARGEST + 1, 10**30, True])
def test_numbers_out_of_range(value: int) -> None:
    with pytest.raises(UsageError):
        parse_bytes(value)


def test_shown_with_the_exact_figure_first() -> None:
    assert show_bytes(68_719_476_736) == "68,719,476,736 B (64 GiB)"
    assert show_bytes(784_334_848) == "784,334,848 B (748 MiB)"
    assert show_bytes(1000) == "1,000 B"
    assert human(1536) == "1.5 KiB"
    assert human(3 * 1024**4) == "3 TiB"
    assert show_tokens(131_072) == "131,072 (128k)"
    assert show_tokens(1024**2) == "1,048,576 (1m)"
    assert show_tokens(100_000) == "100,000"


def test_control_characters_never_pass() -> None:
    assert clean("a\x1b[31mb\n\u202ec") == "a\N{REPLACEMENT CHARACTER}[31mb\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}c"
    assert len(clean("x" * 500)) == 80


@given(st.integers(min_value=1, max_value=10**12))
def test_plain_numbers_are_themselves(count: int) -> None:
    assert parse_tokens(str(count)) == count
    assert parse_bytes(f"{count:,}") == count


@given(st.text(max_size=30))
def test_any_text_is_a_number_or_a_usage_error(text: str) -> None:
    for read in (parse_tokens, parse_bytes):
        try:
            assert read(text) >= 0
        except UsageError as error:
            assert error.message.isprintable()  # noqa: PT017  either outcome is right
