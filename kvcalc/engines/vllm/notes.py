"""What a reader has to know to follow vLLM's figures: of the pool, of several sequences, of the log's concurrency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.engines.vllm import family_caches
from kvcalc.engines.vllm.specs import CHUNKED, CROSS, RECURRENT, WINDOW_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.engines.vllm.pool import Pool
    from kvcalc.engines.vllm.start import Start

#: Kinds of layers that keep tokens in flight beside those that they can see.
LIMITED = (*WINDOW_KINDS, CHUNKED)
_SHOWN_GROUPS = 12


def pool_notes(start: Start, pool: Pool, context: int) -> list[str]:
    """Groups, tokens in flight, the null block, and a block size that was raised."""
    notes = list(family_caches.rule_of(start).notes(start))
    if len(pool.groups) > 1:
        sizes = ", ".join(str(len(group.layers)) for group in pool.groups[:_SHOWN_GROUPS])
        more = ", …" if len(pool.groups) > _SHOWN_GROUPS else ""
        notes.append(
            f"{len(pool.groups)} groups of layers ({sizes}{more}) draw from one pool; a block id costs {pool.block_bytes:,} B on the fullest GPU"
        )
    if _has(pool, *LIMITED):
        batches, step = start.scheduler.batches, start.scheduler.step_tokens(context)
        notes.append(f"window layers keep room for {batches * step:,} tokens in flight: {batches} x max_num_batched_tokens of {step:,}")
    if pool.groups:
        notes.append(
            f"the pool holds back one block of {pool.block_bytes:,} B a GPU (the null block): what fits counts it, the bytes of a cache do not"
        )
    asked = start.args["block_size"]
    if asked is not None and pool.block_size != asked:
        notes.append(f"block_size {asked} was raised to {pool.block_size} so that the pages of all layers line up")
    return notes


def sequence_notes(start: Start, pool: Pool, context: int, sequences: int) -> Iterator[str]:
    """How several sequences share a step, and what the rule leaves out; nothing where n sequences are n times one."""
    most, decoding = pool.request_blocks(context), pool.decoding_blocks(context)
    if sequences == 1 or (most == decoding and not _has(pool, CROSS)):
        return
    if most != decoding:
        yield (
            f"{sequences:,} sequences take {most:,} + {sequences - 1:,} x {decoding:,} blocks, by the scheduler's rule: the tokens of a step"
            " are held once for all, every other sequence decodes"
        )
    groups = sum(group.specs[0].kind == RECURRENT for group in pool.groups)
    batches, in_flight = start.scheduler.batches, start.scheduler.in_flight(context)
    if groups and start.align:
        extra = f"a prompt in work may hold {groups * (batches - 1):,} blocks more, and " if batches > 1 else ""
        yield (
            f"not counted: {extra}sequences that cross a block boundary in the same step hold {groups:,} more each for a moment"
            " (the scheduler then preempts, it does not fail)"
        )
    if _has(pool, *LIMITED):
        if context < in_flight:
            yield (
                f"not counted: a step in flight ({in_flight:,} tokens) is longer than a sequence, so a larger pool holds several prompts at"
                " once for a moment; a smaller one admits them a step later"
            )
        if start.workload.pipeline_parallel > 1:
            yield "not counted: with pipeline stages the last chunk of a prompt is freed some steps later, once for all sequences"
        if start.spec_tokens:
            yield "draft tokens in flight are counted as the scheduler's code says; no run was compared"
    if _has(pool, CROSS):
        yield "cross-attention is counted in full for every sequence, as the log counts it"


def concurrency_notes(pool: Pool, context: int) -> Iterator[str]:
    """Why the log's concurrency is not the number of sequences that run together."""
    most, decoding = pool.request_blocks(context), pool.decoding_blocks(context)
    if most != decoding:
        yield (
            f"the log's Maximum concurrency charges every request {most:,} blocks, a whole step in flight included; the scheduler shares the"
            f" step, so that a sequence more takes {decoding:,}: max_sequences counts that way"
        )


def _has(pool: Pool, *kinds: str) -> bool:
    return any(spec.kind in kinds for group in pool.groups for spec in group.kinds)
