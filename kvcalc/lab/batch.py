"""A batch of unequal lengths in one tensor: room for the longest, for every row.

    bytes = 2 x layers x heads x head_dim x (rows x longest T) x element size        the padding is paid for

One matrix product then serves all rows: that is why batches are made. Each row has its own length, so each has its own positions,
its own slot to write to, and its own mask.

What is easy to get wrong: all three. The new token of a row of 40 stands at position 40, not where the longest row's does; it is
written to slot 40, over the padding; and slots beyond a row's length are nobody's, whatever lies in them. A padded prompt asks for
the logits of its last *real* token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvcalc.lab.attention import EMPTY, Seen
from kvcalc.lab.kv import multi_head
from kvcalc.lab.lesson import Figure, Lesson, formula, plan
from kvcalc.lab.paged import unequal
from kvcalc.lab.trial import Outcome, Sequence, Trial, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from kvcalc.lab.frame import Cache, Decoder


class Padded:
    """Room for `capacity` tokens in each of `rows`; the token of a row at position p stands in its slot p."""

    def __init__(self, rows: int, capacity: int, heads: int, width: int, device: str) -> None:
        self.keys = torch.zeros(rows, heads, capacity, width, device=device)
        self.values = torch.zeros(rows, heads, capacity, width, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """Write each real token [rows, heads, n, d] at its own position; padding stands at EMPTY and is not written."""
        row, new = (at != EMPTY).nonzero(as_tuple=True)
        self.keys[row, :, at[row, new]] = keys[row, :, new]
        self.values[row, :, at[row, new]] = values[row, :, new]
        self.lengths = torch.maximum(self.lengths, at.amax(-1) + 1)
        slots = torch.arange(int(self.lengths.max()), device=at.device)
        filled = torch.where(slots < self.lengths[:, None], slots, EMPTY)
        return Seen(self.keys[:, :, : len(slots)], self.values[:, :, : len(slots)], filled)

    def tensors(self) -> tuple[Tensor, ...]:
        """All rows, padding included."""
        return (self.keys, self.values)

    def reset(self) -> None:
        """Nothing is wiped: what lies beyond a row's length is nobody's."""
        self.lengths = torch.zeros_like(self.lengths)


def _open(decoder: Decoder, trial: Trial) -> Callable[[Sequence], Cache]:
    sizes = decoder.sizes
    rows, room = len(trial.sequences), trial.longest
    return lambda _: decoder.start(lambda: Padded(rows, room, sizes.heads, sizes.head_dim, sizes.device))


def decode_together(decoder: Decoder, trial: Trial, open_: Callable[[Sequence], Cache]) -> Outcome:
    """All rows in one call a step; a row that is done is padding from then on."""
    outcome = Outcome(caches=[open_(trial.sequences[0])])
    began = now(decoder)
    for step in range(max(len(sequence.stops) for sequence in trial.sequences)):
        if step == 1:
            began = now(decoder)
        spans = [_span(sequence, step) for sequence in trial.sequences]
        widest = max(len(span) for span in spans)
        at = torch.full((len(spans), widest), EMPTY, device=decoder.sizes.device)
        tokens = torch.zeros_like(at)
        for row, (sequence, span) in enumerate(zip(trial.sequences, spans, strict=True)):
            at[row, : len(span)] = torch.arange(span.start, span.stop)
            tokens[row, : len(span)] = sequence.tokens[span.start : span.stop]
        hidden = decoder.hidden(tokens, at, outcome.caches[0])
        last = torch.tensor([max(0, len(span) - 1) for span in spans], device=at.device)
        logits = decoder.logits(hidden[torch.arange(len(spans), device=at.device), last])
        for row, span in enumerate(spans):
            if span:
                outcome.logits[row, span.stop] = logits[row]
                outcome.tokens += step > 0
    outcome.seconds = now(decoder) - began
    return outcome


def _span(sequence: Sequence, step: int) -> range:
    """The positions that a row reads at a step; none when it is done."""
    if step >= len(sequence.stops):
        return range(0)
    return range(sequence.stops[step - 1] if step else 0, sequence.stops[step])


def _figure(decoder: Decoder, trial: Trial) -> Figure:
    """Every row at the longest."""
    found = plan(decoder.architecture(), trial.longest, sequences=len(trial.sequences))
    return Figure(found.total, formula(found))


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del decoder
    lengths = [sequence.stops[-1] for sequence in trial.sequences]
    room = len(lengths) * trial.longest
    return (f"rows of {', '.join(map(str, lengths))} tokens: room for {room}, of which {room - sum(lengths)} is padding",)


LESSONS = {"batch": Lesson(multi_head, open=_open, trial=unequal, figure=_figure, decode=decode_together, notes=_note)}
