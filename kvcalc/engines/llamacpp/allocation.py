"""The bytes of a llama.cpp cache: of every tensor, line by line, and on every device."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.formats import get_format
from kvcalc.core.plan import Line
from kvcalc.engines.llamacpp.devices import HOST

if TYPE_CHECKING:
    from kvcalc.core.formats import Format
    from kvcalc.engines.llamacpp.context import Context, Rows
    from kvcalc.engines.llamacpp.devices import Devices
    from kvcalc.engines.llamacpp.model import Model, Placed
    from kvcalc.engines.llamacpp.settings import Types
    from kvcalc.engines.llamacpp.tensors import Tensor

#: MATRIX_ROW_PADDING (ggml-cuda): quantised rows are read in steps of so many elements.
CUDA_STEP = 512
#: Tensors of a CUDA buffer begin at multiples of so many bytes (ggml-cuda.cu).
CUDA_ALIGNMENT = 128


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of one layer, over all devices that hold a part or a copy of it.

    row       bytes of a row          bytes    without padding
    padding   bytes of wider V rows   cuda     bytes that a CUDA buffer adds
    copies    devices that hold the whole tensor
    """

    tensor: Tensor
    form: Format
    rows: Rows
    row: int
    bytes: int
    padding: int
    cuda: int
    copies: int

    @property
    def total(self) -> int:
        """Bytes with both paddings."""
        return self.bytes + self.padding + self.cuda


@dataclass(frozen=True)
class Allocation:
    """The cache of one context."""

    model: Model
    context: Context
    types: Types
    devices: Devices
    flash: bool
    draft: bool = False
    _parts: dict[Tensor, StoredTensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def placed(self) -> Placed:
        """Which tensors lie where. Raises EngineRejectsError."""
        return self.model.placed(self.devices, drafting=self.draft)

    @property
    def counts(self) -> dict[Tensor, int]:
        """How many layers have each tensor."""
        return self.placed.counts

    @property
    def total(self) -> int:
        """Bytes on all devices and the host."""
        return sum(layers * self.part(tensor).total for tensor, layers in self.counts.items()) - self._spared()

    def _spared(self) -> int:
        """What CUDA's padding would take of the tensors that lie in host memory."""
        return sum(layers * self.part(tensor).cuda for tensor, layers in self.placed.by_device.get(HOST, {}).items())

    @property
    def fixed(self) -> int:
        """Bytes that do not depend on the context."""
        return sum(layers * self.part(tensor).total for tensor, layers in self.counts.items() if tensor.space == "state")

    @cached_property
    def loads(self) -> dict[int, int]:
        """Bytes on every device that holds any: a GPU's number, or HOST."""
        if self.devices.mode == "tensor":
            host = self.placed.by_device.get(HOST, {})
            share = sum((layers - host.get(tensor, 0)) * self._share(self.part(tensor)) for tensor, layers in self.counts.items())
            return dict.fromkeys(range(self.devices.count), share) | ({HOST: self._held(host, cuda=False)} if host else {})
        return {device: self._held(counts, cuda=device != HOST) for device, counts in self.placed.by_device.items()}

    def _held(self, counts: dict[Tensor, int], *, cuda: bool) -> int:
        """Bytes of so many layers' tensors on one device."""
        parts = ((layers, self.part(tensor)) for tensor, layers in counts.items())
        return sum(layers * (part.total if cuda else part.bytes + part.padding) for layers, part in parts)

    def per_device(self) -> int:
        """Bytes on the fullest GPU: 0 where the whole cache lies in host memory."""
        return max((load for device, load in self.loads.items() if device != HOST), default=0)

    @property
    def on_host(self) -> int:
        """Bytes in host memory."""
        return self.loads.get(HOST, 0)

    def _share(self, part: StoredTensor) -> int:
        return part.total // self.devices.count

    def per_token(self) -> int:
        """Bytes of one token in every layer that holds it."""
        found = Fraction(0)
        for tensor, layers in self.counts.items():
            if tensor.space != "state" and not tensor.idle:
                part = self.part(tensor)
                found += Fraction(layers * part.row, tensor.size if tensor.space == "entries" else 1)
        return -(-found.numerator // found.denominator)

    def growth(self, tokens: int) -> int:
        """Bytes that one more token fills: full layers, windows that are not full, entries that close."""
        found = 0
        for tensor, layers in self.counts.items():
            grows = {
                "full": True,
                "window": not self.context.is_saturated,
                "entries": (tokens + 1) % tensor.size == 0,
                "state": False,
            }[tensor.space]
            found += layers * self.part(tensor).row if grows and not tensor.idle else 0
        return found

    def lines(self) -> tuple[Line, ...]:
        """A line a tensor; wider V rows, rows that nothing reads and CUDA's padding on lines of their own."""
        found = [self._line(tensor, layers) for tensor, layers in self.counts.items() if tensor.width]
        padding = sum(layers * self.part(tensor).padding for tensor, layers in self.counts.items())
        if padding:
            text = f"V rows widened to {self.model.widest_value:,} elements, the widest of any layer: flash attention is off"
            found.append(Line("padding", 0, "value", 0, self.types.value.name, 0, padding, text))
        cuda = sum(layers * self.part(tensor).cuda for tensor, layers in self.counts.items()) - self._spared()
        if cuda:
            text = f"CUDA: a quantised row of no multiple of {CUDA_STEP} elements reads beyond its tensor, and tensors begin at multiples of {CUDA_ALIGNMENT} B"
            found.append(Line("padding", 0, "cuda", 0, "", 0, cuda, text))
        return tuple(found)

    def _line(self, tensor: Tensor, layers: int) -> Line:
        part = self.part(tensor)
        streams = f"{part.rows.streams} streams x " if part.rows.streams > 1 else ""
        copies = f" x {part.copies} devices" if part.copies > 1 else ""
        unread = " (allocated, never read)" if tensor.idle else ""
        return Line(
            state=tensor.state,
            layers=layers,
            buffer=tensor.buffer,
            width=tensor.width,
            format=part.form.name,
            slots=part.rows.each,
            bytes=layers * part.bytes,
            formula=f"{layers} layers x {streams}{part.rows.text} x {part.row:,} B{copies}{unread}",
            fixed=tensor.space == "state",
        )

    def part(self, tensor: Tensor) -> StoredTensor:
        """The bytes of one tensor of one layer."""
        found = self._parts.get(tensor)
        if found is None:
            found = self._parts[tensor] = self._measure(tensor)
        return found

    def _measure(self, tensor: Tensor) -> StoredTensor:
        form = {"key": self.types.key, "value": self.types.value, "state": get_format("fp32")}[tensor.store]
        rows = self._rows(tensor)
        copies = self._copies(tensor)
        row = _row_bytes(form, tensor.width)
        wide = row
        width = tensor.width
        if tensor.store == "value" and not tensor.idle and not self.flash:
            width = max(width, self.model.widest_value)
            wide = _row_bytes(form, width)
        cuda = self._cuda(form, width, wide * rows.total) if self.devices.nvidia else 0
        return StoredTensor(tensor, form, rows, row, copies * row * rows.total, copies * (wide - row) * rows.total, copies * cuda, copies)

    def _rows(self, tensor: Tensor) -> Rows:
        if tensor.space == "window":
            return self.context.sliding(per_slot=self.model.rule.compressed and not self.draft)
        if tensor.space == "entries":
            return self.context.compressed(tensor.size)
        if tensor.space == "state":
            return self.context.states(tensor.size)
        return self.context.full()

    def _copies(self, tensor: Tensor) -> int:
        """Devices that hold the whole tensor under a tensor split."""
        rule = self.model.rule
        whole = (rule.mirrors_state if tensor.space == "state" else rule.mirrors_cache) or tensor.buffer == "index"
        return self.devices.copies if whole else 1

    @staticmethod
    def _cuda(form: Format, width: int, size: int) -> int:
        rest = width % CUDA_STEP
        extra = form.row_bytes(CUDA_STEP - rest) if form.block > 1 and rest else 0
        return -(-(size + extra) // CUDA_ALIGNMENT) * CUDA_ALIGNMENT - size


def _row_bytes(form: Format, width: int) -> int:
    try:
        return form.row_bytes(width)
    except UsageError as error:
        raise EngineRejectsError(f"llama.cpp cannot store rows of {width:,} elements as {form.name}: {error.message}", "use f16") from None
