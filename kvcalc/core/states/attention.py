"""Attention that keeps keys and values: full, sliding, chunked, cross, and layers that own nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from kvcalc.core.fields import ContradictionError, Flag, NaturalInt, PositiveInt
from kvcalc.core.states.base import EVERY_TOKEN, Buffer, Extent, State


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class _Heads(State):
    """Fields that every attention with heads has; a missing `value_head_dim` equals `head_dim`."""

    kv_heads: PositiveInt
    head_dim: PositiveInt
    value_head_dim: PositiveInt | None = None
    query_heads: PositiveInt | None = None

    def __post_init__(self) -> None:
        if self.query_heads is not None and self.query_heads % self.kv_heads:
            raise ContradictionError(f"query_heads {self.query_heads} must be a multiple of kv_heads {self.kv_heads}")

    @property
    def value_width(self) -> int:
        """Elements of one V vector."""
        return self.value_head_dim or self.head_dim

    def _pair(self, extent: Extent) -> tuple[Buffer, ...]:
        return (
            Buffer("key", "key", self.kv_heads, self.head_dim, extent),
            Buffer("value", "value", self.kv_heads, self.value_width, extent),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Full(_Heads):
    """Full attention: MHA, GQA (arXiv:2305.13245) and MQA (arXiv:1911.02150) differ only in `kv_heads`.

        elements per token per layer = kv_heads x (head_dim + value_head_dim)        one K and one V vector per KV head

    Llama-2-7B: 32 layers x 32 heads x (128 + 128) x 2 B = 524,288 B per token. KV heads divide over tensor parallel ranks.
    """

    technique: ClassVar[str] = "full"
    kind: ClassVar[Literal["full"]] = "full"

    def buffers(self) -> tuple[Buffer, ...]:
        """K and V of every token."""
        return self._pair(EVERY_TOKEN)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Sliding(_Heads):
    """Sliding-window attention (Mistral 7B, arXiv:2310.06825): only the last `window` tokens are kept.

        rows = min(T, window)        elements per row = kv_heads x (head_dim + value_head_dim)

    Gemma-3-27B at 32,768 tokens: 52 layers x min(32768, 1024) x 16 x (128 + 128) x 2 B = 436,207,616 B.
    Tokens before the window are out of sight, not only out of memory. A `nominal` window stands in the file (or in the class
    default behind it) without being part of the released model, as in StarCoder2: nothing has to be dropped, and only engines
    that follow the file's word drop anything.
    """

    technique: ClassVar[str] = "swa"
    kind: ClassVar[Literal["sliding"]] = "sliding"
    window: PositiveInt
    nominal: Flag = False

    def buffers(self) -> tuple[Buffer, ...]:
        """K and V of the last `window` tokens; of every token where the window is nominal."""
        return self._pair(EVERY_TOKEN if self.nominal else Extent("window", self.window))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Chunked(_Heads):
    """Chunked attention (Llama 4): a token sees its own chunk of `chunk` tokens only.

        rows = min(T, chunk)         at most one chunk is alive

    Llama-4-Scout at 131,072 tokens: 36 layers x min(131072, 8192) x 8 x (128 + 128) x 2 B = 1,207,959,552 B.
    """

    technique: ClassVar[str] = "chunked"
    kind: ClassVar[Literal["chunked"]] = "chunked"
    chunk: PositiveInt

    def buffers(self) -> tuple[Buffer, ...]:
        """K and V of the current chunk."""
        return self._pair(Extent("chunk", self.chunk))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Cross(_Heads):
    """Cross-attention: keys and values of the encoder's tokens, written once and never grown.

        rows = source_tokens         image or audio positions; 0 for a text-only request

    Whisper-large: 32 layers x 1,500 x 20 x (64 + 64) x 2 B = 245,760,000 B, whatever is decoded.
    """

    technique: ClassVar[str] = "cross"
    kind: ClassVar[Literal["cross"]] = "cross"
    source_tokens: NaturalInt = 0

    def buffers(self) -> tuple[Buffer, ...]:
        """K and V of the encoder's tokens."""
        return self._pair(Extent("source", self.source_tokens))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Shared(State):
    """Cross-layer sharing (CLA, arXiv:2405.12981; Gemma 3n): the layer reads another layer's cache and owns nothing.

        bytes = 0                    `shares_with` names the producer's index, where it is known

    Gemma-4-E2B: 35 layers, of which the last 20 share: 15 producers keep K and V.
    """

    technique: ClassVar[str] = "share"
    kind: ClassVar[Literal["shared"]] = "shared"
    shares_with: NaturalInt | None = None

    def buffers(self) -> tuple[Buffer, ...]:
        """Nothing of its own."""
        return ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Nothing(State):
    """A layer without a cache: an MLP or mixture-of-experts block, or an attention that was pruned away.

    bytes = 0
    """

    technique: ClassVar[str] = "none"
    kind: ClassVar[Literal["none"]] = "none"

    def buffers(self) -> tuple[Buffer, ...]:
        """Nothing."""
        return ()
