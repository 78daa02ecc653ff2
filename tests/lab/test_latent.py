"""MLA both ways, and the index in front of it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvcalc.lab.frame import Step, Weights
from kvcalc.lab.latent import LatentAttention
from kvcalc.lab.sizes import Sizes
from kvcalc.lab.sparse import SparseAttention, top_k

SIZES = Sizes(layers=1, heads=4, dim=32, tokens=40, prompt=8)


def step(start: int, count: int, kept: object = None) -> Step:
    return Step(torch.arange(start, start + count), 0, kept, {}, {})


def test_absorbed_and_expanded_say_the_same() -> None:
    mixer = LatentAttention(Weights(SIZES), SIZES, absorb=False)
    rows, query = torch.randn(9, mixer.latent + mixer.rope), torch.randn(4, 1, mixer.nope + mixer.rope)
    mask = torch.ones(1, 9, dtype=torch.bool)
    torch.testing.assert_close(mixer._absorbed(query, rows, mask), mixer._expanded(query, rows, mask))


def test_a_row_is_a_latent_and_one_rotary_key() -> None:
    mixer = LatentAttention(Weights(SIZES), SIZES, absorb=True)
    store = mixer.store()
    mixer(torch.randn(5, 32), step(0, 5, store))
    assert [tuple(tensor.shape) for tensor in store.tensors()] == [(5, 32 // 4 + 8 // 2)]


def test_the_index_chooses_among_what_is_seen_and_breaks_ties_by_order() -> None:
    mixer = SparseAttention(Weights(SIZES), SIZES)
    assert mixer.top_k == top_k(SIZES) == 6
    x, call = torch.randn(9, 32), step(0, 9)
    mask = torch.ones(9, 9, dtype=torch.bool).tril()
    chosen = mixer._choose(x, torch.zeros(9, mixer.index_dim), mask, call.turn(mixer.index_dim))
    assert chosen[8].tolist() == [0, 1, 2, 3, 4, 5]  # all scores are 0
    scored = mixer._choose(x, torch.randn(9, mixer.index_dim), mask, call.turn(mixer.index_dim))
    assert sorted(scored[2].tolist()[:3]) == [0, 1, 2]  # the third token has three to choose from


def test_a_step_reads_the_chosen_rows_only() -> None:
    mixer = SparseAttention(Weights(SIZES), SIZES)
    store = mixer.store()
    x = torch.randn(20, 32)
    mixer(x[:19], step(0, 19, store))
    last = step(19, 1, store)
    before = [tensor.clone() for tensor in store.tensors()]
    right = mixer(x[19:], last)
    rows, keys = store.tensors()
    chosen = mixer._choose(x[19:], keys, torch.ones(1, 20, dtype=torch.bool), last.turn(mixer.index_dim))[0]
    others = torch.ones(20, dtype=torch.bool)
    others[chosen] = False
    others[19] = False  # made by the step itself
    store.rows.rows, store.index.rows = before
    store.rows.rows[others[:19]] = float("nan")
    torch.testing.assert_close(mixer(x[19:], step(19, 1, store)), right)
    assert len(rows) == len(keys) == 20  # all are kept
