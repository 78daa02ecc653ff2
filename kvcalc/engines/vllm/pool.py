"""The pool of blocks: how many there are, how many requests take, what fits (vLLM 0.33, kv_cache_planning.py, kv_cache_utils.py, scheduler.py).

blocks            memory // bytes of a block id, the smallest over all GPUs; num_gpu_blocks_override replaces it
A, of a request   sum over groups of the most blocks that one of its layers takes: what admits it, and what the log counts
S, while decoding sum over groups of what is left when its prompt is through: the tokens of a step belong to all requests together
of n requests     A + (n - 1) x S
concurrency       blocks / A                              tokens in the log = int(concurrency x max_model_len)
fits              blocks of n requests <= blocks - 1      block 0 is the null block and is never given out

Run against the engine's own Scheduler and KVCacheManager on a CPU: the smallest pool that runs n requests together without
a preemption is this within 0.4 % for n = 1 to 16.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.engines.vllm.groups import Group, block_bytes
from kvcalc.engines.vllm.specs import FULL_KINDS, Demand, Spec, decoding_blocks, request_blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.states import AnyState
    from kvcalc.engines.vllm.recurrent import Tensor


#: Contexts whose blocks a pool remembers.
_KNOWN = 1024


class CacheLayer(NamedTuple):
    """One thing that vLLM keeps a cache for: a state of a layer, on a pipeline stage; `tensors` of recurrent layers."""

    layer: int
    stage: int
    state: AnyState
    spec: Spec
    tensors: tuple[Tensor, ...] = ()


class Blocks(NamedTuple):
    """Blocks of one request in a group: at most, as admission and the log count them, and while it decodes."""

    most: int
    decoding: int

    def of(self, sequences: int, shared: int = 0) -> int:
        """Blocks of `sequences` requests of which `shared` blocks are one and the same: one with a step in flight, the others decode."""
        return self.most + (sequences - 1) * (self.decoding - shared)


@dataclass(frozen=True, slots=True)
class Pool:
    """Groups, and what a block id costs on each pipeline stage.

    layers       every cache layer, in order; groups refer to them by number
    stages       bytes of a block id on a GPU of each pipeline stage
    demand       max_model_len → what one request asks
    block_size   vLLM's own block size after all adjustments
    ranks        tensor parallel ranks of a stage
    """

    layers: tuple[CacheLayer, ...]
    groups: tuple[Group, ...]
    stages: tuple[int, ...]
    demand: Callable[[int], Demand]
    block_size: int
    ranks: int
    override: int | None = None
    shares_prefixes: bool = False
    _known: dict[int, tuple[Blocks, ...]] = field(default_factory=dict, repr=False)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block id on the fullest GPU."""
        return max(self.stages)

    @property
    def all_devices(self) -> int:
        """Bytes of a block id on all GPUs together."""
        return sum(self.stages) * self.ranks

    def by_group(self, context: int) -> tuple[Blocks, ...]:
        """Blocks of one request, at most and while it decodes, group by group."""
        found = self._known.get(context)
        if found is None:
            demand = self.demand(context)
            found = tuple(
                Blocks(
                    max(request_blocks(spec, demand) for spec in group.kinds),
                    max(decoding_blocks(spec, demand) for spec in group.kinds),
                )
                for group in self.groups
            )
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[context] = found
        return found

    def group_blocks(self, context: int) -> tuple[int, ...]:
        """Blocks of one request, group by group."""
        return tuple(blocks.most for blocks in self.by_group(context))

    def request_blocks(self, context: int) -> int:
        """Blocks of one request of full length."""
        return sum(blocks.most for blocks in self.by_group(context))

    def decoding_blocks(self, context: int) -> int:
        """Blocks of one request of full length while it decodes."""
        return sum(blocks.decoding for blocks in self.by_group(context))

    def shared_blocks(self, context: int, prefix: int) -> tuple[int, ...]:
        """Blocks, group by group, that hold nothing but a prefix that all requests share: whole blocks of full attention alone."""
        if not prefix or not self.shares_prefixes:
            return (0,) * len(self.groups)
        demand = self.demand(context)
        return tuple(
            prefix // (group.specs[0].block * (demand.dcp if group.specs[0].sharded else 1)) if group.specs[0].kind in FULL_KINDS else 0
            for group in self.groups
        )

    def used_blocks(self, context: int, sequences: int, prefix: int = 0) -> int:
        """Blocks that let `sequences` requests of full length run together."""
        shared = sum(self.shared_blocks(context, prefix))
        return self.request_blocks(context) + (sequences - 1) * (self.decoding_blocks(context) - shared)

    def blocks(self, memory: int) -> int:
        """Blocks of `memory` bytes on each GPU."""
        if self.override is not None:
            return self.override
        return min(memory // stage for stage in self.stages if stage) if self.groups else 1

    def left(self, memory: int, context: int, sequences: int, prefix: int = 0) -> int:
        """What stays free of `memory` beside `sequences` requests of `context` tokens and the null block; below 0 where they do not fit.

        Bytes of the fullest GPU; blocks where their number is given, 0 where nothing is kept.
        """
        if not self.groups:
            return 0
        needed = self.used_blocks(context, sequences, prefix) + 1
        return self.override - needed if self.override is not None else memory - needed * self.block_bytes


def make_pool(
    layers: tuple[CacheLayer, ...],
    groups: tuple[Group, ...],
    stage_count: int,
    *,
    demand: Callable[[int], Demand],
    block_size: int,
    ranks: int,
    override: int | None,
    shares_prefixes: bool,
    block_outermost: bool,
) -> Pool:
    """The pool of these groups; with several stages, each counts its own layers."""
    if not groups:
        stages: tuple[int, ...] = (0,) * stage_count
    elif stage_count == 1:
        stages = (block_bytes(groups, None, block_outermost=block_outermost),)
    else:
        members = [frozenset(number for number, layer in enumerate(layers) if layer.stage == stage) for stage in range(stage_count)]
        stages = tuple(block_bytes(groups, held, block_outermost=block_outermost) for held in members)
    return Pool(layers, groups, stages, demand, block_size, ranks, override, shares_prefixes)
