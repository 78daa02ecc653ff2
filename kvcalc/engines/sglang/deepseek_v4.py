"""DeepSeek-V4 and V4.1 under SGLang: a window pool on every layer, pools of compressed rows by ratio, and the compressor's open windows.

    page of t rows      ceil(t x row / align) x align           V4 584 B rows, pages to 576 B;  V4.1 528/512, its fp4 rows 288/256
    token price         ratio x (L x window row + ring/256 x state x L4)  +  Σ ratios r: (compressed row + index row) / r x layers
    fixed               ratio 128: ceil128((requests + 1) x ring + ring + 1) rows of 2 x 512 fp32      ratio 2: one ring of 2 a request
    pages of a pool     ceil((size + 256) / rows of a page)     the allocator keeps one page of 256 tokens for itself

Released V4-Flash (43 layers, 21 x ratio 4, 20 x ratio 128): 0.1 x 31,875 + 3,764.25 + 135 = 7,086.75 B for a token.

Source: SGLang 0.5.23, DSV4PoolConfigurator in model_executor/pool_configurator.py, mem_cache/deepseek_v4_memory_pool.py,
mem_cache/deepseek_v4_compress_state.py, kernels/ops/attention/dsv4/kv_layout.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Compressed, Index
from kvcalc.engines.base.windows import window_of
from kvcalc.engines.sglang.backends import SM100, V4_PAGE
from kvcalc.engines.sglang.classes import WindowPool
from kvcalc.engines.sglang.pools import cut
from kvcalc.engines.sglang.sizing import (
    FEWEST_REQUESTS,
    MOST_REQUESTS,
    REQUEST_SHARE,
    Sizes,
    ceil_page,
    floor_page,
    least_tokens,
    request_cap,
)

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.sglang.server import Server

#: Bytes of the compressor's numbers: fp32.
STATE = 4
#: Ratios in the order in which SGLang adds their prices.
RATIOS = (4, 128, 1, 2)
#: Rows of an index page at ratios 1 and 2 (DSV41_INDEX_PAGE_SIZE).
LOW_INDEX_PAGE = 64
#: Width that the layouts are made for: 448 + 64.
WIDTH, ROPE = 512, 64
#: Cached prefixes that V4.1's window pool keeps room for, for each request (_resolve_swa_prefix_tails).
TAILS = 4


class RowFormat(NamedTuple):
    """Bytes of a row, and the unit that pages are padded to."""

    name: str
    row: int
    align: int

    def page(self, rows: int) -> int:
        """Bytes of a page of `rows` rows."""
        return -(-rows * self.row // self.align) * self.align


V4 = RowFormat("dsv4_fp8", 448 + 64 * 2 + 8, 576)
V41 = RowFormat("dsv41_mxfp8", 512 + 16, 512)
V41_FP4 = RowFormat("dsv41_nvfp4", 256 + 32, 256)


class Tensor(NamedTuple):
    """One tensor of the pools in one layer: `bytes` for the rows that are asked for, `pad` for those that are not."""

    state: str
    buffer: str
    width: int
    format: str
    rows: int
    bytes: int
    pad: int
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers of one pipeline stage: all of them, and those that own compressed rows of each ratio."""

    layers: int
    owners: dict[int, int]


class DeepSeekV4:
    """The pools of one DeepSeek-V4 model on one server."""

    def __init__(self, architecture: Architecture, server: Server) -> None:
        if not server.windows:
            raise EngineRejectsError("SGLang stores DeepSeek-V4 in its sliding pools only", "leave disable_hybrid_swa_memory out")
        self.server = server
        self.is_v41 = server.ratio is None or architecture.family.startswith("deepseek_v41")
        if self.is_v41 and server.pp > 1:
            raise EngineRejectsError("DeepSeek-V4.1 does not run on pipeline stages", "use one stage")
        self.stages = tuple(_stage(architecture, names) for names in cut(architecture.layers, server.pp))
        self.window = max(map(window_of, architecture.states), default=0)
        self.index_dim = max((state.index_dim for state in architecture.states if isinstance(state, Index)), default=0)
        widths = {(state.latent_dim, state.rope_dim) for state in architecture.states if isinstance(state, Compressed)}
        if widths - {(WIDTH, ROPE)}:
            raise UnsupportedArchitectureError(f"SGLang's DeepSeek-V4 rows are {WIDTH} wide with {ROPE} rotary, and this model's are not")
        # FlashMLA-Mega, and with it the newer rows, serves V4.1 on SM100 without tensor parallel attention
        newer = self.is_v41 and server.capability // 10 == SM100 and server.attn_tp == 1
        self.layout = V41 if newer else V4
        self.drafts = server.draft_tokens
        self.rings = {4: 16 if self.drafts else 8, 128: 256 if self.drafts else 128, 2: 2}

    def row_layout(self, ratio: int) -> RowFormat:
        """The layout of the rows compressed by `ratio`."""
        return V41_FP4 if self.layout is V41 and ratio in (1, 2) else self.layout

    def index_bytes(self, ratio: int) -> int:
        """Bytes of an index key beside a row of `ratio`: fp8 with a scale per 128, at ratios 1 and 2 fp4 with one per 32."""
        if ratio in (1, 2):
            return self.index_dim // 2 + self.index_dim // 32
        return self.index_dim + self.index_dim // 128 * 4 if ratio == 4 else 0

    # -- the budget -----------------------------------------------------------------------------------------------------------

    def _window_price(self, stage: Stage) -> float:
        """Bytes of one token of the window pool, with the ratio-4 compressor that follows it page by page."""
        state = 2 * 2 * WIDTH * STATE + 2 * 2 * self.index_dim * STATE
        ring = self.rings[4] / V4_PAGE if 4 in stage.owners else 0.0
        return self.layout.page(V4_PAGE) / V4_PAGE * stage.layers + ring * state * stage.owners.get(4, 0)

    def _compressed_price(self, ratio: int) -> float:
        """Bytes that one token adds to a layer that owns rows of `ratio`."""
        rows = V4_PAGE // ratio
        per_row = self.row_layout(ratio).page(rows) / rows
        if ratio in (1, 2):
            return (per_row + self.index_bytes(ratio)) / ratio
        return 1 / ratio * per_row + 1 / ratio * self.index_bytes(ratio)

    @property
    def ratio(self) -> float:
        """Tokens of the window pool for one of the full pool, where requests do not size it."""
        return self.server.ratio or (self.server.rule.windows or WindowPool()).ratio

    def _token_price(self, stage: Stage) -> float:
        ratio = 0 if self.swa_cap is not None else self.ratio
        compressed = sum(self._compressed_price(r) * stage.owners[r] for r in RATIOS if r in stage.owners)
        return (ratio * self._window_price(stage) + compressed) * self._draft_share(stage)

    def _draft_share(self, stage: Stage) -> float:
        """SGLang reserves one more layer for a draft model by raising the price of a token."""
        return (stage.layers + 1) / stage.layers if self.drafts else 1.0

    @property
    def swa_cap(self) -> int | None:
        """Tokens of the window pool where it is sized by requests: V4.1 without a ratio of its own."""
        server = self.server
        if server.ratio is not None or server.requests is None or server.chunk <= 0:
            return None
        tails = server.args["swa_prefix_tails"]
        if tails is None:
            tails = TAILS * server.requests if server.radix else 0
        return ceil_page(request_cap(server, self.window) + tails * (self.window + V4_PAGE), V4_PAGE)

    def _state_rows(self, ratio: int, requests: int) -> int:
        """Rows of the compressor's rings of `ratio`, one ring a request slot."""
        ring = self.rings[ratio]
        return ceil_page((requests + 1) * ring + ring + 1, ratio)

    def _fixed(self, stage: Stage, requests: int) -> float:
        rings = sum(self._state_rows(ratio, requests) * 2 * WIDTH * STATE * stage.owners.get(ratio, 0) for ratio in (128, 2))
        return rings + (self.swa_cap or 0) * (self._window_price(stage) * self._draft_share(stage))

    def _low_padding(self, stage: Stage, tokens: int) -> float:
        """Pages that the pools of ratios 1 and 2 keep beyond what a token pays for."""
        found = 0.0
        for ratio in (1, 2):
            rows = V4_PAGE // ratio
            per_row = self.row_layout(ratio).page(rows) / rows
            slots = -(-((tokens + V4_PAGE) // ratio + LOW_INDEX_PAGE) // LOW_INDEX_PAGE) * LOW_INDEX_PAGE
            index = (slots - tokens // ratio) * self.index_bytes(ratio)
            found += (V4_PAGE * per_row + index) * stage.owners.get(ratio, 0)
        return found

    def from_memory(self, memory: int, context: int) -> Sizes:
        """What the server makes of `memory` bytes for all pools of a rank. Raises EngineRejectsError if it does not start."""
        tokens = min(self._stage_tokens(stage, memory, context) for stage in self.stages)
        limit = self.server.args["max_total_tokens"]
        tokens = floor_page(tokens if limit is None else min(tokens, limit), V4_PAGE)
        if tokens <= 0:
            raise EngineRejectsError("the memory does not hold one page of tokens", "give more memory, or fewer requests")
        return self.from_tokens(tokens, None, None, context)

    def _stage_tokens(self, stage: Stage, memory: int, context: int) -> int:
        price = self._token_price(stage)
        requests = self.server.requests
        if requests is None:
            full = int(memory / price)
            requests = min(max(min(int(full / context * REQUEST_SHARE), MOST_REQUESTS), FEWEST_REQUESTS), full // 2)
        left = max(memory - self._fixed(stage, requests), 0)
        tokens = floor_page(int(left / price), V4_PAGE)
        while tokens > 0 and tokens * price + self._low_padding(stage, tokens) > left:
            tokens -= V4_PAGE
        return tokens

    def sliding_tokens(self, tokens: int) -> int:
        """Tokens of the window pool beside `tokens` of the full one, by the ratio."""
        return floor_page(int(tokens * self.ratio), V4_PAGE)

    def sliding_share(self, tokens: int) -> int:
        """Tokens of the window pool that a sequence of `tokens` tokens accounts for."""
        return self.sliding_tokens(tokens) if self.swa_cap is None else min(tokens, ceil_page(self.window, V4_PAGE))

    def least_tokens(self) -> int:
        """The smallest pool that SGLang starts with."""
        return 0 if self.swa_cap is not None else least_tokens(self.window, V4_PAGE, self.sliding_tokens)

    def from_tokens(self, tokens: int, requests: int | None, _slots: int | None, _context: int) -> Sizes:
        """The pools of a server with `tokens` tokens (whole pages), for `requests` requests where no limit is set."""
        cap = self.swa_cap
        sliding = self.sliding_tokens(tokens) if cap is None else cap
        if cap is None and sliding <= self.window + V4_PAGE:
            raise EngineRejectsError(
                f"SGLang refuses a window pool of {sliding:,} tokens: it must hold more than the window of {self.window:,} and a page",
                "give more memory, or a larger swa_full_tokens_ratio",
            )
        wanted = self.server.requests or requests or FEWEST_REQUESTS
        return Sizes(tokens, sliding, min(wanted, tokens // 2), None)

    # -- what is allocated ----------------------------------------------------------------------------------------------------

    def tensors(self, sizes: Sizes) -> dict[str, Tensor]:
        """The tensors of one layer, by name; `stage_layers` says how many layers of a stage have each."""
        sliding, slots = sizes.sliding or 0, sizes.requests
        found = {"window": _paged("latent", "window", WIDTH, self.layout, V4_PAGE, sliding, sliding + V4_PAGE)}
        for ratio in RATIOS:
            rows, size = V4_PAGE // ratio, sizes.tokens // ratio
            found[f"rows/{ratio}"] = _paged("compressed", "latent", WIDTH, self.row_layout(ratio), rows, size, size + V4_PAGE)
            key = RowFormat("index_fp4" if ratio in (1, 2) else "index_fp8", self.index_bytes(ratio), 1)
            if ratio in (1, 2):
                held = (sizes.tokens + V4_PAGE) // ratio + LOW_INDEX_PAGE
                found[f"index/{ratio}"] = _paged("index", "index", self.index_dim, key, LOW_INDEX_PAGE, size, held)
            elif key.row:
                found[f"index/{ratio}"] = _paged("index", "index", self.index_dim, key, rows, size, size + V4_PAGE)
        page_rings = sliding // V4_PAGE * self.rings[4]
        found["state/4"] = self._ring("compressor", 4, page_rings, 4 * WIDTH)
        found["index_state/4"] = self._ring("index compressor", 4, page_rings, 4 * self.index_dim)
        found["state/128"] = self._ring("compressor", 128, (slots + 1) * self.rings[128], 2 * WIDTH, fixed=True)
        found["state/2"] = self._ring("compressor", 2, (slots + 1) * self.rings[2], 2 * WIDTH, fixed=True)
        return found

    def _ring(self, buffer: str, ratio: int, rows: int, width: int, *, fixed: bool = False) -> Tensor:
        kept = ceil_page(rows + self.rings[ratio] + 1, ratio)
        return Tensor("state", buffer, width, "fp32", rows, rows * width * STATE, (kept - rows) * width * STATE, fixed)

    def stage_layers(self, stage: Stage, name: str) -> int:
        """Layers of a stage that have the tensor of that name."""
        kind, _, ratio = name.partition("/")
        return stage.layers if kind == "window" else stage.owners.get(int(ratio), 0)


def _paged(state: str, buffer: str, width: int, layout: RowFormat, rows: int, size: int, held: int) -> Tensor:
    """A tensor of pages of `rows` rows: `size` rows are asked for, and pages for `held` are kept."""
    asked, kept, page = -(-size // rows), -(-held // rows), layout.page(rows)
    return Tensor(state, buffer, width, layout.name, size, asked * page, (kept - asked) * page)


def _stage(architecture: Architecture, names: tuple[str, ...]) -> Stage:
    owners: dict[int, int] = {}
    for name in names:
        for state in architecture.layers.states[name]:
            if isinstance(state, Compressed):
                if state.ratio not in RATIOS:
                    raise UnsupportedArchitectureError(f"SGLang compresses by 1, 2, 4 or 128, and a layer of this model by {state.ratio}")
                owners[state.ratio] = owners.get(state.ratio, 0) + 1
    return Stage(len(names), owners)
