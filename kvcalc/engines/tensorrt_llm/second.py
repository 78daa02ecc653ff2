"""The second manager (KVCacheManagerV2): what it makes of a memory.

    quota      fraction x free memory, in grains (the memory itself, to the byte, where the fraction is 1, which the engine refuses), at most max_gpu_total_bytes, at most what max_tokens take / max_util_for_resume
               on several ranks: the tokens of quota x max_util_for_resume, fewest over the ranks, back to bytes
    division   pool_ratio, else by what a reference batch needs:
                   one request of 2,049 tokens, 2,048 of them behind                                      by default
                   a prefill of max_num_tokens and max_batch_size - 1 requests of avg_seq_len             with avg_seq_len
                   max_batch_size x pp requests of avg_seq_len, by default max_seq_len // 2, and dummies  with recurrent state
    floors     a slot for each life cycle; state of the largest batch; with avg_seq_len one request of max_seq_len

A hybrid whose live state and one block do not fit the quota does not start.

Source: TensorRT-LLM, _torch/pyexecutor/kv_cache/kv_cache_manager_v2.py and mamba_cache_manager/mamba_cache_manager_v2.py.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.plan import Capacity
from kvcalc.engines.base.search import MOST_MEMORY, last_within
from kvcalc.engines.tensorrt_llm.pools import (
    SMALLEST_GRAIN,
    STATE,
    Reference,
    batch_slots,
    divide,
    floor_slots,
    grain_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.engines.tensorrt_llm.layers import Stage
    from kvcalc.engines.tensorrt_llm.pools import Group
    from kvcalc.engines.tensorrt_llm.question import Case

#: The request that memory is divided for where nothing is said.
USUAL = Reference(1, 2049, 2048)
#: DeepSeek-V4 keeps two MiB for each of its seven kinds of rows beside what tokens take.
V4_PADDING = 7 * SMALLEST_GRAIN


class Stock(NamedTuple):
    """A stage's pool groups with the slots that the memory gives each."""

    stage: Stage
    groups: tuple[Group, ...]
    slots: tuple[int, ...]
    quota: int

    def of(self, cycle: int) -> int | None:
        """Slots of the group that a life cycle takes its blocks from; None where the stage has no such layers."""
        return next((slots for group, slots in zip(self.groups, self.slots, strict=True) if cycle in group.cycles), None)


def second_capacity(case: Case, budget: int) -> Capacity:
    """Blocks and tokens of `budget` bytes on each device. Raises EngineRejectsError for settings that the engine refuses."""
    question = case.question
    block, longest, shortest = question.block, case.windows[0], case.windows[-1]
    stocks = _stocks(case, budget)
    blocks = min(found for stock in stocks if (found := stock.of(longest)) is not None)
    fits = _left(case, stocks) >= 0
    shared = any(longest in group.cycles and len(group.cycles) > 1 for stock in stocks for group in stock.groups)
    apart = len(case.windows) > 1 and not shared
    return Capacity(
        fits=fits,
        tokens=min(found for stock in stocks if (found := _longest(case, stock, longest)) is not None),
        blocks=blocks,
        block_bytes=max(stage.block_bytes(longest, block) for stage in case.stages),
        block_size=block,
        sliding_tokens=min(found for stock in stocks if (found := stock.of(shortest)) is not None) * block if apart else None,
        state_slots=min((found for stock in stocks if (found := stock.of(STATE)) is not None), default=None),
        notes=_notes(case, stocks, shared=shared),
        warnings=() if fits else _too_small(case, stocks),
    )


def second_left(case: Case, budget: int) -> int:
    """Slots that stay free in the pool that is fullest; below 0 where the requests do not fit. Raises what `second_capacity` raises."""
    return _left(case, _stocks(case, budget))


def second_least(case: Case, planned: int) -> int | None:
    """The least budget that holds the requests, looked for from `planned` on; None where none does. Raises what `second_capacity` raises."""
    step = 1 if case.question.args["free_gpu_memory_fraction"] == 1 else SMALLEST_GRAIN
    short = last_within(lambda steps: -1 - second_left(case, steps * step), MOST_MEMORY // step, first=max(2, planned // step)) or 0
    if short >= MOST_MEMORY // step:
        return None
    # Grains of another size begin at a round number, in the middle of a step.
    return short * step + 1 if second_left(case, short * step + 1) >= 0 else (short + 1) * step


def _stocks(case: Case, budget: int) -> list[Stock]:
    return [_stock(case, stage, quota) for stage, quota in zip(case.stages, _quotas(case, budget), strict=True)]


def _left(case: Case, stocks: Sequence[Stock]) -> int:
    if case.requests > case.most:
        return -1
    return min(
        slots - _needed(case, group, case.requests) for stock in stocks for group, slots in zip(stock.groups, stock.slots, strict=True)
    )


# ── the quota ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _quotas(case: Case, budget: int) -> list[int]:
    """Bytes of each stage's pools."""
    args = case.question.args
    quotas = [budget] * len(case.stages)
    alone = case.question.ranks * len(case.stages) == 1
    if alone and args["max_tokens"] is None:
        return quotas
    resume = Fraction(str(args["max_util_for_resume"]))
    if args["max_tokens"] is not None:
        quotas = [min(budget, _up(Fraction(_token_bytes(case, stage, args["max_tokens"])) / resume)) for stage in case.stages]
    if alone:
        return quotas
    tokens = [
        found for stage, quota in zip(case.stages, quotas, strict=True) if (found := _tokens(case, stage, int(quota * resume))) is not None
    ]
    if not tokens:
        return quotas
    fewest = min(tokens)
    return [min(quota, _up(_token_bytes(case, stage, fewest) / resume)) for stage, quota in zip(case.stages, quotas, strict=True)]


def _token_bytes(case: Case, stage: Stage, tokens: Fraction | int) -> Fraction:
    """Bytes that so many tokens take on a stage, by the engine's own estimate."""
    args = case.question.args
    whole, sliding, request = _prices(case, stage)
    step = min(Fraction(tokens), args["max_num_tokens"])
    found = Fraction(int(tokens * whole + step * sliding + case.batch * request + (V4_PADDING if case.question.is_v4 else 0)))
    if stage.parts:
        snapshots = int(tokens) // args["mamba_state_cache_interval"] if args["mamba_state_cache_interval"] else 0
        found += (case.slots + snapshots) * stage.part_bytes
        found += case.reserved * whole * case.question.block if snapshots else 0
    return found


def _prices(case: Case, stage: Stage) -> tuple[int, int, int]:
    """Bytes of a token in full layers, of a prefill's token in window layers, and of a request's windows, rounded up to blocks."""
    block, v4 = case.question.block, case.question.is_v4
    whole = stage.token_bytes(0)
    windows = [(row, layers) for row, layers in stage.rows.items() if row.window]
    sliding = sum(row.rank * (1 if v4 else layers) for row, layers in windows)
    request = sum(-(-row.window // block) * block * row.rank * layers for row, layers in windows)
    return whole, sliding, request


def _tokens(case: Case, stage: Stage, quota: int) -> Fraction | None:
    """The tokens that `quota` bytes hold on a stage, by the same estimate; None where nothing grows with them."""
    if stage.parts:
        return _tokens_beside_state(case, stage, quota)
    whole, sliding, request = _prices(case, stage)
    fixed = case.batch * request + (V4_PADDING if case.question.is_v4 else 0)
    if quota < fixed:
        return Fraction(0)
    step = case.question.args["max_num_tokens"]
    limit = step * (whole + sliding) + fixed
    if quota <= limit:
        return Fraction(quota - fixed, whole + sliding)
    return step + Fraction(quota - limit, whole) if whole else None


def _tokens_beside_state(case: Case, stage: Stage, quota: int) -> Fraction | None:
    if not stage.rows and not case.question.args["mamba_state_cache_interval"]:
        return None if _token_bytes(case, stage, 0) <= quota else Fraction(0)
    low, high = -1, 1
    while _token_bytes(case, stage, high) <= quota:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _token_bytes(case, stage, middle) <= quota else (low, middle)
    return Fraction(max(low, 0))


def _up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


# ── the division ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _stock(case: Case, stage: Stage, quota: int) -> Stock:
    question = case.question
    groups = question.groups(stage)
    # At 1, which the engine refuses, the memory is the pool itself, as a log prints it, and not what pools are cut from.
    grain = 1 if question.args["free_gpu_memory_fraction"] == 1 else grain_of(max(1, quota))
    if quota < 1 or quota < _least(case, stage) or -(-quota // grain) < sum(len(group.slot) for group in groups):
        return Stock(stage, groups, (0,) * len(groups), quota)
    batches = _floors(case, stage)
    if question.args["pool_ratio"] is not None:
        ratio = _given_ratio(groups, question.args["pool_ratio"])
        batches = []
    else:
        slots = batch_slots(groups, _reference(case, stage), question.block, scratch=question.is_v4)
        ratio = [group.grains(count, grain) for group, count in zip(groups, slots, strict=True)]
    floors = floor_slots(groups, batches, question.block, scratch=question.is_v4)
    return Stock(stage, groups, tuple(divide(quota, grain, groups, ratio, floors)), quota)


def _least(case: Case, stage: Stage) -> int:
    """Bytes without which a hybrid does not start: its live state and one block of attention."""
    if not stage.parts:
        return 0
    return max(int(_token_bytes(case, stage, 0)), stage.part_bytes * case.slots + stage.block_bytes(0, case.question.block))


def _usual_length(case: Case) -> int | None:
    """The length that memory is divided for, None where that is a fixed one."""
    asked = case.question.args["avg_seq_len"]
    if asked is not None:
        if asked > case.context:
            raise EngineRejectsError(
                f"avg_seq_len {asked:,} is more than the {case.context:,} tokens of the longest request", "lower avg_seq_len"
            )
        return int(asked)
    return case.context if case.question.is_v4 else None


def _reference(case: Case, stage: Stage) -> list[Reference]:
    """The batch in proportion to whose needs memory is divided."""
    usual = _usual_length(case)
    if stage.parts:
        length = usual if usual is not None else max(1, case.context // 2)
        return [Reference(case.reserved, length, length - 1), _dummies(case)]
    if usual is None:
        return [USUAL]
    return [Reference(1, case.question.args["max_num_tokens"], 0), Reference(case.batch - 1, usual, usual - 1)]


def _dummies(case: Case) -> Reference:
    return Reference(case.question.dummies, 0, 0)


def _floors(case: Case, stage: Stage) -> list[list[Reference]]:
    """Batches that must always find room."""
    found: list[list[Reference]] = []
    if _usual_length(case) is not None:
        found.append([Reference(1, case.context, case.context - 1), Reference(case.batch - 1, 1, 0), _dummies(case)])
        found.append([Reference(1, case.question.args["max_num_tokens"], 0), _dummies(case)])
    if stage.parts:
        found.append([Reference(case.slots, 0, 0)])
    return found


def _given_ratio(groups: Sequence[Group], given: Sequence[str]) -> list[int]:
    cycles = sum(len(group.cycles) for group in groups)
    if len(given) != cycles:
        raise EngineRejectsError(
            f"pool_ratio has {len(given)} weights, and the model's layers come in {cycles} life cycles", f"give {cycles} weights, or none"
        )
    exact = [Fraction(weight) for weight in given]
    whole = lcm(*(weight.denominator for weight in exact))
    weights = iter(int(weight * whole) for weight in exact)
    return [sum(next(weights) for _ in group.cycles) for group in groups]


# ── the verdict ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _needed(case: Case, group: Group, requests: int) -> int:
    return sum(case.slots if cycle == STATE else case.held(cycle, requests)[0] for cycle in group.cycles)


def _longest(case: Case, stock: Stock, cycle: int) -> int | None:
    """Tokens of the pool of the longest window: of one request, where shorter windows take blocks of the same pool."""
    for group, slots in zip(stock.groups, stock.slots, strict=True):
        if cycle in group.cycles:
            others = sum(case.held(other, 1)[0] for other in group.cycles if other not in (cycle, STATE))
            return max(0, slots - others) * case.question.block
    return None


def _notes(case: Case, stocks: Sequence[Stock], *, shared: bool) -> tuple[str, ...]:
    found: list[str] = []
    if shared:
        found.append("full and window layers of one size take their blocks from one pool")
    elif any(len(stock.groups) > 1 for stock in stocks) and case.question.args["pool_ratio"] is None:
        usual = _usual_length(case)
        if case.question.hybrid:
            length = f"{usual or max(1, case.context // 2):,}"
            found.append(
                f"memory is divided for {case.reserved:,} requests of {length} tokens" + ("" if usual else " (avg_seq_len is not set)")
            )
        elif usual is None:
            found.append(
                "memory is divided over the pools by what one request of 2,049 tokens needs, whatever the context (avg_seq_len is not set)"
            )
        else:
            found.append(f"memory is divided for a prefill of {case.question.args['max_num_tokens']:,} tokens and requests of {usual:,}")
    return tuple(found)


def _too_small(case: Case, stocks: Sequence[Stock]) -> tuple[str, ...]:
    for stock in stocks:
        least = _least(case, stock.stage)
        if stock.quota < least:
            reason = "the cache quota is too small for live recurrent states and attention pages"
            state = f"state of {case.slots:,} requests and one block"
            return (f"TensorRT-LLM does not start: {reason}: got {max(0, stock.quota):,} bytes, need at least {least:,} bytes ({state})",)
        slots = stock.of(STATE)
        if slots is not None and slots < case.slots:
            return (f"TensorRT-LLM does not start: the state pool has {slots:,} slots and needs {case.slots:,}",)
    return ()
