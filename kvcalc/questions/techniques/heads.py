"""What one token leaves behind: keys and values of all heads, of some, of one, or a latent for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean
from kvcalc.questions.techniques.base import Case, Parameter, technique
from kvcalc.questions.techniques.layers import ATTENTION, HEADED, build, heads_of, query_heads, replaced

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState


@technique()
def mha(case: Case) -> Case:
    """Multi-head attention (arXiv:1706.03762): every query head has its own K and V.

        kv_heads = query_heads
        bytes = 2 x layers x query_heads x head_dim x T x bytes an element

    The baseline of the introductions: 2 x 32 x 32 x 128 x 32,768 x 2 B = 17,179,869,184 B.
    """
    return _regrouped(case, None)


@technique(Parameter("kv_heads", lambda case: max(1, query_heads(case) // 4), "K/V heads; must divide the query heads"))
def gqa(case: Case, kv_heads: int) -> Case:
    """Grouped-query attention (arXiv:2305.13245): each K/V head serves query_heads / kv_heads query heads.

        bytes = MHA x kv_heads / query_heads

    8 of 32 heads: 17,179,869,184 B / 4 = 4,294,967,296 B.
    """
    return _regrouped(case, kv_heads)


@technique()
def mqa(case: Case) -> Case:
    """Multi-query attention (arXiv:1911.02150): one K/V head for all query heads.

        bytes = MHA / query_heads

    32 heads: 17,179,869,184 B / 32 = 536,870,912 B.
    """
    return _regrouped(case, 1)


@technique(
    Parameter("latent_dim", 512, "elements of the latent"),
    Parameter("rope_dim", 64, "elements of the rotary key that all heads share", least=0),
)
def mla(case: Case, latent_dim: int, rope_dim: int) -> Case:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): one latent and one rotary key for all heads.

        bytes = layers x (latent_dim + rope_dim) x T x bytes an element        no factor 2, no heads

    32 x (512 + 64) x 32,768 x 2 B = 1,207,959,552 B.
    """

    def change(state: AnyState) -> AnyState:
        if state.kind not in ATTENTION:
            return state
        if state.kind == "chunked":
            raise UsageError("mla: kvcalc knows no latent attention over chunks", "apply mla before chunked, or leave one out")
        fields = state.to_dict()
        heads = {} if state.kind == "latent" else {"nope_dim": fields["head_dim"], "value_head_dim": heads_of(state)["value_head_dim"]}
        return build("latent", {**fields, **heads, "latent_dim": latent_dim, "rope_dim": rope_dim})

    return replaced(case, change)


def _regrouped(case: Case, kv_heads: int | None) -> Case:
    """Every attention layer with `kv_heads` K/V heads; None = as many as query heads."""

    def change(state: AnyState) -> AnyState | None:
        if state.kind == "index" and has_latents:
            return None  # index keys choose among latents, and there are none any more
        if state.kind not in ATTENTION:
            return state
        fields = heads_of(state)
        wanted = kv_heads or fields["query_heads"]
        if wanted is None:
            raise UsageError(f"{clean(case.architecture.id)} does not say its query heads", "give --set query_heads=…")
        kind = state.kind if state.kind in HEADED else "sliding" if fields["window"] else "full"
        return build(kind, {**fields, "kv_heads": wanted})

    has_latents = any(state.kind == "latent" for state in case.architecture.states)
    return replaced(case, change)
