"""`cache_implementation=paged`: worked figures, and the answers of the library's own class on models of families that are in no other file.

tests/cases/transformers_paged.jsonl holds what transformers 5.24's PagedAttentionCache said on the meta device
(tools/measure/transformers_paged.py, with only the reading of the device's memory replaced).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from vllm_models import deepseek_v3, llama, model, qwen3_next, uniform

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.states import Full, Sliding
from kvcalc.core.workload import Workload
from kvcalc.engines.transformers.engine import Transformers
from kvcalc.questions.fit import fit
from kvcalc.questions.request import parse_request
from kvcalc.sources.hf.families import read_family

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "transformers_paged.jsonl").read_text().splitlines()]
ENGINE = Transformers()
GIB = 2**30


def asked(context: int | None = 4096, sequences: int = 1, **settings: Any) -> Workload:
    return Workload(context=context, sequences=sequences, engine_args={"cache_implementation": "paged", **settings})


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_blocks_are_those_of_the_library(case: dict[str, Any]) -> None:
    architecture = read_family(case["config"], model_id=case["id"])
    question, answer = asked(None, **case["settings"]), case["answer"]
    if "error" in answer and answer["error"] != "MemoryError":
        with pytest.raises(EngineRejectsError):
            ENGINE.capacity(architecture, question, case["free"])
        return
    found = ENGINE.capacity(architecture, question, case["free"])
    assert found is not None
    assert found.blocks == answer.get("blocks", 0), case["source"]
    if "error" in answer:
        assert not found.fits


def test_pages_in_sectors_of_one_tensor() -> None:
    """32 layers x K and V of 8 x 128 x 256 tokens in bf16: pages of 1 MiB, blocks and sectors of 32 MiB; two sectors for nobody."""
    found = ENGINE.plan(llama(traits={"vocab_size": 128_256}, hidden_dim=4096), asked(4000, sequences=3))
    assert found.per_device == found.total == (3 * 16 + 2) * 32 * 2**20
    sizes = {(line.state, line.buffer): line.bytes for line in found.lines}
    assert sizes["full", "key"] == sizes["full", "value"] == 3 * 32 * 4000 * 8 * 128 * 2
    assert sizes["padding", "page"] == 3 * 96 * 131_072
    assert sizes["padding", "trash"] == found.fixed == 64 * 2**20
    assert found.per_token == 131_072
    assert found.args["page_size"] == 256


def test_a_ring_of_pages_for_a_window() -> None:
    """Gemma 3 with 10 full and 52 sliding layers of 1,024: a sector is lcm(10, 52) = 260 pages, 26 blocks of one and 5 of the other."""
    heads = {"kv_heads": 16, "query_heads": 32, "head_dim": 128}
    states = {"w": Sliding(window=1024, **heads), "f": Full(**heads)}
    gemma3 = model(["w*5", "f"], 62, states, "gemma3_text", traits={"vocab_size": 262_208}, hidden_dim=5376)
    found = ENGINE.plan(gemma3, asked(32_768))
    page = 2 * 16 * 128 * 2 * 256
    full, windows = -(-128 * 10 // 260), -(-4 * 52 // 260)
    assert (full, windows) == (5, 1)
    assert found.total == (full + windows + 2) * 260 * page
    assert {line.slots for line in found.lines if line.state == "sliding"} == {1024}


def test_the_memory_solver() -> None:
    """One layer of 1 head x 128, sdpa, 10 GiB: every line of the class's own arithmetic."""
    tiny = uniform(1, Full(kv_heads=1, query_heads=2, head_dim=128), traits={"vocab_size": 1000}, hidden_dim=256)
    sector = 2 * 128 * 2 * 256
    heads = 2 * 2 + 1
    token = 2 * (256 + 2 * 128 + 2 * 128 + heads * 128) + (32 + 32 * 4 + 16)
    price = sector + 256 * (heads * 128 * 2 + 8)
    left = int(10 * GIB * 0.9) - 2 * sector - 1024 * (256 * 2 + 1000 * 4) - 8192 * token
    sectors = left // price
    mask = 2 * 8192 * (sectors * 256 + 8192)
    sectors -= -(-mask // (price + 2 * 8192 * 256))
    found = ENGINE.capacity(tiny, asked(), 10 * GIB)
    assert found is not None
    assert (found.blocks, found.tokens, found.block_bytes, found.block_size) == (sectors, sectors * 256, sector, 256)


def test_fit_is_the_inverse() -> None:
    request = parse_request(
        {
            "command": "fit",
            "model": {"hf_config": {"model_type": "olmoe", "dtype": "bfloat16"}},
            "engine": "transformers",
            "engine_args": {"cache_implementation": "paged"},
            "context": 4096,
            "kv_memory": 40 * GIB,
        }
    )
    found = fit(request)
    assert found.max_sequences is not None
    assert found.needed is not None
    architecture = found.architecture
    for sequences, fits in ((found.max_sequences, True), (found.max_sequences + 1, False)):
        capacity = ENGINE.capacity(architecture, asked(sequences=sequences), 40 * GIB)
        assert capacity is not None
        assert capacity.fits is fits
    for memory, fits in ((found.needed, True), (found.needed - 1, False)):
        capacity = ENGINE.capacity(architecture, asked(), memory)
        assert capacity is not None
        assert capacity.fits is fits


def test_blocks_that_are_asked_for_are_there() -> None:
    small = llama(traits={"vocab_size": 128_256}, hidden_dim=4096)
    found = ENGINE.plan(small, asked(4096, num_blocks=100))
    assert found.total == 102 * 32 * 2**20
    assert found.growth_per_token == 0
    too_little = ENGINE.capacity(small, asked(4096, num_blocks=100), 2 * GIB)
    assert too_little is not None
    assert not too_little.fits
    assert "MemoryError" in too_little.warnings[0]


def test_more_requests_than_run_at_once() -> None:
    small = llama(traits={"vocab_size": 128_256}, hidden_dim=4096)
    found = ENGINE.capacity(small, asked(256, sequences=9, max_requests_per_batch=8), 140 * GIB)
    assert found is not None
    assert not found.fits
    assert "9 requests are more than max_requests_per_batch" in found.warnings[0]


def test_what_it_does_not_page() -> None:
    for architecture in (deepseek_v3(), qwen3_next()):
        with pytest.raises(EngineRejectsError, match="generate_batch pages layers of full and sliding attention"):
            ENGINE.plan(architecture, asked())
    mixed = {"a": Full(kv_heads=2, query_heads=4, head_dim=64), "b": Full(kv_heads=4, query_heads=4, head_dim=64)}
    with pytest.raises(EngineRejectsError, match="one shape for all layers"):
        ENGINE.plan(model(["a", "b"], 4, mixed, "llama", traits={"vocab_size": 10}, hidden_dim=64), asked())
    with pytest.raises(EngineRejectsError, match=r"5\.24 only"):
        ENGINE.plan(llama(), asked(version="5.20"))
    with pytest.raises(UsageError, match=r"hidden_dim and traits\.vocab_size"):
        ENGINE.capacity(llama(), asked(), 40 * GIB)
    assert ENGINE.plan(llama(), asked()).total == (16 + 2) * 32 * 2**20
    with pytest.raises(UsageError, match="page_size means nothing to the dynamic cache"):
        ENGINE.plan(llama(), Workload(context=4096, engine_args={"page_size": 64}))
