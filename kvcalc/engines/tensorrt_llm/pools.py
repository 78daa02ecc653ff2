"""The second manager's pools (KVCacheManagerV2): how many slots each gets of a memory that is handed out in grains.

    life cycle   a window, the whole context (0) or recurrent state (STATE): layers whose blocks come and go together
    pool         buffers of one life cycle and one size; its slot is one block of all of them
    pool group   the pools of life cycles whose slots are equal, size for size: they share their slots
    grain        2 MiB << min(4, log2(quota in GiB)): 32 MiB from 16 GiB on; the quota is rounded up to grains

    grains of a group   in proportion to the bytes that a reference batch needs of it, each pool rounded up to grains
    slots of a group    the most n with  Σ pools  ⌈n x slot / grain⌉  within its grains

gpt-oss: 18 full and 18 sliding layers of one size are one group. Gemma 3 27B: 52 sliding and 10 full layers are two.

Source: TensorRT-LLM, runtime/kv_cache_manager_v2 (_storage/_config.py, _storage/_core.py, _storage_manager.py).
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.engines.tensorrt_llm.layers import Stage

#: The life cycle of recurrent state: one slot a request, whatever its length.
STATE = -1
GIB, SMALLEST_GRAIN, LARGEST_SHIFT = 1 << 30, 2 << 20, 4


class Group(NamedTuple):
    """Pools that are filled and emptied together.

    slot     bytes of one slot in each pool, the largest first
    cycles   life cycles that take their blocks here
    shared   of each life cycle: the largest share of one layer in a pool's slot (what a scratch block costs)
    """

    slot: tuple[int, ...]
    cycles: tuple[int, ...]
    shared: tuple[Fraction, ...]

    def grains(self, slots: int, grain: int) -> int:
        """Grains that so many slots take."""
        return sum(-(-slots * size // grain) for size in self.slot)

    def slots(self, grains: int, grain: int) -> int:
        """The most slots within so many grains."""
        room, size = grains * grain, sum(self.slot)
        if len(self.slot) == 1:
            return room // size
        # No pool wastes a whole grain: what is short of a grain for each of them always finds room.
        low, high = max(0, room - len(self.slot) * grain) // size, room // size + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.grains(middle, grain) <= grains else (low, middle)
        return low


class Reference(NamedTuple):
    """Requests of one length in a batch that memory is divided for: `capacity` tokens to hold, of which `history` are behind."""

    requests: int
    capacity: int
    history: int


def groups_of(stage: Stage, block: int) -> tuple[Group, ...]:
    """The pool groups of one pipeline stage, in the order in which their life cycles first appear."""
    sizes: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for row, layers in stage.rows.items():
        for size in row.buffers(block):
            sizes.setdefault(row.window, {}).setdefault(size, []).append((row.kin, layers))
    for part, layers in stage.parts.items():
        sizes.setdefault(STATE, {}).setdefault(part.rank, []).append((0, layers))
    merged: dict[tuple[int, ...], list[tuple[int, Fraction]]] = {}
    for cycle, pools in sizes.items():
        counts = {size: sum(layers for _, layers in buffers) for size, buffers in pools.items()}
        slot = tuple(sorted((size * count for size, count in counts.items()), reverse=True))
        share = max(Fraction(same, counts[size]) for size, buffers in pools.items() for same in Counter(kin for kin, _ in buffers).values())
        merged.setdefault(slot, []).append((cycle, share))
    return tuple(Group(slot, *zip(*cycles, strict=True)) for slot, cycles in merged.items())


def grain_of(quota: int) -> int:
    """Bytes of a grain of a GPU quota."""
    return SMALLEST_GRAIN << min(LARGEST_SHIFT, max(0, (quota // GIB).bit_length() - 1))


def held_blocks(cycle: int, capacity: int, history: int, block: int) -> int:
    """Blocks that a request holds in a life cycle: those that its window left behind are free again."""
    if cycle == STATE:
        return 1
    stale = max(0, (history + 1 - cycle) // block) if cycle else 0
    return max(0, -(-capacity // block) - stale)


def batch_slots(groups: Sequence[Group], batch: Sequence[Reference], block: int, *, scratch: bool = False) -> list[int]:
    """Slots of each group that a batch needs. `scratch`: blocks that a prefill leaves behind at once share slots."""
    found = []
    for group in groups:
        slots = 0
        for cycle, share in zip(group.cycles, group.shared, strict=True):
            for requests, capacity, history in batch:
                needed = held_blocks(cycle, capacity, history, block)
                if scratch and cycle > 0:
                    passed = max(0, min(-(-capacity // block), (capacity + 1 - cycle) // block) + -history // block)
                    saved = passed * share
                    needed += -(-saved.numerator // saved.denominator) - passed
                slots += requests * needed
        found.append(slots)
    return found


def floor_slots(groups: Sequence[Group], batches: Sequence[Sequence[Reference]], block: int, *, scratch: bool = False) -> list[int]:
    """Slots that no division goes below: one for each life cycle, and what each of the batches needs."""
    floors = [len(group.cycles) for group in groups]
    for batch in batches:
        floors = [max(pair) for pair in zip(floors, batch_slots(groups, batch, block, scratch=scratch), strict=True)]
    return floors


def divide(quota: int, grain: int, groups: Sequence[Group], ratio: Sequence[int], floors: Sequence[int]) -> list[int]:
    """Slots of each group of `quota` bytes, rounded up to grains; zeros where not even the floors find room.

    Groups that the ratio leaves at their floor or below are given it, and the rest is divided anew over the others.
    """
    left = -(-quota // grain)
    found, active = [0] * len(groups), list(range(len(groups)))
    if sum(group.grains(floor, grain) for group, floor in zip(groups, floors, strict=True)) > left:
        return found
    while active:
        shares = _shares(left, [groups[place] for place in active], [ratio[place] for place in active], grain)
        short = [place for place, slots in zip(active, shares, strict=True) if slots <= floors[place]]
        if not short:
            for place, slots in zip(active, shares, strict=True):
                found[place] = slots
            break
        for place in short:
            grains = groups[place].grains(floors[place], grain)
            found[place] = groups[place].slots(grains, grain)
            left -= groups[place].grains(found[place], grain)
        active = [place for place in active if place not in short]
        if active and left <= 0:
            return [0] * len(groups)
    return found


def _nearest(number: int, divisor: int) -> int:
    """The quotient rounded to the nearest whole number, halves to the even one, as Python's round does."""
    whole, rest = divmod(number, divisor)
    return whole + (2 * rest > divisor or (2 * rest == divisor and whole % 2 == 1))


def _shares(grains: int, groups: Sequence[Group], ratio: Sequence[int], grain: int) -> list[int]:
    """The slots of each group, the smallest share first; what a group cannot use goes to the next."""
    found = [0] * len(groups)
    order = sorted(range(len(groups)), key=lambda place: ratio[place])
    for at, place in enumerate(order):
        weight = sum(ratio[further] for further in order[at:])
        found[place] = groups[place].slots(_nearest(grains * ratio[place], weight), grain)
        grains -= groups[place].grains(found[place], grain)
    return found
