"""The first manager (KVCacheManager): what it makes of a memory.

    tokens = (fraction x free memory - state of the largest batch) // bytes of a token        the stage with fewest decides
    blocks = tokens // tokens_per_block
    windows: a pool for each distinct one, in equal shares of the memory, whatever they need
    max_tokens: with one pool its tokens, with several their bytes in all layers

A hybrid with snapshots pays state // interval beside each token of attention.

Source: TensorRT-LLM, _torch/pyexecutor/resource_manager.py (calculate_max_num_blocks_for_vswa) and _util.py (KvCacheCreator).
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from kvcalc.core.plan import Capacity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.engines.tensorrt_llm.layers import Stage
    from kvcalc.engines.tensorrt_llm.question import Case


def first_capacity(case: Case, budget: int) -> Capacity:
    """Blocks and tokens of `budget` bytes on each device, the fraction and the limits taken already."""
    question = case.question
    rooms = [_room(case, stage, budget) for stage in case.stages]
    blocks = {window: max(0, _pool_tokens(case, window, rooms)) // question.block for window in case.windows}
    longest, shortest = case.windows[0], case.windows[-1]
    fits = first_left(case, budget) >= 0
    return Capacity(
        fits=fits,
        tokens=blocks[longest] * question.block,
        blocks=blocks[longest],
        block_bytes=max(stage.token_bytes(longest) for stage in case.stages) * question.block,
        block_size=question.block,
        sliding_tokens=blocks[shortest] * question.block if len(blocks) > 1 else None,
        state_slots=_slots(case, blocks[longest]),
        notes=_pool_notes(case, blocks),
        warnings=_too_small(case, fits=fits, rooms=rooms),
    )


def first_left(case: Case, budget: int) -> int:
    """Bytes that stay free; below 0 where the requests do not fit."""
    least = first_least(case)
    return -1 if least is None else budget - least


def first_least(case: Case) -> int | None:
    """The least budget that holds the requests; None where no budget does."""
    if case.requests > case.most:
        return None
    block, found = case.question.block, 0
    for stage in case.stages:
        state = stage.part_bytes * case.reserved
        pools, snapshot = len(stage.windows()), _snapshot(case, stage)
        found = max(found, state)
        for window in stage.windows():
            price = stage.token_bytes(window) + (snapshot if pools == 1 else 0)
            needed = pools * price * block * case.held(window, case.requests)[0]
            if needed > _room(case, stage, state + needed):
                return None
            found = max(found, state + needed)
    return found


def _room(case: Case, stage: Stage, budget: int) -> int:
    """Bytes for blocks on a stage: without the state of the largest batch, and with max_tokens no more than those take."""
    most: int | None = case.question.args["max_tokens"]
    room = budget - stage.part_bytes * case.reserved
    if most is None:
        return room
    return min(room, most * (sum(stage.token_bytes(window) for window in stage.windows()) + _snapshot(case, stage)))


def _snapshot(case: Case, stage: Stage) -> int:
    """Bytes of recurrent state that each token pays for the snapshots."""
    interval = int(case.question.args["mamba_state_cache_interval"])
    return stage.part_bytes // interval if interval else 0


def _pool_tokens(case: Case, window: int, rooms: list[int]) -> int:
    """Tokens of the pool of a window: an equal share of what there is, on the stage that has room for fewest."""
    found = []
    for stage, room in zip(case.stages, rooms, strict=True):
        price, pools = stage.token_bytes(window), len(stage.windows())
        if price:
            found.append(room // (price + _snapshot(case, stage)) if pools == 1 else int(Fraction(room, pools) / price))
    return min(found)


def _slots(case: Case, blocks: int) -> int | None:
    """Slots of recurrent state, snapshots counted."""
    if not case.question.hybrid:
        return None
    interval = case.question.args["mamba_state_cache_interval"]
    return case.slots + (blocks * case.question.block // interval if interval else 0)


def _pool_notes(case: Case, blocks: Mapping[int, int]) -> tuple[str, ...]:
    if len(blocks) == 1:
        return ()
    each = ", ".join(f"{window or case.context:,} tokens: {count:,} blocks" for window, count in blocks.items())
    notes = [f"{len(blocks)} pools in equal shares, by window: {each}"]
    if case.question.args["max_tokens"] is not None:
        notes.append("max_tokens stands for bytes where layers have different windows: those that so many tokens take in all layers")
    return tuple(notes)


def _too_small(case: Case, *, fits: bool, rooms: list[int]) -> tuple[str, ...]:
    if fits:
        return ()
    if min(rooms) < 0:
        return (f"the memory does not hold the state of {case.slots:,} requests",)
    if len(case.windows) > 1:
        return ("TensorRT-LLM shortens the windows where the pools do not hold one sequence of full length",)
    return ()
