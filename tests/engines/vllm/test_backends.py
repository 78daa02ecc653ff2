"""Which kernel runs a layer, and which blocks it reads."""

from __future__ import annotations

import pytest
from vllm_models import ENGINE, GPT_OSS, model, work

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.engines.vllm.attention import ask_of
from kvcalc.engines.vllm.backends import (
    FLASH_ATTN,
    FLASHINFER,
    FLASHMLA,
    INDEXER,
    TRITON,
    Ask,
    Backend,
)
from kvcalc.engines.vllm.selection import check_layouts, check_shared_kernel, preferred_block, select_backend, uneven_backend
from kvcalc.engines.vllm.start import read_start


def ask(head_size: int = 128, cache_dtype: str = "auto", capability: int = 90, **more: object) -> Ask:
    return Ask(head_size, cache_dtype, capability, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("question", "name"),
    [
        (ask(), "FLASH_ATTN"),
        (ask(capability=80), "FLASH_ATTN"),
        (ask(capability=100), "FLASHINFER"),
        (ask(capability=100, head_size=80), "FLASH_ATTN"),
        (ask(cache_dtype="fp8"), "FLASH_ATTN"),
        (ask(cache_dtype="fp8", capability=89), "FLASHINFER"),
        (ask(cache_dtype="fp8", capability=89, head_size=96), "TRITON_ATTN"),
        (ask(cache_dtype="fp8_e5m2"), "FLASHINFER"),
        (ask(cache_dtype="int8_per_token_head"), "TRITON_ATTN"),
        (ask(cache_dtype="nvfp4", capability=100), "FLASHINFER"),
        (ask(cache_dtype="nvfp4", capability=90), "FLASHINFER"),
        (ask(cache_dtype="turboquant_k8v4"), "TURBOQUANT"),
        (ask(head_size=64, sink=True), "FLASH_ATTN"),
        (ask(head_size=64, sink=True, capability=80), "TRITON_ATTN"),
        (ask(head_size=64, sink=True, capability=100), "FLASHINFER"),
        (ask(head_size=256, mm_prefix=True), "TRITON_FLASH_ATTN"),
        (ask(head_size=256, mm_prefix=True, capability=100), "TRITON_FLASHINFER"),
        (ask(head_size=256, mm_prefix=True, capability=80), "TRITON_ATTN"),
        (ask(head_size=512), "FLASH_ATTN"),
        (ask(head_size=512, capability=80), "FLASHINFER"),
        (ask(576, mla=True), "FLASH_ATTN_MLA"),
        (ask(576, "fp8", mla=True), "FLASHMLA"),
        (ask(576, mla=True, capability=80), "TRITON_MLA"),
        (ask(576, mla=True, capability=100, nope_dim=128), "FLASHINFER_MLA"),
        (ask(576, mla=True, capability=100, nope_dim=96), "CUTLASS_MLA"),
        (ask(576, mla=True, sparse=True), "FLASH_ATTN_MLA_SPARSE"),
        (ask(576, "fp8", mla=True, sparse=True), "FLASHMLA_SPARSE"),
        (ask(576, "fp8_ds_mla", mla=True, sparse=True, dcp=True), "FLASHMLA_SPARSE"),
        (ask(576, "fp8", mla=True, sparse=True, capability=100, nope_dim=128, rope_dim=64), "FLASHINFER_MLA_SPARSE"),
        (
            ask(576, mla=True, sparse=True, capability=100, nope_dim=128, rope_dim=64, query_heads=16, index_topk=2048),
            "FLASH_ATTN_MLA_SPARSE_FA4",
        ),
        (ask(576, mla=True, sparse=True, capability=100, nope_dim=128, rope_dim=64, query_heads=128), "FLASHMLA_SPARSE"),
    ],
)
def test_the_first_that_accepts(question: Ask, name: str) -> None:
    assert select_backend(question).name == name


@pytest.mark.parametrize(
    ("question", "backend", "sizes"),
    [
        (ask(), FLASH_ATTN, (16, 48, 1056)),
        (ask(512, "fp8"), FLASH_ATTN, (64, 128)),
        (ask(256, capability=100), FLASH_ATTN, (128, 256)),
        (ask(256, capability=100, softcap=True), FLASH_ATTN, (16, 128)),
        (ask(capability=100), FLASHINFER, (16, 32, 64, 528)),
        (ask(576, "fp8", mla=True), FLASHMLA, (64, 1024)),
    ],
)
def test_blocks_are_made_of_whole_kernel_blocks(question: Ask, backend: object, sizes: tuple[int, ...]) -> None:
    assert all(backend.reads(size, question) for size in sizes)  # type: ignore[attr-defined]
    assert not backend.reads(backend.smallest(question) // 2, question)  # type: ignore[attr-defined]


def test_the_largest_kernel_block_within_a_page() -> None:
    assert FLASH_ATTN.largest_within(1088, ask()) == 1088
    assert FLASH_ATTN.largest_within(1000, ask()) == 992
    assert FLASHINFER.largest_within(1088, ask(capability=100)) == 64
    assert FLASHINFER.largest_within(8, ask(capability=100)) == 16


def test_the_block_that_every_backend_reads() -> None:
    latent = ask(576, mla=True)
    assert preferred_block([(FLASH_ATTN, ask())]) == 16
    assert preferred_block([(FLASH_ATTN, ask()), (TRITON, ask())]) == 16
    assert preferred_block([(FLASHMLA, latent), (INDEXER, latent)]) == 64
    assert preferred_block([(FLASH_ATTN, ask()), (INDEXER, latent)]) == 64


def test_what_no_backend_runs_is_refused_with_the_reasons() -> None:
    with pytest.raises(EngineRejectsError, match=r"no attention backend for heads of 128 with a cache of nvfp4_4over6") as caught:
        select_backend(ask(cache_dtype="nvfp4_4over6"))
    assert "FLASHINFER: it cannot read a cache of nvfp4_4over6 before Blackwell" in caught.value.hint


@pytest.mark.parametrize(
    ("question", "asked", "reason"),
    [
        (ask(cache_dtype="fp8_e5m2"), "FLASH_ATTN", "cannot read a cache of fp8_e5m2"),
        (ask(head_size=80), "flashinfer", "no kernel for heads of 80"),
        (ask(), "FLASHMLA", "runs MLA only"),
        (ask(block_size=40), "FLASH_ATTN", "cannot read blocks of 40"),
        (ask(cache_dtype="turboquant_k8v4", sliding=True), "TURBOQUANT", "does not support sliding windows"),
        (ask(cross=True), "FLASHINFER", "does not run cross-attention"),
        (ask(dcp=True), "TRITON_ATTN", "does not support decode context parallelism"),
    ],
)
def test_an_asked_backend_that_refuses(question: Ask, asked: str, reason: str) -> None:
    with pytest.raises(EngineRejectsError, match=reason):
        select_backend(question, asked)


def test_triton_reads_fp8_from_ada_on() -> None:
    assert select_backend(ask(cache_dtype="fp8_per_token_head", capability=89)).name == "TRITON_ATTN"
    with pytest.raises(EngineRejectsError, match=r"in Triton before compute capability 8\.9"):
        select_backend(ask(cache_dtype="fp8_per_token_head", capability=80))


def test_an_unknown_backend_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        select_backend(ask(), "FLASHATTN")
    assert "FLASH_ATTN" in caught.value.hint


def test_backends_that_insist_on_different_layouts() -> None:
    question = ask(cache_dtype="turboquant_k8v4", capability=100)
    pairs = [(select_backend(question), question), (FLASHINFER, ask(capability=100))]
    with pytest.raises(EngineRejectsError, match="no memory layout suits both"):
        check_layouts(pairs)
    check_layouts([(select_backend(ask(cache_dtype="turboquant_k8v4")), ask()), (FLASH_ATTN, ask())])


@pytest.mark.parametrize(
    ("capability", "dtype", "chosen"),
    [
        (90, "auto", "FLASH_ATTN"),
        (90, "fp8", "FLASH_ATTN"),
        (100, "auto", "FLASH_ATTN"),
        (90, "fp8_e5m2", None),
        (100, "fp8", None),
        (80, "auto", "TRITON_ATTN"),
    ],
)
def test_k_and_v_of_different_widths(capability: int, dtype: str, chosen: str | None) -> None:
    """MiMo-V2: K of 192, V of 128."""
    ask = Ask(192, dtype, capability, value_size=128, sliding=True, sink=True)
    if chosen is None:
        with pytest.raises(EngineRejectsError, match="different widths"):
            uneven_backend(ask)
    else:
        assert uneven_backend(ask).name == chosen


@pytest.mark.parametrize(
    ("family", "traits", "sinks"),
    [
        ("granite_swa", {}, [True, True]),
        ("granite_swa", {"attention_sinks": False}, [False, False]),
        ("laguna", {"swa_attention_sink_enabled": True}, [True, False]),
        ("gemma3_text", {}, [False, False]),
    ],
)
def test_layers_with_sinks(family: str, traits: dict[str, object], sinks: list[bool]) -> None:
    found = model(["window", "full"], 24, {"window": GPT_OSS[0], "full": GPT_OSS[1]}, family, traits=traits)
    start = read_start(found, work(), ENGINE.read_args({}))
    assert [ask_of(kind, start).sink for kind in start.kinds] == sinks


@pytest.mark.parametrize(
    ("question", "text"),
    [
        (ask(576, "fp8", 80, mla=True), "Triton before compute capability 8.9"),
        (ask(576, mla=True, sparse=True, dcp=True), "sparse FlashMLA without an fp8 cache"),
    ],
)
def test_a_backend_that_is_chosen_and_then_fails(question: Ask, text: str) -> None:
    with pytest.raises(EngineRejectsError, match=text):
        select_backend(question)


def test_layers_behind_one_table_share_a_kernel_block() -> None:
    own = Backend("OWN", ("auto",), sizes=(128,))
    check_shared_kernel([(FLASH_ATTN, ask()), (own, ask())], 128)
    check_shared_kernel([(FLASHINFER, ask(capability=100)), (own, ask(capability=100))], 256)
    with pytest.raises(EngineRejectsError, match="FLASHINFER and OWN share no kernel block within blocks of 128"):
        check_shared_kernel([(FLASHINFER, ask()), (own, ask())], 128)
