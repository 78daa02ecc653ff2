"""Groups of layers: who shares a block table, and what a block id costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import EngineRejectsError
from kvcalc.engines.vllm.groups import approximate_gcd, block_bytes, group_layers
from kvcalc.engines.vllm.specs import CHUNKED, FULL, MLA, RECURRENT, RING, SLIDING, SLIDING_MLA, Demand, Spec, held_tokens

WIDE = Spec(FULL, 16, 4096, (8, 128, 128), "bf16")
WINDOW = WIDE._replace(kind=SLIDING, limit=1024)
STATE = Spec(RECURRENT, 0, 65_000, (1,), "bf16", padded=65_536)
LATENT = Spec(MLA, 16, 1152, (1, 576, 0), "bf16")


def grouped(*specs: Spec, merge: bool = False, outer: bool = False) -> list[int]:
    return [len(group.layers) for group in group_layers(specs, block_outermost=outer, merge_windows=merge)]


def test_equal_layers_are_one_group() -> None:
    assert grouped(*[WIDE] * 32) == [32]
    assert grouped(*[WINDOW] * 32) == [32]


def test_full_layers_of_any_shape_are_one_group() -> None:
    narrow = WIDE._replace(row=1024, shape=(2, 128, 128))
    (group,) = group_layers([WIDE, narrow, LATENT], block_outermost=False, merge_windows=False)
    assert block_bytes([group], None, block_outermost=False) == 16 * (4096 + 1024 + 1152)


@pytest.mark.parametrize(
    ("windows", "full", "sizes"),
    [
        (12, 12, [12, 12]),
        (52, 10, [9, 9, 9, 9, 8, 8, 10]),
        (22, 4, [4, 4, 4, 4, 3, 3, 4]),
        (16, 4, [4, 4, 4, 4, 4]),
        # 13 < 1.5 x 12: one more layer pads the other bucket instead of splitting its own
        (12, 13, [12, 13]),
        (10, 15, [10, 8, 7]),
        (10, 14, [10, 14]),
    ],
)
def test_buckets_are_dealt_into_equal_groups(windows: int, full: int, sizes: list[int]) -> None:
    assert grouped(*[WINDOW] * windows, *[WIDE] * full) == sizes


def test_layers_are_dealt_in_turn() -> None:
    """So that every pipeline stage has layers of every group."""
    groups = group_layers([*[WINDOW] * 4, *[WIDE] * 2], block_outermost=False, merge_windows=False)
    assert [group.layers for group in groups] == [(0, 2), (1, 3), (4, 5)]


def test_smaller_pages_get_longer_blocks() -> None:
    """Gemma 4: windows of 4 x 256 beside full heads of 4 x 512."""
    full = WIDE._replace(row=8192)
    groups = group_layers([WINDOW, full], block_outermost=False, merge_windows=False)
    assert [(group.specs[0].block, group.specs[0].page) for group in groups] == [(32, 131_072), (16, 131_072)]


def test_pages_that_do_not_divide_are_padded() -> None:
    odd = WINDOW._replace(row=3000)
    groups = group_layers([odd, WIDE], block_outermost=False, merge_windows=False)
    assert [(group.specs[0].block, group.specs[0].page) for group in groups] == [(16, 65_536), (16, 65_536)]
    assert group_layers([STATE, WIDE._replace(row=8192)], block_outermost=False, merge_windows=False)[0].specs[0].page == 131_072


def test_latents_cannot_be_padded_so_windows_are_charged_in_full() -> None:
    (group,) = group_layers([LATENT, LATENT, WINDOW], block_outermost=False, merge_windows=False)
    assert [spec.kind for spec in group.specs] == [MLA, MLA, FULL]
    with pytest.raises(EngineRejectsError, match="latent page"):
        group_layers([LATENT, STATE], block_outermost=False, merge_windows=False)


def test_without_the_hybrid_manager() -> None:
    assert grouped(*[WINDOW] * 5, WIDE, merge=True) == [6]
    assert grouped(*[WINDOW] * 5, merge=True) == [5]
    assert grouped(WIDE._replace(kind=CHUNKED, limit=8192), WIDE, merge=True) == [2]
    with pytest.raises(EngineRejectsError, match="different windows"):
        grouped(WINDOW, WINDOW._replace(limit=512), WIDE, merge=True)
    with pytest.raises(EngineRejectsError, match="do not unite"):
        grouped(WINDOW, STATE, WIDE, merge=True)


def test_packed_groups_keep_states_from_widening_the_block() -> None:
    ring = Spec(RING, 8, 1000, (1, 500, 0), "bf16")
    groups = group_layers([*[LATENT] * 3, *[ring] * 40], block_outermost=True, merge_windows=False)
    assert block_bytes(groups, None, block_outermost=True) == 3 * 16 * 1152
    assert max(len(group.layers) for group in groups[1:]) == 3 * 16 * 1152 // 8000 == 6
    assert sum(len(group.layers) for group in groups) == 43


def test_equal_pages_are_not_packed() -> None:
    """The packing is for pages of two sizes: fifteen full layers beside ten windows are dealt into 8 and 7 as ever."""
    assert grouped(*[WINDOW] * 10, *[WIDE] * 15, outer=True) == [10, 8, 7]


def test_a_state_as_wide_as_the_widest_group_stands_alone() -> None:
    ring = Spec(RING, 8, 1152, (1, 576, 0), "bf16")  # 9,216 B: one of two latents of 18,432 B holds two, one of 10,000 B and more one
    assert grouped(LATENT, *[ring] * 4, outer=True) == [1, 2, 2]
    assert grouped(LATENT, *[ring._replace(row=1300)] * 3, outer=True) == [1, 1, 1, 1]


@pytest.mark.parametrize(("block", "page"), [(16, 70_000), (32, 131_072)])
def test_a_promoted_window_keeps_its_padding_where_that_is_wider_than_the_block(block: int, page: int) -> None:
    """Of 16 tokens it takes the 70,000 B that it was padded to; of 32, the 131,072 B that they need."""
    full = WIDE._replace(block=block)
    groups = group_layers([WINDOW._replace(padded=70_000), full], block_outermost=False, merge_windows=True)
    assert block_bytes(groups, None, block_outermost=False) == page + block * 4096


@pytest.mark.parametrize("kind", [SLIDING, SLIDING_MLA])
def test_a_window_reserves_what_it_sees_and_what_is_in_flight(kind: str) -> None:
    window = WINDOW._replace(kind=kind, limit=128)
    assert held_tokens(window, Demand(context=10_000, in_flight=2048, retained=8)) == 127 + 8 + 2048
    assert held_tokens(window, Demand(context=100, in_flight=2048, retained=8)) == 100
    chunk = window._replace(kind=CHUNKED)
    assert held_tokens(chunk, Demand(context=10_000, in_flight=2048, retained=8)) == 128 + 2048
    assert held_tokens(chunk, Demand(context=100, in_flight=2048)) == 100


def test_the_stride_of_a_packed_block() -> None:
    groups = group_layers([LATENT._replace(stride=1000), LATENT._replace(row=100)], block_outermost=True, merge_windows=False)
    assert block_bytes(groups, None, block_outermost=True) == -(-16 * 1252 // 1000) * 1000


@pytest.mark.parametrize(("values", "least", "best"), [([22, 21, 21, 20], 21, 22), ([40, 20], 20, 20), ([40, 20], 30, 40), ([3], 5, 5)])
def test_the_repeats_with_the_least_padding(values: list[int], least: int, best: int) -> None:
    assert approximate_gcd(values, least) == best


kinds = st.sampled_from([WIDE, WINDOW, WINDOW._replace(limit=512), STATE, WIDE._replace(kind=CHUNKED, limit=4096), WIDE._replace(row=8192)])


@given(st.lists(kinds, min_size=1, max_size=40))
def test_every_layer_is_in_one_group_and_every_group_fits_the_block(specs: list[Spec]) -> None:
    groups = group_layers(specs, block_outermost=False, merge_windows=False)
    assert sorted(number for group in groups for number in group.layers) == list(range(len(specs)))
    widest = block_bytes(groups, None, block_outermost=False)
    assert all(sum(spec.page for spec in group.specs) <= widest for group in groups)
    assert any(sum(spec.page for spec in group.specs) == widest for group in groups)


@given(
    st.lists(
        st.sampled_from([LATENT, LATENT._replace(row=132), Spec(SLIDING_MLA, 64, 584, (1, 512, 0), "fp8_ds_mla", limit=128)]),
        min_size=1,
        max_size=40,
    )
)
def test_packed_groups_hold_every_layer_too(specs: list[Spec]) -> None:
    groups = group_layers(specs, block_outermost=True, merge_windows=False)
    assert sorted(number for group in groups for number in group.layers) == list(range(len(specs)))
    assert all(sum(spec.page for spec in group.specs) <= block_bytes(groups, None, block_outermost=True) for group in groups)
