"""Mamba-2 (arXiv:2405.21060): a state that fades and is written to, and the attention that it secretly is.

    h[t] = exp(Δ[t] A) h[t-1] + Δ[t] x[t] B[t]ᵀ        y[t] = h[t] C[t] + D x[t]
    bytes = layers x (heads x head_dim x state_dim x 4 + (heads x head_dim + 2 x groups x state_dim) x (K - 1) x element size)

B and C are shared by the heads of a group, and pass through the convolution beside x: its columns are wider than x.

The reference is the paper's duality: unrolled, y = (L ∘ C Bᵀ) (Δ x), with L[t, j] the decay from j to t. That is attention
without a softmax, with C as queries, B as keys and x as values, quadratic in T and without a state.

What is easy to get wrong: the convolution holds x, B *and* C; Δ scales what is written, not only the decay; and the state stays in
float32 even where the model is bf16, so `--kv-dtype` does not touch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from kvcalc.core.states import Mamba2
from kvcalc.lab.convolution import KERNEL, Recurrence, ShortConvolution
from kvcalc.lab.frame import Step, Weights, build, merge, norm, split
from kvcalc.lab.lesson import Lesson

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Decoder, Store
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial


class Mamba:
    """One group of B and C for all heads."""

    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        self.heads, self.width, self.state_dim = sizes.heads, sizes.head_dim, sizes.head_dim
        self.inner = self.heads * self.width
        self.to_mixed = weights.matrix(sizes.dim, self.inner + 2 * self.state_dim)
        self.to_gate = weights.matrix(sizes.dim, self.inner)
        self.to_delta = weights.matrix(sizes.dim, self.heads)
        self.rate = weights.uniform(self.heads, 0.01, 0.2)
        self.skip = weights.uniform(self.heads, 0.0, 1.0)
        self.convolution = ShortConvolution(weights, self.inner + 2 * self.state_dim)
        self.out = weights.matrix(self.inner, sizes.dim)

    @property
    def states(self) -> tuple[AnyState, ...]:
        """One state: the matrices and the convolution's columns."""
        return (Mamba2(heads=self.heads, head_dim=self.width, state_dim=self.state_dim, groups=1, conv_kernel=KERNEL),)

    def store(self) -> Store:
        """Of fixed size."""
        return Recurrence()

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """Convolve, then the recurrence from the state that is kept, or its dual without one."""
        past = step.kept.columns if step.kept else None
        mixed, columns = self.convolution(x @ self.to_mixed, past)
        inner, b, c = mixed.split((self.inner, self.state_dim, self.state_dim), dim=-1)
        inner = split(inner, self.heads)
        delta = functional.softplus(x @ self.to_delta).transpose(-1, -2)[..., None]  # [heads, n, 1]
        decay = -self.rate[:, None, None] * delta
        if step.kept:
            output, step.kept.matrix = self._recur(delta * inner, b, c, decay, step.kept.matrix)
            step.kept.columns = columns
        else:
            output = self._dual(delta * inner, b, c, decay)
        output = output + self.skip[:, None, None] * inner
        return norm(merge(output) * functional.silu(x @ self.to_gate)) @ self.out

    def _recur(self, inner: Tensor, b: Tensor, c: Tensor, decay: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Token by token from `state` [heads, head_dim, state_dim]: outputs, and the state to keep."""
        if state is None:
            state = inner.new_zeros(self.heads, self.width, self.state_dim)
        outputs = []
        for t in range(inner.shape[-2]):
            state = state * decay[:, t, :, None].exp() + inner[:, t, :, None] * b[t]
            outputs.append((state @ c[t])[:, None, :])
        return torch.cat(outputs, dim=-2), state

    @staticmethod
    def _dual(inner: Tensor, b: Tensor, c: Tensor, decay: Tensor) -> Tensor:
        """The same as attention: (L ∘ C Bᵀ) x."""
        total = decay.cumsum(-2)
        ratio = (total - total.transpose(-1, -2)).exp().tril()
        return (ratio * (c @ b.T)) @ inner


def mamba(sizes: Sizes) -> Decoder:
    """Every layer is recurrent."""
    return build(sizes, lambda weights, _: Mamba(weights, sizes))


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del decoder
    return (f"the same bytes after {trial.longest:,} tokens as after one",)


LESSONS = {"mamba2": Lesson(mamba, notes=_note)}
