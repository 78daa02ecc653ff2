"""One block of one layer on one GPU (vLLM 0.33, v1/kv_cache_interface.py).

    attention   page = head slots x (block / tokens a state) x bytes of a slot         recurrent   page = the state, whatever the block
    page is never smaller than what alignment with other layers padded it to

blocks of one request (L = max_model_len, F = tokens in flight, W = window, C = chunk)

    full, MLA         ⌈L / block⌉, with decode context parallelism ⌈⌈L / dcp⌉ / block⌉
    window            ⌈min(W - 1 + e + F, L) / block⌉ + 1             e: kept for multi-module MTP
    chunk             ⌈min(C + F, L) / block⌉
    recurrent         1 + s without prefix caching, else 2 + s + checkpoint
    cross-attention   ⌈encoder tokens of a step / block⌉

blocks of one request that decodes (f = concurrent batches x (1 + s) tokens in flight, and s more looked ahead by a drafter's layers)

    full, MLA         as above
    window            min(⌈L / block⌉, ⌈(W - 2 + e + f) / block⌉ + 1)
    chunk             ⌈min(C, L) / block⌉
    recurrent         1 + s
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

FULL, MLA, SLIDING, SLIDING_MLA, CHUNKED, RECURRENT, CROSS, RING = (
    "full",
    "mla",
    "sliding",
    "sliding_mla",
    "chunked",
    "recurrent",
    "cross",
    "ring",
)
#: Kinds that share a block table when their blocks are equal: they need the same number of slots.
FULL_KINDS = (FULL, MLA)
WINDOW_KINDS = (SLIDING, SLIDING_MLA)


class Spec(NamedTuple):
    """Layers with equal specs are alike to the planner; every field takes part in that.

    block      tokens of one block
    row        bytes of one stored state (all head slots); the whole page of a recurrent layer
    shape      heads and widths: layers of different shape do not merge, though their bytes may agree
    format     the storage format
    per_state  tokens that one stored state covers
    limit      window or chunk; the draft tokens of a recurrent layer
    padded     page after alignment with other layers; 0 = as it is
    alignment  pages are rounded up to a multiple of this
    stride     blocks stand a multiple of this apart (block-outermost layouts)
    checkpoint states more that prefix caching takes, and the alignment of recurrent checkpoints
    role       tells index keys from latents
    sharded    decode context parallelism spreads the tokens
    copied     a recurrent state that every tensor parallel rank holds whole
    """

    kind: str
    block: int
    row: int
    shape: tuple[int, ...]
    format: str
    per_state: int = 1
    limit: int = 0
    padded: int = 0
    alignment: int = 1
    stride: int = 1
    checkpoint: tuple[int, int] = (0, 0)
    role: str = ""
    sharded: bool = True
    copied: bool = False

    @property
    def natural(self) -> int:
        """The page before any padding to other layers' pages."""
        if self.kind == RECURRENT:
            return self.row
        page = self.row * (self.block // self.per_state)
        return -(-page // self.alignment) * self.alignment

    @property
    def page(self) -> int:
        """Bytes of one block of one layer on one GPU."""
        return max(self.natural, self.padded)

    @property
    def slots(self) -> int:
        """Stored states in a block."""
        return 1 if self.kind == RECURRENT else self.block // self.per_state


class Demand(NamedTuple):
    """What one request asks of the blocks.

    context    max_model_len
    in_flight  F
    dcp        decode context parallel size
    retained   extra tokens below a window
    align      prefix caching keeps states of recurrent layers
    encoder    encoder tokens of a step
    decoding   tokens that a request which decodes has in flight or looks ahead
    """

    context: int
    in_flight: int
    dcp: int = 1
    retained: int = 0
    align: bool = False
    encoder: int = 0
    decoding: int = 1


def held_tokens(spec: Spec, demand: Demand) -> int:
    """Tokens that one request reserves in a layer, before they are rounded to blocks."""
    return _HELD[spec.kind](spec, demand)


def _all(spec: Spec, demand: Demand) -> int:
    return -(-demand.context // demand.dcp) if spec.sharded else demand.context


_HELD: dict[str, Callable[[Spec, Demand], int]] = {
    FULL: _all,
    MLA: _all,
    SLIDING: lambda spec, demand: min(spec.limit - 1 + demand.retained + demand.in_flight, demand.context),
    SLIDING_MLA: lambda spec, demand: min(spec.limit - 1 + demand.retained + demand.in_flight, demand.context),
    CHUNKED: lambda spec, demand: min(spec.limit + demand.in_flight, demand.context),
    CROSS: lambda _spec, demand: demand.encoder,
}


def request_blocks(spec: Spec, demand: Demand) -> int:
    """Blocks that one request of full length takes in a layer."""
    if spec.kind == RECURRENT:
        return 2 + spec.limit + spec.checkpoint[0] if demand.align else 1 + spec.limit
    if spec.kind == RING:
        return 1
    blocks = -(-held_tokens(spec, demand) // spec.block)
    return blocks + 1 if spec.kind in WINDOW_KINDS else blocks


def decoding_tokens(spec: Spec, demand: Demand) -> int:
    """Tokens that a request of full length reserves in a layer while it decodes, before they are rounded to blocks.

    A block is given back once the request is scheduled again after the step that read it was settled (v1/core/single_type_kv_cache_manager.py).
    """
    most = held_tokens(spec, demand)
    if spec.kind in WINDOW_KINDS:
        return min(spec.limit - 1 + demand.retained + demand.decoding, most)
    if spec.kind == CHUNKED:
        return min(spec.limit, most)
    return most


def decoding_blocks(spec: Spec, demand: Demand) -> int:
    """Blocks that one request of full length holds in a layer while it decodes; never more than `request_blocks`."""
    if spec.kind == RECURRENT:
        return 1 + spec.limit
    if spec.kind == RING:
        return 1
    tokens = decoding_tokens(spec, demand)
    if spec.kind in WINDOW_KINDS:  # a run of n tokens touches at most ⌈(n - 1) / block⌉ + 1 blocks
        return min(-(-demand.context // spec.block), -(-(tokens - 1) // spec.block) + 1)
    return -(-tokens // spec.block)
