"""How many tokens, requests and slots SGLang makes of a memory, and how large the pools for wanted tokens are.

    tokens      available // cell, rounded down to pages; the stage with fewest decides; at most --max-total-tokens
    cell        Σ rows + draft layers;  with a sliding pool  Σ full rows + ratio x Σ sliding rows
    sliding     int(tokens x ratio), rounded down to pages; without a prefix cache and with a request limit: what those requests need
    requests    min(clamp(int(tokens / context x 512), 2048, 4096), tokens // 2), or the limit; at most slots // slots a request

Source: SGLang 0.5.23, model_executor/pool_configurator.py, mem_cache/kv_cache_configurator.py. Where SGLang divides in floating
point, so does this file.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.units import GIB
from kvcalc.engines.base.windows import window_of
from kvcalc.engines.sglang.pools import FULL, SLIDING, Pools, TokenTensor
from kvcalc.engines.sglang.recurrent import Slots, split_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.sglang.server import Server

#: Decode steps between two evictions of what left the window (SGLANG_SWA_EVICTION_INTERVAL).
EVICTION_INTERVAL = 128
#: Bounds of the requests that SGLang suggests, and tokens of context that make one (resolve_max_num_reqs).
FEWEST_REQUESTS, MOST_REQUESTS, REQUEST_SHARE = 2048, 4096, 512


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a server allocates, for each rank.

    tokens     of the full pool (of the sliding one where there is no full one)
    sliding    tokens of the sliding pool; None without one
    requests   max_running_requests of one attention group
    slots      slots of recurrent state, the pad not counted; None without such layers
    """

    tokens: int
    sliding: int | None
    requests: int
    slots: int | None


@dataclass(frozen=True, slots=True)
class Prices:
    """Bytes that a token costs one rank of a stage in SGLang's budget."""

    full: int
    sliding: int
    full_layers: int
    sliding_layers: int
    draft_full: int
    draft_sliding: int

    @classmethod
    def of(cls, stage: int, pools: Pools, server: Server) -> Prices:
        """Prices of one pipeline stage."""
        rows = pools.stages[stage]
        full_layers, sliding_layers = pools.layers(FULL)[stage], pools.layers(SLIDING)[stage]
        full = sum(row.price * layers * (1 if row.spread else server.spread) for row, layers in rows.items() if row.pool == FULL)
        sliding = sum(row.price * layers for row, layers in rows.items() if row.pool == SLIDING)
        drafts = server.draft_layers
        if not server.windows:
            return cls(full, 0, full_layers, 0, _draft_price(rows, full, full_layers, server), 0)
        # without a draft of its own, SGLang takes the model's count of sliding layers for the draft's
        as_sliding = min(drafts, sum(pools.layers(SLIDING)))
        return cls(
            full,
            sliding,
            full_layers,
            sliding_layers,
            full // max(full_layers, 1) * (drafts - as_sliding),
            sliding // max(sliding_layers, 1) * as_sliding,
        )

    def cell(self, ratio: float) -> float:
        """Bytes per token of the pool that `tokens` counts."""
        if not self.sliding_layers:
            return self.full + self.draft_full
        if not self.full_layers:
            return self.sliding + self.draft_full + self.draft_sliding
        return self.full + self.draft_full + ratio * (self.sliding + self.draft_sliding)


def _draft_price(rows: dict[TokenTensor, int], full: int, layers: int, server: Server) -> int:
    """Draft layers cost as much as the model's own, on average; each of them owns an indexer."""
    if not server.draft_layers or not layers:
        return 0
    index = {row: count for row, count in rows.items() if row.buffer == "index"} if server.indexed else {}
    index_bytes = sum(row.price * count * server.dcp for row, count in index.items())
    price = int((full - index_bytes) * server.draft_layers / layers)
    if server.indexed:
        price = price * server.dcp + sum(row.price for row in index) * server.draft_layers * server.dcp
    return price


class Sizer:
    """Sizes of one model on one server."""

    def __init__(self, architecture: Architecture, server: Server, pools: Pools, slots: Slots) -> None:
        self.server, self.pools, self.slots = server, pools, slots
        self.prices = tuple(Prices.of(stage, pools, server) for stage in range(server.pp))
        self.window = _window(architecture, server)
        if server.windows and any(not price.sliding_layers for price in self.prices):
            raise EngineRejectsError("SGLang needs a sliding layer on every pipeline stage of such a model", "use fewer stages")

    @property
    def by_requests(self) -> bool:
        """The sliding pool is sized by the requests that it serves, not by a ratio."""
        server = self.server
        return server.windows and not server.radix and server.requests is not None and server.chunk > 0 and self.has_full

    @property
    def has_full(self) -> bool:
        """There is a full pool."""
        return any(price.full_layers for price in self.prices)

    @property
    def request_cap(self) -> int:
        """Tokens of the sliding pool that `requests` requests need at worst (compute_swa_request_cap)."""
        return ceil_page(request_cap(self.server, self.window), self.server.page)

    def from_memory(self, memory: int, context: int) -> Sizes:
        """What the server makes of `memory` bytes for all pools of a rank. Raises EngineRejectsError if it does not start.

        context    the server's own, of which the number of requests is made where none is told
        """
        rest, count = float(memory) / GIB, None
        if self.slots:
            rest, count = split_memory(self.slots, self.server, rest)
            if count <= 0:
                raise EngineRejectsError("the memory does not hold a slot of recurrent state", "give more memory, or fewer requests")
        available = int(rest * GIB) if self.slots else memory
        if available <= 0:
            raise EngineRejectsError("nothing is left for tokens after the recurrent state", "give more memory, or fewer slots")
        tokens = min(self._stage_tokens(price, available, context) for price in self.prices)
        limit = self.server.args["max_total_tokens"]
        capped = limit is not None and limit < tokens
        tokens = floor_page(limit if capped else tokens, self.server.page)
        if tokens <= 0:
            raise EngineRejectsError("the memory does not hold one page of tokens", "give more memory")
        sizes = self.from_tokens(tokens, None, count, context)
        return replace(sizes, sliding=self.request_cap) if self.by_requests and not capped else sizes

    def _stage_tokens(self, price: Prices, available: int, context: int) -> int:
        page = self.server.page
        if self.by_requests:
            left = available - self.request_cap * (price.sliding + price.draft_sliding)
            return floor_page(int(left // (price.full + price.draft_full)), page)
        cell = price.cell(self.server.ratio or 1.0)
        if not cell:
            shared = self.has_full and self.server.pp > 1
            return 2**63 - 1 if shared else self.server.args["max_total_tokens"] or context
        return floor_page(int(available // cell), page)

    def from_tokens(self, tokens: int, requests: int | None, slots: int | None, context: int) -> Sizes:
        """The pools of a server with `tokens` tokens (whole pages), for `requests` requests where no limit is set."""
        return Sizes(tokens, self._sliding(tokens), self._requests(tokens, slots, requests, context), slots)

    def _sliding(self, tokens: int) -> int | None:
        if not self.server.windows:
            return None
        if not self.has_full:
            return tokens
        if self.by_requests:
            limit = self.server.args["max_total_tokens"]
            return min(self.request_cap, limit if limit is not None and floor_page(limit, self.server.page) == tokens else tokens)
        sliding = self.sliding_tokens(tokens)
        if sliding <= self.window + self.server.page:
            raise EngineRejectsError(
                f"SGLang refuses a sliding pool of {sliding:,} tokens: it must hold more than the window of {self.window:,} and a page",
                "give more memory, or a larger swa_full_tokens_ratio",
            )
        return sliding

    def sliding_tokens(self, tokens: int) -> int:
        """Tokens of the sliding pool beside `tokens` of the full one, by the ratio."""
        return floor_page(int(tokens * (self.server.ratio or 1.0)), self.server.page)

    def sliding_share(self, tokens: int) -> int | None:
        """Tokens of the sliding pool that a sequence of `tokens` tokens accounts for; None without such a pool."""
        if not self.server.windows:
            return None
        if self.by_requests:
            return min(tokens, ceil_page(self.window, self.server.page))
        return self.sliding_tokens(tokens) if self.has_full else tokens

    def least_tokens(self) -> int:
        """The smallest pool that SGLang starts with: by the ratio, its sliding part holds more than a window and a page."""
        if not self.server.windows or self.by_requests or not self.has_full:
            return 0
        return least_tokens(self.window, self.server.page, self.sliding_tokens)

    def _requests(self, tokens: int, slots: int | None, requests: int | None, context: int) -> int:
        wanted = self.server.requests or requests
        if wanted is None:
            wanted = max(min(int(tokens / context * REQUEST_SHARE), MOST_REQUESTS), FEWEST_REQUESTS)
        found = min(wanted, tokens // 2)
        return found if slots is None else min(found, slots // self.server.slots_per_request)


def least_tokens(window: int, page: int, sliding: Callable[[int], int]) -> int:
    """The fewest tokens, in whole pages, whose sliding pool is larger than a window and a page."""
    low, high = 0, 1
    while sliding(high * page) <= window + page:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if sliding(middle * page) <= window + page else (low, middle)
    return high * page


def request_cap(server: Server, window: int) -> int:
    """Tokens that the server's requests hold in the sliding pool at worst, chunks in flight included."""
    drafts, page = server.draft_tokens or 1, server.page
    trailing = window + EVICTION_INTERVAL * drafts + page
    if not server.draft_tokens:
        decode = page
    elif server.overlap:
        decode = 2 * drafts
    else:
        decode = ceil_page(drafts, page)
    chunks = 2 if server.overlap else 1
    return (trailing + decode) * (server.requests or 1) + chunks * server.chunk + page


def _window(architecture: Architecture, server: Server) -> int:
    """The window as SGLang's model class gives it, 0 without one."""
    windows = list(map(window_of, architecture.states))
    if server.every_layer_slides:
        told = architecture.traits.sliding_window_size
        windows = [told if isinstance(told, int) else 0]
    found = max((window for window in windows if window), default=0)
    return found - 1 if found and server.rule.windows is not None and server.rule.windows.less_one else found


def floor_page(tokens: int, page: int) -> int:
    """Whole pages within `tokens`."""
    return tokens // page * page


def ceil_page(tokens: int, page: int) -> int:
    """Whole pages that hold `tokens`."""
    return -(-tokens // page) * page
