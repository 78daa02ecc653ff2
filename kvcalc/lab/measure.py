"""One row of the lab, measured: bytes of the tensors, cached against recomputed output, time per token.

bytes       Σ numel x element size of the tensors that the caches hold; a tensor that two of them hold counts once
allocated   bytes of the memory behind them: more than `bytes` where a pool has free blocks, or a slice keeps its whole alive
error       largest |cached - recomputed| of any logit at any step, divided by the largest |recomputed|
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import torch

from kvcalc.core.errors import UsageError
from kvcalc.lab import ENTRIES
from kvcalc.lab.trial import Outcome, Sequence, Trial, recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from kvcalc.lab.frame import Decoder
    from kvcalc.lab.lesson import Figure, Lesson
    from kvcalc.lab.sizes import Sizes

#: Decoded once before the clock starts, for the first calls of a process are slower.
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured. `cached_seconds`, `error` and `agreement` are None for the lesson that keeps nothing.

    tokens      of all sequences together, at the end
    decoded     tokens decoded one by one: what the seconds are divided by
    agreement   steps at which both ways would choose the same next token, and all steps
    """

    name: str
    sequences: int
    tokens: int
    decoded: int
    bytes: int
    allocated: int
    figure: Figure
    error: float | None
    tolerance: float | None
    agreement: tuple[int, int] | None
    cached_seconds: float | None
    uncached_seconds: float
    notes: tuple[str, ...]

    @property
    def bytes_equal(self) -> bool:
        """The tensors are what kvcalc says, to the byte."""
        return self.bytes == self.figure.bytes

    @property
    def output_equal(self) -> bool | None:
        """The cached output is the recomputed one; None where there is no cache, or it is meant to lose something."""
        if self.error is None or (self.tolerance is None and isfinite(self.error)):
            return None
        return self.tolerance is not None and self.error <= self.tolerance

    @property
    def speedup(self) -> float | None:
        """How many times faster a token is with the cache."""
        return self.uncached_seconds / self.cached_seconds if self.cached_seconds else None

    @property
    def passed(self) -> bool:
        """Nothing that had to be equal was unequal."""
        return self.bytes_equal and self.output_equal is not False


def lesson_of(name: str) -> Lesson:
    """The lesson of a row."""
    lessons: dict[str, Lesson] = import_module(f"kvcalc.lab.{ENTRIES[name].module}").LESSONS
    return lessons[name]


class Bench:
    """Measures lessons at one size; lessons with the same decoder and the same work share the recomputed answers."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self._decoder: tuple[Any, Decoder] | None = None
        self._recomputed: dict[tuple[Any, Any], Outcome] = {}

    def run(self, name: str) -> Row:
        """One row. Raises UsageError where the device is missing or too small."""
        with _threads(self.sizes.threads), _memory(self.sizes):
            return self._measure(name, lesson_of(name))

    def _measure(self, name: str, lesson: Lesson) -> Row:
        decoder, trial = self.decoder(lesson), lesson.trial(self.sizes)
        _warm_up(decoder, lesson, trial)
        plain = self._recompute(decoder, lesson, trial)
        cached = lesson.decode(decoder, trial, lesson.open(decoder, trial)) if lesson.cached else None
        tensors = [tensor for cache in cached.caches for tensor in cache.tensors()] if cached else []
        return Row(
            name=name,
            sequences=len(trial.sequences),
            tokens=sum(sequence.stops[-1] for sequence in trial.sequences),
            decoded=plain.tokens,
            bytes=bytes_of(tensors),
            allocated=allocated_by(tensors),
            figure=lesson.figure(decoder, trial),
            error=largest_error(cached, plain) if cached else None,
            tolerance=lesson.tolerance if cached else None,
            agreement=agreement(cached, plain) if cached else None,
            cached_seconds=cached.seconds_per_token if cached else None,
            uncached_seconds=plain.seconds_per_token,
            notes=lesson.notes(decoder, trial),
        )

    def decoder(self, lesson: Lesson) -> Decoder:
        """The lesson's decoder; the last one built is kept, so that one model's weights are held at a time."""
        if self._decoder is None or self._decoder[0] is not lesson.decoder:
            self._decoder = None
            self._decoder = (lesson.decoder, lesson.decoder(self.sizes))
        return self._decoder[1]

    def _recompute(self, decoder: Decoder, lesson: Lesson, trial: Trial) -> Outcome:
        key = (lesson.decoder, lesson.trial)
        if key not in self._recomputed:
            self._recomputed[key] = recompute(decoder, trial)
        return self._recomputed[key]


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """The sum of numel x element size, each distinct piece of memory once."""
    pieces = {
        (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tuple(tensor.shape)): tensor.numel() * tensor.element_size()
        for tensor in tensors
    }
    return sum(pieces.values())


def allocated_by(tensors: Iterable[Tensor]) -> int:
    """The whole memory that the tensors keep alive."""
    return sum({(storage := tensor.untyped_storage()).data_ptr(): storage.nbytes() for tensor in tensors}.values())


def largest_error(cached: Outcome, plain: Outcome) -> float:
    """Relative to the largest logit; infinite if a number is not finite."""
    worst = float(torch.stack([(logits - plain.logits[key]).abs().max() for key, logits in cached.logits.items()]).max())
    largest = float(torch.stack([plain.logits[key].abs().max() for key in cached.logits]).max())
    return worst / largest if isfinite(worst) and largest else inf


def agreement(cached: Outcome, plain: Outcome) -> tuple[int, int]:
    """Steps at which the likeliest next token is the same, and all steps."""
    same = sum(int(logits.argmax()) == int(plain.logits[key].argmax()) for key, logits in cached.logits.items())
    return same, len(cached.logits)


def _warm_up(decoder: Decoder, lesson: Lesson, trial: Trial) -> None:
    short = Trial(tuple(Sequence(sequence.tokens, sequence.stops[: WARM_UP + 1]) for sequence in trial.sequences[:1]))
    recompute(decoder, short)
    if lesson.cached:
        lesson.decode(decoder, short, lesson.open(decoder, trial))


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """PyTorch's CPU threads for the time of a measurement; 0 leaves them."""
    before = torch.get_num_threads()
    if count:
        torch.set_num_threads(count)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _memory(sizes: Sizes) -> Iterator[None]:
    """A missing device and exhausted memory as UsageErrors."""
    present: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if not present.get(sizes.device, lambda: True)():
        raise UsageError(f"--device: this PyTorch sees no {sizes.device} device", "use --device cpu")
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "memory" in str(error):
            raise UsageError(
                f"lab: a decoder of these sizes does not fit the {sizes.device}'s memory", "choose a smaller --dim, --layers or --tokens"
            ) from None
        raise
