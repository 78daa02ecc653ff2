"""SGLang's pools as lines of a plan: what every rank allocates; the pad page and the pad slot have lines of their own.

bytes of a row's line = Σ stages   layers x pages x bytes of a page on one rank x ranks
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.plan import Line
from kvcalc.engines.sglang.pools import FULL, Pools, TokenTensor
from kvcalc.engines.sglang.recurrent import intermediate_bytes

if TYPE_CHECKING:
    from kvcalc.engines.sglang.deepseek_v4 import DeepSeekV4
    from kvcalc.engines.sglang.recurrent import Slots
    from kvcalc.engines.sglang.server import Server
    from kvcalc.engines.sglang.sizing import Sizes

#: Bytes of a rotary position, three of which stand for each token of an open group of index keys (qsa_kv_pool.py).
POSITION, POSITIONS = 8, 3


class Share(NamedTuple):
    """Bytes on all devices: of everything that is no pad, and of the part of it that no context changes."""

    bytes: int
    fixed: int


class Allocation(NamedTuple):
    """Lines, bytes of the fullest rank of every stage, and how much of the lines a sequence accounts for."""

    lines: tuple[Line, ...]
    ranks: tuple[int, ...]
    share: Share


class _Sheet:
    """Collects lines and the bytes of every stage's ranks; without `words`, the bytes alone."""

    def __init__(self, server: Server, *, words: bool) -> None:
        self.server, self.words, self.lines, self.ranks = server, words, list[Line](), [0] * server.pp
        self.used = self.fixed = 0

    def add(
        self, per_rank: list[int], *, state: str, buffer: str, width: int, fmt: str, layers: int, slots: int, formula: str, fixed: bool
    ) -> None:
        """One line, from the bytes that it takes on a rank of every stage. Lines of nothing are left out."""
        total = sum(per_rank) * self.server.ranks
        if not total:
            return
        for stage, count in enumerate(per_rank):
            self.ranks[stage] += count
        if self.words:
            copies = "" if self.server.ranks == 1 else f" x {self.server.ranks} ranks"
            self.lines.append(Line(state, layers, buffer, width, fmt, slots, total, formula + copies, fixed))
        if state != "padding":
            self.used += total
            self.fixed += total if fixed else 0

    def done(self) -> Allocation:
        """What was collected."""
        return Allocation(tuple(self.lines), tuple(self.ranks), Share(self.used, self.fixed))


class PoolLayout:
    """K and V, latents and index keys by token, and recurrent state by slot."""

    def __init__(self, server: Server, pools: Pools, slots: Slots) -> None:
        self.server, self.pools, self.slots = server, pools, slots
        self.rows = {row: sum(stage.get(row, 0) for stage in pools.stages) for stage in pools.stages for row in stage}
        self.open_groups = [self._group_bytes(stage) for stage in pools.stages]
        self.pads = (self._page_pads(), self._slot_pads())
        self.per_token = _ceil(sum(Fraction(row.whole * layers, row.tokens) for row, layers in self.rows.items()))

    def allocate(self, sizes: Sizes, alone: Sizes | None = None) -> Allocation:
        """Rows, drafts, slots, pads."""
        return self._filled(_Sheet(self.server, words=True), sizes, alone or sizes)

    def share(self, sizes: Sizes) -> Share:
        """The bytes of these sizes alone."""
        return self._filled(_Sheet(self.server, words=False), sizes, sizes).share

    def _filled(self, sheet: _Sheet, sizes: Sizes, one: Sizes) -> Allocation:
        for row, layers in self.rows.items():
            self._row(sheet, row, [stage.get(row, 0) for stage in self.pools.stages], layers, sizes, one)
        for row, layers in self.pools.draft.items():
            self._row(sheet, row, [layers], layers, sizes, one, draft=True)
        self._state(sheet, sizes, one)
        self._open_groups(sheet, sizes)
        if sheet.words:
            self._pads(sheet)
        return sheet.done()

    def _tokens(self, row: TokenTensor, sizes: Sizes) -> int:
        return sizes.tokens if row.pool == FULL else sizes.sliding or 0

    def _copies(self, row: TokenTensor) -> int:
        """Ranks of a decode context parallel group whose rows this tensor holds: one, or all of them."""
        return 1 if row.spread else self.server.spread

    def _row(
        self, sheet: _Sheet, row: TokenTensor, layers: list[int], total: int, sizes: Sizes, one: Sizes, *, draft: bool = False
    ) -> None:
        page, tokens, copies = self.server.page, self._tokens(row, sizes), self._copies(row)
        size = -(-tokens // page) * row.page_bytes(page) * copies
        what = f"{tokens * copies:,} tokens" + ("" if row.tokens == 1 else f" / {row.tokens}")
        sheet.add(
            [count * size for count in layers],
            state=f"draft {row.state}" if draft else row.state,
            buffer=row.buffer,
            width=row.width,
            fmt=row.format,
            layers=total,
            slots=self._tokens(row, one) * copies,
            formula=f"{total} layers x {what} x {row.rank:,} B" if sheet.words else "",
            fixed=False,
        )

    def _state(self, sheet: _Sheet, sizes: Sizes, one: Sizes) -> None:
        for part in dict.fromkeys(part for stage in self.slots.stages for part in stage):
            layers = [stage.get(part, 0) for stage in self.slots.stages]
            total, slots = sum(layers), sizes.slots or 0
            columns = f" x {part.columns} columns" if part.columns > 1 else ""
            column = part.bytes // part.columns
            sheet.add(
                [count * slots * part.bytes for count in layers],
                state=part.state,
                buffer=part.buffer,
                width=part.whole,
                fmt=part.format,
                layers=total,
                slots=(one.slots or 0) * part.columns,
                formula=f"{total} layers x {slots:,} slots{columns} x {column:,} B" if sheet.words else "",
                fixed=True,
            )
            if self.server.draft_tokens:
                kept = intermediate_bytes(part, self.server)
                sheet.add(
                    [count * sizes.requests * kept for count in layers],
                    state=part.state,
                    buffer=f"{part.buffer} of drafts",
                    width=part.whole,
                    fmt=part.format,
                    layers=total,
                    slots=self.server.draft_tokens,
                    formula=f"{total} layers x {sizes.requests:,} requests x {kept:,} B for {self.server.draft_tokens} draft tokens"
                    if sheet.words
                    else "",
                    fixed=True,
                )

    def _group_bytes(self, stage: dict[TokenTensor, int]) -> int:
        """Bytes that one request keeps of index keys whose group is still open.

        Beside K and V: keys in bf16, and the positions once a stage. Beside latents: keys and scores in bf16, with room for drafts.
        """
        if self.server.tails:
            tails = [(row, layers) for row, layers in stage.items() if row.buffer == "index"]
            return sum(2 * (row.tokens + self.server.draft_tokens) * row.width * 2 * layers for row, layers in tails)
        open_rows = [(row, layers) for row, layers in stage.items() if row.buffer == "index" and row.tokens > 1 and not self.server.latent]
        keys = sum(row.tokens * row.width * 2 * layers for row, layers in open_rows)
        return keys + max((row.tokens * POSITIONS * POSITION for row, _ in open_rows), default=0)

    def _open_groups(self, sheet: _Sheet, sizes: Sizes) -> None:
        per_request = self.open_groups
        sheet.add(
            [size * sizes.requests for size in per_request],
            state="index",
            buffer="open groups",
            width=0,
            fmt="bf16",
            layers=0,
            slots=0,
            formula=f"{sizes.requests:,} requests x {sum(per_request):,} B of keys whose group is open" if sheet.words else "",
            fixed=True,
        )

    def _page_pads(self) -> list[int]:
        """Bytes of one page of every tensor, on a rank of each stage."""
        page = self.server.page
        pages = [sum(row.page_bytes(page) * self._copies(row) * layers for row, layers in stage.items()) for stage in self.pools.stages]
        pages[0] += sum(row.page_bytes(page) * self._copies(row) * layers for row, layers in self.pools.draft.items())
        return pages

    def _slot_pads(self) -> list[int]:
        """Bytes of the slot that no request gets, on a rank of each stage."""
        slot = [sum(part.bytes * layers for part, layers in stage.items()) for stage in self.slots.stages]
        if self.server.draft_tokens:
            drafts = [sum(intermediate_bytes(part, self.server) * layers for part, layers in stage.items()) for stage in self.slots.stages]
            slot = [size + more for size, more in zip(slot, drafts, strict=True)]
        spare = 2 if self.server.tails and self.slots else 1
        return [size + spare * group for size, group in zip(slot, self.open_groups, strict=True)]

    def _pads(self, sheet: _Sheet) -> None:
        page, (pages, slot) = self.server.page, self.pads
        sheet.add(
            pages,
            state="padding",
            buffer="page",
            width=0,
            fmt="",
            layers=0,
            slots=page,
            formula=f"one page of {page} tokens in every tensor: {sum(pages):,} B" if sheet.words else "",
            fixed=True,
        )
        sheet.add(
            slot,
            state="padding",
            buffer="slot",
            width=0,
            fmt="",
            layers=0,
            slots=1,
            formula=f"one slot that no request gets: {sum(slot):,} B" if sheet.words else "",
            fixed=True,
        )


class V4Layout:
    """DeepSeek-V4's pools."""

    def __init__(self, v4: DeepSeekV4) -> None:
        self.v4, self.server = v4, v4.server
        self.per_token = _ceil(self._per_token())

    def _per_token(self) -> Fraction:
        v4 = self.v4
        layers = sum(stage.layers for stage in v4.stages)
        owners = [(ratio, count) for stage in v4.stages for ratio, count in stage.owners.items()]
        rows = sum((Fraction((v4.row_layout(ratio).row + v4.index_bytes(ratio)) * count, ratio) for ratio, count in owners), Fraction())
        return v4.layout.row * layers + rows

    def allocate(self, sizes: Sizes, alone: Sizes | None = None) -> Allocation:
        """Every tensor, the draft's window, and the rows that the pools keep beyond what is asked for."""
        return self._filled(_Sheet(self.server, words=True), sizes, alone or sizes)

    def share(self, sizes: Sizes) -> Share:
        """The bytes of these sizes alone."""
        return self._filled(_Sheet(self.server, words=False), sizes, sizes).share

    def _filled(self, sheet: _Sheet, sizes: Sizes, alone: Sizes) -> Allocation:
        one = self.v4.tensors(alone)
        pads = [0] * self.server.pp
        for name, tensor in self.v4.tensors(sizes).items():
            layers = [self.v4.stage_layers(stage, name) for stage in self.v4.stages]
            if name == "window" and self.server.draft_tokens:
                layers[-1] += 1
            total = sum(layers)
            pads = [pad + count * tensor.pad for pad, count in zip(pads, layers, strict=True)]
            sheet.add(
                [count * tensor.bytes for count in layers],
                state=tensor.state,
                buffer=tensor.buffer,
                width=tensor.width,
                fmt=tensor.format,
                layers=total,
                slots=one[name].rows,
                formula=f"{total} layers x {tensor.bytes:,} B for {tensor.rows:,} rows" if sheet.words else "",
                fixed=tensor.fixed,
            )
        sheet.add(
            pads,
            state="padding",
            buffer="page",
            width=0,
            fmt="",
            layers=0,
            slots=self.server.page,
            formula=f"pages and ring rows that no token gets: {sum(pads):,} B" if sheet.words else "",
            fixed=True,
        )
        return sheet.done()


def _ceil(value: Fraction | int) -> int:
    return -(-value.numerator // value.denominator)
