"""How far a layer sees, and how much of it is read: windows, chunks, and the top-k of sparse attention."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.questions.techniques.base import Case, Parameter, Ratio, technique
from kvcalc.questions.techniques.layers import attention_states, build, every, has_attention, layers_of, with_layers

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState


@technique(
    Parameter("window", 1024, "tokens that a sliding layer keeps"),
    Parameter("ratio", Ratio(5, 1), "sliding to full layers, in turn"),
)
def swa(case: Case, window: int, ratio: Ratio) -> Case:
    """Sliding-window attention (Mistral 7B, arXiv:2310.06825; Gemma 3): most layers keep the last `window` tokens only.

        bytes = 2 x kv_heads x head_dim x (sliding layers x min(T, window) + full layers x T) x bytes an element

    GQA with 8 heads, 27 sliding and 5 full layers, 32,768 tokens: 4,096 B x (27 x 1,024 + 5 x 32,768) = 784,334,848 B.
    Dropped tokens are out of sight too: a sliding layer cannot look back further than its window.
    """
    return every(case, ratio, lambda state: _windowed(state, window), lambda state: _windowed(state, None))


def _windowed(state: AnyState, window: int | None) -> AnyState:
    fields = {**state.to_dict(), "window": window}
    return build("latent" if state.kind == "latent" else "sliding" if window else "full", fields)


@technique(
    Parameter("chunk", 8192, "tokens of a chunk"),
    Parameter("ratio", Ratio(3, 1), "chunked to full layers, in turn"),
)
def chunked(case: Case, chunk: int, ratio: Ratio) -> Case:
    """Chunked attention (Llama 4): most layers see the current chunk only.

        bytes = 2 x kv_heads x head_dim x (chunked layers x min(T, chunk) + full layers x T) x bytes an element

    MHA, 24 chunked and 8 full layers, 32,768 tokens: 16,384 B x (24 x 8,192 + 8 x 32,768) = 7,516,192,768 B.
    """

    def change(state: AnyState) -> AnyState:
        if state.kind == "latent":
            raise UsageError("chunked: kvcalc knows no latent attention over chunks", "leave out mla")
        return build("chunked", {**state.to_dict(), "chunk": chunk})

    return every(case, ratio, change, lambda state: state if state.kind == "latent" else build("full", state.to_dict()))


@technique(
    Parameter("index_dim", 128, "elements of an index key"),
    Parameter("top_k", 2048, "positions that attention reads"),
    base="mla",
)
def dsa(case: Case, index_dim: int, top_k: int) -> Case:
    """DeepSeek sparse attention (DeepSeek-V3.2, arXiv:2512.02556): attention reads only the top_k positions, all stay stored.

        bytes = MLA + layers x T x row(index_dim)        fp8 with one fp32 scale per 128: 132 B
        positions attended per step: min(T, top_k)

    32 layers at 32,768 tokens: 1,207,959,552 B + 32 x 32,768 x 132 B = 1,346,371,584 B: more memory, fewer positions.
    Attention with heads becomes MLA first, unless mha, gqa or mqa was asked for before: then index keys stand beside K and V.
    """
    attention_states(case)
    key = build("index", {"index_dim": index_dim, "top_k": top_k})
    layers = [(*(state for state in entry if state.kind != "index"), key) if has_attention(entry) else entry for entry in layers_of(case)]
    return replace(case, architecture=with_layers(case.architecture, layers))
