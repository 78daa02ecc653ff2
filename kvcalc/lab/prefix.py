"""Prefix sharing: one copy of the blocks that sequences have in common, counted by their owners.

    bytes = (shared whole blocks + n x (ceil(T / B) - shared whole blocks)) x (bytes of a block), and the tables

* **prefix caching**: a new prompt that begins as an earlier one did takes over its blocks and computes only the rest. Only whole
  blocks match, and one changed token ends the match: everything after it was computed from it.
* **fork and copy-on-write**: n answers to one prompt share all its blocks, the half-filled last one included. The first owner that
  writes into a block with other owners copies it; the last owner writes in place.

What is easy to get wrong: a block's contents depend on *all* tokens before it, so it may be found again only by the whole text up to
its end, not by its own sixteen tokens. At least the last token of a prompt must be computed, even if every block matches, or there
are no logits. And a block goes back to the free list when its *last* owner leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvcalc.lab.kv import multi_head
from kvcalc.lab.lesson import Figure, Lesson, plan
from kvcalc.lab.paged import BLOCK, ENTRY_BYTES, PagedCache, Pool, blocks_for, contiguous_pool
from kvcalc.lab.trial import Sequence, Trial, draw, one_by_one

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from kvcalc.lab.frame import Cache, Decoder
    from kvcalc.lab.sizes import Sizes

#: Sequences that share.
SHARERS = 3

#: Two whole blocks and a half: what is shared as text, of which prefix caching shares the two.
COMMON = 2 * BLOCK + BLOCK // 2

#: What each sequence asks of its own after the common text.
OWN = BLOCK // 2


class SharedPool(Pool):
    """A pool whose blocks have a number of owners, and can be found by the text that they end."""

    def __init__(self, blocks: int, decoder: Decoder) -> None:
        super().__init__(blocks, decoder)
        self.owners = [0] * blocks
        self.by_text: dict[tuple[int, ...], int] = {}
        self.text_of: dict[int, tuple[int, ...]] = {}

    def take(self) -> int:
        """A free block, which is found no more by its old text."""
        block = super().take()
        self.by_text.pop(self.text_of.pop(block, ()), None)
        self.owners[block] = 1
        return block

    def share(self, block: int) -> None:
        """One more owner; a free block whose text is still known comes back to life."""
        if self.owners[block] == 0:
            self.free.remove(block)
        self.owners[block] += 1

    def own(self, block: int) -> int:
        """Copy-on-write: a block of one owner is written in place, any other is copied first."""
        if self.owners[block] == 1:
            return block
        copy = self.take()
        self.keys[:, copy] = self.keys[:, block]
        self.values[:, copy] = self.values[:, block]
        self.owners[block] -= 1
        return copy

    def give_back(self, block: int) -> None:
        """Free when the last owner leaves; its text is known until the block is taken again."""
        self.owners[block] -= 1
        if self.owners[block] == 0:
            super().give_back(block)

    def name(self, block: int, text: tuple[int, ...]) -> None:
        """Make a full block known by the whole text up to its end; the first of equals keeps the name."""
        if text not in self.by_text:
            self.by_text[text] = block
            self.text_of[block] = text

    def match(self, prompt: list[int]) -> list[int]:
        """The blocks of the longest known beginning of `prompt`, short of its last token."""
        found: list[int] = []
        for end in range(BLOCK, len(prompt), BLOCK):
            block = self.by_text.get(tuple(prompt[:end]))
            if block is None:
                break
            found.append(block)
        return found


class SharingCache(PagedCache):
    """A paged cache that takes over known blocks, names its own, and can be forked."""

    def __init__(self, pool: SharedPool, prompt: Tensor) -> None:
        super().__init__(pool)
        self.pool = pool
        self.text: list[int] = []
        self._take_over(pool.match(prompt.tolist()), prompt.tolist())

    def _take_over(self, blocks: list[int], text: list[int]) -> None:
        for block in blocks:
            self.pool.share(block)
        self.table.blocks = list(blocks)
        self.table.entries = torch.tensor(blocks, dtype=torch.int32, device=self.pool.keys.device)
        self.length = min(len(blocks) * BLOCK, len(text))
        self.text = text[: self.length]

    def advance(self, tokens: Tensor) -> None:
        """Positions continue, and the blocks that are now full get their names."""
        full = self.length // BLOCK
        super().advance(tokens)
        self.text += tokens.tolist()
        for index in range(full, self.length // BLOCK):
            self.pool.name(self.table.blocks[index], tuple(self.text[: (index + 1) * BLOCK]))

    def fork(self) -> SharingCache:
        """A second owner of everything that is held, the half-filled block included."""
        twin = SharingCache(self.pool, torch.empty(0, dtype=torch.long))
        twin._take_over(self.table.blocks, self.text)
        return twin

    def reset(self) -> None:
        """Leave every block to its other owners."""
        super().reset()
        self.text = []


def _answers(sizes: Sizes) -> int:
    """Tokens decoded by each sequence: half of what one sequence alone would be given."""
    return max(1, sizes.tokens // 2)


def one_system_prompt(sizes: Sizes) -> Trial:
    """A common beginning, a question of its own for each, and the answers."""
    prompt = COMMON + OWN
    total = prompt + _answers(sizes)
    common = draw(sizes, COMMON)
    own = [draw(sizes, total - COMMON, seed) for seed in range(2, 2 + SHARERS)]
    return Trial(tuple(Sequence(torch.cat((common, rest)), one_by_one(prompt, total)) for rest in own))


def one_prompt(sizes: Sizes) -> Trial:
    """One prompt, answered several times."""
    total = COMMON + _answers(sizes)
    common = draw(sizes, COMMON)
    own = [draw(sizes, total - COMMON, seed) for seed in range(2, 2 + SHARERS)]
    return Trial(tuple(Sequence(torch.cat((common, rest)), one_by_one(COMMON, total)) for rest in own))


def _open_prefix(decoder: Decoder, trial: Trial) -> Callable[[Sequence], Cache]:
    pool = contiguous_pool(decoder, trial, SharedPool)
    return lambda sequence: SharingCache(pool, sequence.prompt)  # type: ignore[arg-type]


def _open_fork(decoder: Decoder, trial: Trial) -> Callable[[Sequence], Cache]:
    pool = contiguous_pool(decoder, trial, SharedPool)
    first: list[SharingCache] = []

    def open_(sequence: Sequence) -> Cache:
        if first:
            return first[0].fork()
        first.append(SharingCache(pool, sequence.prompt))  # type: ignore[arg-type]
        return first[0]

    return open_


def _figure(decoder: Decoder, trial: Trial) -> Figure:
    """The ideal engine at whole blocks, with the whole blocks of the common text as shared prefix; and the tables."""
    blocks, shared = blocks_for(trial.longest), COMMON // BLOCK
    found = plan(decoder.architecture(), blocks * BLOCK, sequences=SHARERS, shared_prefix=shared * BLOCK)
    token = plan(decoder.architecture(), 1).total
    entries = SHARERS * blocks
    slots = f"({shared} + {SHARERS} x {blocks - shared}) blocks x {BLOCK}"
    return Figure(found.total + ENTRY_BYTES * entries, f"{slots} x {token:,} B + {entries} table entries x {ENTRY_BYTES} B")


def _prefix_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del decoder, trial
    return (
        f"{SHARERS} sequences share a text of {COMMON} tokens: {COMMON // BLOCK} whole blocks of {BLOCK} are kept once, and not computed again",
    )


def _fork_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del decoder, trial
    return (
        f"{SHARERS} answers to one prompt of {COMMON} tokens: its half-filled last block is copied by the first two that write into it",
    )


LESSONS = {
    "prefix": Lesson(multi_head, open=_open_prefix, trial=one_system_prompt, figure=_figure, notes=_prefix_note),
    "fork": Lesson(multi_head, open=_open_fork, trial=one_prompt, figure=_figure, notes=_fork_note),
}
