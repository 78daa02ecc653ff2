"""The short convolution in front of a recurrence: a channel's last K inputs, weighted and added.

    y[t] = Σ over i < K of weight[i] · x[t - K + 1 + i]        each channel for itself, nothing from the future
    bytes = channels x (K - 1) x element size                  the K-th input is the new token's own

What is easy to get wrong: keep the *inputs*, not the outputs; a text shorter than K - 1 is preceded by zeros, which are kept too;
and keep a copy, for a slice of the padded input holds the whole prompt in memory as long as the slice lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.lab.frame import Weights

#: The kernel of Mamba, Mamba-2 and gated DeltaNet.
KERNEL = 4


class ShortConvolution:
    """A causal depthwise convolution, followed by SiLU."""

    def __init__(self, weights: Weights, channels: int) -> None:
        self.channels = channels
        self.weight = weights.matrix(KERNEL, channels)

    def __call__(self, x: Tensor, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Outputs [n, channels] of `x` after the columns `past` [K - 1, channels], and the columns to keep."""
        if past is None:
            past = x.new_zeros(KERNEL - 1, self.channels)
        padded = torch.cat((past, x))
        windows = padded.unfold(0, KERNEL, 1)  # [n, channels, K]
        mixed = (windows * self.weight.T).sum(-1)
        return functional.silu(mixed), padded[-(KERNEL - 1) :].clone()


class Recurrence:
    """A recurrent layer's store: one matrix a head, and the convolution's last inputs. Its size never changes."""

    matrix: Tensor | None = None
    columns: Tensor | None = None

    def tensors(self) -> tuple[Tensor, ...]:
        """The matrices and the columns."""
        return tuple(tensor for tensor in (self.matrix, self.columns) if tensor is not None)

    def reset(self) -> None:
        """Zeros, which need not be kept."""
        self.matrix = None
        self.columns = None
