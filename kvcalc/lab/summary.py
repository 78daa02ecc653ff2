"""A summary in place of older turns: what the cache can keep is the system prompt, and no more.

    rows = system + summary + last turn + new turn        however long the conversation was
    read again at the turn: all of it but the system prompt

The older turns' rows go, and a few tokens that say what they said come in their place. The last turn stays in the *text*, but its
rows cannot stay in the cache: its tokens now stand at other positions, and were computed from a text that is no longer there. So the
cache is cut to the beginning that both texts have in common, and everything behind it is read again, as a prefix cache would.

What is easy to get wrong: to keep the last turn's rows because its words are the same. And to cut by a view: the slice of a long
cache keeps the whole of it in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvcalc.lab.attention import Append
from kvcalc.lab.kv import multi_head
from kvcalc.lab.lesson import Lesson
from kvcalc.lab.trial import Sequence, Trial, draw, one_by_one
from kvcalc.lab.turns import TURNS, turn_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from kvcalc.lab.frame import Cache, Decoder
    from kvcalc.lab.sizes import Sizes


class Cut(Append):
    """Keys and values of every token, which can be cut back to a beginning."""

    def cut(self, length: int) -> None:
        """Only the first `length` tokens stay, in memory of their own."""
        if self.keys is not None and self.values is not None:
            self.keys = self.keys[..., :length, :].clone()
            self.values = self.values[..., :length, :].clone()


def system_of(sizes: Sizes) -> int:
    """Tokens of the system prompt: as many as a prompt of the other lessons."""
    return sizes.prompt


def digest_of(sizes: Sizes) -> int:
    """Tokens of the summary: half as many."""
    return -(-sizes.prompt // 2)


def after_summary(sizes: Sizes) -> Trial:
    """The last turn's prompt (system prompt, summary, the turn before, the user's text), and its reply token by token."""
    before = turn_of(sizes)
    prompt = system_of(sizes) + digest_of(sizes) + before + sizes.prompt
    total = prompt + before - sizes.prompt
    return Trial((Sequence(draw(sizes, total), one_by_one(prompt, total)),))


def before_summary(sizes: Sizes, after: Tensor) -> Tensor:
    """The conversation until then: the same system prompt, and the whole of all turns but the last."""
    older = draw(sizes, (TURNS - 1) * turn_of(sizes), seed=2)
    return torch.cat((after[: system_of(sizes)], older))


def _open(decoder: Decoder, trial: Trial) -> Callable[[Sequence], Cache]:
    del trial

    def open_(sequence: Sequence) -> Cache:
        stores = [Cut() for _ in decoder.mixers]
        cache = decoder.start(iter(stores).__next__)
        decoder(before_summary(decoder.sizes, sequence.tokens), cache)
        cache.length = system_of(decoder.sizes)
        for store in stores:
            store.cut(cache.length)
        return cache

    return open_


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    sizes = decoder.sizes
    older = (TURNS - 1) * turn_of(sizes)
    whole = system_of(sizes) + older + turn_of(sizes)
    again = len(trial.sequences[0].prompt) - system_of(sizes)
    return (f"{trial.longest} tokens are held instead of {whole}; the turn reads {again} tokens again, all but the system prompt",)


LESSONS = {"turns-summary": Lesson(multi_head, open=_open, trial=after_summary, notes=_note)}
