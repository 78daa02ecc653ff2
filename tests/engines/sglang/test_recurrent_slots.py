"""Slots of recurrent state: what one costs, how many there are, and what speculation adds. Figures are worked out in the test."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from pool_engines import GIB, SGLANG, Asked, sizes
from vllm_models import MAMBA, model, nemotron_nano, qwen3_next, uniform

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Full, Kda, Latent, Lightning, Mamba2, Rwkv, ShortConv
from kvcalc.core.traits import Traits
from kvcalc.questions.set_fields import override
from kvcalc.sources import load

ASKED = Asked(SGLANG)
#: Qwen3-Next: 36 layers x (3 columns of 8,192 in bf16 + 32 heads of 128 x 128 in fp32), and 12 layers of 2 heads of 256.
SLOT = 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 4)
CELL = 12 * 2 * 512 * 2


def test_a_slot_and_its_pad() -> None:
    """Qwen3-Next with prefixes: 3 slots and 2 tracking buffers a request, one pad slot in all; pages of 1 token."""
    assert SLOT == 77_266_944
    found = ASKED.plan(qwen3_next(), 8192)
    assert found.per_device == 8193 * CELL + (5 + 1) * SLOT
    assert found.fixed == 5 * SLOT
    assert sizes(found)["padding", "slot"] == SLOT
    assert found.args["mamba_radix_cache_strategy"] == "extra_buffer"


@pytest.mark.parametrize(
    ("settings", "slots"),
    [
        ({}, 5),
        ({"disable_overlap_schedule": True}, 3),
        ({"mamba_radix_cache_strategy": "no_buffer"}, 3),
        ({"mamba_radix_cache_strategy": "extra_buffer_lazy"}, 4),
        ({"mamba_radix_cache_strategy": "extra_buffer", "disable_overlap_schedule": True}, 4),
        ({"disable_radix_cache": True}, 1),
    ],
)
def test_slots_of_a_request(settings: dict[str, object], slots: int) -> None:
    found = ASKED.plan(qwen3_next(), 8192, sequences=2, **settings)
    assert found.per_device == (2 * 8192 + 1) * CELL + (2 * slots + 1) * SLOT


def test_memory_is_split_before_tokens_are_counted() -> None:
    """0.9 / 1.9 of the memory to slots, less one for the pad; tokens from the rest."""
    memory = 40 * GIB
    slots = int((memory * 0.9 / 1.9 - SLOT) // SLOT)
    found = ASKED.capacity(qwen3_next(), memory)
    assert found.state_slots == slots
    assert found.tokens is not None
    assert abs(found.tokens - (memory - (slots + 1) * SLOT) // CELL) <= 1  # SLOT's GiB are counted in floating point
    assert found.concurrency == slots // 5
    small = ASKED.capacity(qwen3_next(), memory, mamba_full_memory_ratio=0.3)
    assert small.state_slots == int((memory * 0.3 / 1.3 - SLOT) // SLOT)


def test_slots_as_they_are_asked_for() -> None:
    found = ASKED.capacity(qwen3_next(), 40 * GIB, max_mamba_cache_size=60)
    assert (found.state_slots, found.concurrency) == (60, 12)
    plain = ASKED.capacity(qwen3_next(), 40 * GIB, disable_radix_cache=True, max_running_requests=32)
    assert (plain.state_slots, plain.concurrency) == (32, 32)
    plan = ASKED.plan(qwen3_next(), 8192, sequences=3, max_mamba_cache_size=10)
    assert plan.per_device == (3 * 8192 + 1) * CELL + (10 + 1) * SLOT
    assert any("10 slots of recurrent state serve 2 of 3 sequences" in warning for warning in plan.warnings)
    groups = ASKED.capacity(qwen3_next(), 40 * GIB, max_mamba_cache_size=60, tensor_parallel=2, attn_dp_size=2)
    assert groups.state_slots == 30


def test_too_little_for_a_slot() -> None:
    found = ASKED.capacity(qwen3_next(), SLOT)
    assert (found.fits, found.tokens) == (False, 0)
    assert "does not hold a slot" in found.warnings[0]
    starved = ASKED.capacity(qwen3_next(), 61 * SLOT, max_mamba_cache_size=60)
    assert "nothing is left for tokens" in starved.warnings[0]


def test_the_type_of_the_matrices() -> None:
    """fp32 by default; the flag, else the config where the class reads it, says otherwise. Columns stay in bf16."""
    half = 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 2)
    assert ASKED.plan(qwen3_next(), 8192, mamba_ssm_dtype="bfloat16").fixed == 5 * half
    declared = Mamba2(heads=128, head_dim=80, state_dim=128, groups=8, conv_kernel=4, state_dtype="bf16")
    heads = Full(kv_heads=8, head_dim=128)
    nemotron = model(["m", "a"], 4, {"m": declared, "a": heads}, "nemotron_h", max_context=65_536)
    assert ASKED.plan(nemotron, 8192).fixed == 5 * 2 * (3 * (10_240 + 2 * 8 * 128) * 2 + 128 * 80 * 128 * 2)
    granite = model(["m", "a"], 4, {"m": declared, "a": heads}, "granitemoehybrid", max_context=65_536)
    assert ASKED.plan(granite, 8192).fixed == 5 * 2 * (3 * 12_288 * 2 + 128 * 80 * 128 * 4)


def test_a_mamba_hybrid() -> None:
    """Nemotron-Nano-9B-v2: 27 Mamba-2 layers, 4 with attention."""
    slot = 27 * (3 * (10_240 + 2 * 8 * 128) * 2 + 128 * 80 * 128 * 4)
    found = ASKED.plan(nemotron_nano(), 32_768, sequences=2)
    assert found.per_device == (2 * 32_768 + 1) * 4 * 8 * 256 * 2 + (2 * 5 + 1) * slot
    assert found.per_token == 4 * 8 * 256 * 2


def test_ranks_divide_heads_and_repeat_groups() -> None:
    """16 ranks: 8 heads of 128 each; 8 groups are repeated to 16, so that each rank has one."""
    slot = 27 * (3 * (10_240 + 2 * 16 * 128) // 16 * 2 + 128 // 16 * 80 * 128 * 4)
    assert ASKED.plan(nemotron_nano(query_heads=48), 32_768, tensor_parallel=16).fixed == 5 * slot * 16
    with pytest.raises(EngineRejectsError, match="cannot split"):
        ASKED.plan(nemotron_nano(query_heads=48), 32_768, tensor_parallel=3)
    with pytest.raises(EngineRejectsError, match="cannot split the 40 query heads"):
        ASKED.plan(nemotron_nano(), 32_768, tensor_parallel=16)


def test_the_stage_with_most_recurrent_layers_sets_the_price() -> None:
    """Qwen3-Next on 2 stages: 18 of 36 layers each."""
    found = ASKED.capacity(qwen3_next(), 40 * GIB, pipeline_parallel=2)
    per_stage = SLOT // 2
    assert found.state_slots == int((40 * GIB * 0.9 / 1.9 - per_stage) // per_stage)


def test_speculation_keeps_the_state_after_each_draft() -> None:
    """3 draft tokens: 3 matrices a request, and 3 + 3 - 1 columns, for the requests and one more."""
    found = ASKED.plan(qwen3_next(), 8192, disable_radix_cache=True, max_running_requests=2, speculative_num_draft_tokens=3)
    kept = 36 * (5 * 8192 * 2 + 3 * 32 * 128 * 128 * 4)
    assert found.per_device == 8193 * CELL + (2 + 1) * SLOT + (2 + 1) * kept
    assert sizes(found)["gated_deltanet", "recurrent of drafts"] == 2 * 36 * 3 * 32 * 128 * 128 * 4


def test_delta_attention_with_latents() -> None:
    """Kimi Linear: KDA layers, and latents on the others; each draft keeps whole windows of columns."""
    states = {"k": Kda(heads=32, head_dim=128, conv_kernel=4), "l": Latent(latent_dim=512, rope_dim=64)}
    kimi = model(["k*3", "l"], 8, states, "kimi_linear", max_context=65_536)
    slot = 6 * (3 * 12_288 * 2 + 32 * 128 * 128 * 4)
    assert ASKED.plan(kimi, 8192).per_device == 8193 * 2 * 1152 + 6 * slot
    drafted = ASKED.plan(kimi, 8192, disable_radix_cache=True, max_running_requests=1, speculative_num_draft_tokens=2)
    assert drafted.per_device == 8193 * 2 * 1152 + 2 * slot + 2 * 6 * (2 * 3 * 12_288 * 2 + 2 * 32 * 128 * 128 * 4)


def test_other_mixers() -> None:
    heads = Full(kv_heads=8, head_dim=64)
    lfm = model(["c*2", "a"], 6, {"c": ShortConv(channels=2048, conv_kernel=3), "a": heads}, "lfm2", max_context=65_536)
    assert ASKED.plan(lfm, 8192).fixed == 3 * 4 * 2 * 2048 * 2
    ling = model(["l*2", "a"], 6, {"l": Lightning(heads=16, head_dim=128), "a": heads}, "bailing_hybrid", max_context=65_536)
    ling = replace(ling, class_name="BailingMoeV2_5ForCausalLM")
    assert ASKED.plan(ling, 8192).fixed == 5 * 4 * 16 * 128 * 128 * 4


def test_state_alone() -> None:
    """Mamba without attention: slots of 5,120 x 16 in fp32 and 3 columns; tokens cost nothing."""
    mamba = uniform(64, MAMBA, family="mamba", max_context=65_536)
    slot = 64 * (5120 * 16 * 4 + 3 * 5120 * 2)
    found = ASKED.plan(mamba, 8192, sequences=2)
    assert found.per_token == 0
    assert found.per_device == found.fixed * 2 + slot
    assert ASKED.capacity(mamba, 4 * GIB).state_slots == int((4 * GIB * 0.9 / 1.9 - slot) // slot)


def test_no_slot_no_server() -> None:
    """A slot and its pad are 2 x 64 x (5,120 x 16 x 4 + 3 x 5,120 x 2) B; the state takes 0.9 / 1.9 of the memory."""
    mamba = uniform(64, MAMBA, family="mamba", max_context=65_536)
    slot = 64 * (5120 * 16 * 4 + 3 * 5120 * 2)
    least = math.ceil(Fraction(2 * slot * 19, 9))
    assert ASKED.capacity(mamba, least + 1).state_slots == 1
    for memory in (least - 1, least - slot):
        found = ASKED.capacity(mamba, memory)
        assert (found.fits, found.tokens) == (False, 0)
        assert "does not hold a slot of recurrent state" in found.warnings[0]


def test_tokens_that_cost_nothing_are_as_many_as_the_context() -> None:
    mamba = uniform(64, MAMBA, family="mamba", max_context=65_536)
    assert ASKED.capacity(mamba, 4 * GIB, 8192).tokens == 8192
    assert ASKED.capacity(mamba, 4 * GIB, 8192, max_total_tokens=5000).tokens == 5000


def test_a_stage_without_attention_does_not_decide() -> None:
    """Two stages: four layers of state, and four of attention whose 2 x 8 x 64 x 2 B a token decide for both."""
    states = {"m": Mamba2(heads=8, head_dim=64, state_dim=128, conv_kernel=4), "a": Full(kv_heads=8, head_dim=64)}
    hybrid = model(["m*4", "a*4"], 8, states, "nemotron_h", max_context=65_536)
    asked = {"pipeline_parallel": 2, "max_mamba_cache_size": 100}
    found = ASKED.capacity(hybrid, GIB, **asked)
    slot = 4 * (8 * 64 * 128 * 4 + 3 * (512 + 256) * 2)
    assert found.tokens == (GIB - 101 * slot) // (4 * 2 * 8 * 64 * 2)


def test_state_of_n_gram_embeddings() -> None:
    """Qwen4-exp: beside the slots of Gated DeltaNet, the inputs of a convolution and two token ids a slot, which the budget leaves out."""
    qwen = load("qwen3.8-flash-next")
    slot = 36 * (3 * 10_240 * 2 + 48 * 128 * 128 * 4)
    found = ASKED.plan(qwen, 8192)
    assert sizes(found)["fixed", "ngram_conv"] == 5 * 9 * 10_240 * 2
    assert sizes(found)["fixed", "ngram_ids"] == 5 * 2 * 8
    assert sizes(found)["index", "open groups"] == 12 * 4 * 128 * 2 + 4 * 3 * 8
    assert sizes(found)["index", "index"] == 8192 // 4 * 12 * 128 * 2
    assert found.args["page_size"] == 64
    capacity = ASKED.capacity(qwen, 40 * GIB)
    assert capacity.state_slots == int((40 * GIB * 0.9 / 1.9 - slot) // slot)


def test_mixers_without_a_pool_are_refused() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="no recurrent model of class"):
        ASKED.plan(uniform(4, Rwkv(heads=8, head_dim=64, hidden_dim=512), family="zaya", max_context=8192), 4096)
    with pytest.raises(UnsupportedArchitectureError, match="no pool for states of kind 'rwkv'"):
        ASKED.plan(uniform(4, Rwkv(heads=8, head_dim=64, hidden_dim=512), family="mamba", max_context=8192), 4096)


def test_strategies_and_pages_that_a_model_cannot_have() -> None:
    heads = Full(kv_heads=8, head_dim=64)
    lfm = model(["c*2", "a"], 6, {"c": ShortConv(channels=2048, conv_kernel=3), "a": heads}, "lfm2", max_context=65_536)
    with pytest.raises(EngineRejectsError, match="does not support mamba_radix_cache_strategy extra_buffer"):
        ASKED.plan(lfm, 4096, mamba_radix_cache_strategy="extra_buffer")
    with pytest.raises(EngineRejectsError, match="serves pages of 1 token, not 16"):
        ASKED.plan(qwen3_next(), 4096, page_size=16, mamba_radix_cache_strategy="no_buffer")
    with pytest.raises(EngineRejectsError, match="does not divide the 256 tokens"):
        ASKED.plan(qwen3_next(), 4096, page_size=96)


def test_four_bits_beside_recurrent_layers() -> None:
    """Kimi Linear: the budget counts 324 B for a latent of 576 elements, and the pool holds a byte for each."""
    states = {"k": Kda(heads=32, head_dim=128, conv_kernel=4), "l": Latent(latent_dim=512, rope_dim=64)}
    kimi = model(["k*3", "l"], 8, states, "kimi_linear", max_context=65_536)
    asked = {"kv_dtype": "fp4_mx_block16", "attention_backend": "flashinfer", "max_mamba_cache_size": 5}
    slot = 6 * (3 * 12_288 * 2 + 32 * 128 * 128 * 4)
    assert ASKED.plan(kimi, 8192, **asked).per_device == 8193 * 2 * 576 + 6 * slot
    found = ASKED.capacity(kimi, GIB + 6 * slot, **asked)
    assert found.tokens is not None
    assert abs(found.tokens - GIB // (2 * 324)) <= 1


def test_pages_must_fill_the_tokens_between_two_snapshots() -> None:
    """GLM-5.3-Flash pools 4 index keys: pages of 64 x 4 tokens. With 16, 1,024, and validate_mamba_extra_buffer asserts 256 % 1024 == 0."""
    glm = load("glm-5.3-flash")
    assert ASKED.plan(glm, 4096).args["page_size"] == 256
    pooled = override(glm, {"pool": "16"})
    with pytest.raises(EngineRejectsError, match="page size 1024 does not divide the 256 tokens"):
        ASKED.plan(pooled, 4096)
    assert ASKED.plan(pooled, 4096, mamba_track_interval=1024).args["page_size"] == 1024


def test_ling_comes_in_whole_groups() -> None:
    """models/bailing_moe_v3.py asserts num_layers % layer_group_size == 0."""
    whole = load("ling-3.0-flash")
    assert ASKED.plan(whole, 4096).per_device > 0
    with pytest.raises(EngineRejectsError, match="2 of its 42 layers are left over"):
        ASKED.plan(replace(whole, traits=Traits(incomplete_group=2)), 4096)


def test_ling_without_a_rotary_part() -> None:
    """use_mla_nope: rows of 512 elements, not 576 (_derive_model_shapes); the config says no dtype, so fp16."""
    ling = load("ling-3.0-flash")
    bare = replace(ling, traits=Traits(use_mla_nope=True))
    rows = [sizes(ASKED.plan(found, 4096))["latent", "latent"] for found in (ling, bare)]
    assert rows == [4096 * 7 * 576 * 2, 4096 * 7 * 512 * 2]
