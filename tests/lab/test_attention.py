"""Sight, grouping, and the stores that keep everything."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvcalc.lab.attention import CAUSAL, EMPTY, Append, attend, visible
from kvcalc.lab.chunked import Chunk
from kvcalc.lab.frame import angles, merge, rotate, split
from kvcalc.lab.kv import Preallocated
from kvcalc.lab.sliding import Window
from kvcalc.lab.turns import SinksAndWindow


def seen(sight: object, query: int, keys: int) -> list[int]:
    mask = visible(sight, torch.tensor([query]), torch.arange(keys))
    return mask[0].nonzero().flatten().tolist()


def test_sight() -> None:
    assert seen(CAUSAL, 3, 6) == [0, 1, 2, 3]
    assert seen(Window(3), 5, 9) == [3, 4, 5]  # the token itself counts
    assert seen(Window(3), 1, 9) == [0, 1]
    assert seen(Chunk(4), 4, 9) == [4]  # the first of a chunk sees only itself
    assert seen(Chunk(4), 7, 9) == [4, 5, 6, 7]
    assert seen(SinksAndWindow(2, 3), 8, 9) == [0, 1, 6, 7, 8]


def test_an_empty_slot_is_seen_by_none() -> None:
    assert visible(CAUSAL, torch.tensor([5]), torch.tensor([0, EMPTY, 2])).tolist() == [[True, False, True]]


def test_grouped_heads_read_the_same_keys_as_repeated_ones() -> None:
    query, keys, values = torch.randn(6, 5, 8), torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    grouped = attend(query, keys, values, mask, 1.0)
    repeated = attend(query, keys.repeat_interleave(3, 0), values.repeat_interleave(3, 0), mask, 1.0)
    torch.testing.assert_close(grouped, repeated)


def test_attention_is_pytorchs_own() -> None:
    query, keys, values = torch.randn(4, 5, 8), torch.randn(4, 5, 8), torch.randn(4, 5, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(query, keys, values, is_causal=True)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    torch.testing.assert_close(attend(query, keys, values, mask, 8**-0.5), merge(expected))


def test_split_and_merge_are_inverse() -> None:
    x = torch.randn(3, 12)
    assert torch.equal(merge(split(x, 4)), x)
    assert torch.equal(split(x, 4)[1, 2], x[2, 3:6])


def test_rotated_scores_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(1, 1, 8), torch.randn(1, 1, 8)

    def score(at: int, other: int) -> float:
        return float((rotate(query, angles(torch.tensor([at]), 8)) * rotate(key, angles(torch.tensor([other]), 8))).sum())

    assert score(9, 4) == pytest.approx(score(5, 0), abs=1e-5)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-3)


def test_preallocated_hands_out_no_slot_that_was_never_written() -> None:
    store = Preallocated(10, 2, 4, "cpu")
    store.keys.fill_(float("nan"))
    store.values.fill_(float("nan"))
    keys = torch.randn(2, 3, 4)
    found = store.extend(keys, keys, torch.arange(3))
    assert torch.equal(found.keys, keys)
    assert found.at.tolist() == [0, 1, 2]
    assert found.keys.untyped_storage().data_ptr() == store.keys.untyped_storage().data_ptr()  # a view, no copy


def test_preallocated_reuses_its_room_after_a_reset() -> None:
    store = Preallocated(4, 1, 2, "cpu")
    store.extend(torch.ones(1, 4, 2), torch.ones(1, 4, 2), torch.arange(4))
    store.reset()
    assert store.extend(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), torch.arange(1)).keys.tolist() == [[[0.0, 0.0]]]
    assert [tensor.shape[-2] for tensor in store.tensors()] == [4, 4]


def test_append_keeps_the_order() -> None:
    store = Append()
    assert store.tensors() == ()
    for value in (1.0, 2.0):
        found = store.extend(torch.full((1, 1, 2), value), torch.full((1, 1, 2), -value), torch.arange(1))
    assert found.keys[0, :, 0].tolist() == [1.0, 2.0]
    assert found.values[0, :, 0].tolist() == [-1.0, -2.0]
