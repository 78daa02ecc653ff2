"""Multi-head latent attention (MLA, DeepSeek-V2, arXiv:2405.04434): keep what keys and values are made from.

    bytes = layers x (latent_dim + rope_dim) x T x element size        no factor 2, no heads

A token's row is a latent c, from which every head's key and value are projected, and one rotary key that all heads share. Why
apart: rotation depends on the position, so a rotated key cannot be made from an unrotated latent by one fixed matrix.

Two ways to read the rows, with the same answer:

* **expanded**: project keys and values of every head from every latent, then attend as usual. Right for a prefill.
* **absorbed**: q · (c W) = (q Wᵀ) · c, so the *query* is projected, once, and attends to the latents themselves: multi-query
  attention with one key of latent_dim + rope_dim and the latent as its value. Right for decoding: nothing is expanded.

What is easy to get wrong: the scores are divided by √(nope + rope), the width of a head's whole key, though the absorbed product
runs over latent_dim + rope_dim; and the latent is normalised before it is kept, not after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvcalc.core.states import Latent
from kvcalc.lab.attention import CAUSAL, attend, visible
from kvcalc.lab.frame import Step, Weights, build, merge, norm, rotate, split
from kvcalc.lab.lesson import Lesson

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Decoder, Store
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial


class Rows:
    """One row a token, in order: latents, or index keys."""

    rows: Tensor | None = None

    def extend(self, rows: Tensor) -> Tensor:
        """All rows, the new ones included."""
        self.rows = rows if self.rows is None else torch.cat((self.rows, rows), dim=-2)
        return self.rows

    def tensors(self) -> tuple[Tensor, ...]:
        """The rows."""
        return () if self.rows is None else (self.rows,)

    def reset(self) -> None:
        """Drop them."""
        self.rows = None


class LatentAttention:
    """Queries of nope + rope, one row of latent + rope a token, keys and values projected from it."""

    def __init__(self, weights: Weights, sizes: Sizes, *, absorb: bool) -> None:
        self.absorb = absorb
        self.heads, self.nope, self.rope = sizes.heads, sizes.head_dim, sizes.head_dim // 2
        self.latent = max(1, sizes.dim // 4)
        self.scale = (self.nope + self.rope) ** -0.5
        self.to_query = weights.matrix(sizes.dim, self.heads * (self.nope + self.rope))
        self.to_latent = weights.matrix(sizes.dim, self.latent)
        self.to_rope_key = weights.matrix(sizes.dim, self.rope)
        self.key_of = weights.matrix(self.latent, self.heads * self.nope)
        self.value_of = weights.matrix(self.latent, self.heads * self.nope)
        self.out = weights.matrix(self.heads * self.nope, sizes.dim)

    @property
    def states(self) -> tuple[AnyState, ...]:
        """One state: the rows."""
        return (Latent(latent_dim=self.latent, rope_dim=self.rope, query_heads=self.heads, nope_dim=self.nope),)

    def store(self) -> Store:
        """Rows in order."""
        return Rows()

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """Make the rows, keep them, read all."""
        turn = step.turn(self.rope)
        new = self.row(x, turn)
        rows = step.kept.extend(new) if step.kept else new
        mask = visible(CAUSAL, step.at, torch.arange(rows.shape[-2], device=rows.device))
        return self.read(self.query(x, turn), rows, mask)

    def row(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """What is kept of each token: [n, latent + rope]."""
        rope_key = rotate((x @ self.to_rope_key).unsqueeze(-3), turn).squeeze(-3)
        return torch.cat((norm(x @ self.to_latent), rope_key), dim=-1)

    def query(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """[heads, n, nope + rope], the rotary part last."""
        plain, rotary = split(x @ self.to_query, self.heads).split((self.nope, self.rope), dim=-1)
        return torch.cat((plain, rotate(rotary, turn)), dim=-1)

    def read(self, query: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        """Attention over rows [t, latent + rope], in one of the two ways."""
        return (self._absorbed if self.absorb and query.shape[-2] == 1 else self._expanded)(query, rows, mask) @ self.out

    def _expanded(self, query: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        latent, rope_key = rows.split((self.latent, self.rope), dim=-1)
        plain = split(latent @ self.key_of, self.heads)
        keys = torch.cat((plain, rope_key.expand(self.heads, -1, -1)), dim=-1)
        return attend(query, keys, split(latent @ self.value_of, self.heads), mask, self.scale)

    def _absorbed(self, query: Tensor, rows: Tensor, mask: Tensor) -> Tensor:
        plain, rotary = query.split((self.nope, self.rope), dim=-1)
        into_latent = split(self.key_of, self.heads).transpose(-1, -2)
        inside = torch.cat((plain @ into_latent, rotary), dim=-1)
        mixed = attend(inside, rows[None], rows[None, :, : self.latent], mask, self.scale)
        return merge(split(mixed, self.heads) @ split(self.value_of, self.heads))


def expanded(sizes: Sizes) -> Decoder:
    """Keys and values are projected from all rows at every step."""
    return build(sizes, lambda weights, _: LatentAttention(weights, sizes, absorb=False))


def absorbed(sizes: Sizes) -> Decoder:
    """A decoding step projects its query instead; a prefill, and the reference, expand."""
    return build(sizes, lambda weights, _: LatentAttention(weights, sizes, absorb=True))


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    del trial
    sizes = decoder.sizes
    row = sizes.dim // 4 + sizes.head_dim // 2
    return (f"a row of {row} elements stands for the {2 * sizes.dim} of multi-head attention's K and V",)


LESSONS = {"mla": Lesson(expanded, notes=_note), "mla-absorbed": Lesson(absorbed, notes=_note)}
