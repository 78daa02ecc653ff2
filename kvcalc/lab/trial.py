"""The work that is measured: tokens, where the decoder is called, and the two ways to answer.

    without a cache   at every stop the decoder reads tokens[0:stop] again               Σ stop      token passes
    with a cache      at every stop the decoder reads only tokens[previous stop:stop]    last stop   token passes

The first stop is the prompt (the prefill, not timed); each later one is a decoded token, or a new turn's text. The tokens are
drawn beforehand and fed to both, so that one rounding difference cannot send them to different texts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from kvcalc.lab.frame import Cache, Decoder
    from kvcalc.lab.sizes import Sizes


@dataclass(frozen=True)
class Sequence:
    """One sequence's tokens, and after how many of them the decoder is asked for the next."""

    tokens: Tensor
    stops: tuple[int, ...]

    @property
    def prompt(self) -> Tensor:
        """What the first call reads."""
        return self.tokens[: self.stops[0]]


@dataclass(frozen=True)
class Trial:
    """Sequences that are alive at the same time."""

    sequences: tuple[Sequence, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence at the end."""
        return max(sequence.stops[-1] for sequence in self.sequences)


@dataclass
class Outcome:
    """Logits by (sequence, stop), the seconds after the prefill and the tokens that they decoded, and the caches at the end."""

    logits: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    seconds: float = 0.0
    tokens: int = 0
    caches: list[Cache] = field(default_factory=list)

    @property
    def seconds_per_token(self) -> float:
        """Decoding only."""
        return self.seconds / self.tokens if self.tokens else 0.0


def draw(sizes: Sizes, count: int, seed: int = 1) -> Tensor:
    """`count` random tokens; the same seed gives the same."""
    generator = torch.Generator().manual_seed(sizes.seed + seed)
    return torch.randint(sizes.vocabulary, (count,), generator=generator).to(sizes.device)


def one_by_one(prompt: int, total: int) -> tuple[int, ...]:
    """Stops of a prompt and the tokens after it."""
    return tuple(range(prompt, total + 1))


def single(sizes: Sizes) -> Trial:
    """One sequence: the prompt, then token by token."""
    return Trial((Sequence(draw(sizes, sizes.total), one_by_one(sizes.prompt, sizes.total)),))


def recompute(decoder: Decoder, trial: Trial) -> Outcome:
    """Without a cache: every stop from the first token on."""
    outcome = Outcome()
    for index, sequence in enumerate(trial.sequences):
        outcome.logits[index, sequence.stops[0]] = decoder(sequence.prompt)
        began = now(decoder)
        for stop in sequence.stops[1:]:
            outcome.logits[index, stop] = decoder(sequence.tokens[:stop])
        outcome.seconds += now(decoder) - began
        outcome.tokens += len(sequence.stops) - 1
    return outcome


def decode(decoder: Decoder, trial: Trial, open_: Callable[[Sequence], Cache]) -> Outcome:
    """With a cache: prompts in turn, then all sequences step by step, so that all are alive together."""
    outcome = Outcome()
    for index, sequence in enumerate(trial.sequences):
        cache = open_(sequence)
        outcome.caches.append(cache)
        stop = sequence.stops[0]
        if cache.length < stop:
            outcome.logits[index, stop] = decoder(sequence.tokens[cache.length : stop], cache)
    began = now(decoder)
    for step in range(1, max(len(sequence.stops) for sequence in trial.sequences)):
        for index, sequence in enumerate(trial.sequences):
            if step < len(sequence.stops):
                cache, stop = outcome.caches[index], sequence.stops[step]
                outcome.logits[index, stop] = decoder(sequence.tokens[cache.length : stop], cache)
                outcome.tokens += 1
    outcome.seconds = now(decoder) - began
    return outcome


def now(decoder: Decoder) -> float:
    """The clock, read when the device has finished what it was given."""
    device = decoder.sizes.device
    if device == "cuda":
        torch.cuda.synchronize()
    elif device == "mps":
        torch.mps.synchronize()
    return time.perf_counter()
