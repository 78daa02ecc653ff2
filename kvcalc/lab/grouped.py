"""Multi-query and grouped-query attention: fewer keys and values than queries.

    bytes = 2 x layers x G x head_dim x T x element size        G of H heads: G/H of multi-head attention
    MQA (arXiv:1911.02150): G = 1        GQA (arXiv:2305.13245): 1 < G < H, and G must divide H

Each K/V head serves H/G query heads, neighbours in order: queries 0 … H/G - 1 read K/V head 0.

What is easy to get wrong: the cache keeps G heads, and repeating them to H is something that happens to what is *read*. Repeat
before the cache, as early implementations did, and all the saving is gone, with the right output. The bytes must be looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.lab.attention import Attention
from kvcalc.lab.frame import build
from kvcalc.lab.lesson import Lesson

if TYPE_CHECKING:
    from kvcalc.lab.frame import Decoder
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial


def multi_query(sizes: Sizes) -> Decoder:
    """One key and one value for all heads."""
    return build(sizes, lambda weights, _: Attention(weights, sizes, kv_heads=1))


def grouped_query(sizes: Sizes) -> Decoder:
    """One key and one value for each group of heads."""
    return build(sizes, lambda weights, _: Attention(weights, sizes, kv_heads=sizes.groups))


def _note(kv_heads: int, heads: int) -> tuple[str, ...]:
    return (f"{kv_heads} of {heads} heads are kept: {kv_heads}/{heads} of multi-head attention",)


def _one(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del trial
    return _note(1, decoder.sizes.heads)


def _some(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del trial
    return _note(decoder.sizes.groups, decoder.sizes.heads)


LESSONS = {"mqa": Lesson(multi_query, notes=_one), "gqa": Lesson(grouped_query, notes=_some)}
