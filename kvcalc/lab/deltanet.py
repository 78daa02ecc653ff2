"""Gated DeltaNet (arXiv:2412.06464; Qwen3-Next): one matrix a head instead of keys and values of every token.

    S[t] = α[t] S[t-1] + k[t] u[t]ᵀ        u[t] = β[t] (v[t] - (α[t] S[t-1])ᵀ k[t])        o[t] = S[t]ᵀ q[t]
    bytes = layers x (heads x key_dim x value_dim x 4 + channels x (K - 1) x element size)        whatever T is

The matrix is a memory from keys to values. Each token lets it fade (α), reads what it now says for its key, and writes the
difference to what it should say (β): the delta rule.

The reference does not run the recurrence. Unrolled, with γ the running product of the α, it is a triangular system:

    u[t] + β[t] Σ over j < t of (γ[t]/γ[j]) (k[t]·k[j]) u[j] = β[t] v[t]
    o[t] = Σ over j ≤ t of (γ[t]/γ[j]) (q[t]·k[j]) u[j]

which looks back at every token, as attention does, and must give the same answer.

What is easy to get wrong: the matrix fades *before* it is read; the convolution has a memory of its own, which must be kept and
reset with the matrix; a hybrid's full layers still grow with T (3:1 in Qwen3-Next: a quarter of the layers). And a state cannot be
cut back: what the last ten tokens wrote cannot be taken out, so there is no prefix to reuse unless a snapshot was kept there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from kvcalc.core.states import GatedDeltaNet
from kvcalc.lab.attention import Attention
from kvcalc.lab.convolution import KERNEL, Recurrence, ShortConvolution
from kvcalc.lab.frame import Step, Weights, build, merge, norm, split
from kvcalc.lab.lesson import Lesson

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Decoder, Mixer, Store
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial

#: One full attention layer after this many recurrent ones, as in Qwen3-Next.
LINEAR_PER_FULL = 3


class DeltaNet:
    """A gated delta rule a head, behind a short convolution of q, k and v."""

    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        self.heads, self.width = sizes.heads, sizes.head_dim
        inner = self.heads * self.width
        self.to_qkv = weights.matrix(sizes.dim, 3 * inner)
        self.to_gates = weights.matrix(sizes.dim, 2 * self.heads)
        self.to_output_gate = weights.matrix(sizes.dim, inner)
        self.rate = weights.uniform(self.heads, 0.01, 0.2)
        self.convolution = ShortConvolution(weights, 3 * inner)
        self.out = weights.matrix(inner, sizes.dim)

    @property
    def states(self) -> tuple[AnyState, ...]:
        """One state: the matrices and the convolution's columns."""
        heads, width = self.heads, self.width
        return (GatedDeltaNet(key_heads=heads, value_heads=heads, key_head_dim=width, value_head_dim=width, conv_kernel=KERNEL),)

    def store(self) -> Store:
        """Of fixed size."""
        return Recurrence()

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """Convolve, then the recurrence from the state that is kept, or the unrolled system without one."""
        past = step.kept.columns if step.kept else None
        mixed, columns = self.convolution(x @ self.to_qkv, past)
        query, key, value = (split(part, self.heads) for part in mixed.chunk(3, dim=-1))
        query, key = functional.normalize(query, dim=-1), functional.normalize(key, dim=-1)
        fade, write = (x @ self.to_gates).transpose(-1, -2).chunk(2, dim=-2)  # each [heads, n]
        decay, beta = -self.rate[:, None] * functional.softplus(fade), write.sigmoid()  # decay = log α
        if step.kept:
            output, step.kept.matrix = self._recur(query, key, value, decay, beta, step.kept.matrix)
            step.kept.columns = columns
        else:
            output = self._unrolled(query, key, value, decay, beta)
        return (merge(norm(output)) * functional.silu(x @ self.to_output_gate)) @ self.out

    def _recur(self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Token by token from `state` [heads, key_dim, value_dim]: outputs, and the state to keep."""
        if state is None:
            state = query.new_zeros(self.heads, self.width, self.width)
        outputs = []
        for t in range(query.shape[-2]):
            state = state * decay[:, t, None, None].exp()
            said = key[:, t, None, :] @ state
            written = beta[:, t, None, None] * (value[:, t, None, :] - said)
            state = state + key[:, t, :, None] * written
            outputs.append(query[:, t, None, :] @ state)
        return torch.cat(outputs, dim=-2), state

    def _unrolled(self, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
        """The same from the whole sequence at once, without a state."""
        total = decay.cumsum(-1)
        ratio = (total[:, :, None] - total[:, None, :]).exp().tril()  # γ[t] / γ[j] where j ≤ t
        beta = beta[..., None]
        system = torch.eye(query.shape[-2], device=query.device) + beta * (ratio * (key @ key.transpose(-1, -2))).tril(-1)
        written = torch.linalg.solve_triangular(system, beta * value, upper=False, unitriangular=True)
        return (ratio * (query @ key.transpose(-1, -2))) @ written


def linear(sizes: Sizes) -> Decoder:
    """Every layer is recurrent."""
    return build(sizes, lambda weights, _: DeltaNet(weights, sizes))


def hybrid(sizes: Sizes) -> Decoder:
    """Three recurrent layers, then a full one: four layers at least."""
    sizes = replace(sizes, layers=max(sizes.layers, LINEAR_PER_FULL + 1))

    def mixer(weights: Weights, index: int) -> Mixer:
        full = index % (LINEAR_PER_FULL + 1) == LINEAR_PER_FULL
        return Attention(weights, sizes, sizes.groups) if full else DeltaNet(weights, sizes)

    return build(sizes, mixer)


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del trial
    layers = decoder.sizes.layers
    return (f"{layers // (LINEAR_PER_FULL + 1)} of {layers} layers are full ones",)


def _fixed_note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del decoder
    return (f"the same bytes after {trial.longest:,} tokens as after one",)


LESSONS = {"deltanet": Lesson(linear, notes=_fixed_note), "deltanet-hybrid": Lesson(hybrid, notes=_note)}
