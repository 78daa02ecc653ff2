"""Every row: the tensors weigh what kvcalc says, and the cached output is the recomputed one."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from kvcalc.lab import ENTRIES
from kvcalc.lab.measure import Bench, lesson_of
from kvcalc.lab.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.lab.measure import Row

#: Rows whose tensors are pieces of a pool that holds more.
POOLED = {"paged", "prefix", "fork"}

#: The most that quantisation may cost in these small decoders: a bug costs far more.
LOSSES = {"int8": 0.05, "int8-token": 0.05, "int4": 0.6, "int4-token": 0.6}


@pytest.fixture(scope="module")
def measured() -> Callable[[str], Row]:
    return cache(Bench(Sizes(layers=6, heads=4, dim=32, tokens=39, prompt=7, vocabulary=61)).run)


@pytest.mark.parametrize("name", ENTRIES)
def test_row(measured: Callable[[str], Row], name: str) -> None:
    row = measured(name)
    assert row.bytes == row.figure.bytes
    assert row.passed
    assert row.uncached_seconds > 0
    assert row.allocated == row.bytes or name in POOLED
    if name == "no-cache":
        assert (row.bytes, row.error, row.cached_seconds, row.speedup) == (0, None, None, None)
    elif name in LOSSES:
        assert row.output_equal is None
        assert 0 < row.error < LOSSES[name]
    else:
        assert row.output_equal
        assert row.agreement == (row.agreement[1], row.agreement[1])


# Arithmetic: 6 layers, 4 heads of 8, a text of 7 + 39 = 46 tokens, 4 B an element.
WORKED = {
    "kv": 6 * 46 * 4 * (8 + 8) * 4,
    "kv-preallocated": 6 * 92 * 4 * (8 + 8) * 4,
    "mqa": 6 * 46 * 1 * (8 + 8) * 4,
    "gqa": 6 * 46 * 2 * (8 + 8) * 4,
    "mla": 6 * 46 * (8 + 4) * 4,
    "swa": 6 * 11 * 2 * (8 + 8) * 4,  # window 46 // 4
    "swa-hybrid": (5 * 11 + 1 * 46) * 2 * (8 + 8) * 4,
    "share": 3 * 46 * 2 * (8 + 8) * 4,
    "dsa": 6 * 46 * (8 + 4 + 8) * 4,
    "deltanet": 6 * (4 * 8 * 8 + 3 * 32 * 3) * 4,
    "deltanet-hybrid": 5 * (4 * 8 * 8 + 3 * 32 * 3) * 4 + 1 * 46 * 2 * (8 + 8) * 4,
    "mamba2": 6 * (4 * 8 * 8 + (32 + 2 * 8) * 3) * 4,
    "int8-token": 6 * 46 * 4 * 2 * (8 + 4),
    "int4-token": 6 * 46 * 4 * 2 * (4 + 4),
    # one closed group of 32 keys, 14 that wait; V by token
    "int8": 6 * (32 * (32 + 4) + 14 * 32 * 4 + 46 * 4 * (8 + 4)),
    "int4": 6 * (32 * (16 + 4) + 14 * 32 * 4 + 46 * 4 * (4 + 4)),
    # 46, 30 and 15 tokens: 3, 2 and 1 blocks of 16
    "paged": 6 * 16 * 6 * 4 * (8 + 8) * 4 + 6 * 4,
    # 40 + 8 + 19 = 67 tokens in 5 blocks, of which 2 are common to 3 sequences
    "prefix": (2 + 3 * 3) * 16 * 6 * 4 * (8 + 8) * 4 + 3 * 5 * 4,
    # 40 + 19 = 59 tokens in 4 blocks
    "fork": (2 + 3 * 2) * 16 * 6 * 4 * (8 + 8) * 4 + 3 * 4 * 4,
    "batch": 3 * 46 * 6 * 4 * (8 + 8) * 4,
    # three turns of 7 + 13
    "turns": 6 * 60 * 4 * (8 + 8) * 4,
    "turns-window": 6 * 11 * 4 * (8 + 8) * 4,
    "turns-sinks": 6 * (4 + 11) * 4 * (8 + 8) * 4,
    # 7 + 4 + 20 + 20
    "turns-summary": 6 * 51 * 4 * (8 + 8) * 4,
}


@pytest.mark.parametrize("name", WORKED)
def test_bytes_by_hand(measured: Callable[[str], Row], name: str) -> None:
    assert measured(name).bytes == WORKED[name]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_page_shows_the_figure(name: str) -> None:
    lesson, sizes, entry = lesson_of(name), Sizes(), ENTRIES[name]
    figure = lesson.figure(lesson.decoder(sizes), lesson.trial(sizes))
    page = (Path(__file__).parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {entry.about} | {figure.bytes:,} | `{entry.module}.py` |" in page


@st.composite
def any_sizes(draw: st.DrawFn) -> Sizes:
    heads = draw(st.sampled_from((1, 2, 3, 4)))
    return Sizes(
        layers=draw(st.integers(1, 7)),
        heads=heads,
        dim=heads * draw(st.sampled_from((4, 8, 12))),
        tokens=draw(st.integers(1, 12)),
        prompt=draw(st.integers(1, 40)),
        vocabulary=17,
    )


@settings(max_examples=20)
@given(sizes=any_sizes(), name=st.sampled_from(list(ENTRIES)))
def test_any_geometry(sizes: Sizes, name: str) -> None:
    row: Row = Bench(sizes).run(name)
    assert row.bytes == row.figure.bytes
    assert row.output_equal is not False
