"""Tokens per block (vLLM 0.33, platforms/interface.py, update_block_size_for_backend).

start      --block-size, else 16 or the smallest size that every backend reads (backends.py)

hybrids    t = bytes of a token in one attention layer      page = the largest recurrent page
           a = max(smallest kernel block, start)            at least 128 for MLA
           a = lcm(a, alignment of prefill checkpoints)     with prefix caching
           block = a x ⌈page / (a x t)⌉                     rounded up to every backend's kernel block, never lowered
           recurrent pages are padded to block x t

mixed types (layers that keep the model's type)
           a = max(smallest kernel block, block)
           block = a x ⌈max(T x smallest kernel block, recurrent page) / (a x t)⌉       T = bytes of a token in the model's type
           window layers are padded to block x t
"""

from __future__ import annotations

import math
from typing import NamedTuple

#: MLA kernels for decoding want manager blocks that are a multiple of this in hybrid models.
_MLA_HYBRID_BLOCK = 128


class Blocks(NamedTuple):
    """Block size, the page that recurrent layers are padded to, and the page that window layers are padded to (0: none)."""

    size: int
    recurrent_page: int = 0
    window_page: int = 0


def align_hybrid(
    start: Blocks, *, kernel: int, kernels: tuple[int, ...], token_bytes: int, recurrent_page: int, mla: bool, checkpoint: int
) -> Blocks:
    """Blocks whose attention page is at least as large as a recurrent page.

    kernel        smallest kernel block of the first attention backend; kernels of all of them
    checkpoint    alignment of prefill checkpoints, 1 for none
    """
    if not recurrent_page:
        return start
    step = max(kernel, start.size, _MLA_HYBRID_BLOCK if mla else 0)
    step = math.lcm(step, checkpoint)
    size = step * -(-recurrent_page // (step * token_bytes))
    every = math.lcm(*kernels)
    size = max(start.size, every * -(-size // every))
    page = size * token_bytes
    return start._replace(size=size, recurrent_page=0 if page == recurrent_page else page)


def align_mixed(start: Blocks, *, kernel: int, token_bytes: int, model_token_bytes: int) -> Blocks:
    """Blocks whose page in the cache's type holds a smallest kernel block in the model's type."""
    if model_token_bytes == token_bytes:
        return start
    step = max(kernel, start.size)
    needed = max(model_token_bytes * kernel, start.recurrent_page)
    size = max(start.size, step * -(-needed // (step * token_bytes)))
    page = size * token_bytes
    return Blocks(size, page if start.recurrent_page else 0, page)
