"""ExLlamaV3's rules one by one: pages, slots, what is refused, and what fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines.exllamav3.classes import CLASSES
from kvcalc.engines.exllamav3.engine import ExllamaV3
from kvcalc.questions.estimate import estimate
from kvcalc.questions.fit import fit
from kvcalc.questions.request import parse_request
from kvcalc.sources import load
from kvcalc.sources.hf.reader import read_config

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan

ENGINE = ExllamaV3()
LLAMA_PAGE = 32 * 256 * 1024 * 4
NEXT = "qwen3-next-80b-a3b"


def plan(model: str, context: int = 4096, sequences: int = 1, pipeline: int = 1, **args: Any) -> Plan:
    """The plan of a catalogue model."""
    workload = Workload(context=context, sequences=sequences, pipeline_parallel=pipeline, engine_args=args)
    found = ENGINE.plan(load(model), workload)
    assert sum(line.bytes for line in found.lines) == found.total
    return found


def test_the_pool_is_whole_pages_for_all_sequences() -> None:
    assert plan("llama-3.1-8b", 257).total == 2 * LLAMA_PAGE
    assert plan("llama-3.1-8b", 257, 2).total == 3 * LLAMA_PAGE  # 514 tokens
    assert plan("llama-3.1-8b", 257, max_num_tokens=8192).total == 32 * LLAMA_PAGE
    assert plan("llama-3.1-8b", 257).per_sequence == 2 * LLAMA_PAGE


def test_two_sequences_that_share_no_page_are_said_to_wait() -> None:
    assert "holds 1 sequences of 257 at once" in " ".join(plan("llama-3.1-8b", 257, 2).warnings)
    assert "too small for a sequence" in " ".join(plan("llama-3.1-8b", 1024, max_num_tokens=512).warnings)


def test_the_next_token_takes_a_page_where_one_is_full() -> None:
    assert plan("llama-3.1-8b", 256).growth_per_token == LLAMA_PAGE
    assert plan("llama-3.1-8b", 255).growth_per_token == 0
    assert plan("llama-3.1-8b", 256, max_num_tokens=512).growth_per_token == 0
    assert plan("llama-3.1-8b").per_token == LLAMA_PAGE // 256


def test_slots_are_there_whatever_the_length() -> None:
    one, many = plan(NEXT, max_batch_size=1), plan(NEXT, max_batch_size=8)
    assert many.total - one.total == 7 * one.fixed
    assert plan(NEXT, 8192, max_batch_size=1).fixed == one.fixed
    assert "8 slots (max_batch_size)" in " ".join(many.notes)
    assert "the others wait" in " ".join(plan(NEXT, 256, 9, max_batch_size=8).warnings)


def test_rings_and_masks() -> None:
    # 7 x 2 of gemma-3-27b's layers and every layer of Mistral keep full pages; gpt-oss has rings of 768 rows.
    assert "only a mask" in " ".join(plan("mistral-7b-v0.1").notes)
    assert {line.slots for line in plan("gpt-oss-20b", 8192).lines if line.state == "sliding"} == {768}
    assert plan("gpt-oss-20b", 8192, swa_full=True).total == 24 * 8192 * 512 * 4


def test_bits_change_pages_only() -> None:
    for model in (NEXT, "gpt-oss-20b", "deepseek-v4-flash"):
        assert plan(model, k_bits=4, v_bits=4).fixed == plan(model).fixed


def test_layers_over_cards() -> None:
    halves = plan("llama-3.1-8b", 8192, pipeline=2)
    assert halves.per_device * 2 == halves.total == plan("llama-3.1-8b", 8192).total
    with pytest.raises(EngineRejectsError, match="one card"):
        ENGINE.plan(load("llama-3.1-8b"), Workload(context=256, tensor_parallel=2))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"max_num_tokens": 1000}, "must be a multiple of 256"),
        ({"k_bits": 4}, "together"),
        ({"k_bits": 4, "v_bits": 9}, "from 2 to 8 bits"),
        ({"k_bits": 1, "v_bits": 4}, "from 2 to 8 bits"),
        ({"recurrent_dtype": "bfloat16"}, "float32 or float16"),
    ],
)
@pytest.mark.parametrize("memory", [None, 2**30])
def test_a_setting_that_the_engine_refuses(args: dict[str, Any], said: str, memory: int | None) -> None:
    request = parse_request({"model": NEXT, "engine": "exllamav3", "context": 256, "engine_args": args, "kv_memory": memory})
    with pytest.raises(EngineRejectsError, match=said):
        estimate(request) if memory is None else fit(request)


@pytest.mark.parametrize(("kv_dtype", "ok"), [("auto", True), ("fp16", True), ("bf16", False), ("fp8", False), ("int4", False)])
def test_formats(kv_dtype: str, *, ok: bool) -> None:
    workload = Workload(context=256, kv_dtype=kv_dtype)
    if ok:
        assert ENGINE.plan(load("llama-3.1-8b"), workload).kv_dtype == "fp16"
    else:
        with pytest.raises(EngineRejectsError, match="caches in fp16"):
            ENGINE.plan(load("llama-3.1-8b"), workload)


def test_two_words_for_one_cache() -> None:
    with pytest.raises(EngineRejectsError, match="name two caches"):
        ENGINE.plan(load("llama-3.1-8b"), Workload(context=256, kv_dtype="fp16", engine_args={"k_bits": 4, "v_bits": 4}))


def test_numbers_out_of_range_are_named() -> None:
    for args in ({"max_batch_size": 0}, {"max_history": -1}, {"max_num_tokens": 0}, {"max_batch": 4}):
        with pytest.raises(UsageError):
            ENGINE.plan(load("llama-3.1-8b"), Workload(context=256, engine_args=args))


def test_an_architecture_without_a_row() -> None:
    for model in ("mamba-2.8b", "llama-4-scout-17b-16e", "deepseek-v3.2", "kimi-k2.5", "opt-125m"):
        architecture = load(model)
        assert not ENGINE.knows(architecture.family, architecture.class_name)
        with pytest.raises(UnsupportedArchitectureError, match="has no such"):
            ENGINE.plan(architecture, Workload(context=256))


def test_a_model_without_a_class_goes_by_its_family() -> None:
    architecture = replace(load("llama-3.1-8b"), class_name="")
    assert ENGINE.plan(architecture, Workload(context=256)).total == LLAMA_PAGE
    assert len({row.name for row in CLASSES}) == len(CLASSES)
    families = [family for row in CLASSES for family in row.families]
    assert len(set(families)) == len(families)


@pytest.mark.parametrize(
    ("model", "field"),
    [("deepseek-v3", "n_group = 8"), ("gemma-4-e2b", "hidden_size_per_layer_input = 256"), ("glm-5.1", "without indexer_types")],
)
def test_a_released_model_that_does_not_load(model: str, field: str) -> None:
    with pytest.raises(EngineRejectsError, match=field):
        plan(model)
    assert plan({"deepseek-v3": "kimi-k2", "gemma-4-e2b": "gemma-4-12b", "glm-5.1": "glm-5.2"}[model]).total > 0


def test_every_class_holds_its_asserts() -> None:
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "num_attention_heads": 2,
    }
    assert ENGINE.plan(read_config(config), Workload(context=256)).total == 2 * 256 * 256 * 4
    with pytest.raises(EngineRejectsError, match="hidden_act = 'gelu'"):
        ENGINE.plan(read_config({**config, "hidden_act": "gelu"}), Workload(context=256))


def test_what_fits() -> None:
    request = parse_request({"model": "llama-3.1-8b", "engine": "exllamav3", "context": 8192, "kv_memory": 10 * LLAMA_PAGE * 32})
    found = fit(request)
    assert (found.fits, found.max_sequences, found.capacity.blocks, found.capacity.tokens) == (True, 10, 320, 81_920)
    assert found.needed == 32 * LLAMA_PAGE


def test_slots_come_before_pages() -> None:
    fixed = plan(NEXT).fixed
    request = parse_request({"model": NEXT, "engine": "exllamav3", "context": 4096, "kv_memory": 16 * fixed - 1})
    assert not fit(request).fits
    fewer = replace(request, workload=replace(request.workload, engine_args={"max_batch_size": 4}))
    assert fit(fewer).fits
    assert fit(fewer).max_sequences == 4
    assert fit(fewer).capacity.state_slots == 4


def test_a_pool_that_is_given_is_all_there_is() -> None:
    question = {"model": "llama-3.1-8b", "engine": "exllamav3", "context": 8192, "engine_args": {"max_num_tokens": 16_384}}
    found = fit(parse_request({**question, "kv_memory": 2**40}))
    assert (found.max_sequences, found.capacity.tokens) == (2, 16_384)
    assert not fit(parse_request({**question, "kv_memory": 64 * LLAMA_PAGE - 1})).fits
