"""Layers that share a block table, and what one block id costs (vLLM 0.33, v1/core/kv_cache_planning.py).

all layers mergeable, or of one type        one group, its pages summed
block-outermost layouts, several pages      packed groups, at most as wide as the widest that must stay whole
else                                        equal pages first, then equal groups:

    g = most layers of a bucket if most < 1.5 x fewest else fewest          bucket = layers with equal specs
    a bucket of n layers is dealt into ⌈n / g⌉ groups, layer i to group i mod groups

bytes of a block id = widest group          every group draws ids from the same pool, so narrower groups are padded
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import EngineRejectsError
from kvcalc.engines.vllm.specs import CHUNKED, CROSS, FULL, FULL_KINDS, MLA, RECURRENT, RING, SLIDING, SLIDING_MLA, WINDOW_KINDS, Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: A bucket this much larger than the smallest is dealt into several groups (planning.py, _get_kv_cache_groups_uniform_page_size).
_SPLIT_FROM = (3, 2)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers behind one block table: their numbers in the model's list of cache layers, their specs, and how many of each there are."""

    layers: tuple[int, ...]
    specs: tuple[Spec, ...]
    kinds: dict[Spec, int]


def make_group(layers: Sequence[int], specs: Sequence[Spec]) -> Group:
    """The group of the layers `layers` of a model whose cache layers have `specs`."""
    own = tuple(specs[number] for number in layers)
    counts: dict[int, int] = {}
    for spec in own:
        counts[id(spec)] = counts.get(id(spec), 0) + 1
    kinds: dict[Spec, int] = {}
    for spec in {id(spec): spec for spec in own}.values():
        kinds[spec] = kinds.get(spec, 0) + counts[id(spec)]
    return Group(tuple(layers), own, kinds)


def group_layers(specs: Sequence[Spec], *, block_outermost: bool, merge_windows: bool) -> tuple[Group, ...]:
    """The groups of a model's cache layers. Raises EngineRejectsError where vLLM finds no grouping."""
    if not specs:
        return ()
    if merge_windows:
        specs = promote(specs)
    if is_mergeable(specs) or is_one_type(specs):
        return (make_group(range(len(specs)), specs),)
    if block_outermost and len({spec.page for spec in specs}) > 1:
        return _packed(specs)
    try:
        return _equal_groups(unify_pages(specs))
    except EngineRejectsError:
        promoted = _full_allocation(specs)
        if promoted is None:
            raise
        return (make_group(range(len(specs)), promoted),)


# --- what may share a table ------------------------------------------------------------------------------------------------------


def is_mergeable(specs: Sequence[Spec]) -> bool:
    """Equal specs; full attention merges over different windows, if there is but one. Raises EngineRejectsError for two windows."""
    first = specs[0]
    if all(spec == first for spec in specs):
        return True
    if any(spec.kind != FULL for spec in specs):
        return False
    # Windows are compared before anything else is.
    if len({spec.limit for spec in specs if spec.limit}) > 1:
        raise EngineRejectsError("vLLM refuses layers of different windows in one group", "leave disable_hybrid_kv_cache_manager out")
    return not any(spec._replace(limit=0) != first._replace(limit=0) for spec in specs)


def is_one_type(specs: Sequence[Spec]) -> bool:
    """Layers that always need the same number of slots."""
    first = specs[0]
    if any(spec.block != first.block or spec.sharded != first.sharded for spec in specs):
        return False
    same = _SAME_TYPE[first.kind]
    return all(same(first, spec) for spec in specs)


def _same_window(first: Spec, other: Spec) -> bool:
    return other.kind in (WINDOW_KINDS if first.kind == SLIDING else (SLIDING_MLA,)) and other.limit == first.limit


_SAME_TYPE: dict[str, Callable[[Spec, Spec], bool]] = {
    FULL: lambda _first, other: other.kind in FULL_KINDS,
    MLA: lambda _first, other: other.kind in FULL_KINDS,
    SLIDING: _same_window,
    SLIDING_MLA: _same_window,
    CHUNKED: lambda first, other: other.kind == CHUNKED and other.limit == first.limit,
    RECURRENT: lambda first, other: (
        other.kind == RECURRENT
        and (other.limit, other.checkpoint, other.page, other.copied) == (first.limit, first.checkpoint, first.page, first.copied)
    ),
    CROSS: lambda _first, other: other.kind == CROSS,
    RING: lambda _first, other: other.kind == RING,
}


# --- windows charged in full -----------------------------------------------------------------------------------------------------


def promote(specs: Sequence[Spec]) -> tuple[Spec, ...]:
    """Window and chunk layers as full attention, where the model has full attention. Raises EngineRejectsError if that does not unite them."""
    if is_mergeable(specs) or is_one_type(specs):
        return tuple(specs)
    full_blocks = {spec.block for spec in specs if spec.kind in FULL_KINDS}
    found = tuple(specs)
    if full_blocks:
        block = full_blocks.pop() if len(full_blocks) == 1 else 0
        found = tuple(_promoted(spec, block or spec.block) for spec in specs)
    if not (is_mergeable(found) or is_one_type(found)):
        raise EngineRejectsError(
            "vLLM refuses: these layers do not unite into one type without the hybrid KV cache manager",
            "leave disable_hybrid_kv_cache_manager out",
        )
    return found


_AS_FULL = {SLIDING: FULL, CHUNKED: FULL}


def _promoted(spec: Spec, block: int) -> Spec:
    if spec.kind == SLIDING_MLA:
        # 0.33 passes a window's own field on to a spec that has no such field (kv_cache_interface.py, replace_as).
        raise EngineRejectsError(
            "vLLM fails to start: windows of latents have no form without the hybrid KV cache manager",
            "leave disable_hybrid_kv_cache_manager out",
        )
    kind = _AS_FULL.get(spec.kind)
    if kind is None:
        return spec
    padded = max(spec.padded, spec.natural * block // spec.block) if spec.padded else 0
    return spec._replace(kind=kind, block=block, padded=padded)


def _full_allocation(specs: Sequence[Spec]) -> tuple[Spec, ...] | None:
    """The fallback for MLA beside ordinary windows: charge the windows in full."""
    kinds = {spec.kind for spec in specs}
    if kinds & {SLIDING_MLA, CHUNKED} or not {MLA, SLIDING} <= kinds:
        return None
    try:
        found = promote(specs)
    except EngineRejectsError:
        return None
    return found if is_one_type(found) else None


# --- equal pages, equal groups ---------------------------------------------------------------------------------------------------


def unify_pages(specs: Sequence[Spec]) -> tuple[Spec, ...]:
    """Every page raised to the largest: by a larger block where it divides, by padding where it may. Raises EngineRejectsError."""
    largest = max(spec.page for spec in specs)
    changed: dict[Spec, Spec] = {}
    for spec in dict.fromkeys(specs):
        if spec.page == largest:
            changed[spec] = spec
        elif spec.kind == RECURRENT:
            changed[spec] = spec._replace(padded=largest)
        elif largest % spec.page == 0:
            changed[spec] = spec._replace(block=spec.block * (largest // spec.page))
        elif spec.kind != MLA:
            changed[spec] = spec._replace(padded=largest)
        else:
            raise EngineRejectsError(
                f"vLLM refuses: a latent page of {spec.page:,} B neither divides the largest page of {largest:,} B nor may be padded"
            )
    return tuple(changed[spec] for spec in specs)


def _equal_groups(specs: tuple[Spec, ...]) -> tuple[Group, ...]:
    buckets: list[list[int]] = []
    for spec, members in _positions(specs).items():
        home = next((bucket for bucket in buckets if _merge(specs[bucket[0]], spec, [specs[i] for i in bucket])), None)
        if home is None:
            buckets.append(list(members))
        else:
            home.extend(members)
    fewest, most = min(map(len, buckets)), max(map(len, buckets))
    size = most if most * _SPLIT_FROM[1] < fewest * _SPLIT_FROM[0] else fewest
    groups: list[Group] = []
    for bucket in buckets:
        count = -(-len(bucket) // size)
        groups += [make_group(bucket[i::count], specs) for i in range(count)]
    return tuple(groups)


def _positions(specs: Sequence[Spec]) -> dict[Spec, list[int]]:
    found: dict[Spec, list[int]] = {}
    for number, spec in enumerate(specs):
        found.setdefault(spec, []).append(number)
    return found


def _merge(first: Spec, spec: Spec, members: Sequence[Spec]) -> bool:
    if first.kind != FULL or spec._replace(limit=0) != first._replace(limit=0):
        return False
    return len({item.limit for item in (*members, spec) if item.limit}) <= 1


# --- pages side by side in a block -----------------------------------------------------------------------------------------------


class _Bucket(NamedTuple):
    """Layers of one type, and the same by page size."""

    layers: list[int]
    by_page: dict[int, list[int]]

    @property
    def balanced(self) -> bool:
        """As many layers of every page size."""
        return len({len(layers) for layers in self.by_page.values()}) == 1

    @property
    def repeats(self) -> int:
        """Layers of the commonest page size."""
        return max(len(layers) for layers in self.by_page.values())

    def widest(self, groups: int) -> int:
        """Bytes of the widest of `groups` groups."""
        return sum(-(-len(layers) // groups) * page for page, layers in self.by_page.items())


def _packed(specs: Sequence[Spec]) -> tuple[Group, ...]:
    members: list[list[int]] = []
    for number, spec in enumerate(specs):
        home = next((bucket for bucket in members if is_one_type([specs[i] for i in bucket[:1]] + [spec])), None)
        if home is None:
            members.append([number])
        else:
            home.append(number)
    buckets: list[_Bucket] = []
    for layers in members:
        by_page: dict[int, list[int]] = {}
        for number in layers:
            by_page.setdefault(specs[number].page, []).append(number)
        buckets.append(_Bucket(layers, by_page))

    floor = max((bucket.repeats for bucket in buckets if bucket.balanced and len(bucket.by_page) > 1), default=0)
    repeats = approximate_gcd([bucket.repeats for bucket in buckets if bucket.balanced], floor) if floor else 0

    def splits(bucket: _Bucket) -> int:
        return -(-bucket.repeats // repeats) if bucket.balanced and repeats else 1

    def is_state(bucket: _Bucket) -> bool:
        kind = specs[bucket.layers[0]].kind
        return kind in (RECURRENT, RING) or (not repeats and kind in WINDOW_KINDS)

    anchor = max(bucket.widest(len(bucket.layers) if is_state(bucket) else splits(bucket)) for bucket in buckets)
    groups: list[Group] = []
    for bucket in buckets:
        count = splits(bucket)
        if is_state(bucket):
            fitting = max(anchor // specs[bucket.layers[0]].page, 1)
            count = max(count, -(-len(bucket.layers) // fitting))
        rows = list(zip(*bucket.by_page.values(), strict=False)) if count > 1 else []
        parts = [[number for row in rows[i::count] for number in row] for i in range(count)] if rows else [bucket.layers]
        groups += [make_group(part, specs) for part in parts]
    return tuple(groups)


def approximate_gcd(values: Sequence[int], least: int) -> int:
    """The d of at least `least` that rounds `values` up to multiples of d with the least padding; of equals the larger."""
    candidates = range(max(1, least), max(values) + 1)
    return min(candidates, key=lambda d: (sum(-value % d for value in values), -d), default=max(1, least))


def block_bytes(groups: Sequence[Group], members: frozenset[int] | None, *, block_outermost: bool) -> int:
    """Bytes that one block id takes on a GPU that holds the layers `members` (None: all)."""
    widest = max(sum(count * _strided(spec, block_outermost) for spec, count in held(group, members).items()) for group in groups)
    if not block_outermost:
        return widest
    stride = math.lcm(*(spec.stride for group in groups for spec in held(group, members)))
    return -(-widest // stride) * stride


def held(group: Group, members: frozenset[int] | None) -> dict[Spec, int]:
    """How many layers of each spec a GPU holds that has the layers `members` (None: all)."""
    if members is None:
        return group.kinds
    found: dict[Spec, int] = {}
    for number, spec in zip(group.layers, group.specs, strict=True):
        if number in members:
            found[spec] = found.get(spec, 0) + 1
    return found


def _strided(spec: Spec, block_outermost: bool) -> int:
    return spec.page if block_outermost else -(-spec.page // spec.stride) * spec.stride
