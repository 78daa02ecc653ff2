"""The lab: a small decoder for each technique, run and measured on this machine. Nobody should have to believe a calculator.

    bytes    of the cache's tensors, against the figure that kvcalc computes from the same geometry: equal
    output   with the cache, against the same text recomputed without one: equal, or the error shown
    time     of a token, both ways

Each file is a lesson: what is kept, the formula, what is easy to get wrong, and the code. `frame.py` is what they share. This module
lists them and needs no PyTorch; everything else here does (`pip install 'kvcalc[lab]'`).
"""

from __future__ import annotations

from typing import NamedTuple

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean


class Entry(NamedTuple):
    """A row of the lab: the module of its lesson, the technique that it shows, and what is kept, in a few words."""

    module: str
    technique: str
    about: str


#: Every row, in the order in which the techniques build on each other.
ENTRIES: dict[str, Entry] = {
    "no-cache": Entry("recompute", "no cache", "nothing: every step reads the whole text again"),
    "kv": Entry("kv", "kv cache", "K and V of every head, appended"),
    "kv-preallocated": Entry("kv", "kv cache", "the same, with room for the longest text from the start"),
    "mqa": Entry("grouped", "mqa", "one K and V for all heads"),
    "gqa": Entry("grouped", "gqa", "one K and V for each group of heads"),
    "mla": Entry("latent", "mla", "a latent and a rotary key, expanded to be read"),
    "mla-absorbed": Entry("latent", "mla", "the same, read by an absorbed query"),
    "swa": Entry("sliding", "sliding window", "the last W tokens in a ring"),
    "swa-hybrid": Entry("sliding", "sliding window", "five sliding layers for each full one"),
    "chunked": Entry("chunked", "sliding window", "the current chunk"),
    "share": Entry("sharing", "cross-layer sharing", "every second layer reads its neighbour"),
    "dsa": Entry("sparse", "dsa", "MLA's rows and an index key each; the top k are read"),
    "deltanet": Entry("deltanet", "gated deltanet", "one matrix a head and a short convolution's inputs"),
    "deltanet-hybrid": Entry("deltanet", "gated deltanet", "three recurrent layers for each full one"),
    "mamba2": Entry("mamba2", "gated deltanet", "Mamba-2: one matrix a head and a short convolution's inputs"),
    "int8": Entry("quantised", "kv quantisation", "8 bits, K by channel and V by token"),
    "int4": Entry("quantised", "kv quantisation", "4 bits, two in a byte, K by channel and V by token"),
    "int8-token": Entry("quantised", "kv quantisation", "8 bits, K and V by token, as --kv-dtype int8 counts"),
    "int4-token": Entry("quantised", "kv quantisation", "4 bits, K and V by token, as --kv-dtype int4 counts"),
    "paged": Entry("paged", "paged", "blocks of 16 tokens from a pool, and a block table"),
    "prefix": Entry("prefix", "prefix caching", "the whole blocks of a common beginning once"),
    "fork": Entry("prefix", "prefix caching", "one prompt's blocks for several answers, copied on write"),
    "batch": Entry("batch", "kv cache", "rows of unequal lengths, padded to the longest"),
    "turns": Entry("turns", "multi-turn policies", "the whole conversation"),
    "turns-window": Entry("turns", "multi-turn policies", "the last W tokens of a conversation"),
    "turns-sinks": Entry("turns", "multi-turn policies", "the first 4 tokens and the last W"),
    "turns-summary": Entry("summary", "multi-turn policies", "system prompt, a summary, and the last turns"),
}

#: What `kvcalc lab` runs when it is given no name.
FIRST = ("kv",)


def choose(names: list[str], *, everything: bool = False) -> list[str]:
    """The rows to run, in the lab's order, each once. Raises UsageError naming the nearest ones."""
    for name in names:
        if name not in ENTRIES:
            raise UsageError(f"lab: unknown technique '{clean(name, 40)}'", nearest(name, ENTRIES) or "one of " + ", ".join(ENTRIES))
    wanted = ENTRIES if everything else names or FIRST
    return [name for name in ENTRIES if name in wanted]


def require_torch() -> None:
    """Raises UsageError where PyTorch is missing or cannot be loaded."""
    try:
        import torch  # noqa: F401
    except (ImportError, OSError):
        raise UsageError("kvcalc lab runs real tensors and needs PyTorch, which is not installed", "pip install 'kvcalc[lab]'") from None
