"""The two ways in which a cache object keeps its tensors: as they are (dynamic, static), or quantised.

A store answers with the lines of a plan for any context and number of sequences; totals, growth and fixed parts follow from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from kvcalc.core.plan import Line
from kvcalc.core.states.base import MODEL
from kvcalc.engines.transformers.tensors import INT64, CacheTensor

if TYPE_CHECKING:
    from kvcalc.engines.transformers.quantized import Quantizer

#: Bytes of the number types that cache tensors have.
ITEM = {"fp32": 4, "bf16": 2, "fp16": 2, INT64: 8}


class Store(Protocol):
    """What `plan` asks of a cache object."""

    @property
    def format(self) -> str:
        """The cache's format by name."""
        ...

    def lines(self, context: int, steps: int, sequences: int) -> list[Line]:
        """The tensors after `context` tokens, the last `steps` of which came one by one."""
        ...

    def per_token(self) -> Fraction:
        """Bytes of one token in every tensor that has rows for tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """Dynamic and static caches: each tensor, how many layers have it, and the model's number type."""

    tensors: dict[CacheTensor, int]
    format: str

    def lines(self, context: int, steps: int, sequences: int) -> list[Line]:
        """One line a tensor. `steps` changes nothing."""
        del steps
        return [self._line(tensor, layers, context, sequences) for tensor, layers in self.tensors.items()]

    def per_token(self) -> Fraction:
        """Tokens, windows and compressed entries; open windows and overlaps hold few rows, and are left out."""
        return sum((layers * self._row(tensor) * tensor.rows.share for tensor, layers in self.tensors.items()), Fraction())

    def _line(self, tensor: CacheTensor, layers: int, context: int, sequences: int) -> Line:
        rows, row = tensor.rows.held(context), self._row(tensor)
        return Line(
            state=tensor.state,
            layers=layers,
            buffer=tensor.name,
            width=tensor.elements,
            format=self._type(tensor),
            slots=rows,
            bytes=layers * rows * row * sequences,
            formula=f"{layers} layers x {tensor.rows.text(context)} x {row:,} B" + _times(sequences),
            fixed=tensor.rows.is_fixed,
        )

    def _type(self, tensor: CacheTensor) -> str:
        return self.format if tensor.dtype == MODEL else tensor.dtype

    def _row(self, tensor: CacheTensor) -> int:
        return tensor.elements * ITEM[self._type(tensor)]


@dataclass(frozen=True, slots=True)
class Quantised:
    """The quantized cache: every tensor has a row a token."""

    tensors: dict[CacheTensor, int]
    model_type: str
    quantizer: Quantizer

    @property
    def format(self) -> str:
        """`quanto_int4`."""
        return self.quantizer.format

    def lines(self, context: int, steps: int, sequences: int) -> list[Line]:
        """Packed elements, their scales, and the tokens that wait."""
        return [line for tensor, layers in self.tensors.items() for line in self._tensor(tensor, layers, context, steps, sequences)]

    def per_token(self) -> Fraction:
        """A quantised token's elements and its share of the scales."""
        bits = self.quantizer.nbits
        shared = 0 if self.quantizer.backend == "fp8" else Fraction(2 * ITEM[self.model_type], self.quantizer.group)
        return sum((layers * tensor.elements * (Fraction(bits, 8) + shared) for tensor, layers in self.tensors.items()), Fraction())

    def _tensor(self, tensor: CacheTensor, layers: int, context: int, steps: int, sequences: int) -> list[Line]:
        item, waiting = ITEM[self.model_type], self.quantizer.waiting(steps)
        tokens = context - waiting
        packed = self.quantizer.packed(tensor, tokens, sequences)
        scales = self.quantizer.scales(tensor, tokens, sequences, item)
        row = tensor.elements * item
        return [
            self._line(
                tensor,
                layers,
                "",
                self.format,
                tokens,
                packed,
                f"{tokens:,} tokens x {tensor.elements:,} x {self.quantizer.nbits} bits" + _times(sequences),
            ),
            self._line(
                tensor, layers, " scales", "fp32" if self.format == "fp8" else self.model_type, tokens, scales, f"{scales:,} B of scales"
            ),
            self._line(
                tensor,
                layers,
                " waiting",
                self.model_type,
                waiting,
                waiting * row * sequences,
                f"{waiting} tokens x {row:,} B" + _times(sequences),
            ),
        ]

    @staticmethod
    def _line(tensor: CacheTensor, layers: int, part: str, form: str, slots: int, size: int, formula: str) -> Line:
        return Line(
            state=tensor.state,
            layers=layers,
            buffer=tensor.name + part,
            width=tensor.elements,
            format=form,
            slots=slots,
            bytes=layers * size,
            formula=f"{layers} layers x {formula}",
        )


def _times(sequences: int) -> str:
    return "" if sequences == 1 else f" x {sequences} sequences"
