"""Rings: whatever the pieces that a text comes in, each query finds exactly what it sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kvcalc.lab.attention import visible
from kvcalc.lab.chunked import Chunk
from kvcalc.lab.sliding import Ring, Window
from kvcalc.lab.turns import SinksAndWindow

PIECES = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def feed(store: object, pieces: list[int], sight: object) -> None:
    """Keys whose content is their position, checked at every step."""
    start = 0
    for piece in pieces:
        at = torch.arange(start, start + piece)
        keys = at.float()[None, :, None].clone()
        found = store.extend(keys, -keys, at)
        assert found.keys[0, :, 0].tolist() == found.at.tolist()
        assert found.values[0, :, 0].tolist() == [-float(position) for position in found.at]
        mask = visible(sight, at, found.at)
        whole = visible(sight, at, torch.arange(start + piece))
        for row, position in enumerate(at):
            held = sorted(found.at[mask[row]].tolist())
            assert held == whole[row].nonzero().flatten().tolist(), f"query {position}"
        start += piece


@given(size=st.integers(1, 7), pieces=PIECES)
def test_a_ring_holds_the_window(size: int, pieces: list[int]) -> None:
    ring = Ring(size)
    feed(ring, pieces, Window(size))
    assert [tensor.shape[-2] for tensor in ring.tensors()] == [min(sum(pieces), size)] * 2


@given(size=st.integers(1, 7), pieces=PIECES)
def test_a_ring_holds_the_chunk(size: int, pieces: list[int]) -> None:
    feed(Ring(size), pieces, Chunk(size))


@given(sinks=st.integers(1, 5), size=st.integers(1, 6), pieces=PIECES)
def test_sinks_stay_and_the_window_turns(sinks: int, size: int, pieces: list[int]) -> None:
    store = SinksAndWindow(sinks, size).store()
    feed(store, pieces, SinksAndWindow(sinks, size))
    assert sum(tensor.shape[-2] for tensor in store.tensors()) == 2 * min(sum(pieces), sinks + size)


def test_the_slot_is_the_position_modulo_the_size() -> None:
    ring = Ring(4)
    for position in range(6):
        key = torch.full((1, 1, 1), float(position))
        ring.extend(key, key, torch.tensor([position]))
    assert ring.tensors()[0][0, :, 0].tolist() == [4.0, 5.0, 2.0, 3.0]


def test_an_empty_ring_after_a_reset() -> None:
    ring = Ring(2)
    ring.extend(torch.ones(1, 3, 1), torch.ones(1, 3, 1), torch.arange(3))
    ring.reset()
    assert ring.tensors() == ()
    assert ring.extend(torch.ones(1, 1, 1), torch.ones(1, 1, 1), torch.arange(1)).at.tolist() == [0]
