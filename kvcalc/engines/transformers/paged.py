"""`generate_batch` and `transformers serve`: the paged cache, and what it makes of a memory (PagedAttentionCache, transformers 5.24).

    page       2 x kv_heads x head_dim x bytes x page_size        K and V of page_size tokens in one layer; one shape for all layers
    block      a page in each layer of a group: all full layers, or all sliding ones
    sector     lcm(blocks' bytes, 128): what a group takes from the cache at a time
    tensor     (sectors + 2) x sector: two are never given out

    sectors    what is left of max_memory_percent x free memory after the tensors beside the cache, each sector with the reads and
               read indices of its tokens; then as many less as the attention masks cost
    request    full layers ⌈T / page_size⌉ blocks; sliding ones ⌈min(T, W) / page_size⌉, a ring

Source: generation/continuous_batching/cache.py (PagedAttentionCache, PagedAttentionMemoryHandler), cache_allocators/.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.plan import Capacity, Line
from kvcalc.core.states import Cross, Full, Shared, Sliding
from kvcalc.core.units import clean
from kvcalc.engines.transformers.families import FAMILIES, RULE
from kvcalc.engines.transformers.stores import ITEM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState

#: Settings in force where nothing is given.
DEFAULTS: dict[str, Any] = {
    "attn_implementation": "sdpa",
    "model_supports_logits_to_keep": True,
    "page_size": 256,
    "use_async_batching": False,
    "max_batch_tokens": 8192,
    "max_memory_percent": 0.9,
    "max_requests_per_batch": 1024,
}
#: Every sector is a multiple of it.
ALIGNMENT = 128
#: Sectors that no request is given: what padding reads, and where it writes.
TRASH = 2
#: Pages of a request in the table of the decode path (max_blocks_per_request).
TABLE = 32
INT32, INT64, FLOAT32 = 4, 8, 4
#: Rows of int32 a batch token has in the packed inputs, and of the output.
INPUT_ROWS, OUTPUT_ROWS = 7, 1


class PagedGroup(NamedTuple):
    """The layers of one kind: `window` 0 for full attention."""

    layers: int
    window: int

    @property
    def state(self) -> str:
        """The kind, as lines name it."""
        return "sliding" if self.window else "full"

    def tokens(self, context: int) -> int:
        """Tokens that a request keeps in these layers."""
        return min(context, self.window) if self.window else context


class Shape(NamedTuple):
    """What the cache reads in a config: one shape for all layers. What lies beside the cache also depends on the rest, if it is known."""

    kv_heads: int
    head_dim: int
    heads: int | None
    hidden: int | None
    vocabulary: int | None


class Beside(NamedTuple):
    """What the tensors beside the cache depend on."""

    heads: int
    hidden: int
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Paged:
    """The paged cache of one model under settings in force, and the store that lines are asked of."""

    shape: Shape
    groups: tuple[PagedGroup, ...]
    layers: int
    format: str
    settings: Mapping[str, Any]
    model: str

    @property
    def beside(self) -> Beside:
        """What a memory's answer needs of the model. Raises UsageError for what the model does not say."""
        heads, hidden, vocabulary = self.shape.heads, self.shape.hidden, self.shape.vocabulary
        if heads is None or hidden is None or vocabulary is None:
            named = (("query_heads", heads), ("hidden_dim", hidden), ("traits.vocab_size", vocabulary))
            missing = " and ".join(name for name, value in named if value is None)
            raise UsageError(
                f"what lies beside the paged cache depends on {missing}, which {self.model} does not say",
                "name the model by its config.json, or write them into its YAML",
            )
        return Beside(heads, hidden, vocabulary)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return ITEM[self.format]

    @property
    def page(self) -> int:
        """Bytes of a page."""
        return 2 * self.shape.kv_heads * self.shape.head_dim * self.item * self.page_tokens

    @property
    def page_tokens(self) -> int:
        """Tokens of a page."""
        return int(self.settings["page_size"])

    @property
    def sector(self) -> int:
        """Bytes of a sector."""
        return lcm(*(group.layers * self.page for group in self.groups), ALIGNMENT)

    @property
    def sector_tokens(self) -> int:
        """Tokens of a sector in the group that has most."""
        return max(self.sector // (group.layers * self.page) for group in self.groups) * self.page_tokens

    def per_token(self) -> Fraction:
        """Bytes of one token in every layer."""
        row = 2 * self.shape.kv_heads * self.shape.head_dim * self.item
        return Fraction(sum(group.layers for group in self.groups) * row)

    # ── what a workload holds ───────────────────────────────────────────────────────────────────────────────────────────────

    def blocks(self, group: PagedGroup, context: int) -> int:
        """Blocks of a request in a group."""
        return -(-group.tokens(context) // self.page_tokens)

    def needed(self, context: int, sequences: int) -> int:
        """Sectors that the sequences fill: each group takes whole ones."""
        return sum(-(-sequences * self.blocks(group, context) * group.layers * self.page // self.sector) for group in self.groups)

    def lines(self, context: int, steps: int, sequences: int) -> list[Line]:
        """Keys and values of each group, the rest of pages and of sectors, sectors that nobody asked for, and those of nobody."""
        del steps
        found: list[Line] = []
        sectors, filled = self.needed(context, sequences), 0
        row = self.shape.kv_heads * self.shape.head_dim
        for group in self.groups:
            tokens = group.tokens(context)
            for buffer in ("key", "value"):
                size = group.layers * tokens * row * self.item * sequences
                text = f"{group.layers} layers x {tokens:,} tokens x {row * self.item:,} B x {sequences} sequences"
                found.append(Line(group.state, group.layers, buffer, row, self.format, tokens, size, text))
                filled += size
        paged = sum(sequences * self.blocks(group, context) * group.layers * self.page for group in self.groups)
        found += self._padding("page", paged - filled, f"the rest of each last page of {self.page_tokens} tokens")
        found += self._padding("sector", sectors * self.sector - paged, f"the rest of each group's last sector of {self.sector:,} B")
        asked = self.asked_sectors()
        if asked is not None and asked > sectors:
            found += self._padding("free", (asked - sectors) * self.sector, f"{asked - sectors:,} sectors free of the num_blocks asked for")
        found += self._padding("trash", TRASH * self.sector, f"{TRASH} sectors for padding tokens")
        return found

    @staticmethod
    def _padding(buffer: str, size: int, text: str) -> list[Line]:
        return [Line("padding", 0, buffer, 0, "", 0, size, f"{text}: {size:,} B", fixed=buffer == "trash")] if size else []

    # ── what a memory holds ─────────────────────────────────────────────────────────────────────────────────────────────────

    def asked_sectors(self) -> int | None:
        """Sectors of `num_blocks`, None where it is not given."""
        asked = self.settings["num_blocks"]
        return None if asked is None else max(1, -(-asked * self.layers * self.page // self.sector))

    def sectors(self, free: int) -> int:
        """Sectors that `free` bytes make, 0 where they are too few."""
        available = int(free * self.settings["max_memory_percent"])
        asked = self.asked_sectors()
        if asked is not None:
            return asked if self.footprint(asked) <= available else 0
        left = available - self.fixed() - self.step * self.batch_token()
        price = self.sector_price()
        found = left // price
        mask = self.masks(found)
        found -= -(-mask // (price + self.masks(found + 1) - mask))
        return found if found > 0 and self.footprint(found) <= available else 0

    @property
    def step(self) -> int:
        """Tokens of a batch."""
        return int(self.settings["max_batch_tokens"])

    @property
    def _flash(self) -> bool:
        return "flash" in self.settings["attn_implementation"]

    @property
    def _peak_heads(self) -> int:
        """Heads that are read back at once: flash attention reads K and V, others repeat K to every head while V is there."""
        return 2 * self.shape.kv_heads if self._flash else 2 * self.beside.heads + self.shape.kv_heads

    @property
    def _inputs(self) -> int:
        """Sets of input and output tensors."""
        return 2 if self.settings["use_async_batching"] else 1

    def _logits(self) -> int:
        """Bytes of one row at the head: its hidden state and its logits in fp32."""
        return self.beside.hidden * self.item + self.beside.vocabulary * FLOAT32

    def batch_token(self) -> int:
        """Bytes beside the cache of each token of a batch."""
        heads = self.beside.heads + 2 * self.shape.kv_heads + self._peak_heads
        attention = self.item * (self.beside.hidden + heads * self.shape.head_dim)
        head = 0 if self.settings["model_supports_logits_to_keep"] else self._logits()
        indices = (INPUT_ROWS + OUTPUT_ROWS) * INT32 + len(self.groups) * (TABLE * INT32 + 2 * INT64)
        return max(head, attention) + self._inputs * indices

    def sector_price(self) -> int:
        """Bytes of a sector with what its tokens need beside it."""
        read = self._peak_heads * self.shape.head_dim * self.item + self._inputs * len(self.groups) * INT64
        return self.sector + self.sector_tokens * read

    def fixed(self) -> int:
        """Bytes that no sector and no batch token changes."""
        rows = self.settings["max_requests_per_batch"] if self.settings["model_supports_logits_to_keep"] else 0
        return TRASH * self.sector + rows * self._logits()

    def masks(self, sectors: int) -> int:
        """Bytes of the attention masks."""
        count = 0 if self._flash else 2 if any(group.window for group in self.groups) else 1
        return self._inputs * count * self.item * self.step * (sectors * self.sector_tokens + self.step)

    def footprint(self, sectors: int) -> int:
        """Bytes of everything."""
        return self.fixed() + self.step * self.batch_token() + sectors * self.sector_price() + self.masks(sectors)

    def capacity(self, free: int, context: int, sequences: int) -> Capacity:
        """What the cache makes of `free` bytes."""
        sectors = self.sectors(free)
        blocks = sectors * self.sector // (self.layers * self.page)
        most = self.settings["max_requests_per_batch"]
        fits = sectors > 0 and self.needed(context, sequences) <= sectors and sequences <= most
        warnings = () if sectors else ("the memory does not hold the cache and the tensors beside it: transformers raises MemoryError",)
        if sequences > most:
            warnings = (f"{sequences:,} requests are more than max_requests_per_batch runs at once: {most:,}",)
        return Capacity(
            fits=fits,
            tokens=blocks * self.page_tokens,
            blocks=blocks,
            block_bytes=self.layers * self.page,
            block_size=self.page_tokens,
            notes=(
                f"the cache and the tensors beside it take {self.settings['max_memory_percent']:g} of the free memory (max_memory_percent)",
            ),
            warnings=warnings,
        )

    def left(self, free: int, context: int, sequences: int) -> int:
        """Sectors that stay free; below 0 where the sequences do not fit."""
        if sequences > self.settings["max_requests_per_batch"]:
            return -1
        sectors = self.sectors(free)
        return sectors - self.needed(context, sequences) if sectors else -1 - self.needed(context, sequences)


def read_paged(architecture: Architecture, model_type: str, args: Mapping[str, Any]) -> Paged:
    """The paged cache of a model. Raises EngineRejectsError."""
    row = FAMILIES.get(architecture.family, RULE)
    if row.unpaged:
        raise _other_layers(architecture, row.unpaged)
    settings = {name: DEFAULTS.get(name) if args[name] is None else args[name] for name in (*DEFAULTS, "num_blocks")}
    kinds = [_window(architecture, name) for name in architecture.layers.order]
    said = architecture.traits.cache_windows
    if said:
        kinds = list(said) if isinstance(said, tuple) else [said] * len(kinds)
    counts: dict[int, int] = {}
    for window in kinds:
        counts[window] = counts.get(window, 0) + 1
    if len([window for window in counts if window]) > 1:
        raise EngineRejectsError("transformers' paged cache has one window for all sliding layers", "use cache_implementation=dynamic")
    layers = architecture.layers.count
    encoder = architecture.traits.encoder_layers
    if architecture.traits.is_encoder_decoder and encoder:
        # The class reads num_hidden_layers, which an encoder-decoder answers with its encoder's.
        layers, counts = encoder, {0: encoder}
    groups = tuple(PagedGroup(count, window) for window, count in counts.items())
    return Paged(_shape(architecture), groups, layers, model_type, settings, clean(architecture.id, 60))


def _window(architecture: Architecture, name: str) -> int:
    """The window of a layer, 0 for full attention. Raises EngineRejectsError for every other kind of layer."""
    found = 0
    for state in architecture.layers.states[name]:
        match _owner(architecture, state):
            case Sliding() as kept:
                found = kept.window
            case Full() | Cross():
                pass
            case other:
                raise _other_layers(architecture, other.kind)
    return found


def _other_layers(architecture: Architecture, kind: str) -> EngineRejectsError:
    return EngineRejectsError(
        f"generate_batch pages layers of full and sliding attention, and {clean(architecture.id, 60)} has {kind} layers",
        "use cache_implementation=dynamic",
    )


def _owner(architecture: Architecture, state: AnyState) -> AnyState:
    """The state that a layer has pages for: its own, or like those of the layer that it reads."""
    if not isinstance(state, Shared):
        return state
    owner = state.shares_with
    kept = architecture.layers.layer(owner) if owner is not None and owner < architecture.layers.count else ()
    return next((item for item in kept if isinstance(item, Full | Sliding)), state)


def _shape(architecture: Architecture) -> Shape:
    """The config's own heads and widths. Raises EngineRejectsError where layers differ."""
    quirk = FAMILIES.get(architecture.family, RULE)
    states = [state for state in architecture.states if isinstance(state, Full | Sliding)]
    if quirk.config_heads:
        states = [state for state in states if isinstance(state, quirk.config_heads)] or states
    shapes = {(state.kv_heads, state.query_heads, state.head_dim) for state in states}
    if len(shapes) != 1:
        raise EngineRejectsError(
            f"transformers' paged cache has one shape for all layers, and the layers of {clean(architecture.family, 60)} differ",
            "use cache_implementation=dynamic",
        )
    ((kv_heads, heads, head_dim),) = shapes
    every = heads or kv_heads
    return Shape(every if quirk.every_head else kv_heads, head_dim, heads, architecture.hidden_dim, architecture.traits.vocab_size)
