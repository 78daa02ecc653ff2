"""Ollama's choices: context by memory, batch by context, one slot where it insists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from command_line import asking

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.units import GIB
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.questions.fit import Fit
from kvcalc.questions.fit_card import fit_or_size
from kvcalc.questions.request import parse_request
from kvcalc.sources import load
from kvcalc.sources.gguf.architecture import read_metadata

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan
    from kvcalc.questions.fit_card import Sized

GEMMA = {
    "block_count": 6,
    "context_length": 131_072,
    "embedding_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.sliding_window": 1024,
}
ROW = 2 * 2 * 128 * 2


def plan(name: str = "gemma3", keys: dict[str, Any] | None = None, *, args: dict[str, Any] | None = None, **workload: Any) -> Plan:
    metadata = {"general.architecture": name} | {f"{name}.{key}": value for key, value in (GEMMA | (keys or {})).items()}
    return get_engine("ollama").plan(read_metadata(metadata), Workload(engine_args=args or {}, **workload))


def test_slots_are_split_and_windows_hold_the_batch() -> None:
    # 2 x 32,768 tokens: batch 2048, windows pad256(1024 + 2048); two separate slots
    found = plan(context=32_768, sequences=2)
    assert found.total == 2 * ROW * (32_768 + 5 * 3072)
    assert found.args == {"num_ctx": 32_768, "num_parallel": 2, "num_batch": 2048, "kv_cache_type": "f16", "flash_attention": "auto"}
    assert (found.engine, found.context) == ("ollama", 32_768)


@pytest.mark.parametrize(
    ("context", "slots", "batch"),
    [
        (4096, 1, 512),
        (4097, 1, 1024),
        (32_768, 1, 1024),
        (32_769, 1, 2048),
        (131_072, 1, 2048),
        (1024, 4, 512),
        (1025, 4, 1024),
        (4096, 2, 1024),
        (8192, 4, 1024),
        (8193, 4, 2048),
    ],
)
def test_the_batch_by_the_tokens_of_all_slots(context: int, slots: int, batch: int) -> None:
    assert plan(context=context, sequences=slots).args["num_batch"] == batch
    assert plan(context=context, args={"num_parallel": slots}).args["num_batch"] == batch


def test_four_slots_of_gemma() -> None:
    """4 x 4,096 tokens: 10 layers of 4,096 cells and 52 windows of pad256(1,024 + 1,024), 8,192 B a cell, in each slot."""
    found = get_engine("ollama").plan(load("gemma-3-27b"), Workload(context=4096, engine_args={"num_parallel": 4}))
    assert found.total == 4 * 8192 * (10 * 4096 + 52 * 2048) == 4_831_838_208


def fitted(model: str, **question: Any) -> Fit | Sized:
    return fit_or_size(parse_request({"model": model, "engine": "ollama"} | question))


def test_the_context_in_force_is_tested_needed_and_mended() -> None:
    """Without a context, Ollama's own: 4,096 tokens of 48 layers x K and V of 512 elements in f16, 402,653,184 B a slot."""
    found = fitted("qwen3-30b-a3b", kv_memory=8 * GIB)
    assert (found.fits, found.max_context, found.max_sequences, found.needed) == (True, 40_960, 21, 402_653_184)
    short = fitted("qwen3-30b-a3b", kv_memory=300_000_000)
    assert (short.fits, short.needed) == (False, 402_653_184)
    assert (short.remedies[0].setting, short.remedies[0].value) == ("context", short.max_context)


def test_a_card_gives_the_context_that_is_gated() -> None:
    found = fit_or_size(parse_request({"model": "gemma-3-27b", "engine": "ollama", "gpu": "rtx4090-24gb"}), weight_dtype="q4_k_m")
    told = fit_or_size(
        parse_request({"model": "gemma-3-27b", "engine": "ollama", "gpu": "rtx4090-24gb", "context": 32_768}), weight_dtype="q4_k_m"
    )
    assert found.to_dict()["workload"]["context"] == 32_768
    assert (found.fits, found.needed, found.max_context) == (True, told.needed, told.max_context)


@pytest.mark.parametrize("beyond", [False, True])
def test_no_context_beyond_the_trained_one_is_promised(beyond: bool) -> None:
    found = fit_or_size(parse_request({"model": "qwen3-30b-a3b", "engine": "ollama", "context": "1m", "kv_memory": 8 * GIB}), beyond=beyond)
    assert isinstance(found, Fit)
    assert (found.max_context, found.plan.context, found.fits) == (40_960, 40_960, True)
    assert any("lowered to the 40,960 tokens" in note for note in found.notes)


def test_the_search_moves_num_ctx() -> None:
    assert fitted("qwen3-30b-a3b", kv_memory=8 * GIB, engine_args={"num-ctx": 8192}).max_context == 40_960


@pytest.mark.parametrize(
    ("gpu", "cards", "context"), [(None, 1, 4096), ("rtx4090-24gb", 1, 32_768), ("rtx4090-24gb", 2, 262_144), ("h100-80gb", 1, 262_144)]
)
def test_the_default_context_by_the_memory_of_all_cards(gpu: str | None, cards: int, context: int) -> None:
    found = plan("gemma3", {"context_length": 1_000_000}, gpu=gpu, pipeline_parallel=cards)
    assert found.context == context
    assert any(f"defaulted to {context:,} tokens" in note for note in found.notes)


def test_a_context_beyond_the_trained_one_is_lowered() -> None:
    found = plan("gemma3", {"context_length": 8192}, context=32_768)
    assert found.context == 8192
    assert any("lowered to the 8,192 tokens" in note for note in found.notes)
    assert not found.warnings


def test_one_cache_type_for_both() -> None:
    llama = {
        "block_count": 48,
        "attention.head_count": 32,
        "attention.head_count_kv": 4,
        "attention.key_length": 128,
        "attention.value_length": 128,
    }
    # 48 layers x K and V of 512 elements in 34 B per 32
    assert plan("qwen3moe", llama, context=32_768, kv_dtype="q8_0").total == 48 * 2 * 512 // 32 * 34 * 32_768 == 1_711_276_032
    assert plan("qwen3moe", llama, context=32_768, args={"kv_cache_type": "q8_0"}).total == 1_711_276_032
    with pytest.raises(EngineRejectsError, match="one cache type"):
        plan("qwen3moe", llama, context=4096, kv_dtype="q8_0/q4_0")
    with pytest.raises(EngineRejectsError, match="needs flash attention"):
        plan("qwen3moe", llama, context=4096, kv_dtype="q8_0", args={"flash_attention": "off"})


def test_architectures_with_one_slot() -> None:
    lfm2 = {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 2] * 3, "attention.sliding_window": None}
    found = plan("lfm2", {key: value for key, value in lfm2.items() if value is not None}, context=4096, sequences=4)
    assert found.args["num_parallel"] == 1
    assert any("4 sequences wait" in warning for warning in found.warnings)
    assert plan(context=4096, args={"num_parallel": 3}).args["num_parallel"] == 3


def test_without_flash_attention_on_cuda_the_batch_is_small() -> None:
    off = {"flash_attention": "off"}
    assert plan(context=32_768, args=off, gpu="l4-24gb").args["num_batch"] == 512
    assert plan(context=32_768, args=off).args["num_batch"] == 1024
    assert plan(context=32_768, args={"num_batch": 64}).args["num_batch"] == 64


def test_contradictions() -> None:
    with pytest.raises(UsageError, match="num_ctx is 4096, and the context 8192"):
        plan(context=8192, args={"num_ctx": 4096})
    with pytest.raises(UsageError, match="no setting 'kv_unified'"):
        plan(args={"kv_unified": True})
    with pytest.raises(UsageError, match="largest that fits"):
        plan(context=-1)


def test_capacity_is_llamacpps_under_the_same_flags() -> None:
    metadata = {"general.architecture": "gemma3"} | {f"gemma3.{key}": value for key, value in GEMMA.items()}
    found = get_engine("ollama").capacity(read_metadata(metadata), Workload(context=4096), 2**31)
    assert found is not None
    assert found.fits
    assert found.tokens == 131_072


@pytest.mark.parametrize(
    ("card", "command", "code", "said"),
    [
        (["--gpu", "rtx4090-24gb", "--weight-dtype", "q4_k_m"], "ollama serve", 0, "fits: 1 sequence of 32,768 (32k) tokens"),
        (["--kv-memory", "1GiB"], "OLLAMA_CONTEXT_LENGTH=1048576 ollama serve", 1, "DOES NOT FIT: 1 sequence of 131,072 (128k) tokens"),
    ],
)
def test_a_launch_is_gated_by_the_context_in_force(
    card: list[str], command: str, code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = asking(capsys, monkeypatch)("launch", "--model", "gemma-3-27b", *card, "--require", "--", *command.split())
    assert answer.code == code
    assert answer.out.startswith(said)
