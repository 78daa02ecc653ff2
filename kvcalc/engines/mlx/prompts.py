"""Finished prompts that `mlx_lm.server` keeps beside the running requests (mlx-lm 0.32.2: models/cache.py LRUPromptCache, server.py).

Up to `--prompt-cache-size` (10) entries stay. An entry of a model whose caches can be trimmed replaces those of its own prefixes: a
conversation is one entry. Models with recurrent states, or with windows that have closed, keep one entry a turn. Requests that ran in a
batch are stored without the rows that no token fills, others as they were allocated. `--prompt-cache-bytes` is looked at only when a
batched request comes in; until then one more entry for each running request may stand there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.plan import Line
from kvcalc.engines.mlx.caches import Arrays, Chunks, Rotating

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcalc.engines.mlx.caches import Cache


@dataclass(frozen=True, slots=True)
class Prompts:
    """The entries that are asked for: how many at most, and the bytes that they are trimmed to; None = no limit."""

    entries: int
    most: int | None

    def lines(self, lines: Iterable[Line], context: int, sequences: int, *, batched: bool) -> list[Line]:
        """One line: every entry as long as the context, within what the limit of bytes lets stand. `lines` are those of `sequences` running."""
        if not self.entries:
            return []
        entry = sum(stored(line, context, batched=batched) for line in lines) // sequences
        held = self.entries * entry
        if self.most is not None and batched:
            held = min(held, self.most + sequences * entry)
        formula = f"{self.entries} entries x {entry:,} B" + (f", at most {held:,} B" if held != self.entries * entry else "")
        return [Line("prompt_cache", 0, "entries", 0, "", self.entries, held, formula)]

    def notes(self, caches: Iterable[Cache], context: int, *, batched: bool) -> list[str]:
        """What an entry is, and where the limit of bytes does nothing."""
        if not self.entries:
            return []
        turns = "turn" if not trimmable(caches, context) else "conversation"
        found = [f"the prompt cache is counted full, each entry as long as the context; a {turns} is one entry"]
        if self.most is not None and not batched:
            found.append("prompt_cache_bytes does nothing here: mlx_lm.server looks at it only when a batched request comes in")
        return found


def read_prompts(args: dict[str, Any]) -> Prompts:
    """The settings of the prompt cache."""
    return Prompts(args["prompt_cache_size"] or 0, args["prompt_cache_bytes"])


def stored(line: Line, context: int, *, batched: bool) -> int:
    """Bytes of a line as an entry keeps them: of a batch, without rows beyond the tokens."""
    if line.fixed or not batched or line.slots <= context:
        return line.bytes
    return line.bytes // line.slots * context


def can_batch(caches: Iterable[Cache], args: dict[str, Any]) -> bool:
    """The server runs requests of this model together: every cache can be merged, and nothing is quantized."""
    return args["kv_bits"] is None and not any(isinstance(cache, Chunks) for cache in caches)


def trimmable(caches: Iterable[Cache], context: int) -> bool:
    """Tokens can be taken off the end of these caches: none is recurrent, no window has closed."""
    return not any(isinstance(cache, Arrays) or (isinstance(cache, Rotating) and cache.window <= context) for cache in caches)
