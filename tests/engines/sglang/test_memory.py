"""SGLang's share of a card: a worked value for every class of cards, and on both sides of every boundary."""

from __future__ import annotations

from fractions import Fraction

import pytest

from kvcalc.core.units import GIB
from kvcalc.core.workload import Workload
from kvcalc.engines.sglang.memory import SHARE, static_fraction

#: Free MiB beside weights and cache, by hand: 512 + 1.5 x chunk + 128 a device + 2 x requests of a graph.
SMALL = 512 + 3072 + 128 + 16
MIDDLE = 512 + 6144 + 128 + 96
UPPER = 512 + 6144 + 128 + 64
HOPPER = 512 + 12288 + 128 + 512
BLACKWELL = 512 + 24576 + 128 + 1024


@pytest.mark.parametrize(
    ("gib", "left", "thousandths"),
    [
        (15, SMALL, 757),
        (20, MIDDLE, 664),
        (24, MIDDLE, 720),
        (35, UPPER, 809),
        (40, UPPER, 833),
        (60, HOPPER, 781),
        (80, HOPPER, 836),
        (90, HOPPER, 854),
        (141, HOPPER, 907),
        (160, BLACKWELL, 840),
        (180, BLACKWELL, 858),
    ],
)
def test_a_card_of_each_class(gib: int, left: int, thousandths: int) -> None:
    assert round((gib * 1024 - left) / (gib * 1024) * 1000) == thousandths
    assert static_fraction(gib * GIB, Workload()) == Fraction(thousandths, 1000)


@pytest.mark.parametrize(
    ("gib", "below", "at"),
    [(20, SMALL, MIDDLE), (35, MIDDLE, UPPER), (60, UPPER, HOPPER), (90, HOPPER, HOPPER), (160, HOPPER, BLACKWELL)],
)
def test_each_boundary_belongs_to_the_larger_class(gib: int, below: int, at: int) -> None:
    for card, left in ((gib * GIB - 1, below), (gib * GIB, at)):
        assert static_fraction(card, Workload()) == Fraction(round((1 - Fraction(left * 1024**2, card)) * 1000), 1000)


@pytest.mark.parametrize(
    ("gib", "args", "left"),
    [
        (80, {"chunked_prefill_size": 4096}, 10 * 1024),
        (61, {"chunked-prefill-size": "2048"}, 10 * 1024),
        (60, {"chunked_prefill_size": 4096}, HOPPER - 6144),
        (80, {"chunked_prefill_size": 16384}, HOPPER + 12288),
        (80, {"chunked_prefill_size": -1}, HOPPER),
        (24, {"chunked_prefill_size": 1024}, MIDDLE - 3072),
        (24, {"max_running_requests": 8}, MIDDLE - 2 * 40),
        (24, {"max_running_requests": 4000}, MIDDLE),
        (80, {"max_running_requests": "64"}, HOPPER - 2 * 192),
    ],
)
def test_flags_move_it_and_ten_gib_are_left_of_every_card_above_sixty(gib: int, args: dict[str, object], left: int) -> None:
    expected = Fraction(round((1 - Fraction(left, gib * 1024)) * 1000), 1000)
    assert static_fraction(gib * GIB, Workload(engine_args=args)) == expected


@pytest.mark.parametrize(
    ("gib", "tensor", "left"),
    [
        (15, 4, SMALL + 3 * 128),
        (24, 3, MIDDLE + 2 * 128),
        (24, 4, MIDDLE + 3 * 128 + 2 * (160 - 48)),
        (40, 4, UPPER + 3 * 128 + 2 * (160 - 32)),
        (80, 3, HOPPER + 2 * 128),
        (80, 8, HOPPER + 7 * 128 + 2 * 256),
        (141, 8, HOPPER + 7 * 128 + 2 * 256),
        (180, 8, BLACKWELL + 7 * 128),
    ],
)
def test_ranks_take_room_and_from_four_on_larger_graphs(gib: int, tensor: int, left: int) -> None:
    expected = Fraction(round((1 - Fraction(left, gib * 1024)) * 1000), 1000)
    assert static_fraction(gib * GIB, Workload(tensor_parallel=tensor)) == expected


def test_pipeline_stages_take_room_and_no_larger_graphs() -> None:
    expected = Fraction(round((1 - Fraction(HOPPER + 3 * 128, 80 * 1024)) * 1000), 1000)
    assert static_fraction(80 * GIB, Workload(pipeline_parallel=4)) == expected


def test_the_share_is_of_the_whole_card_and_has_a_flag() -> None:
    assert (SHARE.setting, SHARE.free, SHARE.default) == ("mem_fraction_static", False, static_fraction)
    assert SHARE.fraction(80 * GIB, Workload()) == Fraction(836, 1000)
