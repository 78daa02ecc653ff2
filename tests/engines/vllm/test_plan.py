"""The plan's lines: what each byte is spent on, and that they add up for any model."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vllm_models import (
    DEEPSEEK,
    GPT_OSS,
    INDEX,
    LLAMA_HEADS,
    MAMBA,
    NEMOTRON,
    NEXT,
    NEXT_HEADS,
    deepseek_v3,
    gemma3,
    gpt_oss,
    llama,
    model,
    plan,
    qwen3_next,
    uniform,
)

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.states import Chunked, Full, Latent, Nothing, Shared, Sliding
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan


def sizes(found: Plan) -> dict[tuple[str, str], int]:
    """Bytes by state and buffer."""
    counts: Counter[tuple[str, str]] = Counter()
    for line in found.lines:
        counts[line.state, line.buffer] += line.bytes
    return dict(counts)


def test_plain_attention_is_keys_values_and_rounding() -> None:
    found = plan(llama(), context=1000, sequences=2)
    assert sizes(found) == {
        ("full", "key"): 32 * 1000 * 2 * 8 * 128 * 2,
        ("full", "value"): 32 * 1000 * 2 * 8 * 128 * 2,
        ("full", "block_rounding"): 32 * (2 * 63 * 16 - 2000) * 8 * 256 * 2,
    }
    assert found.total == found.per_device == 2 * found.per_sequence == 2 * 63 * 2_097_152
    assert (found.per_token, found.fixed) == (131_072, 0)


def test_the_next_token_takes_a_block_or_nothing() -> None:
    assert plan(llama(), context=1008).growth_per_token == 2_097_152
    assert plan(llama(), context=1007).growth_per_token == 0


def test_replicated_heads() -> None:
    """8 heads on 16 GPUs: twice."""
    heads = uniform(4, Full(kv_heads=8, query_heads=64, head_dim=128))
    found = sizes(plan(heads, context=1600, tensor_parallel=16))
    assert found["full", "replication"] == found["full", "key"] + found["full", "value"] == 4 * 1600 * 8 * 256 * 2


def test_replicated_latents() -> None:
    found = plan(deepseek_v3(), context=1600, tensor_parallel=8)
    assert sizes(found) == {("latent", "latent"): 61 * 1600 * 1152, ("latent", "replication"): 7 * 61 * 1600 * 1152}
    assert (found.per_device, found.total, found.per_token) == (61 * 1600 * 1152, 8 * 61 * 1600 * 1152, 70_272)


def test_decode_context_parallelism_holds_fewer_copies() -> None:
    found = plan(deepseek_v3(), context=1600, tensor_parallel=8, decode_context_parallel=8)
    assert sizes(found) == {("latent", "latent"): 61 * 1600 * 1152, ("latent", "block_rounding"): 61 * (13 * 16 - 200) * 1152 * 8}


def test_a_sliding_model_pays_for_tokens_in_flight_and_for_narrow_groups() -> None:
    """Gemma-3-27B: 52 windows of 1,024, 16,383 tokens more in flight, 8 empty places of 60."""
    found = plan(gemma3(62, 16, 128), context=131072)
    row = 16 * 256 * 2
    blocks = -(-(1023 + 16384) // 16) + 1
    assert sizes(found) == {
        ("sliding", "key"): 52 * 1024 * row // 2,
        ("sliding", "value"): 52 * 1024 * row // 2,
        ("sliding", "in_flight"): 52 * (1023 + 16384 - 1024) * row,
        ("sliding", "block_rounding"): 52 * (blocks * 16 - 1023 - 16384) * row,
        ("full", "key"): 10 * 131072 * row // 2,
        ("full", "value"): 10 * 131072 * row // 2,
        ("padding", "group"): (4 * blocks + 2 * 2 * blocks) * 16 * row,
    }
    assert found.total == (6 * blocks + 8192) * 1_310_720


def test_a_hybrid_pays_for_copies_and_padded_states() -> None:
    """Qwen3-Next: one state, two more for prefix caching; pages of 1,097,728 B in 1,179,648 B; 262,144 tokens in blocks of 576."""
    found = plan(qwen3_next(), context=262144)
    assert sizes(found) == {
        ("gated_deltanet", "conv"): 36 * 3 * 8192 * 2,
        ("gated_deltanet", "recurrent"): 36 * 32 * 128 * 128 * 2,
        ("gated_deltanet", "copies"): 36 * 2 * 1_097_728,
        ("padding", "page"): 36 * 3 * (1_179_648 - 1_097_728),
        ("full", "key"): 12 * 262144 * 2 * 256 * 2,
        ("full", "value"): 12 * 262144 * 2 * 256 * 2,
        ("full", "block_rounding"): 12 * (456 * 576 - 262144) * 2048,
    }
    assert found.fixed == 3 * 3 * 14_155_776
    assert found.per_device == 465 * 14_155_776


def test_a_single_group_of_one_kv_group_is_repeated() -> None:
    granite = uniform(2, replace(NEMOTRON, groups=1), LLAMA_HEADS, family="granitemoehybrid")
    assert sizes(plan(granite, context=10, tensor_parallel=4))["mamba2", "replication"] == 2 * 3 * (2 * 3 * 128) * 2


def test_a_shared_prefix_is_stored_once_in_full_attention() -> None:
    """1,000 tokens are 62 whole blocks: three sequences of 4,096 share them, windows share nothing."""
    alone, together = plan(llama(), context=4096, sequences=3), plan(llama(), context=4096, sequences=3, shared_prefix=1000)
    assert alone.total - together.total == 2 * 62 * 2_097_152
    off = plan(llama(), context=4096, sequences=3, shared_prefix=1000, args={"enable_prefix_caching": False})
    assert (off.total, off.warnings) == (alone.total, ("prefix caching is off, so no prefix is shared",))
    window = uniform(4, GPT_OSS[0])
    assert plan(window, context=4096, sequences=3, shared_prefix=1000).total == plan(window, context=4096, sequences=3).total


def test_layers_that_read_another_layers_cache_cost_nothing() -> None:
    shared = model(["f", "s", "n"], 3, {"f": LLAMA_HEADS, "s": Shared(shares_with=0), "n": Nothing()})
    assert plan(shared, context=160).per_device == 160 * 4096


def test_pipeline_stages_hold_their_own_layers() -> None:
    found = plan(uniform(5, LLAMA_HEADS), context=160, pipeline_parallel=2)
    assert (found.per_device, found.total) == (3 * 160 * 4096, 5 * 160 * 4096)


def test_latents_that_vllm_expands() -> None:
    """MiniCPM3: no MLA in vLLM, 40 heads of 64 + 32 for K and for V."""
    latent = Latent(latent_dim=256, rope_dim=32, query_heads=40, nope_dim=64, value_head_dim=64)
    assert plan(uniform(62, latent, family="minicpm3"), context=160).per_device == 62 * 160 * 40 * (96 + 96) * 2


def test_a_window_one_wider() -> None:
    cohere = uniform(4, Sliding(window=4096, kv_heads=8, query_heads=32, head_dim=128), family="cohere2")
    mistral = uniform(4, Sliding(window=4096, kv_heads=8, query_heads=32, head_dim=128), family="mistral")
    args = {"max_num_batched_tokens": 17, "async_scheduling": False}
    assert plan(cohere, context=10**5, args=args).per_sequence - plan(mistral, context=10**5, args=args).per_sequence == 4 * 16 * 4096


def test_notes_say_what_was_assumed() -> None:
    found = plan(gpt_oss(), gpu=None, context=4096)
    assert "no GPU given: vLLM's defaults for an API server on h100-80gb" in found.notes
    assert any(note.startswith("2 groups of layers (12, 12) draw from one pool") for note in found.notes)


@pytest.mark.parametrize("found", [gpt_oss(), qwen3_next(), deepseek_v3(), gemma3(26, 1, 256)])
def test_formulas_are_sentences_with_numbers(found: Architecture) -> None:
    lines = plan(found, context=32768, tensor_parallel=1, sequences=2).lines
    assert all(line.formula and line.bytes for line in lines)
    assert len(lines) == len({(line.state, line.buffer, line.width, line.format, line.slots) for line in lines})


# --- properties ------------------------------------------------------------------------------------------------------------------

heads = st.builds(
    lambda kv, times, dim: {"kv_heads": kv, "query_heads": kv * times, "head_dim": dim},
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([64, 96, 128, 256]),
)
attention = st.one_of(
    heads.map(lambda h: Full(**h)),
    st.builds(lambda h, w: Sliding(window=w, **h), heads, st.sampled_from([128, 1024, 4096])),
    st.builds(lambda h, c: Chunked(chunk=c, **h), heads, st.sampled_from([2048, 8192])),
)
recurrent = st.sampled_from([NEXT, MAMBA, NEMOTRON])
latents = st.sampled_from([(DEEPSEEK,), (DEEPSEEK, INDEX), (NEXT, DEEPSEEK), (NEXT, NEXT_HEADS), (NEMOTRON, LLAMA_HEADS)])
architectures = st.one_of(
    st.builds(lambda states, count: _turns(states, count, "deepseek_v3"), st.lists(attention, min_size=1, max_size=3), st.integers(1, 40)),
    st.builds(lambda states, count: _turns(list(states), count, "kimi_linear"), latents, st.integers(2, 30)),
    st.builds(lambda a, r, count: _turns([r, a], count, "qwen3_next"), heads.map(lambda h: Full(**h)), recurrent, st.integers(2, 30)),
)
questions = st.fixed_dictionaries(
    {
        "context": st.integers(1, 200_000),
        "sequences": st.integers(1, 5),
        "tensor_parallel": st.sampled_from([1, 2, 4]),
        "pipeline_parallel": st.sampled_from([1, 2]),
        "gpu": st.sampled_from(["h100-80gb", "a100-80gb", "b200-180gb"]),
        "kv_dtype": st.sampled_from(["auto", "fp8"]),
        "shared_prefix": st.just(0),
        "args": st.fixed_dictionaries({"enable_prefix_caching": st.booleans(), "async_scheduling": st.booleans()}),
    }
)


def _turns(states: list[Any], count: int, family: str) -> Architecture:
    names = [f"s{n}" for n in range(len(states))]
    return (
        model(names, count, dict(zip(names, states, strict=True)) if count >= len(names) else {names[0]: states[0]}, family)
        if count >= len(names)
        else model(names[:count], count, dict(zip(names[:count], states[:count], strict=True)), family)
    )


def planned(architecture: Architecture, question: dict[str, Any]) -> Plan | None:
    """The plan, or None where vLLM refuses."""
    try:
        return plan(architecture, **question)
    except EngineRejectsError:
        return None


@given(architectures, questions)
def test_lines_add_up_to_every_device(architecture: Architecture, question: dict[str, Any]) -> None:
    found = planned(architecture, question)
    if found is None:
        return
    devices = question["tensor_parallel"] * question["pipeline_parallel"]
    one, most = planned(architecture, question | {"sequences": 1}), question["sequences"]
    assert one is not None
    assert one.total == found.per_sequence <= found.total <= most * found.per_sequence
    two = plan(architecture, **(question | {"sequences": 2})).total - one.total
    assert found.total == one.total + (most - 1) * two
    assert found.total <= devices * found.per_device
    if question["pipeline_parallel"] == 1:
        assert found.total == devices * found.per_device
    assert found.per_device <= found.total


@given(architectures, questions)
def test_never_below_the_mathematics(architecture: Architecture, question: dict[str, Any]) -> None:
    found = planned(architecture, question)
    if found is None or any(state.is_recurrent for state in architecture.states):
        return  # vLLM keeps recurrent matrices in the model's type, the mathematics in fp32
    workload = Workload(**{key: question[key] for key in ("context", "sequences", "tensor_parallel", "pipeline_parallel", "kv_dtype")})
    assert found.total >= get_engine("ideal").plan(architecture, workload).total


@given(architectures, questions)
def test_never_less_for_a_longer_context(architecture: Architecture, question: dict[str, Any]) -> None:
    found = planned(architecture, question)
    if found is None:
        return
    longer = plan(architecture, **(question | {"context": question["context"] + 1}))
    assert longer.per_device >= found.per_device
    assert longer.per_sequence - found.per_sequence == found.growth_per_token
