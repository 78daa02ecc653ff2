"""Cells: exact integers, reading aids, bars; and rows that make room without cutting a number."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.render import plain
from kvcalc.render.layout import blocks, cells, narrowed, parted, widths
from kvcalc.render.view import BAR_WIDTH, Column, Facts, Kind, Table, Text, View, bar, show

TABLE = Table(
    (
        Column("name", "name"),
        Column("bytes", "bytes", "bytes"),
        Column("size", "size", "size", 2),
        Column("why", "why", "prose", 1),
        Column("bar", "", "bar", 3),
    ),
    (
        ("first", 68_719_476_736, 68_719_476_736, "because the window is not honoured by this engine", Fraction(1)),
        ("second", 1, 1, None, Fraction(0)),
    ),
)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("bytes", 68_719_476_736, "68,719,476,736"),
        ("count", 0, "0"),
        ("size", 68_719_476_736, "64 GiB"),
        ("ratio", Fraction(1, 4), "0.25 x"),
        ("ratio", Fraction(784_334_848, 17_179_869_184), "0.0457 x"),
        ("ratio", Fraction(1, 10**7), "0.0000001 x"),
        ("percent", Fraction(3, 4), "75 %"),
        ("percent", Fraction(-1, 1000), "-0.1 %"),
        ("percent", Fraction(0), "0 %"),
        ("work", 70_368_744_177_664, "70.37 T"),
        ("work", 999_999, "999,999"),
        ("work", 10**31, "10 Q"),
        ("text", "a\x1b[31mb\n", "a\N{REPLACEMENT CHARACTER}[31mb\N{REPLACEMENT CHARACTER}"),
        ("bytes", None, "-"),
        ("bar", None, "-"),
    ],
)
def test_cells(kind: Kind, value: Any, text: str) -> None:
    assert show(kind, value) == text


def test_bars() -> None:
    assert bar(Fraction(1)) == "#" * BAR_WIDTH
    assert bar(Fraction(1, 10**9)) == "#"
    assert bar(Fraction(0)) == bar(Fraction(-1)) == ""
    assert bar(Fraction(5)) == "#" * BAR_WIDTH + ">"


def test_the_highest_rank_leaves_first_and_rank_0_stays() -> None:
    def kept(width: int) -> list[str]:
        table, _ = narrowed(TABLE, width, 2)
        return [] if table is None else [column.key for column in table.columns]

    assert kept(200) == ["name", "bytes", "size", "why", "bar"]
    assert kept(70) == ["name", "bytes", "size", "why"]
    assert kept(48) == ["name", "bytes", "why"]
    assert kept(22) == ["name", "bytes"]
    assert kept(21) == []


def test_too_narrow_for_a_table_is_a_block_a_row() -> None:
    assert blocks(TABLE)[0][:2] == [("name", "first"), ("bytes", "68,719,476,736")]
    text = plain.render(View("h", (TABLE,)), 21)
    assert "name   first\nbytes  68,719,476,736\n" in text


@given(width=st.integers(1, 120))
def test_no_width_cuts_a_number_or_a_word(width: int) -> None:
    text = plain.render(View("headline", (TABLE, Facts((("label", "some words here"),)))), width)
    assert "68,719,476,736" in text
    assert "second" in text
    for word in ("some", "words", "here"):
        assert word in text


def test_a_block_has_no_line_for_what_has_no_value() -> None:
    assert blocks(TABLE)[1] == [("name", "second"), ("bytes", "1"), ("size", "1 B")]


@given(st.integers(1, 60), st.integers(1, 8))
def test_alike_columns_are_parted_and_none_is_lost(width: int, count: int) -> None:
    columns = (Column("t", "tokens", "count"), *(Column(str(n), f"line {n}", "bytes") for n in range(count)))
    table = Table(columns, ((1024, *range(10**9, 10**9 + count)),), alike=True)
    parts = parted(table, width, 2)
    assert [column for part in parts for column in part.columns[1:]] == list(columns[1:])
    assert all(part.columns[0] == columns[0] for part in parts)
    assert all(sum(widths(part, cells(part))) + 2 * (len(part.columns) - 1) <= width for part in parts if len(part.columns) > 2)


def test_a_line_that_is_too_wide_goes_on_further_in() -> None:
    lines = ("  bytes = a x b        no factor 2", "short")
    assert list(plain.broken(lines, None)) == list(lines)
    assert list(plain.broken(lines, 24)) == ["  bytes = a x b", "      no factor 2", "short"]
    assert list(plain.broken(("aaaaaaaaaa bbbbbbbbbb",), 4)) == ["aaaaaaaaaa", "    bbbbbbbbbb"]


def test_facts_have_a_title() -> None:
    view = View("h", (Facts((("limit", "40 GiB"),), "EXCEEDED chat-prod"),))
    assert plain.render(view) == "h\n\nEXCEEDED chat-prod\nlimit  40 GiB\n"


def test_prose_wraps_between_words() -> None:
    text = plain.render(View("h", (TABLE,)), 60)
    assert max(len(line) for line in text.splitlines()) <= 60
    assert "because the window is not" in text


def test_without_a_width_a_row_is_one_line() -> None:
    lines = plain.render(View("h", (TABLE,))).splitlines()
    assert lines[0] == "h"
    assert len(lines) == 5
    assert "because the window is not honoured by this engine" in lines[3]


def test_text_keeps_its_form_and_an_empty_table_says_so() -> None:
    assert plain.render(View("h", (Text(("  a", "    b"), "title"),))) == "h\n\ntitle\n  a\n    b\n"
    assert plain.render(View("h", (Table((Column("a", "a"),), ()),))) == "h\n\n(none)\n"
