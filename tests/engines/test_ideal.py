"""The ideal engine: sums of rows, splits over devices, shared prefixes; and the properties that hold for any model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.states import Compressed, Full, GatedDeltaNet, Index, Latent, Mamba2, Sliding, State
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.sources.schema import read

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan

GQA = Full(kv_heads=8, query_heads=32, head_dim=128)
WINDOW = Sliding(kv_heads=8, query_heads=32, head_dim=128, window=1024)
MLA = Latent(latent_dim=512, rope_dim=64)
NET = GatedDeltaNet(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
ROW = 8 * (128 + 128) * 2


def model(*states: State, count: int = 4, **fields: object) -> Architecture:
    names = [f"s{n}" for n in range(len(states))]
    layout = read(Layout, {"pattern": names, "count": count, "states": {n: [s] for n, s in zip(names, states, strict=True)}})
    return read(Architecture, {"id": "m", "family": "test", "dtype": "bfloat16", "layers": layout} | fields)


def plan(architecture: Architecture, **question: object) -> Plan:
    return get_engine("ideal").plan(architecture, Workload(**question))  # type: ignore[arg-type]


def test_a_window_stops_growing() -> None:
    found = plan(model(GQA, WINDOW), context=4096)
    assert found.total == 2 * 4096 * ROW + 2 * 1024 * ROW
    assert found.per_token == 4 * ROW
    assert found.growth_per_token == 2 * ROW
    assert found.fixed == 0
    assert plan(model(GQA, WINDOW), context=1023).growth_per_token == 4 * ROW


def test_fixed_states_do_not_grow() -> None:
    state = 32 * 128 * 128 * 4 + 3 * 8192 * 2
    found = plan(model(NET, count=3), context=10, sequences=5)
    assert (found.fixed, found.per_sequence, found.total, found.growth_per_token) == (3 * state, 3 * state, 15 * state, 0)


@pytest.mark.parametrize(("ranks", "heads_a_rank"), [(2, 4), (8, 1), (16, 1), (32, 1)])
def test_heads_divide_down_to_one_a_rank(ranks: int, heads_a_rank: int) -> None:
    found = plan(model(GQA), context=100, tensor_parallel=ranks)
    assert found.per_device == 4 * 100 * heads_a_rank * 256 * 2
    assert found.total == ranks * found.per_device


def test_latents_and_index_keys_stand_on_every_rank() -> None:
    found = plan(model(MLA, Index(index_dim=128)), context=10, tensor_parallel=8)
    assert found.per_device == 2 * 10 * (1152 + 132)
    assert found.total == 8 * found.per_device


def test_recurrent_heads_and_channels_divide() -> None:
    found = plan(model(NET), context=10, tensor_parallel=4)
    assert found.per_device == 4 * (8 * 128 * 128 * 4 + 3 * 2048 * 2)
    assert found.total == plan(model(NET), context=10).total


@pytest.mark.parametrize(
    ("state", "ranks"), [(GQA, 3), (GQA, 12), (NET, 3), (NET, 64), (Mamba2(heads=6, head_dim=4, state_dim=2, conv_kernel=4), 4)]
)
def test_a_split_that_is_impossible_is_refused(state: State, ranks: int) -> None:
    with pytest.raises(EngineRejectsError, match=f"tensor parallel size {ranks}"):
        plan(model(state), context=10, tensor_parallel=ranks)


def test_pipeline_stages_cut_the_layers_in_order() -> None:
    eighty = plan(model(GQA, count=80), context=10, pipeline_parallel=3)
    assert eighty.per_device == 27 * 10 * ROW
    assert eighty.total == 80 * 10 * ROW
    with pytest.raises(EngineRejectsError, match="more than the model's 4 layers"):
        plan(model(GQA), context=10, pipeline_parallel=5)


def test_decode_context_parallel_spreads_tokens_over_copies() -> None:
    found = plan(model(MLA), context=101, tensor_parallel=8, decode_context_parallel=4)
    assert found.per_device == 4 * 26 * 1152  # ceil(101 / 4)
    assert plan(model(GQA), context=100, tensor_parallel=16, decode_context_parallel=2).per_device == 4 * 50 * 512
    with pytest.raises(EngineRejectsError, match="needs 2 copies"):
        plan(model(GQA), context=100, tensor_parallel=8, decode_context_parallel=2)
    with pytest.raises(EngineRejectsError, match="does not divide"):
        plan(model(MLA), context=100, tensor_parallel=8, decode_context_parallel=3)


def test_a_shared_prefix_is_stored_once() -> None:
    full = plan(model(GQA), context=1000, sequences=100, shared_prefix=600)
    assert full.total == (600 + 100 * 400) * 4 * ROW
    window = plan(model(WINDOW), context=1500, sequences=10, shared_prefix=1000)  # 500 own, 524 of the window lie in the prefix
    assert window.total == (524 + 10 * 500) * 4 * ROW
    compressed = plan(model(Compressed(latent_dim=512, ratio=4)), context=402, sequences=3, shared_prefix=201)
    assert compressed.total == (50 + 3 * 50) * 4 * 1024


def test_formats_of_key_and_value_apart() -> None:
    found = plan(model(GQA), context=10, kv_dtype="q8_0/q4_0")
    assert found.total == 4 * 10 * 8 * (128 // 32 * 34 + 128 // 32 * 18)
    assert found.kv_dtype == "q8_0/q4_0"
    with pytest.raises(UsageError, match="80 is not a multiple of 32"):
        plan(model(Full(kv_heads=1, head_dim=80)), context=10, kv_dtype="q8_0")


def test_the_cache_format_does_not_touch_index_keys_and_states() -> None:
    found = plan(model(Index(index_dim=128), NET), context=10, kv_dtype="fp8")
    assert found.total == plan(model(Index(index_dim=128), NET), context=10).total


def test_assumptions_are_said() -> None:
    silent = model(GQA, dtype=None, max_context=4096, assumptions=("head_dim from the class default",))
    found = plan(silent)
    assert found.context == 4096
    assert found.notes == (
        "head_dim from the class default",
        "context defaulted to the model's maximum, 4,096 tokens",
        "the config does not say its dtype: bf16 assumed",
    )
    assert plan(silent, context=4097).warnings == ("context 4,097 is beyond the 4,096 tokens that the model was trained for",)
    with pytest.raises(UsageError, match="maximum context"):
        plan(model(GQA))


def test_ideal_has_no_settings() -> None:
    with pytest.raises(UsageError, match="no setting 'block_size'"):
        plan(model(GQA), context=10, engine_args={"block-size": 16})


STATES = st.lists(
    st.sampled_from([GQA, WINDOW, MLA, NET, Index(index_dim=128, ratio=4), Compressed(latent_dim=64, ratio=128)]),
    min_size=1,
    max_size=4,
    unique=True,
)


@given(STATES, st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 9))
def test_properties(states: list[State], context: int, more: int, sequences: int) -> None:
    architecture = model(*states, count=7)
    one, many = plan(architecture, context=context), plan(architecture, context=context, sequences=sequences)
    longer = plan(architecture, context=context + more)
    assert many.total == sum(line.bytes for line in many.lines) == sequences * one.total == sequences * many.per_sequence
    assert longer.total >= one.total
    assert plan(architecture, context=context + 1).total - one.total == one.growth_per_token
    assert one.fixed <= one.total


@given(STATES, st.integers(1, 5000), st.integers(1, 9), st.integers(0, 5000))
def test_a_prefix_never_costs(states: list[State], context: int, sequences: int, prefix: int) -> None:
    architecture = model(*states, count=5)
    shared = plan(architecture, context=context, sequences=sequences, shared_prefix=min(prefix, context))
    assert plan(architecture, context=context).total <= shared.total <= plan(architecture, context=context, sequences=sequences).total
