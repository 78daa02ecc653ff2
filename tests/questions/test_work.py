"""What a step reads, and the multiply-adds with and without a cache, against sums written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.workload import Workload
from kvcalc.questions.compare import introduction
from kvcalc.questions.techniques import Case, apply, parse
from kvcalc.questions.work import Reach, Work, attended, out_of_sight, work
from kvcalc.sources import load

SMALL = {"layers": "4", "query_heads": "2", "head_dim": "8"}


def of(text: str, tokens: int) -> Work:
    case, _ = apply(Case(introduction(SMALL), Workload(context=tokens)), parse(text))
    found = work(case.architecture, tokens)
    assert found is not None
    return found


@given(kind=st.sampled_from(["tokens", "window", "chunk"]), size=st.integers(1, 12), tokens=st.integers(0, 60))
def test_closed_forms_equal_their_sums(kind: str, size: int, tokens: int) -> None:
    reach = Reach(kind, size)
    assert reach.sum(tokens) == sum(reach.at(t) for t in range(1, tokens + 1))
    assert reach.double_sum(tokens) == sum(reach.sum(t) for t in range(1, tokens + 1))


def test_multi_head_attention_by_hand() -> None:
    # hidden 16: Q and O 16 x 16 each, K and V 16 x 16 each; 2 heads x (8 + 8) a position; 4 layers; 3 tokens
    found = of("mha", 3)
    assert found.with_cache.projections == 4 * 4 * 16 * 16 * 3
    assert found.without_cache.projections == 4 * 4 * 16 * 16 * (1 + 2 + 3)
    assert found.with_cache.scores == 4 * 2 * 16 * (1 + 2 + 3)
    assert found.without_cache.scores == 4 * 2 * 16 * (1 + (1 + 2) + (1 + 2 + 3))


def test_the_introductions_geometry_by_hand() -> None:
    found = work(introduction({}), 32_768)
    assert found is not None
    assert found.with_cache.projections == 32 * 4 * 4096**2 * 32_768 == 70_368_744_177_664


def test_the_cache_turns_t_squared_into_t_and_t_cubed_into_t_squared() -> None:
    once, twice = of("mha", 1000), of("mha", 2000)
    assert twice.with_cache.projections == 2 * once.with_cache.projections
    assert twice.without_cache.projections / once.without_cache.projections == pytest.approx(4, rel=1e-2)
    assert twice.with_cache.scores / once.with_cache.scores == pytest.approx(4, rel=1e-2)
    assert twice.without_cache.scores / once.without_cache.scores == pytest.approx(8, rel=1e-2)


def test_a_window_bounds_the_scores_and_top_k_too() -> None:
    windowed = of("swa:window=10:ratio=1-0", 100)
    assert windowed.with_cache.scores == 4 * 2 * 16 * (55 + 90 * 10)
    sparse, dense = of("mla:latent_dim=8:rope_dim=2+dsa:top_k=10", 100), of("mla:latent_dim=8:rope_dim=2", 100)
    assert dense.with_cache.scores == 4 * 2 * (10 + 8) * 5050
    assert sparse.with_cache.scores == 4 * 2 * (10 + 8) * (55 + 90 * 10)
    assert sparse.with_cache.projections == dense.with_cache.projections


def test_a_consumer_projects_no_keys_but_scores_its_producers() -> None:
    shared, whole = of("share:producer_layers=1", 50), of("mha", 50)
    assert shared.with_cache.scores == whole.with_cache.scores
    assert whole.with_cache.projections - shared.with_cache.projections == 3 * 2 * 16 * 16 * 50


def test_recurrent_layers_cost_the_same_at_every_position() -> None:
    found = of("deltanet:ratio=1-0", 50)
    # q, k: 16 each; v, gate, output: 16 each; two numbers a head; 2 heads of 8 x 8, updated and read
    assert found.with_cache.projections == 4 * 16 * (2 * 16 + 3 * 16 + 2 * 2) * 50
    assert found.with_cache.scores == 4 * 2 * (2 * 8 * 8) * 50
    assert of("mamba2:heads=2:ratio=1-0", 50).with_cache.scores == 4 * 2 * (2 * 64 * 128) * 50


def test_positions_attended() -> None:
    assert attended(introduction({}), 100) == {100: 32}
    case, _ = apply(Case(introduction({}), Workload(context=100)), parse("swa:window=10+share:producer_layers=12"))
    assert attended(case.architecture, 100) == {10: 27, 100: 5}
    assert attended(load("deepseek-v3.2"), 131_072) == {2048: 61}
    assert attended(load("mamba-2.8b"), 100) == {}


def test_what_windows_drop_is_out_of_sight() -> None:
    assert out_of_sight(load("gemma-3-27b"), 131_072) == {130_048: 52}
    assert out_of_sight(load("gemma-3-27b"), 1024) == {}
    assert out_of_sight(load("gemma-4-e2b"), 1000) == {488: 28}  # 12 producers and the 16 layers that read one of them
    assert out_of_sight(load("deepseek-v3.2"), 131_072) == {}  # sparse attention reads few positions, and may choose any
    case, _ = apply(Case(introduction(SMALL), Workload(context=20)), parse("chunked:chunk=8:ratio=1-1"))
    assert out_of_sight(case.architecture, 20) == {16: 2}


def test_unknown_is_not_guessed() -> None:
    assert work(load("deepseek-v4-flash"), 100) is None
    assert attended(load("deepseek-v4-flash"), 100) is None
    assert work(load("mamba-2.8b"), 100) is None
    bare = replace(introduction({}), hidden_dim=None)
    assert work(bare, 100) is None
