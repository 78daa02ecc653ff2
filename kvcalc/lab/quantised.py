"""A quantised cache: the same elements in 8 or 4 bits, and the scales that turn them back.

    element = round(x / scale), scale = largest |x| of its group / largest integer (127 or 7)
    V, one scale a token and head:      bytes = heads x (d x bits / 8 + 4) x T
    K, one scale a channel and G tokens: bytes = heads x d x (G x bits / 8 + 4) x (T // G), and the T mod G newest keys unquantised

K has channels that are large for *every* token, so a scale a token would be set by them and crush the rest: K is grouped along the
tokens, each channel for itself (KIVI, arXiv:2402.02750). V has no such channels and is grouped along a token's own elements. A
group along the tokens can only be closed when its G tokens are there; the newest keys wait in full precision.

`int8` and `int4` here are that layout. `int8-token` and `int4-token` give K a scale a token as well: that is what kvcalc's
`--kv-dtype int8` and `int4` count, and what engines' `…_per_token_head` formats store.

What is easy to get wrong: the scales are bytes too (d = 128: 132 instead of 128 for a V vector); PyTorch has no 4-bit element, so
int4 saves nothing unless two are packed into a byte; and a group that is quantised again at every step drifts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvcalc.core.formats import FORMATS, Format
from kvcalc.lab.attention import Seen
from kvcalc.lab.kv import multi_head
from kvcalc.lab.lesson import Figure, Lesson, plan, stores
from kvcalc.lab.sizes import DTYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from kvcalc.lab.frame import Decoder
    from kvcalc.lab.trial import Trial

#: Tokens that share a channel's scale.
GROUP = 32

#: An fp32 scale.
SCALE_BYTES = 4


class Quantised:
    """Integers of `bits` along the last axis and one fp32 scale for each vector; pairs of int4 share a byte."""

    codes: Tensor | None = None
    scales: Tensor | None = None

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def append(self, x: Tensor) -> None:
        """Quantise vectors [heads, m, width] and keep them after the others."""
        largest = 2 ** (self.bits - 1) - 1
        scales = (x.abs().amax(-1, keepdim=True) / largest).clamp_min(torch.finfo(x.dtype).tiny)
        codes = (x / scales).round().to(torch.int8)
        codes = codes if self.bits == 8 else pack(codes)
        self.codes = codes if self.codes is None else torch.cat((self.codes, codes), dim=-2)
        self.scales = scales if self.scales is None else torch.cat((self.scales, scales), dim=-2)

    def read(self) -> Tensor:
        """All vectors, turned back: [heads, m, width]."""
        codes: Tensor = self.codes if self.bits == 8 else unpack(self.codes)
        return codes * self.scales

    def tensors(self) -> tuple[Tensor, ...]:
        """Codes and scales."""
        return () if self.codes is None else (self.codes, self.scales)


def pack(codes: Tensor) -> Tensor:
    """Neighbours of -8 … 7 into one byte: the even one in the low half."""
    even, odd = (codes + 8).to(torch.uint8).unflatten(-1, (-1, 2)).unbind(-1)
    return even | (odd << 4)


def unpack(pairs: Tensor) -> Tensor:
    """The inverse of `pack`."""
    return torch.stack((pairs & 15, pairs >> 4), dim=-1).flatten(-2).to(torch.int8) - 8


class ByToken:
    """Vectors quantised one by one as they come: a scale a token and head."""

    def __init__(self, bits: int) -> None:
        self.held = Quantised(bits)

    def extend(self, x: Tensor) -> Tensor:
        """All vectors [heads, t, d], the new ones read back too."""
        self.held.append(x)
        return self.held.read()

    def tensors(self) -> tuple[Tensor, ...]:
        """Codes and scales."""
        return self.held.tensors()


class ByChannel:
    """Channels quantised in groups of GROUP tokens: the tokens of an open group wait as they are."""

    def __init__(self, bits: int) -> None:
        self.held = Quantised(bits)
        self.waiting: Tensor | None = None

    def extend(self, x: Tensor) -> Tensor:
        """All vectors [heads, t, d]: closed groups read back, waiting tokens exact."""
        heads, _, width = x.shape
        waiting = x if self.waiting is None else torch.cat((self.waiting, x), dim=-2)
        ready = waiting.shape[-2] // GROUP * GROUP
        if ready:
            groups = waiting[:, :ready].unflatten(-2, (-1, GROUP))  # [heads, groups, GROUP, d]
            self.held.append(groups.transpose(-1, -2).flatten(-3, -2))  # one vector a channel of a group
        self.waiting = waiting[:, ready:].clone()
        if self.held.codes is None:
            return self.waiting
        closed = self.held.read().view(heads, -1, width, GROUP).transpose(-1, -2).flatten(-3, -2)
        return torch.cat((closed, self.waiting), dim=-2)

    def tensors(self) -> tuple[Tensor, ...]:
        """Codes, scales, and the keys that wait."""
        return self.held.tensors() if self.waiting is None else (*self.held.tensors(), self.waiting)


class QuantisedStore:
    """K by channel or by token, V by token. What is attended to is what is stored, read back."""

    def __init__(self, bits: int, key: Callable[[int], ByToken | ByChannel]) -> None:
        self.bits, self.key = bits, key
        self.reset()

    def extend(self, keys: Tensor, values: Tensor, at: Tensor) -> Seen:
        """Everything so far, as the integers say it."""
        read_keys, read_values = self.keys.extend(keys), self.values.extend(values)
        return Seen(read_keys, read_values, torch.arange(read_keys.shape[-2], device=at.device))

    def tensors(self) -> tuple[Tensor, ...]:
        """K's and V's."""
        return (*self.keys.tensors(), *self.values.tensors())

    def reset(self) -> None:
        """Start again."""
        self.keys: ByToken | ByChannel = self.key(self.bits)
        self.values = ByToken(self.bits)


def _figure_by_token(bits: int) -> Callable[[Decoder, Trial], Figure]:
    """What `--kv-dtype int8` or `int4` says."""

    def figure(decoder: Decoder, trial: Trial) -> Figure:
        found = plan(decoder.architecture(), trial.longest, kv_dtype=f"int{bits}")
        return Figure(found.total, "; ".join(f"{line.buffer} {line.format}: {line.formula}" for line in found.lines))

    return figure


def _figure_by_channel(bits: int) -> Callable[[Decoder, Trial], Figure]:
    """V as `--kv-dtype` says; K as blocks of GROUP codes and a scale, laid along the tokens of each channel."""

    def figure(decoder: Decoder, trial: Trial) -> Figure:
        sizes, tokens = decoder.sizes, trial.longest
        value = next(line for line in plan(decoder.architecture(), tokens, kv_dtype=f"int{bits}").lines if line.buffer == "value")
        block = Format(f"int{bits} by channel", GROUP, GROUP * bits // 8 + SCALE_BYTES)
        waiting = tokens % GROUP
        closed = block.row_bytes(tokens - waiting, sizes.dim)
        key = sizes.layers * (closed + waiting * FORMATS[DTYPE].row_bytes(sizes.dim))
        text = f"key: {sizes.layers} layers x ({sizes.dim} channels x {tokens // GROUP} groups x {block.block_bytes} B"
        text += f" + {waiting} waiting tokens x {sizes.dim} x {FORMATS[DTYPE].block_bytes} B)"
        return Figure(key + value.bytes, f"{text}; value {value.format}: {value.formula}")

    return figure


def _lesson(bits: int, key: type[ByToken | ByChannel]) -> Lesson:
    figure = _figure_by_token if key is ByToken else _figure_by_channel
    return Lesson(multi_head, open=stores(lambda _decoder, _trial: QuantisedStore(bits, key)), figure=figure(bits), tolerance=None)


LESSONS = {
    "int8": _lesson(8, ByChannel),
    "int4": _lesson(4, ByChannel),
    "int8-token": _lesson(8, ByToken),
    "int4-token": _lesson(4, ByToken),
}
