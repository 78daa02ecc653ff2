"""Recurrent mixers: a state of fixed size and a short convolution's last inputs, whatever the context.

A convolution of kernel K must keep K - 1 past columns; engines that keep K say so. Recurrent matrices are stored in the type
that the config declares (`state_dtype`), else in fp32; convolution columns in the model's type (`conv_dtype`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from kvcalc.core.fields import NaturalInt, PositiveInt
from kvcalc.core.states.base import MODEL, Buffer, Extent, State

ONCE = Extent("fixed", 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Recurrent(State):
    """Base of the mixers: `matrix()` is (heads, elements of one head's matrix), `conv_channels` the convolution's width."""

    conv_kernel: NaturalInt = 0
    state_dtype: str | None = None
    conv_dtype: str | None = None

    @property
    def is_recurrent(self) -> bool:
        """Always: nothing here grows with the context."""
        return True

    @property
    def conv_channels(self) -> int:
        """Columns' height of the convolution, 0 without one."""
        return 0

    def matrix(self) -> tuple[int, int]:
        """Heads, and the elements of one head's state."""
        return (0, 0)

    def buffers(self) -> tuple[Buffer, ...]:
        """The convolution's columns and the recurrent matrices."""
        found: list[Buffer] = []
        if self.conv_channels and self.conv_kernel > 1:
            columns = Extent("fixed", self.conv_kernel - 1)
            found.append(Buffer("conv", "conv", 1, self.conv_channels, columns, "width", self.conv_dtype or MODEL))
        heads, elements = self.matrix()
        if heads:
            found.append(Buffer("recurrent", "recurrent", heads, elements, ONCE, "heads", self.state_dtype or "fp32"))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Mamba1(Recurrent):
    """Mamba (arXiv:2312.00752): a diagonal state per channel.

        elements per layer = inner_dim x state_dim + inner_dim x (conv_kernel - 1)

    Falcon-Mamba-7B: 64 x (8192 x 16 x 4 B + 8192 x 3 x 2 B) = 36,700,160 B per sequence.
    """

    technique: ClassVar[str] = "mamba1"
    kind: ClassVar[Literal["mamba1"]] = "mamba1"
    inner_dim: PositiveInt
    state_dim: PositiveInt

    @property
    def conv_channels(self) -> int:
        """The inner width."""
        return self.inner_dim

    def matrix(self) -> tuple[int, int]:
        """Each channel is a head of `state_dim` elements."""
        return (self.inner_dim, self.state_dim)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Mamba2(Recurrent):
    """Mamba-2 (arXiv:2405.21060): one head_dim x state_dim matrix a head; the convolution also sees B and C.

        elements per layer = heads x head_dim x state_dim + (heads x head_dim + 2 x groups x state_dim) x (conv_kernel - 1)

    Nemotron-H-56B: 54 x (256 x 64 x 256 x 4 B + 20480 x 3 x 2 B) = 912,605,184 B per sequence.
    """

    technique: ClassVar[str] = "mamba2"
    kind: ClassVar[Literal["mamba2"]] = "mamba2"
    heads: PositiveInt
    head_dim: PositiveInt
    state_dim: PositiveInt
    groups: PositiveInt = 1

    @property
    def conv_channels(self) -> int:
        """Inner width plus B and C of every group."""
        return self.heads * self.head_dim + 2 * self.groups * self.state_dim

    def matrix(self) -> tuple[int, int]:
        """A head_dim x state_dim matrix a head."""
        return (self.heads, self.head_dim * self.state_dim)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class GatedDeltaNet(Recurrent):
    """Gated DeltaNet (arXiv:2412.06464; Qwen3-Next, Qwen3.5): one key_head_dim x value_head_dim matrix a value head.

        elements per layer = value_heads x key_head_dim x value_head_dim
                           + (2 x key_heads x key_head_dim + value_heads x value_head_dim) x (conv_kernel - 1)

    Qwen3-Next-80B: 36 x (32 x 128 x 128 x 4 B + 8192 x 3 x 2 B) = 77,266,944 B per sequence.
    """

    technique: ClassVar[str] = "deltanet"
    kind: ClassVar[Literal["gated_deltanet"]] = "gated_deltanet"
    key_heads: PositiveInt
    value_heads: PositiveInt
    key_head_dim: PositiveInt
    value_head_dim: PositiveInt

    @property
    def conv_channels(self) -> int:
        """Q, K and V channels."""
        return 2 * self.key_heads * self.key_head_dim + self.value_heads * self.value_head_dim

    def matrix(self) -> tuple[int, int]:
        """A key_head_dim x value_head_dim matrix a value head."""
        return (self.value_heads, self.key_head_dim * self.value_head_dim)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Kda(Recurrent):
    """Kimi delta attention (Kimi Linear, arXiv:2510.26692): one head_dim x head_dim matrix a head, three convolutions.

        elements per layer = heads x head_dim x head_dim + 3 x heads x head_dim x (conv_kernel - 1)

    Kimi-Linear-48B: 20 x (32 x 128 x 128 x 4 B + 12288 x 3 x 2 B) = 43,417,600 B per sequence.
    """

    technique: ClassVar[str] = "kda"
    kind: ClassVar[Literal["kda"]] = "kda"
    heads: PositiveInt
    head_dim: PositiveInt

    @property
    def conv_channels(self) -> int:
        """Q, K and V channels."""
        return 3 * self.heads * self.head_dim

    def matrix(self) -> tuple[int, int]:
        """A square matrix a head."""
        return (self.heads, self.head_dim * self.head_dim)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Lightning(Recurrent):
    """Lightning attention (MiniMax-01, arXiv:2501.08313): one head_dim x head_dim matrix a head, no convolution.

        elements per layer = heads x head_dim x head_dim

    MiniMax-M1: 70 x 64 x 128 x 128 x 4 B = 293,601,280 B per sequence.
    """

    technique: ClassVar[str] = "lightning"
    kind: ClassVar[Literal["lightning"]] = "lightning"
    heads: PositiveInt
    head_dim: PositiveInt

    def matrix(self) -> tuple[int, int]:
        """A square matrix a head."""
        return (self.heads, self.head_dim * self.head_dim)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Rwkv(Recurrent):
    """RWKV-6 and -7 (arXiv:2404.05892, arXiv:2503.14456): one square matrix a head and the last inputs of two token shifts.

        elements per layer = heads x head_dim x head_dim + shifts x hidden_dim

    RWKV-7 2.9B: 32 x (40 x 64 x 64 x 4 B + 2 x 2560 x 2 B) = 21,299,200 B per sequence.
    """

    technique: ClassVar[str] = "rwkv"
    kind: ClassVar[Literal["rwkv"]] = "rwkv"
    heads: PositiveInt
    head_dim: PositiveInt
    hidden_dim: PositiveInt
    shifts: PositiveInt = 2

    def matrix(self) -> tuple[int, int]:
        """A square matrix a head."""
        return (self.heads, self.head_dim * self.head_dim)

    def buffers(self) -> tuple[Buffer, ...]:
        """The token shifts and the matrices."""
        shift = Buffer("shift", "conv", 1, self.hidden_dim, Extent("fixed", self.shifts), "width", self.conv_dtype or MODEL)
        return (shift, *Recurrent.buffers(self))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ShortConv(Recurrent):
    """Gated short convolution (LFM2, arXiv:2511.23404): the last conv_kernel - 1 columns, no recurrent matrix.

        elements per layer = channels x (conv_kernel - 1)

    LFM2-1.2B: 10 x 2048 x 2 x 2 B = 81,920 B per sequence.
    """

    technique: ClassVar[str] = "short_conv"
    kind: ClassVar[Literal["short_conv"]] = "short_conv"
    channels: PositiveInt

    @property
    def conv_channels(self) -> int:
        """The hidden width."""
        return self.channels


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RgLru(Recurrent):
    """Real-gated linear recurrent unit (Griffin, arXiv:2402.19427): one number a channel, and a short convolution.

        elements per layer = lru_dim + lru_dim x (conv_kernel - 1)

    RecurrentGemma-2B: 18 x (2560 x 4 B + 2560 x 3 x 2 B) = 460,800 B per sequence.
    """

    technique: ClassVar[str] = "rg_lru"
    kind: ClassVar[Literal["rg_lru"]] = "rg_lru"
    lru_dim: PositiveInt

    @property
    def conv_channels(self) -> int:
        """The recurrence's width."""
        return self.lru_dim

    def matrix(self) -> tuple[int, int]:
        """One element a channel."""
        return (self.lru_dim, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Fixed(Recurrent):
    """Any other state of fixed size: `elements` numbers of `state_dtype`, for mixers that have no kind of their own.

        bytes per layer = elements x size of state_dtype        (the model's type where state_dtype is "model")

    RWKV-4's five vectors of 768 are five times 768 elements.
    """

    technique: ClassVar[str] = "fixed"
    kind: ClassVar[Literal["fixed"]] = "fixed"
    name: str = "state"
    elements: PositiveInt

    def buffers(self) -> tuple[Buffer, ...]:
        """One row of `elements`."""
        return (Buffer(self.name, "recurrent", 1, self.elements, ONCE, "width", self.state_dtype or "fp32"),)
