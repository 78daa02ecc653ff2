"""Sparse attention by an index (DSA, DeepSeek-V3.2, arXiv:2512.02556): all tokens are kept, a few are read.

    bytes = layers x (latent_dim + rope_dim + index_dim) x T x element size        MLA's rows, and one index key a token
    scored work: index O(T² x index_dim), attention O(T x k) instead of O(T²)

A light indexer scores every earlier token, score = Σ over index heads of w · ReLU(q · k), and attention reads the k best rows.
Memory *grows*, by one index key a token: DSA saves reading, not keeping. Any token may be chosen at any later step, so none may be
dropped. (Engines keep the index key in fp8 with a scale, 132 bytes for 128 elements; the lab keeps it in its own type.)

What is easy to get wrong: index keys are rotated and kept like any other key, and the prefill must leave them too; the choice is
made for each query alone, among the tokens that it may see; and equal scores, such as the zeros that ReLU makes, must be broken the
same way each time, or the cached run reads other tokens than the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvcalc.core.states import Index
from kvcalc.lab.attention import CAUSAL, visible
from kvcalc.lab.frame import Step, Weights, build, rotate, split
from kvcalc.lab.latent import LatentAttention, Rows
from kvcalc.lab.lesson import Lesson
from kvcalc.lab.sizes import DTYPE

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.core.states import AnyState
    from kvcalc.lab.frame import Decoder, Store
    from kvcalc.lab.sizes import Sizes
    from kvcalc.lab.trial import Trial


class RowsAndIndex:
    """MLA's rows, and an index key for each."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.index = Rows()

    def extend(self, rows: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        """All rows and all index keys."""
        return self.rows.extend(rows), self.index.extend(keys)

    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the rows and of the index keys."""
        return (*self.rows.tensors(), *self.index.tensors())

    def reset(self) -> None:
        """Drop both."""
        self.rows.reset()
        self.index.reset()


class SparseAttention(LatentAttention):
    """MLA over the `top_k` rows that an indexer chooses for each query."""

    def __init__(self, weights: Weights, sizes: Sizes) -> None:
        super().__init__(weights, sizes, absorb=True)
        self.top_k = top_k(sizes)
        self.index_heads, self.index_dim = sizes.heads, sizes.head_dim
        self.to_index_query = weights.matrix(sizes.dim, self.index_heads * self.index_dim)
        self.to_index_key = weights.matrix(sizes.dim, self.index_dim)
        self.to_index_weight = weights.matrix(sizes.dim, self.index_heads)

    @property
    def states(self) -> tuple[AnyState, ...]:
        """Two states: MLA's rows, and the index keys."""
        return (*super().states, Index(index_dim=self.index_dim, top_k=self.top_k, format=DTYPE))

    def store(self) -> Store:
        """Rows and index keys in order."""
        return RowsAndIndex()

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """Make rows and index keys, keep both, choose, read the chosen."""
        turn, index_turn = step.turn(self.rope), step.turn(self.index_dim)
        rows = self.row(x, turn)
        keys = rotate((x @ self.to_index_key).unsqueeze(-3), index_turn).squeeze(-3)
        if step.kept:
            rows, keys = step.kept.extend(rows, keys)
        mask = visible(CAUSAL, step.at, torch.arange(rows.shape[-2], device=rows.device))
        chosen = self._choose(x, keys, mask, index_turn)
        query = self.query(x, turn)
        if x.shape[-2] == 1:  # a decoding step reads the chosen rows and no others
            return self.read(query, rows[chosen[0]], mask[:, chosen[0]])
        return self.read(query, rows, mask & torch.zeros_like(mask).scatter(-1, chosen, value=True))

    def _choose(self, x: Tensor, keys: Tensor, mask: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
        """Indices [n, k] of the best rows of each query; equal scores: the earlier row."""
        query = rotate(split(x @ self.to_index_query, self.index_heads), turn)
        weight = (x @ self.to_index_weight).transpose(-1, -2)[..., None]
        scores = (weight * (query @ keys.transpose(-1, -2)).relu()).sum(-3)
        order = scores.masked_fill(~mask, float("-inf")).sort(dim=-1, descending=True, stable=True).indices
        return order[:, : self.top_k]


def top_k(sizes: Sizes) -> int:
    """An eighth of the text."""
    return max(1, sizes.total // 8)


def sparse(sizes: Sizes) -> Decoder:
    """Every layer has its own indexer."""
    return build(sizes, lambda weights, _: SparseAttention(weights, sizes))


def _note(decoder: Decoder, trial: Trial) -> tuple[str, ...]:
    k = top_k(decoder.sizes)
    return (f"all {trial.longest:,} rows are kept, {min(k, trial.longest):,} are read: the index saves reading, not memory",)


LESSONS = {"dsa": Lesson(sparse, notes=_note)}
