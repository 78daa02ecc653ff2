"""What every state is made of: buffers, and how many slots of each a sequence fills.

    state ── buffers ──▶ Buffer(name, role, vectors, width, extent, shard, dtype)
                                              │        │
                   elements of one row = vectors x width      rows = extent.slots(context)

A state is a frozen Pydantic model, discriminated on `kind`, because states are read from files. A buffer is a plain
frozen value, made once per state.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

ExtentKind = Literal["tokens", "window", "chunk", "ratio", "fixed", "source"]
Shard = Literal["heads", "replicated", "width"]
Role = Literal["key", "value", "latent", "index", "conv", "recurrent"]

#: The dtype of a buffer that follows the cache's format (`--kv-dtype`).
CACHE = "cache"
#: The dtype of a buffer that stays in the model's own type whatever the cache's format.
MODEL = "model"


class Extent(NamedTuple):
    """How many rows of a buffer one sequence of T tokens fills.

    tokens: T · window W, chunk C: min(T, size) · ratio r: T // r · fixed, source: size, whatever T is
    """

    kind: ExtentKind
    size: int = 0

    def slots(self, context: int) -> int:
        """Rows held for a sequence of `context` tokens."""
        if self.kind == "tokens":
            return context
        if self.kind in ("window", "chunk"):
            return min(context, self.size)
        if self.kind == "ratio":
            return context // self.size
        return self.size

    @property
    def is_fixed(self) -> bool:
        """The rows do not depend on the context."""
        return self.kind in ("fixed", "source")

    def text(self, context: int) -> str:
        """The rows as a formula: `min(32,768, 1,024)`."""
        if self.kind == "tokens":
            return f"{context:,} tokens"
        if self.kind in ("window", "chunk"):
            return f"min({context:,}, {self.kind} {self.size:,}) tokens"
        if self.kind == "ratio":
            return f"({context:,} // {self.size}) entries"
        return f"{self.size:,} rows"


EVERY_TOKEN = Extent("tokens")


class Buffer(NamedTuple):
    """One tensor of a state: `vectors` x `width` elements a row.

    vectors   heads (or 1): what tensor parallelism divides when shard is "heads"
    width     elements of one vector; "width" shards divide it
    dtype     CACHE, MODEL, or the name of a format that never changes ("fp32", "index_fp8")
    rope      of a latent: how many of `width` are the rotary part
    """

    name: str
    role: Role
    vectors: int
    width: int
    extent: Extent = EVERY_TOKEN
    shard: Shard = "heads"
    dtype: str = CACHE
    rope: int = 0

    @property
    def elements(self) -> int:
        """Elements of one row."""
        return self.vectors * self.width


class State(BaseModel):
    """What one layer keeps for one sequence. Subclasses set `kind` and give `buffers()`."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, hide_input_in_errors=True)

    #: The row of facts that users know this state by; `models list --technique` filters on it.
    technique: ClassVar[str] = ""
    kind: str

    def buffers(self) -> tuple[Buffer, ...]:
        """The tensors of this state, in the order in which they are shown."""
        raise NotImplementedError

    @property
    def is_recurrent(self) -> bool:
        """Every buffer has a fixed number of rows for each sequence."""
        return False
