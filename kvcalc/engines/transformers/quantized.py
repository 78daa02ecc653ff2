"""`QuantizedCache` of transformers 5.24, byte by byte (cache_utils.py; optimum-quanto 0.2.7; hqq 0.2.8).

    the whole prefill is quantised at once; then each step's token waits in the model's type, until R of them wait: all is
    dequantised, quantised anew with them, and the wait begins again

    bytes of K (or V) of one layer = packed(E) + (E / g) x 2 x s  +  r x vectors x width x s
    E   quantised elements, all sequences together             g   group size: one scale and one zero point (or shift)
    r   waiting tokens = decode steps modulo R                 s   bytes of the model's type

KV of 2 heads x 128, 256 tokens in bf16 at 4 bits: 2 x (32,768 + 1,024 x 4) = 73,728 B; one step later 1,024 B more.
fp8 keeps one fp32 scale for each K and V of a layer, and nothing waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.engines.transformers.tensors import CacheTensor

#: Defaults of QuantizedLayer.
DEFAULTS: dict[str, int] = {"nbits": 4, "axis_key": 0, "axis_value": 0, "q_group_size": 64, "residual_length": 128}
#: What each backend's layer class accepts. HQQ lists 3 bits too, and fails on the first decode step with them.
_BITS = {"quanto": (2, 4), "hqq": (1, 2, 4, 8)}
_AXES = {"quanto": (0, -1), "hqq": (0, 1)}
#: The first version read that has the fp8 backend; 5.15 has none.
_FP8_SINCE = (5, 23)
#: One fp32 number.
_FP8_SCALE = 4
#: The tensors that take `axis_key`; all others take `axis_value`.
_KEYS = ("key", "latent")


@dataclass(frozen=True, slots=True)
class Quantizer:
    """A backend and its settings; to fp8, only `nbits` means something."""

    backend: str
    nbits: int = 8
    group: int = 1
    axis_key: int = 0
    axis_value: int = 0
    residual: int = 1

    @property
    def format(self) -> str:
        """The format as lines name it: `quanto_int4`."""
        return "fp8" if self.backend == "fp8" else f"{self.backend}_int{self.nbits}"

    def waiting(self, steps: int) -> int:
        """Tokens in the model's type after `steps` decode steps."""
        return steps % max(1, self.residual)

    def packed(self, tensor: CacheTensor, tokens: int, sequences: int) -> int:
        """Bytes of the packed elements of one layer's tensor. Quanto packs the rows of the grouped matrix, the last byte's row padded."""
        elements = sequences * tokens * tensor.elements
        if self.backend != "quanto":
            return elements * self.nbits // 8
        groups = elements // self.group
        rows, columns = (groups, self.group) if self._axis(tensor) == 0 else (self.group, groups)
        return -(-rows * self.nbits // 8) * columns

    def scales(self, tensor: CacheTensor, tokens: int, sequences: int, item: int) -> int:
        """Bytes of one layer's scales and zero points, numbers of `item` bytes."""
        if self.backend == "fp8":
            return _FP8_SCALE
        return sequences * tokens * tensor.elements // self.group * 2 * item

    def check(self, tensor: CacheTensor, tokens: int, sequences: int) -> None:
        """Raises EngineRejectsError where the backend cannot group or pack the tensor of `tokens` tokens."""
        if self.backend == "fp8":
            return
        axis, elements = self._axis(tensor), sequences * tokens * tensor.elements
        if self.backend == "quanto":
            # One channel: everything that shares an index of the axis, sequences for axis 0, positions in a vector for axis -1.
            fits = elements // (sequences if axis == 0 else tensor.width) % self.group == 0
        else:
            rows = self.group if axis == 0 else elements // self.group
            fits = elements % self.group == 0 and rows * self.nbits % 8 == 0
        if not fits:
            raise EngineRejectsError(
                f"{self.backend} cannot quantise {sequences} x {tensor.vectors} x {tokens:,} x {tensor.width} {tensor.name} elements "
                f"along axis {axis} in groups of {self.group} at {self.nbits} bits",
                "choose another context, q_group_size or axis",
            )

    def check_run(self, tensor: CacheTensor, prefill: int, steps: int, sequences: int) -> None:
        """`check` at the prefill, and at each time when the waiting tokens were quantised too: what fits twice fits always."""
        period = max(1, self.residual)
        for flushes in range(min(2, 1 + steps // period)):
            self.check(tensor, prefill + flushes * period, sequences)

    def _axis(self, tensor: CacheTensor) -> int:
        return self.axis_key if tensor.name in _KEYS else self.axis_value


def read_quantizer(args: Mapping[str, Any], version: tuple[int, int]) -> Quantizer:
    """The quantizer behind the settings in force. Raises EngineRejectsError as the backends do."""
    backend = args["backend"] or "quanto"
    given = {name: args[name] for name in DEFAULTS if args[name] is not None}
    if backend == "fp8":
        if given:
            raise EngineRejectsError(
                "the fp8 backend quantises per tensor and takes no " + ", ".join(given), "leave them out, or choose quanto or hqq"
            )
        if version < _FP8_SINCE:
            raise EngineRejectsError("the fp8 backend is known of transformers 5.23 and 5.24 only", "ask for version=5.24")
        return Quantizer("fp8")
    values = DEFAULTS | given
    for name, known in (("nbits", _BITS), ("axis_key", _AXES), ("axis_value", _AXES)):
        if values[name] not in known[backend]:
            raise EngineRejectsError(f"{backend} does not take {name} {values[name]}", "one of " + ", ".join(map(str, known[backend])))
    return Quantizer(backend, values["nbits"], values["q_group_size"], values["axis_key"], values["axis_value"], values["residual_length"])
