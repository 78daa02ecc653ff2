"""A conversation: what is kept from turn to turn, and what of it is still seen.

    whole history       rows = T                        a new turn computes only its own tokens; grows until the memory is full
    last W tokens       rows = min(T, W)                the ring of `swa`: the system prompt is the first to be forgotten
    sinks and window    rows = min(T, sinks + W)        StreamingLLM (arXiv:2309.17453): the first few tokens stay as well

The first tokens of a text get attention whatever they say, for a softmax must put its weight somewhere. Drop them, and a model that
was trained with full attention falls apart; keep four, and it goes on. It does not remember more for it: what has left the window
is out of sight.

What is easy to get wrong: a turn's text is *appended*, several tokens at once on a cache that is not empty, at positions that
continue; the replies that the model gave itself are in the cache already and need not be read again. With sinks, slots 0 to
sinks - 1 are never overwritten, and the ring begins behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from kvcalc.core.states import Sliding
from kvcalc.lab.attention import Append, Attention, Seen
from kvcalc.lab.frame import build
from kvcalc.lab.kv import multi_head
from kvcalc.lab.lesson import Lesson
from kvcalc.lab.sliding import Ring, Window, window
from kvcalc.lab.trial import Sequence, Trial, draw

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Decoder, Store
    from kvcalc.lab.sizes import Sizes

#: First tokens that stay: StreamingLLM's four.
SINKS = 4

#: Turns of the conversation.
TURNS = 3


@dataclass(frozen=True)
class SinksAndWindow:
    """The first `sinks` positions and the last `size`."""

    sinks: int
    size: int

    def __call__(self, query_at: Tensor, key_at: Tensor) -> Tensor:
        """Not the future, and a sink or fewer than `size` back."""
        return (key_at <= query_at) & ((key_at < self.sinks) | (query_at - key_at < self.size))

    def state(self, kv_heads: int, head_dim: int, query_heads: int) -> AnyState:
        """As many rows as a window of both together."""
        return Sliding(window=self.sinks + self.size, kv_heads=kv_heads, head_dim=head_dim, query_heads=query_heads)

    def store(self) -> Store:
        """Sinks, and a ring behind them."""
        return SinkStore(self.sinks, self.size)


class SinkStore:
    """The first `sinks` tokens in order, and a ring of the last `size` after them."""

    def __init__(self, sinks: int, size: int) -> None:
        self.sinks = sinks
        self.first = Append()
        self.last = Ring(size, first=sinks)

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """The sinks' part goes to the sinks, the rest round the ring."""
        cut = max(0, min(self.sinks - int(at[0]), keys.shape[-2]))
        if cut:
            self.first.extend(keys[..., :cut, :].clone(), values[..., :cut, :].clone(), at[:cut])
        assert self.first.keys is not None  # noqa: S101  position 0 has come first
        assert self.first.values is not None  # noqa: S101
        sinks = torch.arange(self.first.keys.shape[-2], device=at.device)
        if cut == keys.shape[-2]:
            return Seen(self.first.keys, self.first.values, sinks)
        rest = self.last.extend(keys[..., cut:, :], values[..., cut:, :], at[cut:])
        return Seen(
            torch.cat((self.first.keys, rest.keys), dim=-2),
            torch.cat((self.first.values, rest.values), dim=-2),
            torch.cat((sinks, rest.at)),
        )

    def tensors(self) -> tuple[Tensor, ...]:
        """Sinks and ring."""
        return (*self.first.tensors(), *self.last.tensors())

    def reset(self) -> None:
        """Forget both."""
        self.first.reset()
        self.last.reset()


def turn_of(sizes: Sizes) -> int:
    """Tokens of a turn: the user's `prompt`, and a reply."""
    return sizes.prompt + max(1, sizes.tokens // TURNS)


def conversation(sizes: Sizes) -> Trial:
    """Turns of equal length: the user's `prompt` tokens at once, then the reply token by token."""
    turn = turn_of(sizes)
    stops: list[int] = []
    end = 0
    for _ in range(TURNS):
        stops += range(end + sizes.prompt, end + turn + 1)
        end += turn
    return Trial((Sequence(draw(sizes, end), tuple(stops)),))


def last_tokens(sizes: Sizes) -> Decoder:
    """Every layer sees a window."""
    return build(sizes, lambda weights, _: Attention(weights, sizes, sight=Window(window(sizes))))


def with_sinks(sizes: Sizes) -> Decoder:
    """Every layer sees the sinks and a window."""
    return build(sizes, lambda weights, _: Attention(weights, sizes, sight=SinksAndWindow(SINKS, window(sizes))))


def _full_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    own = decoder.sizes.prompt
    again = trial.longest - trial.longest // TURNS
    return (
        f"{TURNS} turns: each begins by reading its own {own} tokens; without the cache the last would first read {again} old ones again",
    )


def _window_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    hidden = trial.longest - window(decoder.sizes)
    return (f"after {TURNS} turns positions 0 to {hidden - 1} are out of a layer's sight, the first turn's text among them",)


def _sinks_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    hidden = trial.longest - window(decoder.sizes)
    return (f"after {TURNS} turns positions {SINKS} to {hidden - 1} are out of a layer's sight, the first {SINKS} are not",)


LESSONS = {
    "turns": Lesson(multi_head, trial=conversation, notes=_full_note),
    "turns-window": Lesson(last_tokens, trial=conversation, notes=_window_note),
    "turns-sinks": Lesson(with_sinks, trial=conversation, notes=_sinks_note),
}
