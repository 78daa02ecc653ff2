"""What holds for every model: growth, the ideal as a floor, capacity in memory, and a plan that fits the memory it takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from pool_engines import GIB, TENSORRT, Asked
from vllm_models import deepseek_v3, gemma3, gpt_oss, llama, nemotron_nano, qwen3_next

from kvcalc.engines.ideal.engine import Ideal
from kvcalc.sources import load

ASKED = Asked(TENSORRT)
PLAIN = {"llama": llama(), "gemma": gemma3(12, 4, 128), "gpt-oss": gpt_oss(), "deepseek": deepseek_v3(), "glm": load("glm-5.2")}
#: Gated DeltaNet's matrices are kept in the model's type, where the ideal takes fp32: below it for short contexts.
HYBRIDS = {"qwen": qwen3_next(), "nemotron": nemotron_nano()}
EVERY = PLAIN | HYBRIDS | {"v4": load("deepseek-v4-flash"), "gemma-4": load("gemma-4-31b")}

contexts = st.integers(min_value=1, max_value=60_000)
counts = st.integers(min_value=1, max_value=40)


@given(st.sampled_from(sorted(EVERY)), contexts, contexts, counts, counts)
def test_longer_and_more_never_take_less(name: str, short: int, more: int, few: int, further: int) -> None:
    small = ASKED.plan(EVERY[name], short, sequences=few)
    large = ASKED.plan(EVERY[name], short + more, sequences=few + further)
    assert small.per_device <= large.per_device
    assert small.per_sequence <= large.per_sequence
    assert small.per_token == large.per_token


@given(st.sampled_from(sorted(PLAIN)), contexts, counts, st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_never_below_the_ideal(name: str, context: int, sequences: int, ranks: int, windows: bool) -> None:
    """Also with windows as long as the layers' own."""
    question = {"max_attention_window": [128, 10**6]} if windows and name == "gpt-oss" else {}
    asked = ASKED.workload(context, {"sequences": sequences, "tensor_parallel": ranks, **question})
    ideal = Ideal().plan(PLAIN[name], ASKED.workload(context, {"sequences": sequences, "tensor_parallel": ranks}))
    assert TENSORRT.plan(PLAIN[name], asked).per_device >= ideal.per_device


@given(st.sampled_from(sorted(EVERY)), st.integers(GIB, 80 * GIB), st.integers(1, 20 * GIB), contexts, counts)
def test_more_memory_never_holds_less(name: str, memory: int, more: int, context: int, sequences: int) -> None:
    small, large = (ASKED.capacity(EVERY[name], size, context, sequences=sequences) for size in (memory, memory + more))
    assert small.tokens is not None
    assert large.tokens is not None
    assert small.tokens <= large.tokens
    assert small.fits <= large.fits


@given(st.sampled_from(sorted(EVERY)), st.integers(GIB, 80 * GIB), contexts, counts)
def test_shorter_and_fewer_fit_as_well(name: str, memory: int, context: int, sequences: int) -> None:
    fitting = TENSORRT.fitting(EVERY[name], ASKED.workload(context, {}), memory)
    if fitting.admits(context, sequences):
        assert fitting.admits(max(1, context // 2), sequences)
        assert fitting.admits(context, max(1, sequences // 2))


@given(st.sampled_from(["deepseek", "glm", "gpt-oss", "llama"]), contexts, counts, st.sampled_from([1, 2]))
def test_a_plan_fits_exactly_the_memory_that_it_takes(name: str, context: int, sequences: int, stages: int) -> None:
    """With one pool, to the byte: also where window layers take their blocks from it."""
    question = {"sequences": sequences, "pipeline_parallel": stages, "free_gpu_memory_fraction": 1.0}
    found = ASKED.plan(EVERY[name], context, **{key: value for key, value in question.items() if key != "free_gpu_memory_fraction"})
    assert ASKED.capacity(EVERY[name], found.per_device, context, **question).fits
    assert not ASKED.capacity(EVERY[name], found.per_device - 1, context, **question).fits
