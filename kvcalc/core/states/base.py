"""What every state is made of: buffers, and how many slots of each a sequence fills.

    state ── buffers ──▶ Buffer(name, role, vectors, width, extent, shard, dtype)
                                              │        │
                   elements of one row = vectors x width      rows = extent.slots(context)

A state is a frozen dataclass of its own `kind`; what files say becomes one in `kvcalc.sources.schema`. A buffer is a plain
frozen value, made once per state.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from kvcalc.core.fields import Value, field_names

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


class State(Value):
    """What one layer keeps for one sequence. Subclasses are frozen dataclasses that set `kind` and give `buffers()`."""

    __slots__ = ()

    #: The row of facts that users know this state by; `models list --technique` filters on it.
    technique: ClassVar[str] = ""
    #: The word that YAML files use.
    kind: ClassVar[str] = ""

    def buffers(self) -> tuple[Buffer, ...]:
        """The tensors of this state, in the order in which they are shown."""
        raise NotImplementedError

    @property
    def is_recurrent(self) -> bool:
        """Every buffer has a fixed number of rows for each sequence."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """The kind and every field, as a YAML file would say them."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in field_names(self)}}
