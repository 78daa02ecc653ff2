"""Traffic of unequal lengths, with the arithmetic written out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.core.states import Full, GatedDeltaNet, Sliding, State
from kvcalc.questions.lengths import Lengths, read_lengths, traffic

if TYPE_CHECKING:
    from pathlib import Path

ROW = 2 * 2 * (64 + 64)


def model(*states: State) -> Architecture:
    return Architecture(id="m", family="t", dtype="bfloat16", layers=Layout(pattern=("a",), count=1, states={"a": states}))


FULL = model(Full(kv_heads=2, head_dim=64))


def test_allocations_side_by_side() -> None:
    found = traffic(FULL, "auto", read_lengths("10,20,100"))
    sizes = {allocation.name: allocation.bytes for allocation in found.allocations}
    assert sizes["ideal"] == 130 * ROW
    assert sizes["contiguous"] == 3 * 100 * ROW
    assert sizes["paged, 16"] == (16 + 32 + 112) * ROW
    assert sizes["paged, 64"] == (64 + 64 + 128) * ROW
    assert found.allocations[0].document().utilisation == round(130 / 300, 6)
    assert found.allocations[0].waste == 170 * ROW


def test_windows_and_states_are_paged_as_they_are_held() -> None:
    net = GatedDeltaNet(key_heads=1, value_heads=1, key_head_dim=8, value_head_dim=8, conv_kernel=2)
    fixed = 8 * 8 * 4 + 24 * 2
    found = traffic(model(Sliding(kv_heads=2, head_dim=64, window=20), net), "auto", read_lengths("100"))
    sizes = {allocation.name: allocation.bytes for allocation in found.allocations}
    assert sizes["ideal"] == 20 * ROW + fixed
    assert sizes["paged, 16"] == 32 * ROW + fixed


def test_how_many_fit() -> None:
    found = traffic(FULL, "auto", read_lengths("100,100,100,1000"), budget=10_000 * ROW)
    assert found.fits_at == {"p50": 100, "p95": 10, "p99": 10}  # 10,000 / 100 and 10,000 / 1,000
    ideal = found.allocations[-1].fits
    assert ideal is not None
    assert ideal["p50"] == 30  # mean 325: 10,000 / 325 = 30.8
    # Variance (3 x 225² + 675²) / 4 = 389.7²: 21.6 x 325 + 1.645 x 389.7 x √21.6 = 10,000, and 18.7 so with 2.326.
    assert (ideal["p95"], ideal["p99"]) == (21, 18)
    assert found.allocations[0].fits == {"p50": 10, "p95": 10, "p99": 10}  # contiguous: 1,000 each, whatever the mix
    assert [allocation.block_size for allocation in found.allocations] == [None, 16, 32, 64, 128, 256, None]


def test_without_a_budget_nothing_is_said_to_fit() -> None:
    found = traffic(FULL, "auto", read_lengths("100,200"))
    assert found.fits_at == {"p50": None, "p95": None, "p99": None}
    assert {allocation.fits for allocation in found.allocations} == {None}


def test_percentiles_are_nearest_rank() -> None:
    assert Lengths({1: 50, 2: 45, 3: 5}, "x").percentile(50) == 1
    assert Lengths({1: 50, 2: 45, 3: 5}, "x").percentile(95) == 2
    assert Lengths({1: 50, 2: 45, 3: 5}, "x").percentile(99) == 3


@pytest.mark.parametrize(
    "text",
    [
        "5\n7\n\n5\n",
        "tokens\n5\n7\n5\n",
        "id,prompt_tokens,completion_tokens\na,3,2\nb,4,3\nc,5,0\n",
        '{"tokens": 5}\n{"tokens": 7}\n\n{"input_tokens": 1, "output_tokens": 4}\n',
        "ContextTokens,GeneratedTokens\n1,4\n3,4\n4,1\n",
    ],
)
def test_files_of_every_form(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    assert read_lengths(str(path)).counts == {5: 2, 7: 1}


def test_a_lognormal_has_the_mean_and_the_percentile_that_were_asked_for() -> None:
    found = read_lengths("lognormal:mean=2000:p99=16000")
    mean = sum(tokens * count for tokens, count in found.counts.items()) / found.requests
    assert mean == pytest.approx(2000, rel=0.02)
    assert found.percentile(99) == pytest.approx(16_000, rel=0.02)
    assert read_lengths("lognormal:mean=2000:p99=16000") == found


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "5,,6",
        "-4",
        "no-such-file",
        "lognormal:mean=2k",
        "lognormal:mean=2k:p99=1k",
        "lognormal:mean=1k:p99=1m",
        "lognormal:median=4:p99=8",
    ],
)
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(KvcalcError) as caught:
        read_lengths(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "text", ["", "tokens\n", "a,b\n1,2\n", "tokens\nx\n", "{}", '{"tokens": -1}', '{"tokens": true}', "{\n", "5\nx\n", '{"tokens": 1e30}']
)
def test_files_that_hold_none_name_the_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(KvcalcError, match=r"trace\.csv"):
        read_lengths(str(path))


@pytest.mark.parametrize(
    ("text", "line"), [("5\nx\n", 2), ("5\n\n6\n0\n", 4), ('{"tokens": 5}\n{\n', 2), ("tokens\n5\nx\n", 3), ("\n\n5 \n6 x\n", 4)]
)
def test_the_line_that_is_named_is_the_line_of_the_file(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(KvcalcError, match=rf"trace\.csv:{line}: "):
        read_lengths(str(path))


def test_more_different_lengths_than_a_trace_has(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(map(str, range(1, 100_002))))
    with pytest.raises(UsageError, match="more than 100,000 different lengths"):
        read_lengths(str(path))
    path.write_text("\n".join(["5", "6"] * 100_001))
    assert read_lengths(str(path)).counts == {5: 100_001, 6: 100_001}


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=40))
def test_ideal_is_never_above_paged_nor_paged_above_contiguous_by_more_than_a_block(values: list[int]) -> None:
    found = traffic(FULL, "auto", read_lengths(",".join(map(str, values)) + ("," + str(values[0]))))
    sizes = [allocation.bytes for allocation in found.allocations]
    assert sizes[-1] == min(sizes)
    for allocation in found.allocations[1:-1]:
        assert allocation.block_size is not None
        assert allocation.bytes - sizes[-1] < (len(values) + 1) * allocation.block_size * ROW
