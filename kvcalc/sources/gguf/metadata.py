"""GGUF metadata read with suspicion: typed getters under the names of the architecture, without its prefix.

Keys may be a number for all blocks or an array with one entry a block. What a file leaves out follows llama.cpp's loader
(llama-model.cpp `load_hparams`, llama-model-loader.cpp `get_key_or_arr`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.units import clean
from kvcalc.sources.gguf.skipped import Skipped

if TYPE_CHECKING:
    from collections.abc import Sequence

#: LLAMA_MAX_LAYERS (llama-hparams.h).
MOST_BLOCKS = 512
#: Widths and counts beyond this are no model's.
_LARGEST = 2**31


class Metadata:
    """The keys of one file, and the figures that every architecture has.

    blocks        all blocks, draft blocks included               drafts      how many of them, at the end, are draft blocks
    heads, kv_heads, feed_forward   one entry a block             embedding   width of the residual stream
    key, value    width of a K and V head of full layers          key_swa, value_swa    the same of window layers
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        if not isinstance(raw, Mapping):
            raise InvalidConfigError("GGUF metadata is not a mapping of keys to values")
        self.raw = raw
        self.architecture = self._text("general.architecture")
        self.blocks = self.integer("block_count", least=1)
        if self.blocks > MOST_BLOCKS:
            raise self._error("block_count", f"llama.cpp reads at most {MOST_BLOCKS} blocks")
        self.drafts = self.integer("nextn_predict_layers", 0)
        if self.drafts > self.blocks:
            raise self._error("nextn_predict_layers", f"the file has {self.blocks} blocks")
        self.embedding = self.integer("embedding_length", least=1)
        self.heads = self.per_block("attention.head_count", 0)
        self.kv_heads = self.per_block("attention.head_count_kv", self.heads)
        self.feed_forward = self.per_block("feed_forward_length", 0)
        self.key = self.value = 0
        if self.heads[0]:
            self.key = self.integer("attention.key_length", self.embedding // self.heads[0])
            self.value = self.integer("attention.value_length", self.embedding // self.heads[0])
        self.key_swa = self.integer("attention.key_length_swa", self.key)
        self.value_swa = self.integer("attention.value_length_swa", self.value)

    @property
    def trunk(self) -> int:
        """Blocks that are not draft blocks."""
        return self.blocks - self.drafts

    def has(self, key: str) -> bool:
        """The file has the key."""
        return self._name(key) in self.raw

    def integer(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number; `default` where the file has none. Raises InvalidConfigError naming the key."""
        value = self.raw.get(self._name(key))
        if value is None:
            if default is None:
                raise InvalidConfigError(
                    f"GGUF metadata of a {clean(self.architecture, 40)} model has no '{clean(self._name(key), 80)}'",
                    "the file is not one that llama.cpp loads",
                )
            return default
        return self._checked(value, key, least)

    def optional(self, key: str) -> int | None:
        """A whole number, or None."""
        return self.integer(key) if self.raw.get(self._name(key)) is not None else None

    def array(self, key: str) -> list[int] | None:
        """An array of whole numbers or truth values, as whole numbers; None where the key is missing or holds one number for all blocks."""
        value = self.raw.get(self._name(key))
        if value is None or isinstance(value, bool | int | float):
            return None
        if not isinstance(value, list | tuple) or isinstance(value, Skipped):
            raise self._error(key, "needs a whole number, or an array of them")
        if len(value) > MOST_BLOCKS:
            raise self._error(key, f"an array has at most {MOST_BLOCKS} entries")
        return [self._checked(int(item) if isinstance(item, bool) else item, key, 0) for item in value]

    def flags(self, key: str) -> list[bool] | None:
        """An array as one truth value a block: shorter arrays are false from their end on."""
        found = self.array(key)
        return None if found is None else [bool(item) for item in found[: self.blocks]] + [False] * (self.blocks - len(found))

    def per_block(self, key: str, default: int | Sequence[int], *, blocks: int | None = None) -> list[int]:
        """One number for each block: from an array of exactly that length, from one number for all, or `default`."""
        count = self.blocks if blocks is None else blocks
        found = self.array(key)
        if found is not None:
            if len(found) != count:
                raise self._error(key, f"needs one entry for each of {count} blocks")
            return found
        value = self.raw.get(self._name(key))
        if value is not None:
            return [self._checked(value, key, 0)] * count
        return [default] * count if isinstance(default, int) else list(default[:count])

    def text(self, key: str) -> str:
        """A text under its full name, or an empty one where the file has none. Raises InvalidConfigError for anything else."""
        value = self.raw.get(key, "")
        if not isinstance(value, str):
            raise InvalidConfigError(f"GGUF metadata: '{clean(key, 80)}' is {clean(repr(value), 60)}; needs a text")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """A truth value."""
        value = self.raw.get(self._name(key), default)
        if not isinstance(value, bool) and value not in (0, 1):
            raise self._error(key, "needs true or false")
        return bool(value)

    def refuse(self, key: str, why: str) -> InvalidConfigError:
        """The error for a value that llama.cpp's loader does not accept."""
        return self._error(key, why)

    def _name(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def _text(self, key: str) -> str:
        value = self.raw.get(key)
        if not isinstance(value, str) or not value:
            raise InvalidConfigError(f"GGUF metadata has no '{key}'", "the header of a model's GGUF file names its architecture")
        return value

    def _checked(self, value: object, key: str, least: int) -> int:
        if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _LARGEST:
            raise self._error(key, f"needs a whole number of at least {least}")
        return value

    def _error(self, key: str, why: str) -> InvalidConfigError:
        name = self._name(key)
        return InvalidConfigError(f"GGUF metadata: '{clean(name, 80)}' is {clean(repr(self.raw.get(name)), 60)}; {why}")
