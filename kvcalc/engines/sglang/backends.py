"""Which attention backend SGLang serves a model with, the page size that follows, and the pairs that it refuses.

    page size     the model's own  <  the backend's  ;  the user's where neither speaks ; 1 otherwise
    backend       the flag's, else the model's own, else the card's fastest

Source: SGLang 0.5.23, arg_groups/overrides.py (_mla_backend_page_constraints, _fa4_page_constraint, _page_size_default),
model_override_base.py (get_default_attn_backend), kv_cache_hook.py, model_overrides/.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import EngineRejectsError
from kvcalc.engines.sglang.dtypes import FOUR_BITS, FP8

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.engines.sglang.classes import ClassRule

#: Generations of compute capability: Hopper, Blackwell for data centres, Blackwell for desks.
SM90, SM100, SM120 = 9, 10, 12
#: Page sizes that a backend accepts, and the one that it takes instead of any other.
PAGES: dict[str, tuple[tuple[int, ...], int]] = {
    "flashmla": ((64,), 64),
    "trtllm_mla": ((32, 64), 64),
    "cutedsl_mla": ((32, 64), 64),
    "trtllm_mha": ((16, 32, 64, 128), 64),
    "hpc_ops": ((64,), 64),
}
#: The one page size of FA4 on SM100, of DeepSeek-V4, and of sparse attention (times the tokens that share an index key).
FA4_PAGE, V4_PAGE, INDEXED_PAGE = 128, 256, 64
#: MiniMax-M3's page, and the backends with which it takes it.
MINIMAX_M3_PAGE = 128
MINIMAX_M3_BACKENDS = {SM90: ("fa3",), SM100: ("fa4", "trtllm_mha")}

_FP4_MHA = ("triton", "torch_native", "flex_attention", "trtllm_mha")
_FP4_MLA = ("flashinfer", "trtllm_mla")


@dataclass(frozen=True, slots=True)
class Question:
    """What the choice of a backend depends on.

    name, rule   the model's class, and its row
    generation   major compute capability
    given        the flag `--attention-backend`
    page         the flag `--page-size`
    index_pool   tokens that share an index key; 0 without sparse attention over latents
    index_ratio  tokens that share an index key beside K and V; 0 without such keys
    sinks        attention has sinks, which FlashInfer cannot read
    speculates   draft tokens are verified
    paged_state  nothing forces pages of one token on a hybrid: no radix cache, speculation, or buffers asked for
    large        the card has 60 GiB or more
    """

    name: str
    rule: ClassRule
    generation: int
    given: str | None
    page: int | None
    dtype: str
    latent: bool
    index_pool: int
    index_ratio: int
    asymmetric: bool
    sinks: bool
    speculates: bool
    paged_state: bool
    large: bool


class Choice(NamedTuple):
    """The backends of prefill and of decode, the page size, and whether the model or the user asked for pages of several tokens."""

    prefill: str
    decode: str
    page: int
    paged: bool


def choose(question: Question) -> Choice:
    """The backends and the page size. Raises EngineRejectsError for what SGLang does not start with."""
    base, prefill, decode = _backends(question)
    asked = _model_page(question, base)
    for check in _CHECKS:
        check(question, base, prefill, decode)
    return Choice(prefill, decode, _page(question, asked, base, prefill, decode), (asked or 1) > 1)


def _backends(question: Question) -> tuple[str, str, str]:
    own = question.given or _model_backend(question)
    prefill, decode = own, own
    if question.dtype == "nvfp4":
        prefill, decode = _nvfp4_prefill(question), "trtllm_mha"
        own = own or (decode if prefill == decode else None)
    base = own or _card_backend(question)
    if decode is None and question.rule.splits_on_hopper and question.generation == SM90 and question.large:
        decode = "flashinfer"
    if base == "fa3" and question.dtype == "fp8_e5m2":
        base, prefill, decode = "triton", None, None
    return base, prefill or base, decode or base


def _nvfp4_prefill(question: Question) -> str:
    """NVFP4 is read as it lies by trtllm_mha, or through an fp8 workspace by FlashInfer."""
    if question.given not in (None, "flashinfer", "trtllm_mha"):
        raise EngineRejectsError(f"SGLang cannot read NVFP4 with attention backend {question.given}", "leave attention_backend out")
    native = question.given == "trtllm_mha" or (question.given is None and question.generation == SM100)
    if native and question.generation != SM100:
        raise EngineRejectsError("SGLang reads NVFP4 natively on SM100 only", "leave attention_backend out")
    return "trtllm_mha" if native else "flashinfer"


def _model_backend(question: Question) -> str | None:
    """The backend that SGLang's model overrides declare; None: no rule for this class on this card."""
    if question.rule.compressed:
        return "dsv4"
    if question.index_pool:
        return "dsa"
    on_sm100 = question.generation == SM100
    if on_sm100 and question.rule.one_token_pages:
        return "trtllm_mha" if question.paged_state else "triton"
    if on_sm100 and question.rule.sparse_keys and question.dtype == FP8:
        return "trtllm_mha"
    own = question.rule.backends
    return {SM100: own.sm100, SM90: own.sm90}.get(question.generation, own.other)


def _card_backend(question: Question) -> str:
    """The card's fastest backend."""
    if question.rule.counts_encoder:
        return "flashinfer"
    if question.generation == SM90:
        return "fa3"
    if question.latent:
        return "flashinfer" if question.generation == SM100 else "triton"
    if question.generation == SM100:
        return "fa4" if question.asymmetric else "trtllm_mha"
    return "triton" if question.sinks else "flashinfer"


def _page(question: Question, page: int | None, base: str, prefill: str, decode: str) -> int:
    for backend, (sizes, instead) in PAGES.items():
        used = (base, prefill, decode) if backend in ("trtllm_mha", "hpc_ops") else (base, decode)
        if backend in used and page not in sizes:
            page = instead
    if "fa4" in (base, prefill, decode) and not question.latent and question.generation == SM100:
        page = FA4_PAGE
    return page or 1


def _model_page(question: Question, base: str) -> int | None:
    """The page size that the model's own overrides leave: theirs, else the user's, else None."""
    if question.rule.compressed:
        return V4_PAGE
    if question.index_pool:
        return INDEXED_PAGE * question.index_pool
    if question.rule.ngram_memory and question.index_ratio:
        return INDEXED_PAGE
    if question.rule.one_token_pages and question.generation == SM100 and question.given is None:
        return 64 if base == "trtllm_mha" else 1
    if question.rule.paged_drafts and question.speculates and question.generation == SM100 and question.given is None:
        return question.page or 64
    if question.rule.sparse_keys and question.page is None and base in MINIMAX_M3_BACKENDS.get(question.generation, ()):
        return MINIMAX_M3_PAGE
    return question.page


def _check_class(question: Question, _base: str, prefill: str, decode: str) -> None:
    used = {prefill, decode}
    accepted = question.rule.accepted
    refused = used - accepted if accepted is not None else used & question.rule.refused
    if refused:
        hint = "it takes " + ", ".join(sorted(accepted)) if accepted else "leave attention_backend out"
        raise EngineRejectsError(f"SGLang does not serve {question.name} with attention backend {min(refused)}", hint)


def _check_card(question: Question, base: str, prefill: str, decode: str) -> None:
    if "trtllm_mha" in (prefill, decode) and question.generation not in (SM90, SM100, SM120):
        raise EngineRejectsError("attention backend trtllm_mha needs a Hopper or Blackwell card", "choose another backend or card")
    if question.dtype == "mxfp8" and question.generation < SM100:
        raise EngineRejectsError("kv-cache-dtype mxfp8 needs a Blackwell card", "choose fp8_e4m3, or another card")
    if question.dtype == "nvfp4" and question.generation not in (SM100, SM120):
        raise EngineRejectsError("kv-cache-dtype nvfp4 needs a Blackwell card of SM100 or SM120", "choose fp4_mx_block16, or another card")
    if "trtllm_mla" in (base, decode):
        if question.generation < SM100:
            raise EngineRejectsError("attention backend trtllm_mla needs a Blackwell card", "choose another backend or card")
        if question.dtype not in ("auto", "bfloat16", FP8):
            raise EngineRejectsError(f"attention backend trtllm_mla reads bf16 and fp8_e4m3, and {question.dtype} was asked for")
    if "cutedsl_mla" in (base, decode) and question.generation != SM100:
        raise EngineRejectsError("attention backend cutedsl_mla needs an SM100 card", "choose another backend or card")


def _check_four_bits(question: Question, base: str, prefill: str, decode: str) -> None:
    """FP4 caches are read by a few backends only (handle_kv4_compatibility)."""
    if question.dtype not in FOUR_BITS or prefill not in (decode, "fa4"):
        return
    known = _FP4_MLA if question.latent else _FP4_MHA
    if (decode if prefill == "fa4" else base) not in known:
        raise EngineRejectsError(
            f"kv-cache-dtype {question.dtype} cannot be read by attention backend {base}",
            "set attention_backend to one of " + ", ".join(known),
        )


_CHECKS: tuple[Callable[[Question, str, str, str], None], ...] = (_check_card, _check_class, _check_four_bits)
