"""Attention of one layer on one GPU: what is stored of it, what it asks of a kernel, and which kernel runs it (vLLM 0.33).

MLA families    one latent row, 1 head slot, whatever the tensor parallel size
others          max(1, KV heads / tp) head slots of K and V; latents of a family without MLA as the expanded heads
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import get_format
from kvcalc.core.states import (
    Chunked,
    Compressed,
    Cross,
    Fixed,
    Full,
    GatedDeltaNet,
    Index,
    Kda,
    Latent,
    Lightning,
    Mamba1,
    Mamba2,
    Nothing,
    RgLru,
    Rwkv,
    Shared,
    ShortConv,
    Sliding,
)
from kvcalc.engines.vllm import backends, dtypes, selection
from kvcalc.engines.vllm.families import IMAGE_WRAPPERS
from kvcalc.engines.vllm.kept import is_attention, is_mla

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState
    from kvcalc.engines.vllm.start import Kind, Start

#: What a config says where only its window layers have attention sinks.
WINDOW_SINKS = ("add_swa_attention_sink_bias", "swa_attention_sink_enabled")
#: Bytes of a packed row of sparse MLA, whatever the widths (mla_attention.py).
PACKED_ROWS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}


class Heads(NamedTuple):
    """One layer's attention on one GPU: head slots, and widths of K and V; an MLA row is all K."""

    kv: int
    key: int
    value: int


def rank_heads(kv_heads: int, tp: int) -> int:
    """KV heads on one GPU, at least one. Raises EngineRejectsError for a split that vLLM refuses."""
    if kv_heads % tp and tp % kv_heads:
        raise EngineRejectsError(f"vLLM refuses: tensor parallel size {tp} and {kv_heads} KV heads do not divide one another")
    return max(1, kv_heads // tp)


def heads_of(state: AnyState, start: Start) -> Heads:
    """Head slots and widths. A latent of a family that vLLM runs without MLA has a K and a V vector a query head, equally wide.

    Raises UnsupportedArchitectureError for such a latent without its widths and for a state without heads, EngineRejectsError for
    a split that vLLM refuses.
    """
    match state:
        case Latent() if is_mla(state, start.family):
            return Heads(1, state.latent_dim + state.rope_dim, 0)
        case Latent():
            if state.query_heads is None or state.nope_dim is None:
                raise UnsupportedArchitectureError(f"vLLM runs {start.family} without MLA, and its config gives no qk_nope_head_dim")
            expanded = state.nope_dim + state.rope_dim
            return Heads(rank_heads(state.query_heads, start.tp), expanded, expanded)
        case Full() | Sliding() | Chunked() | Cross():
            return Heads(rank_heads(state.kv_heads, start.tp), state.head_dim, state.value_width)
        case Shared() | Nothing() | Index() | Compressed():
            pass
        case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | ShortConv() | RgLru() | Fixed():
            pass
        case _:
            assert_never(state)
    raise UnsupportedArchitectureError(f"kvcalc has no rule for states of kind {state.kind} of {start.family} under vLLM")


def token_bytes(heads: Heads, dtype: str, own: str) -> int:
    """Bytes of one token in one attention layer on one GPU."""
    if heads.value == 0:
        packed = PACKED_ROWS.get(dtype)
        return packed if packed is not None else get_format(dtypes.format_of(dtype, own)).row_bytes(heads.key)
    stored = get_format(dtypes.format_of(dtype, own))
    return stored.key_bytes(heads.key, heads.kv) + stored.value_bytes(heads.value, heads.kv)


def model_head(start: Start) -> int:
    """The head size that stands for the whole model: the widest, or the latent row."""
    return max((heads_of(kind.state, start).key for kind in start.kinds if is_attention(kind.state)), default=0)


def _uses_mm_prefix(start: Start) -> bool:
    traits = start.architecture.traits
    outer = traits.outer_model_type
    if outer in IMAGE_WRAPPERS:
        return True
    return outer is not None and start.row.sees_images and traits.use_bidirectional_attention == "vision"


def _has_sinks(state: AnyState, start: Start) -> bool:
    traits = start.architecture.traits
    if start.row.sinks:
        return traits.attention_sinks is not False
    return isinstance(state, Sliding) and any(traits.get(name) is True for name in WINDOW_SINKS)


def ask_of(kind: Kind, start: Start) -> backends.Ask:
    """What this layer asks of a backend."""
    state = kind.state
    heads = heads_of(state, start)
    mla = is_mla(state, start.family)
    query = getattr(state, "query_heads", None) or 0
    return backends.Ask(
        head_size=heads.key,
        cache_dtype=kind.dtype,
        capability=start.card.capability,
        value_size=heads.value,
        block_size=start.args["block_size"],
        mla=mla,
        sparse=mla and any(isinstance(other.state, Index) for other in start.kinds),
        sink=_has_sinks(state, start),
        mm_prefix=not mla and isinstance(state, (Full, Sliding)) and _uses_mm_prefix(start),
        sliding=isinstance(state, Sliding),
        cross=isinstance(state, Cross),
        dcp=start.workload.decode_context_parallel > 1,
        query_heads=query // start.tp,
        nope_dim=getattr(state, "nope_dim", None) or 0,
        rope_dim=getattr(state, "rope_dim", 0),
        index_topk=start.architecture.traits.index_topk or 0,
        softcap=bool(start.architecture.traits.attn_logit_softcapping),
        fa2=start.cache.startswith("turboquant_"),
    )


@dataclass(slots=True)
class Choice:
    """The backend of one attention layer, its question, and the cache type it ends up with."""

    backend: backends.Backend
    ask: backends.Ask
    dtype: str


def choose(kind: Kind, start: Start) -> Choice | None:
    """The backend of one kind of layer; None for recurrent ones. Raises EngineRejectsError."""
    if kind.state.is_recurrent:
        return None
    if isinstance(kind.state, Index):
        return Choice(backends.INDEXER, backends.Ask(0, dtypes.AUTO, start.card.capability), dtypes.AUTO)
    if isinstance(kind.state, Chunked) and kind.dtype == dtypes.AUTO and start.cache.startswith("turboquant_"):
        raise EngineRejectsError(f"vLLM refuses a cache of {start.cache} for chunked layers that keep the model's type", "choose fp8")
    ask = ask_of(kind, start)
    if start.row.uneven and ask.value_size != ask.head_size:
        return Choice(selection.uneven_backend(ask), ask, kind.dtype)
    backend = selection.select_backend(ask, start.args["attention_backend"])
    if start.row.backend not in ("", backend.name):
        raise EngineRejectsError(
            f"vLLM refuses {start.family} without {start.row.backend} attention, and here chooses {backend.name}",
            "a Blackwell GPU",
        )
    return Choice(backend, ask, _packed_dtype(backend, kind.dtype))


def _packed_dtype(backend: backends.Backend, dtype: str) -> str:
    """FlashMLA's sparse kernel turns every fp8 into its own packed row (mla_attention.py)."""
    if backend is backends.FLASHMLA_SPARSE and dtype not in ("auto", "nvfp4_ds_mla"):
        return "fp8_ds_mla"
    return dtype
