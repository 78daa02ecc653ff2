"""Attention that keeps one compressed row for all heads, and the index keys of sparse attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from kvcalc.core.fields import NaturalInt, PositiveInt
from kvcalc.core.states.base import CACHE, EVERY_TOKEN, Buffer, Extent, State


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Latent(State):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

        elements per token per layer = latent_dim + rope_dim        one latent and one shared rotary key: no factor 2, no heads

    DeepSeek-V3: 61 x (512 + 64) x 2 B = 70,272 B per token. Replicated, not split, under tensor parallelism.
    With `window`, only the last `window` rows are kept. `query_heads`, `nope_dim` and `value_head_dim` change no byte of the
    latent; engines that store the expanded heads need them.
    """

    technique: ClassVar[str] = "mla"
    kind: ClassVar[Literal["latent"]] = "latent"
    latent_dim: PositiveInt
    rope_dim: NaturalInt = 0
    window: PositiveInt | None = None
    query_heads: PositiveInt | None = None
    nope_dim: PositiveInt | None = None
    value_head_dim: PositiveInt | None = None

    def buffers(self) -> tuple[Buffer, ...]:
        """One row of latent and rotary key."""
        extent = Extent("window", self.window) if self.window else EVERY_TOKEN
        return (Buffer("latent", "latent", 1, self.latent_dim + self.rope_dim, extent, "replicated", CACHE, self.rope_dim),)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Index(State):
    """Index keys of sparse attention (DSA: DeepSeek-V3.2, arXiv:2512.02556): attention reads only the top-k, all is stored.

        bytes per token per layer = vectors x row(index_dim)        fp8 with one fp32 scale per 128: 132 B at 128

    DeepSeek-V3.2: 61 x 132 B = 8,052 B per token beside the 70,272 B of its latents. Work falls from T to k positions.
    `ratio` r keeps one key for r tokens, `pool` p pools p tokens into one row where an engine does so. Replicated under
    tensor parallelism. `format` names the layout where the family departs from fp8: "bf16" or "fp32".
    """

    technique: ClassVar[str] = "dsa"
    kind: ClassVar[Literal["index"]] = "index"
    index_dim: PositiveInt
    vectors: PositiveInt = 1
    ratio: PositiveInt = 1
    pool: PositiveInt = 1
    top_k: PositiveInt | None = None
    format: str = "index_fp8"

    def buffers(self) -> tuple[Buffer, ...]:
        """One key per token, or per `ratio` tokens."""
        extent = EVERY_TOKEN if self.ratio == 1 else Extent("ratio", self.ratio)
        return (Buffer("index", "index", self.vectors, self.index_dim, extent, "replicated", self.format),)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Compressed(State):
    """Compressed attention (DeepSeek-V4): one latent row, K and V at once, for every `ratio` tokens.

        rows = T // ratio            elements per row = latent_dim (rotary part included)

    DeepSeek-V4-Flash: 21 layers of ratio 4 and 20 of ratio 128, latents of 512; at 131,072 tokens
    21 x 32,768 x 512 x 2 B + 20 x 1,024 x 512 x 2 B = 725,614,592 B. Replicated under tensor parallelism.
    """

    technique: ClassVar[str] = "compressed"
    kind: ClassVar[Literal["compressed"]] = "compressed"
    latent_dim: PositiveInt
    rope_dim: NaturalInt = 0
    ratio: PositiveInt

    def buffers(self) -> tuple[Buffer, ...]:
        """One row per `ratio` tokens."""
        return (Buffer("latent", "latent", 1, self.latent_dim, Extent("ratio", self.ratio), "replicated", CACHE, self.rope_dim),)
