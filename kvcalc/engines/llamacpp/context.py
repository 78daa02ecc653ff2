"""The geometry of a llama.cpp context: cells, streams, batches, rows of state.

    n_batch   = min(n_ctx, batch_size)            n_ubatch = min(n_batch, ubatch_size or batch_size)
    unified:  n_ctx_seq = pad256(n_ctx)                            one stream
    split:    n_ctx_seq = pad256(pad256(n_ctx) // slots)           a stream a slot
    window:   pad256(min(n_ctx_seq, window x (slots if unified else 1) + n_ubatch)), or n_ctx_seq with swa_full
    ratio r:  pad256(ceil(n_ctx_seq / r)), a stream a slot
    state:    (1 + n_rs_seq) rows a slot

1024 cells over 3 split slots: pad256(1024 // 3) = 512 each, 1536 in all: more than asked. (llama-context.cpp,
llama-kv-cache-iswa.cpp, llama-kv-cache-dsv4.cpp, llama-memory-recurrent.cpp)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: GGML_PAD of a context and of a window cache.
PAD = 256


def pad(cells: int) -> int:
    """Rounded up to the next multiple of 256."""
    return -(-cells // PAD) * PAD


class Rows(NamedTuple):
    """Rows of one tensor: `each` in every one of `streams`, and how that came about."""

    each: int
    streams: int
    text: str

    @property
    def total(self) -> int:
        """Rows of the whole tensor."""
        return self.each * self.streams


@dataclass(frozen=True, slots=True)
class Context:
    """One context.

    cells       n_ctx_seq: cells a full layer holds in each stream
    slots       n_seq_max          unified   one stream for all slots
    ubatch      n_ubatch           rollback  rows of recurrent state that speculation can go back to
    window      the model's window, 0 without one                   everything   swa_full
    """

    cells: int
    slots: int
    unified: bool
    ubatch: int
    rollback: int = 0
    window: int = 0
    everything: bool = False

    @property
    def streams(self) -> int:
        """Parts that full and window caches have."""
        return 1 if self.unified else self.slots

    def full(self) -> Rows:
        """Rows of a layer that holds every token."""
        return Rows(self.cells, self.streams, f"{self.cells:,} cells")

    def sliding(self, *, per_slot: bool = False) -> Rows:
        """Rows of a window layer; `per_slot` keeps a stream for every slot of a unified context."""
        pooled = self.unified and not per_slot
        streams = 1 if pooled else self.slots
        if self.everything:
            return Rows(self.cells, streams, f"{self.cells:,} cells (swa_full)")
        factor = self.slots if pooled else 1
        needed = self.window * factor + self.ubatch
        cells = pad(min(self.cells, needed))
        windows = f"{factor} x {self.window:,}" if factor > 1 else f"{self.window:,}"
        return Rows(cells, streams, f"{cells:,} cells = pad256(min({self.cells:,}, {windows} + {self.ubatch:,}))")

    def compressed(self, ratio: int) -> Rows:
        """Rows of a layer that keeps one entry for `ratio` tokens."""
        cells = pad(max(1, -(-self.cells // ratio)))
        return Rows(cells, self.slots, f"{cells:,} cells = pad256({self.cells:,} / {ratio})")

    def states(self, rows: int) -> Rows:
        """Rows of recurrent state."""
        each = rows * (1 + self.rollback)
        text = f"{each:,} rows" if not self.rollback else f"{each:,} rows = {rows:,} x (1 + {self.rollback} to roll back)"
        return Rows(each, self.slots, text)

    @property
    def is_saturated(self) -> bool:
        """Window layers no longer grow with the context."""
        factor = self.slots if self.unified else 1
        return not self.everything and self.cells >= self.window * factor + self.ubatch
