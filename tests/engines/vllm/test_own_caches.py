"""Families with caches of their own against vLLM 0.33 itself: tests/cases/vllm_own.jsonl says how its figures were obtained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from vllm_models import ENGINE, GIB, fitting, model, plan, uniform

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Fixed, Full, Index, Latent, ShortConv, Sliding
from kvcalc.core.traits import Traits
from kvcalc.core.workload import Workload
from kvcalc.questions.set_fields import override
from kvcalc.sources.hf.reader import read_config
from kvcalc.sources.resolve import resolve

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

CASES = [json.loads(line) for line in (Path(__file__).parents[2] / "cases" / "vllm_own.jsonl").read_text().splitlines()[1:]]
QUESTION = ("gpu", "kv_dtype", "context", "tensor_parallel", "pipeline_parallel", "decode_context_parallel", "engine_args")


def named(model_id: str) -> Architecture:
    """A model of the catalogue."""
    return resolve(model_id)


def asked(case: dict[str, Any]) -> tuple[Architecture, Workload]:
    """The model and the question of one case."""
    architecture = override(named(case["model"]), case.get("set", {})) if "model" in case else read_config(case["config"])
    traits = replace(architecture.traits, **dict.fromkeys(case.get("without", ())))
    architecture = replace(architecture, traits=traits)
    return architecture, Workload(**{name: case[name] for name in QUESTION})


@pytest.mark.parametrize("case", [case for case in CASES if "vllm" in case])
def test_the_pool_of_blocks(case: dict[str, Any]) -> None:
    architecture, workload = asked(case)
    found, theirs, context = ENGINE.fitting(architecture, workload, case["memory"]), case["vllm"], case["context"]
    pool, capacity = found.pool, found.capacity(case["context"])
    assert (pool.block_size, list(pool.stages)) == (theirs["block_size"], theirs["block_bytes"])
    assert sorted(pool.group_blocks(context)) == sorted(theirs["per_group"])
    assert capacity.fits is theirs["fits"]
    if theirs["fits"]:
        assert (capacity.blocks, capacity.tokens) == (theirs["blocks"], theirs["tokens"])


@pytest.mark.parametrize("case", [case for case in CASES if "vllm" in case])
def test_the_lines_add_up_to_the_blocks(case: dict[str, Any]) -> None:
    architecture, workload = asked(case)
    found = ENGINE.plan(architecture, workload)
    whole = sum(case["vllm"]["per_group"]) * sum(case["vllm"]["block_bytes"]) * case["tensor_parallel"]
    assert found.total == found.per_sequence == whole
    assert all(line.bytes > 0 for line in found.lines)


@pytest.mark.parametrize("case", [case for case in CASES if "refused" in case])
def test_what_vllm_refuses(case: dict[str, Any]) -> None:
    architecture, workload = asked(case)
    with pytest.raises((EngineRejectsError, UnsupportedArchitectureError)):
        ENGINE.plan(architecture, workload)


# --- by hand ---------------------------------------------------------------------------------------------------------------------


def test_minimax_m3_has_one_table_for_attention_and_index_keys() -> None:
    """A block of 128: 60 layers of 4 heads, and 57 index keys of 128 in bf16; no block is padded."""
    block = 60 * 128 * 4 * 2 * 128 * 2 + 57 * 128 * 128 * 2
    found = plan(named("minimax-m3"), context=131_072)
    assert found.total == 131_072 // 128 * block == 18_018_729_984
    assert {line.buffer for line in found.lines} == {"key", "value", "index"}


def test_minimax_m3_copies_its_index_keys_to_every_gpu() -> None:
    found = fitting(named("minimax-m3"), 60 * GIB, tensor_parallel=8)
    assert found.pool.block_bytes == 60 * 128 * 1 * 2 * 128 * 2 + 57 * 128 * 128 * 2


def test_kimi_k3_holds_a_state_more_where_flash_kda_hands_one_out() -> None:
    """A state of 3 x 36,864 / 8 in bf16 and 12 x 128 x 128 in fp32 needs ⌈814,080 / (128 x 1,152)⌉ = 6 times 128 tokens."""
    assert 3 * 4_608 * 2 + 12 * 128 * 128 * 4 == 814_080
    pools = {gpu: fitting(named("kimi-k3"), 60 * GIB, gpu=gpu, tensor_parallel=8).pool for gpu in ("h100-80gb", "a100-80gb")}
    assert all((pool.block_size, pool.block_bytes) == (768, 24 * 768 * 576 * 2) for pool in pools.values())
    assert pools["h100-80gb"].group_blocks(1_048_576) == (3, 3, 3, 1_366)
    assert pools["a100-80gb"].group_blocks(1_048_576) == (2, 2, 2, 1_366)


def test_kimi_linear_hands_out_none() -> None:
    found = replace(named("kimi-k3"), class_name="KimiLinearForCausalLM", traits=Traits())
    assert fitting(found, 60 * GIB, tensor_parallel=8).pool.group_blocks(1_048_576) == (2, 2, 2, 1_366)


def test_qwen4_keeps_a_ring_beside_its_compressed_keys() -> None:
    """1,600 tokens of K and V in two heads of 256 and a key of 128 for every four of them, in 12 layers; logs print 1,600 too."""
    pool = fitting(named("qwen3.8-flash-next"), 60 * GIB).pool
    assert (pool.block_size, pool.block_bytes) == (1_600, 12 * 1_600 * (2 * 2 * 256 * 2 + 128 * 2 // 4))
    ring = next(group for group in pool.groups if group.specs[0].kind == "ring")
    # Images have positions of their own: three int64 beside each key.
    assert (len(ring.layers), ring.specs[0].block, ring.specs[0].row) == (12, 4, 128 * 2 + 3 * 8)


def test_qwen4_holds_every_row_that_a_step_of_drafts_writes() -> None:
    args = {"speculative_method": "mtp", "num_speculative_tokens": 3}
    found = named("qwen3.8-flash-next")
    ring = next(group for group in fitting(found, 60 * GIB, args=args).pool.groups if group.specs[0].kind == "ring")
    assert (len(ring.layers), ring.specs[0].block) == (13, 8)


def test_glm5_next_pools_its_index_keys() -> None:
    """Blocks of 4 x 32 x 9 tokens, as logs print them; 11 layers of a latent of 512 and a key of 132 B for 4 tokens."""
    pool = fitting(named("glm-5.3-flash"), 60 * GIB, tensor_parallel=4).pool
    bare = 11 * (1_152 * 512 * 2 + 1_152 // 4 * 132)
    assert (pool.block_size, pool.block_bytes) == (1_152, -(-bare // 33_792) * 33_792)


@pytest.mark.parametrize(("gpu", "stored", "size"), [("h100-80gb", "bf16", 1_152), ("b200-180gb", "fp8", 2_176)])
def test_glm5_next_is_stored_as_fp8_on_blackwell(gpu: str, stored: str, size: int) -> None:
    found = plan(named("glm-5.3-flash"), context=1_024, gpu=gpu, tensor_parallel=4)
    assert (found.kv_dtype, found.args["block_size"]) == (stored, size)


def test_deepseek_v41_on_hopper_keeps_the_rows_of_v4() -> None:
    """A block of 64: 32 rows for two tokens each, or 64; the widest group is eight pages of sources and their keys."""
    pool = fitting(named("deepseek-v4.1-flash"), 60 * GIB, tensor_parallel=8).pool
    two, one = -(-32 * 584 // 576) * 576 + -(-32 * 132 // 576) * 576, -(-64 * 584 // 576) * 576 + -(-64 * 132 // 576) * 576
    assert (pool.block_size, pool.block_bytes) == (64, 3 * two + one)
    assert [group.specs[0].kind for group in pool.groups].count("sliding_mla") == 7


def test_deepseek_v41_on_blackwell_compresses_to_nvfp4() -> None:
    """Rows of 528, compressed ones of 288, and blocks a multiple of both apart."""
    specs = {spec for group in fitting(named("deepseek-v4.1-flash"), 60 * GIB, gpu="b200-180gb").pool.groups for spec in group.kinds}
    assert {spec.row for spec in specs if spec.role == ""} == {528, 288}
    assert {spec.stride for spec in specs if spec.kind == "sliding_mla"} == {528 * 288 // 48}


def test_a_ring_is_a_fixed_cost() -> None:
    found = plan(named("deepseek-v4.1-flash"), context=131_072)
    ring = [line for line in found.lines if line.buffer == "ring"]
    assert [(line.layers, line.slots, line.fixed) for line in ring] == [(3, 8, True)]
    assert found.fixed == found.per_device // sum(fitting(named("deepseek-v4.1-flash"), GIB).pool.group_blocks(131_072))


def test_inkling_keeps_its_convolutions_as_pages_of_a_window() -> None:
    """2 x 128 + 2 x 1,536 / 4 = 1,024 elements a head and token, a window and blocks of four of them."""
    convolutions = [ShortConv(channels=channels, conv_kernel=4) for channels in (512, 512, 1_536, 1_536)]
    found = uniform(6, Full(kv_heads=4, query_heads=12, head_dim=128), *convolutions, family="inkling_text")
    pool = fitting(found, GIB, tensor_parallel=2).pool
    conv = next(group.specs[0] for group in pool.groups if group.specs[0].role == "conv")
    # A page of 4 tokens of 2 x 1,024 elements in bf16 is as large as one of 16 tokens of K and V: nothing has to be raised.
    assert (conv.row, conv.block, conv.limit, conv.page) == (2 * 1_024 * 2, 4, 4, 16 * 2 * 2 * 128 * 2)
    assert pool.block_bytes == 6 * conv.page
    with pytest.raises(EngineRejectsError, match="8 is more than the 4 KV heads"):
        fitting(uniform(6, Full(kv_heads=4, head_dim=128), *convolutions, family="inkling_text"), GIB, tensor_parallel=8)


def test_windows_of_inkling_and_of_its_convolutions_do_not_unite() -> None:
    """vLLM 0.33: "All attention layers in the same KV cache group must have the same window size"."""
    convolutions = [ShortConv(channels=channels, conv_kernel=4) for channels in (512, 512, 1_536, 1_536)]
    layers = {"w": (Sliding(window=512, kv_heads=4, head_dim=128), *convolutions), "f": (Full(kv_heads=4, head_dim=128), *convolutions)}
    with pytest.raises(EngineRejectsError, match="different windows in one group"):
        fitting(model(["w*5", "f"], 12, layers, "inkling_text"), GIB, args={"disable_hybrid_kv_cache_manager": True})


def test_dots3_note_pads_its_rows_to_those_of_its_windows() -> None:
    """A sparse layer of 512 + 64 takes the 1,024 + 64 of a window."""
    window = Latent(latent_dim=1_024, rope_dim=64, query_heads=64, window=512)
    sparse = (Latent(latent_dim=512, rope_dim=64, query_heads=128, nope_dim=128), Index(index_dim=128, format="fp32"))
    found = model(["sparse", "window*3"], 8, {"sparse": sparse, "window": window}, "dots3_note_text")
    specs = {spec for group in fitting(found, GIB).pool.groups for spec in group.kinds}
    assert {(spec.row, spec.format, spec.role) for spec in specs} == {(1_088 * 2, "bf16", ""), (132, "index_fp8", "index")}
    with pytest.raises(UnsupportedArchitectureError, match="on Hopper"):
        fitting(found, GIB, gpu="b200-180gb")
    with pytest.raises(EngineRejectsError, match="windows of latents have no form"):
        fitting(found, GIB, args={"disable_hybrid_kv_cache_manager": True})


def test_draft_layers_without_a_rule_are_named() -> None:
    convolutions = [ShortConv(channels=channels, conv_kernel=4) for channels in (512, 512, 1_536, 1_536)]
    found = uniform(6, Full(kv_heads=4, head_dim=128), *convolutions, family="inkling_text")
    with pytest.raises(UnsupportedArchitectureError, match="does not know the draft layers"):
        plan(found, context=64, args={"speculative_method": "mtp"})


def test_zaya_runs_without_the_states_of_its_convolutions() -> None:
    states = (Full(kv_heads=2, query_heads=8, head_dim=128), Fixed(name="cca_conv", elements=2_560), Fixed(name="cca_value", elements=128))
    found = plan(uniform(40, *states, family="zaya"), context=1_024)
    assert found.total == 40 * 1_024 * 2 * 2 * 128 * 2
    assert any("Transformers backend" in note for note in found.notes)


@pytest.mark.parametrize(
    ("model_id", "question", "text"),
    [
        ("kimi-k3", {"tensor_parallel": 8}, "gate_lower_bound"),
        ("deepseek-v4.1-flash", {"gpu": "b200-180gb"}, "8 groups of 8 heads"),
    ],
)
def test_what_is_assumed_is_said(model_id: str, question: dict[str, Any], text: str) -> None:
    assert any(text in note for note in plan(named(model_id), context=4_096, **question).notes)


def test_a_type_that_the_config_does_not_say() -> None:
    found = named("qwen3.8-flash-next")
    silent = replace(found, traits=Traits(outer_model_type="qwen4_exp", is_multimodal=True))
    assert any("does not say mamba_ssm_dtype" in note for note in plan(silent, context=4_096).notes)


@pytest.mark.parametrize(
    ("model_id", "question"),
    [
        ("kimi-k3", {"tensor_parallel": 8, "args": {"enable_prefix_caching": False}}),
        ("qwen3.8-flash-next", {}),
        ("deepseek-v4.1-flash", {"gpu": "h100-80gb"}),
    ],
)
def test_what_is_not_assumed_is_not_said(model_id: str, question: dict[str, Any]) -> None:
    assert not any(
        "assumed:" in note or "gate" in note or "ssm_dtype" in note for note in plan(named(model_id), context=4_096, **question).notes
    )


@pytest.mark.parametrize("model_id", ["minimax-m3", "kimi-k3", "qwen3.8-flash-next", "glm-5.3-flash", "deepseek-v4.1-flash"])
def test_what_fits_is_the_longest_that_is_admitted(model_id: str) -> None:
    found = fitting(named(model_id), 3 * GIB, tensor_parallel=8)
    low, high = 1, 8 * 1024 * 1024
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if found.admits(middle, 1) else (low, middle - 1)
    assert found.admits(low, 1)
    assert not found.admits(low + 1, 1)
