"""Paged attention (vLLM, arXiv:2309.06180): blocks of B tokens, taken from a pool when they are needed.

    bytes = Σ over sequences of ceil(T / B) x B x (bytes of a token), and a block table of 4 B an entry
    waste < B slots for each sequence, none between sequences

A sequence owns a *block table*: the numbers of its blocks, in order. The token at position p stands in block table[p // B], slot
p % B. Blocks of one sequence lie anywhere in the pool. When it ends, they go back to the *free list*, and the next sequence takes
them, whatever its length: no hole is ever too small.

What is easy to get wrong: one table serves all layers, so a block is taken once a token range, not once a layer; a block that comes
back is not wiped, so only the first T slots may be read; and the last block is charged whole, though one token may fill it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import torch

from kvcalc.lab.attention import Seen
from kvcalc.lab.frame import Cache
from kvcalc.lab.kv import multi_head
from kvcalc.lab.lesson import Figure, Lesson, plan
from kvcalc.lab.trial import Sequence, Trial, draw, one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from kvcalc.lab.frame import Decoder
    from kvcalc.lab.sizes import Sizes

#: Tokens of a block: vLLM's default.
BLOCK = 16

#: An int32 of a block table.
ENTRY_BYTES = 4

#: Lengths of the three sequences that share the pool, as parts of a single one's.
PARTS = ((1, 1), (2, 3), (1, 3))


class OutOfBlocksError(Exception):
    """The pool is empty: a serving engine would now preempt a sequence."""


class Pool:
    """All blocks of all layers, and the list of those that are free."""

    def __init__(self, blocks: int, decoder: Decoder) -> None:
        sizes = decoder.sizes
        shape = (sizes.layers, blocks, sizes.heads, BLOCK, sizes.head_dim)
        self.keys = torch.zeros(shape, device=sizes.device)
        self.values = torch.zeros(shape, device=sizes.device)
        self.free = deque(range(blocks))

    def take(self) -> int:
        """A free block's number. Raises OutOfBlocksError."""
        if not self.free:
            raise OutOfBlocksError
        return self.free.popleft()

    def own(self, block: int) -> int:
        """A block that may be written to in place of `block`: here, every block has one owner."""
        return block

    def give_back(self, block: int) -> None:
        """One owner is done with the block."""
        self.free.append(block)


class Table:
    """The blocks of one sequence, in order."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self.entries = self._entries()

    def _entries(self) -> Tensor:
        return torch.tensor(self.blocks, dtype=torch.int32, device=self.pool.keys.device)

    def make_room(self, start: int, end: int) -> None:
        """Blocks that may be written to for the positions from `start` to `end`; does nothing where they are there already."""
        before = list(self.blocks)
        for index in range(start // BLOCK, -(-end // BLOCK)):
            if index == len(self.blocks):
                self.blocks.append(self.pool.take())
            else:
                self.blocks[index] = self.pool.own(self.blocks[index])
        if self.blocks != before:
            self.entries = self._entries()

    def tensors(self) -> tuple[Tensor, ...]:
        """The blocks in use, K and V of every layer, and the table itself."""
        blocks = (part[:, block] for block in self.blocks for part in (self.pool.keys, self.pool.values))
        return (*blocks, self.entries)

    def release(self) -> None:
        """Give every block back."""
        for block in self.blocks:
            self.pool.give_back(block)
        self.blocks = []
        self.entries = self._entries()


class PagedStore:
    """One layer's view of a sequence: its part of the pool, read and written through the table."""

    def __init__(self, table: Table, layer: int) -> None:
        self.table = table
        self.keys = table.pool.keys[layer]
        self.values = table.pool.values[layer]

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """Write the new tokens into their slots; gather all blocks, and cut off what is not filled."""
        end = int(at[-1]) + 1
        self.table.make_room(end - at.shape[-1], end)
        entries = self.table.entries
        blocks, slots = entries[at // BLOCK].long(), at % BLOCK
        self.keys[blocks, :, slots] = keys.transpose(0, 1)
        self.values[blocks, :, slots] = values.transpose(0, 1)
        return Seen(self._gather(self.keys, end), self._gather(self.values, end), torch.arange(end, device=at.device))

    def _gather(self, pool: Tensor, end: int) -> Tensor:
        return pool.index_select(0, self.table.entries).transpose(0, 1).flatten(1, 2)[:, :end]

    def tensors(self) -> tuple[Tensor, ...]:
        """The table, which serves all layers, shows the blocks."""
        return ()

    def reset(self) -> None:
        """The table does it for all layers."""


class PagedCache(Cache):
    """The stores of a sequence's layers over one table."""

    def __init__(self, pool: Pool) -> None:
        self.table = Table(pool)
        super().__init__([PagedStore(self.table, layer) for layer in range(pool.keys.shape[0])])

    def tensors(self) -> tuple[Tensor, ...]:
        """Blocks in use and the table."""
        return self.table.tensors()

    def reset(self) -> None:
        """Give the blocks back."""
        self.table.release()
        super().reset()


def blocks_for(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK)


def unequal(sizes: Sizes) -> Trial:
    """Three sequences, alive together, whose lengths and prompts are unequal."""
    found = []
    for number, (part, whole) in enumerate(PARTS):
        prompt = sizes.prompt + number
        total = max(prompt + 1, sizes.total * part // whole)
        found.append(Sequence(draw(sizes, total, seed=1 + number), one_by_one(prompt, total)))
    return Trial(tuple(found))


def contiguous_pool(decoder: Decoder, trial: Trial, make: Callable[[int, Decoder], Pool] = Pool) -> Pool:
    """A pool as large as room for the longest sequence, for each sequence: what paging saves against."""
    return make(len(trial.sequences) * blocks_for(trial.longest), decoder)


def _open(decoder: Decoder, trial: Trial) -> Callable[[Sequence], Cache]:
    pool = contiguous_pool(decoder, trial)
    return lambda _: PagedCache(pool)


def _figure(decoder: Decoder, trial: Trial) -> Figure:
    """The ideal engine at whole blocks, and the tables."""
    counts = [blocks_for(sequence.stops[-1]) for sequence in trial.sequences]
    total = sum(plan(decoder.architecture(), count * BLOCK).total for count in counts)
    token = plan(decoder.architecture(), 1).total
    slots = " + ".join(f"{count} x {BLOCK}" for count in counts)
    return Figure(total + ENTRY_BYTES * sum(counts), f"({slots}) slots x {token:,} B + {sum(counts)} table entries x {ENTRY_BYTES} B")


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del decoder
    lengths = [sequence.stops[-1] for sequence in trial.sequences]
    held, tokens = sum(blocks_for(length) for length in lengths) * BLOCK, sum(lengths)
    contiguous = len(lengths) * blocks_for(trial.longest) * BLOCK
    return (
        f"sequences of {', '.join(map(str, lengths))} tokens: {held} slots held for {tokens}, where room for the longest would be {contiguous}",
    )


LESSONS = {"paged": Lesson(multi_head, open=_open, trial=unequal, figure=_figure, notes=_note)}
