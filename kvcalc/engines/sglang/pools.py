"""SGLang's token pools: which tensors hold a row for every token, and what a row costs on one rank.

    cell = Σ rows   layers x bytes of a row on one rank                    pool_configurator.py, _compute_cell_size

K and V        kv_heads // (attention ranks / dcp), at least one, x width; V by its own width. Priced without dcp beside windows
latents        one row on every rank                   index keys   one row on every rank, uint8, only where a layer owns an indexer
full pool      all layers alike, in the geometry of the full ones, also layers that share another's cache or keep nothing;
               hybrids with recurrent layers: only the layers that have attention
sliding pool   the sliding layers of the models that SGLang lists

Source: SGLang 0.5.23, model_executor/pool_configurator.py, mem_cache/memory_pool.py, configs/model_config.py.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import FORMATS, Format
from kvcalc.core.states import Chunked, Compressed, Cross, Full, Index, Latent, Nothing, Recurrent, Shared, Sliding
from kvcalc.core.units import clean
from kvcalc.engines.base.windows import window_of
from kvcalc.engines.sglang.backends import SM90, SM100
from kvcalc.engines.sglang.dtypes import FOUR_BITS, FP8

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvcalc.core.architecture import Architecture, Layout
    from kvcalc.core.states import AnyState
    from kvcalc.engines.sglang.server import Server

FULL, SLIDING = "full", "sliding"
#: States whose shape a whole pool may have: latents, or K and V of heads.
_LATENT, _HEADS = (Latent,), (Full, Sliding, Chunked)
#: Elements behind one fp32 scale of an index key, and the bytes of that scale (DSATokenToKVPool.quant_block_size).
INDEX_BLOCK, INDEX_SCALE = 128, 4
#: Elements behind one scale of the FP4 formats.
FP4_BLOCK = 16
#: Head widths that TRT-LLM's NVFP4 kernels read.
NVFP4_HEAD = 64


class TokenTensor(NamedTuple):
    """One tensor of a pool: what a layer stores for a token.

    pool     "full" or "sliding"
    rank     bytes of one stored row on one rank; `whole` the same of the whole model, once
    tokens   tokens that share a stored row
    cell     bytes that SGLang's budget counts for one token
    spread   decode context parallelism splits the tokens of this tensor over ranks
    """

    pool: str
    state: str
    buffer: str
    width: int
    format: str
    rank: int
    whole: int
    tokens: int = 1
    cell: int = -1
    spread: bool = True

    @property
    def price(self) -> int:
        """Bytes that SGLang's budget counts for one token."""
        return self.rank if self.cell < 0 else self.cell

    def page_bytes(self, page: int) -> int:
        """Bytes of one page on one rank."""
        return page // self.tokens * self.rank


@dataclass(frozen=True, slots=True)
class Pools:
    """The rows of every pipeline stage, each with its number of layers; `draft` the rows of one draft layer."""

    stages: tuple[dict[TokenTensor, int], ...]
    draft: dict[TokenTensor, int]

    def layers(self, pool: str) -> list[int]:
        """Per stage, the layers of a pool: those of its widest row."""
        return [max((count for row, count in stage.items() if row.pool == pool), default=0) for stage in self.stages]


def cut(layout: Layout, stages: int) -> list[tuple[str, ...]]:
    """Layer names of each pipeline stage: layers that do not divide go to the last ones (distributed/utils.py, get_pp_indices)."""
    order, base = layout.order, layout.count // stages
    if not base:
        raise EngineRejectsError(
            f"pipeline parallel size {stages} is more than the model's {layout.count} layers", f"at most {layout.count}"
        )
    extra_from = stages - layout.count % stages
    starts = [stage * base + max(0, stage - extra_from) for stage in range(stages + 1)]
    return [order[start:end] for start, end in itertools.pairwise(starts)]


def read_pools(architecture: Architecture, server: Server) -> Pools:
    """The rows that the model's layers fill. Raises UnsupportedArchitectureError, EngineRejectsError."""
    reader = _Reader(architecture, server)
    stages = tuple(reader.rows(names) for names in cut(architecture.layers, server.pp))
    stages[0].update(reader.encoder_rows())
    return Pools(stages, reader.draft_rows())


def kv_heads(heads: int, ranks: int) -> int:
    """KV heads of one rank: the quotient rounded down, at least one (get_num_kv_heads)."""
    return max(1, heads // ranks)


class _Reader:
    """Turns the states of layers into rows, in the geometry that SGLang gives a whole pool."""

    def __init__(self, architecture: Architecture, server: Server) -> None:
        self.architecture, self.server = architecture, server
        self.hybrid = any(state.is_recurrent for state in architecture.states)
        self.main = self._main_state()

    def _main_state(self) -> AnyState | None:
        """The state whose geometry the full pool has: the first full one, else the first with a window."""
        found = [state for state in self.architecture.states if isinstance(state, _LATENT if self.server.latent else _HEADS)]
        if not found:
            if self.server.rule.stateful_only or (self.hybrid and not found):
                return None
            listed = ", ".join(dict.fromkeys(state.kind for state in self.architecture.states))
            raise UnsupportedArchitectureError(f"kvcalc has no rule for {clean(self.architecture.id)} ({listed}) in SGLang's pools")
        full = [state for state in found if not window_of(state)] or found
        shapes = {_shape(state) for state in full}
        if len(shapes) > 1:
            raise EngineRejectsError(
                f"SGLang has one shape for all full layers, and {clean(self.architecture.id)} has {len(shapes)}",
                "it does not serve such models",
            )
        return full[0]

    def rows(self, names: Sequence[str]) -> dict[TokenTensor, int]:
        """Rows of the named layers, each with its number of layers."""
        found: Counter[TokenTensor] = Counter()
        for name, layers in Counter(names).items():
            for row in self._layer_rows(self.architecture.layers.states[name]):
                found[row] += layers
        found.update(self._workspace())
        return dict(found)

    def encoder_rows(self) -> dict[TokenTensor, int]:
        """Rows of Whisper's encoder layers, which nothing fills: SGLang counts them with the decoder's."""
        layers = self.architecture.traits.encoder_layers
        if not self.server.rule.counts_encoder or self.main is None or not layers:
            return {}
        return {row._replace(state="encoder"): layers for row in self._state_rows(self.main)}

    def draft_rows(self) -> dict[TokenTensor, int]:
        """Rows of the draft model's own pool, where speculation is on: its layers as the model describes them."""
        draft = self.architecture.draft
        if not self.server.draft_tokens or draft is None:
            return {}
        found: Counter[TokenTensor] = Counter()
        for name in draft.order:
            found.update(row for row in self._layer_rows(draft.states[name], draft=True))
        return {row._replace(spread=False): layers for row, layers in found.items()}

    def _layer_rows(self, states: Sequence[AnyState], *, draft: bool = False) -> Iterable[TokenTensor]:
        attention: list[AnyState] = []
        idle: list[AnyState] = []
        keys: list[Index] = []
        for state in states:
            match state:
                case Full() | Sliding() | Chunked() | Cross() | Latent() | Shared():
                    attention.append(state)
                case Nothing():
                    idle.append(state)
                case Index():
                    keys.append(state)
                case Recurrent() | Compressed():  # slots (recurrent.py), and pools of their own (deepseek_v4.py)
                    pass
                case _:
                    assert_never(state)
        if not attention and not self.hybrid and not draft:
            attention = idle
        for state in attention:
            yield from self._state_rows(self._owner(state))
        if self.server.indexed or not self.server.latent:
            yield from map(self._index_row, keys)

    def _owner(self, state: AnyState) -> AnyState:
        """The state whose shape the layer's tensors have: SGLang gives layers that share or keep nothing tensors of their own."""
        if not isinstance(state, Shared) or not self.server.windows:
            return state
        owner = state.shares_with
        kept = self.architecture.layers.layer(owner) if owner is not None and owner < self.architecture.layers.count else ()
        found = next((item for item in kept if isinstance(item, Full | Sliding | Chunked | Latent)), None)
        if found is None:
            raise UnsupportedArchitectureError(
                f"a layer of {clean(self.architecture.id)} shares another's cache, and nothing says whose",
                "name the layer with shares_with",
            )
        return found

    def _state_rows(self, state: AnyState) -> tuple[TokenTensor, ...]:
        sliding = self.server.windows and (window_of(state) > 0 or self.server.every_layer_slides)
        shape = state if sliding else self.main
        if shape is None:
            return ()
        pool = SLIDING if sliding else FULL
        if isinstance(shape, Latent):
            return self._latent_rows(shape, pool)
        return self._head_rows(shape, shape.kind if isinstance(state, Nothing | Shared) else state.kind, pool)

    def _head_rows(self, shape: AnyState, name: str, pool: str) -> tuple[TokenTensor, ...]:
        stored, server = self._stored(), self.server
        priced, held = shape.buffers(), self._held_shape(shape, pool).buffers()
        self._check_width(*(item.width for item in held))
        shaped = pool == SLIDING and server.shaped_windows
        ranks = server.attn_tp if shaped else server.attn_tp // server.dcp
        rows = []
        for price, item in zip(priced, held, strict=True):
            heads = kv_heads(price.vectors, server.attn_tp if server.windows else ranks)
            rank = stored.row_bytes(item.width, kv_heads(item.vectors, ranks))
            whole = stored.row_bytes(item.width, item.vectors)
            rows.append(
                TokenTensor(pool, name, item.name, item.elements, stored.name, rank, whole, cell=stored.row_bytes(price.width, heads))
            )
        if self._mixed and pool == FULL:
            key, value = held
            scales = (key.width + value.width) // FP4_BLOCK
            size = kv_heads(key.vectors, ranks) * scales
            rows.append(TokenTensor(pool, name, "linear scales", scales * key.vectors, "fp8", size, key.vectors * scales))
        return tuple(rows)

    def _held_shape(self, shape: AnyState, pool: str) -> AnyState:
        """The shape that is allocated: windows have their own where the class says so, else that of the full layers."""
        if pool == SLIDING and not self.server.shaped_windows and isinstance(self.main, Full):
            return self.main
        return shape

    @property
    def _mixed(self) -> bool:
        """NVFP4 that FlashInfer reads through an fp8 workspace while decoding reads it as it lies: two layouts of scales."""
        return self.server.flag == "nvfp4" and self.server.prefill == "flashinfer" and not self.server.windows and not self.server.latent

    def _check_width(self, key: int, value: int) -> None:
        stored = self.server.kv
        if stored.block > 1 and (key % stored.block or value % stored.block):
            raise EngineRejectsError(
                f"{stored.name} stores blocks of {stored.block}, and heads of {key} are no multiple of it", "choose fp8_e4m3"
            )
        if self.server.flag == "nvfp4" and key % NVFP4_HEAD:
            raise EngineRejectsError(
                f"SGLang's NVFP4 needs heads whose width {NVFP4_HEAD} divides, and these are {key} wide", "choose fp8_e4m3"
            )

    def _stored(self) -> Format:
        """The format of K and V. Pools of windows have no packed 4-bit layout: SGLang spends a byte on each element."""
        if self.server.windows and self.server.flag in FOUR_BITS:
            return Format(self.server.kv.name, 1, 1)
        return self.server.kv

    def _latent_rows(self, shape: Latent, pool: str) -> tuple[TokenTensor, ...]:
        (buffer,) = self._latent(shape).buffers()
        stored = FORMATS["fp8_ds_mla"] if self.server.scaled and pool == FULL else self.server.kv
        if stored.name == "mxfp8":
            stored = FORMATS["fp8"]
        size = stored.latent_bytes(buffer.width - buffer.rope, buffer.rope)
        # beside recurrent layers the latents' 4-bit pool is not packed, and the budget counts on it
        held = buffer.width if self.hybrid and self.server.flag in FOUR_BITS else size
        return (TokenTensor(pool, shape.kind, "latent", buffer.width, stored.name, held, held, cell=size),)

    def _latent(self, shape: Latent) -> Latent:
        """The latent that the pool stores: `use_mla_nope` leaves Ling's rotary part out (_derive_model_shapes)."""
        if self.architecture.traits.use_mla_nope is True and self.server.rule.drops_rotary:
            return replace(shape, rope_dim=0)
        return shape

    def _index_row(self, state: Index) -> TokenTensor:
        (buffer,) = state.buffers()
        if self.server.latent:
            size = buffer.width + buffer.width // INDEX_BLOCK * INDEX_SCALE
            return TokenTensor(
                FULL, "index", "index", buffer.width, "index_fp8", size, size, state.pool, -(-size // state.pool), spread=False
            )
        stored = self._index_format()
        size = stored.row_bytes(buffer.width, buffer.vectors)
        return TokenTensor(FULL, "index", "index", buffer.elements, stored.name, size, size, state.ratio, size // state.ratio)

    def _index_format(self) -> Format:
        """MiniMax-M3's index keys follow the cache into fp8 where its kernels read it so; otherwise they stay in the model's type."""
        server = self.server
        if server.rule.sparse_keys and server.flag == FP8:
            generation = server.capability // 10
            if generation == SM90 or (generation == SM100 and "trtllm_mha" in (server.prefill, server.decode)):
                return FORMATS["fp8"]
        return FORMATS["bf16"] if server.rule.ngram_memory else server.model

    def _workspace(self) -> dict[TokenTensor, int]:
        """The fp8 workspace of mixed NVFP4: one layer's keys and values, shared by all layers of a stage."""
        if not self._mixed or self.main is None:
            return {}
        key, value = self.main.buffers()
        heads = kv_heads(key.vectors, self.server.attn_tp // self.server.dcp)
        size = heads * (key.width + value.width)
        return {TokenTensor(FULL, "workspace", "dequantised", key.elements + value.elements, "fp8", size, key.elements + value.elements): 1}


def _shape(state: AnyState) -> tuple[tuple[int, int, int], ...]:
    return tuple((buffer.vectors, buffer.width, buffer.rope) for buffer in state.buffers())
