"""`cache_implementation` static and quantized: reserved rows, packed bytes, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.states import Compressed, Full, Index, Latent, Nothing, Shared, ShortConv, Sliding, State
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.sources.schema import read

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan

#: One layer of 2 heads x 128: 1,024 B a token in bf16.
SMALL = Full(kv_heads=2, head_dim=128)
TOKEN = 2 * 2 * 128 * 2


def model(*layers: State | tuple[State, ...], **fields: object) -> Architecture:
    states = {f"s{n}": list(kept) if isinstance(kept, tuple) else [kept] for n, kept in enumerate(layers)}
    layout = read(Layout, {"pattern": list(states), "count": len(layers), "states": states})
    return read(Architecture, {"id": "m", "family": "llama", "dtype": "bfloat16", "layers": layout} | fields)


def static(architecture: Architecture, context: int, length: int | None = None, **question: Any) -> Plan:
    args = {"cache_implementation": "static"} | ({} if length is None else {"max_cache_len": length})
    return get_engine("transformers").plan(architecture, Workload(context=context, engine_args=args, **question))


def quantized(context: int, architecture: Architecture | None = None, sequences: int = 1, **args: Any) -> Plan:
    workload = Workload(context=context, sequences=sequences, engine_args={"cache_implementation": "quantized", **args})
    return get_engine("transformers").plan(architecture or model(SMALL), workload)


# Static.


def test_a_static_cache_reserves_its_length() -> None:
    found = static(model(SMALL), 100, 4096, sequences=2)
    assert (found.total, found.fixed, found.growth_per_token) == (2 * 4096 * TOKEN, 4096 * TOKEN, 0)


def test_a_static_window_reserves_the_window_at_most() -> None:
    window = model(Sliding(window=11, kv_heads=2, head_dim=128))
    assert static(window, 8, 4096).total == 11 * TOKEN
    assert static(window, 8, 8).total == 8 * TOKEN
    assert static(window, 100, 8).total == 8 * TOKEN
    assert static(model(Sliding(window=1, kv_heads=2, head_dim=128)), 100).total == TOKEN


def test_a_static_cache_reserves_index_keys_and_leaves_recurrent_states() -> None:
    layers = model((SMALL, Index(index_dim=32)), ShortConv(channels=10, conv_kernel=3))
    assert static(layers, 8, 64).total == 64 * (TOKEN + 32 * 2) + 10 * 3 * 2


def test_a_position_history_grows_beside_static_layers() -> None:
    """Qwen4: index keys are reserved, the three int64 positions a token are not (measured)."""
    layer = model((SMALL, Index(index_dim=32)), family="qwen4_exp_text")
    assert static(layer, 8, 64).total == 64 * (TOKEN + 32 * 2) + 8 * 3 * 8


def test_the_length_defaults_to_the_context() -> None:
    found = static(model(SMALL), 100)
    assert (found.total, found.growth_per_token) == (100 * TOKEN, TOKEN)
    assert any("max_cache_len" in note for note in found.notes)


def test_a_context_beyond_the_length_is_refused() -> None:
    with pytest.raises(EngineRejectsError, match="max_cache_len 99"):
        static(model(SMALL), 100, 99)


def test_compressed_attention_has_no_static_layer() -> None:
    window = Latent(latent_dim=24, rope_dim=8, window=11)
    with pytest.raises(EngineRejectsError, match="no static layer"):
        static(model((window, Compressed(latent_dim=32, ratio=4)), family="deepseek_v4"), 8)


def test_layers_that_reserve_by_their_prefill() -> None:
    with pytest.raises(EngineRejectsError, match="prefill"):
        static(model(SMALL, family="unlimited_ocr_text"), 8)


# Quantized. The table is measured on the library's own layers: 256 tokens, then 1, 127 and 128 decode steps.


@pytest.mark.parametrize(
    ("args", "measured"),
    [
        ({}, (73_728, 74_752, 203_776, 110_592)),
        ({"backend": "quanto", "q_group_size": 32}, (81_920, 82_944, 211_968, 122_880)),
        ({"nbits": 2}, (40_960, 41_984, 171_008, 61_440)),
        ({"backend": "hqq", "nbits": 8}, (139_264, 140_288, 269_312, 208_896)),
        ({"backend": "hqq"}, (73_728, 74_752, 203_776, 110_592)),
        ({"backend": "hqq", "nbits": 2}, (40_960, 41_984, 171_008, 61_440)),
        ({"backend": "hqq", "nbits": 1}, (24_576, 25_600, 154_624, 36_864)),
        ({"backend": "fp8"}, (131_080, 131_592, 196_104, 196_616)),
    ],
)
def test_quantized_bytes_as_measured(args: dict[str, Any], measured: tuple[int, ...]) -> None:
    found = [quantized(256 + steps, decode_steps=steps, **args).total for steps in (0, 1, 127, 128)]
    assert tuple(found) == measured


def test_what_a_step_adds_and_what_a_token_takes() -> None:
    found = quantized(256)
    assert found.growth_per_token == 1_024
    assert found.per_token == 512 // 2 + 512 // 64 * 4 == 288
    assert quantized(256, backend="fp8").growth_per_token == 512
    assert quantized(256 + 127, decode_steps=127).growth_per_token == 110_592 - 203_776


def test_lines_name_packed_scales_and_waiting() -> None:
    found = quantized(257, decode_steps=1)
    assert [(line.buffer, line.bytes) for line in found.lines] == [
        ("key", 256 * 256 // 2),
        ("key scales", 256 * 256 // 64 * 4),
        ("key waiting", 512),
        ("value", 256 * 256 // 2),
        ("value scales", 256 * 256 // 64 * 4),
        ("value waiting", 512),
    ]
    assert (found.kv_dtype, found.lines[0].format, found.lines[2].format) == ("quanto_int4", "quanto_int4", "bf16")
    assert any("prefill of 256 tokens and 1 decode steps" in note for note in found.notes)


def test_scales_follow_the_type_of_the_model() -> None:
    assert quantized(256, model(SMALL, dtype="float32")).total == 2 * (32_768 + 1_024 * 8)


def test_fp8_scales_are_one_for_all_sequences() -> None:
    assert quantized(256, sequences=3, backend="fp8").total == 3 * 131_072 + 8


def test_latents_are_quantised_too() -> None:
    mla = model(Latent(latent_dim=512, rope_dim=64))
    assert quantized(64, mla).total == 64 * 576 // 2 + 64 * 576 // 64 * 4


def test_an_odd_number_of_groups_fills_half_a_byte() -> None:
    """65 tokens of 1 x 64: 65 groups of 64; quanto packs pairs of groups, 33 rows of 64 bytes."""
    odd = model(Full(kv_heads=1, head_dim=64))
    assert quantized(65, odd).total == 2 * (33 * 64 + 65 * 4)


def test_quanto_refuses_channels_that_groups_do_not_divide() -> None:
    """250 tokens x 2 heads = 500 elements share a position of the last axis; 500 is no multiple of 64."""
    assert quantized(250).total == 2 * (250 * 256 // 2 + 1_000 * 4)
    with pytest.raises(EngineRejectsError, match="along axis -1"):
        quantized(250, axis_key=-1)
    with pytest.raises(EngineRejectsError, match="value"):
        quantized(250, axis_value=-1)


def test_the_groups_must_divide_at_every_flush() -> None:
    """axis -1: 32 tokens x 2 heads fill a group; after 3 more, 35 x 2 do not."""
    args: dict[str, Any] = {"axis_key": -1, "axis_value": -1, "residual_length": 3}
    assert quantized(32, **args).total
    assert quantized(34, decode_steps=2, **args).total
    with pytest.raises(EngineRejectsError, match="35"):
        quantized(35, decode_steps=3, **args)


def test_hqq_packs_whole_bytes() -> None:
    odd = model(Full(kv_heads=1, head_dim=64))
    assert quantized(65, odd, backend="hqq").total == 2 * (65 * 64 // 2 + 65 * 4)
    with pytest.raises(EngineRejectsError, match="axis 1"):
        quantized(65, odd, backend="hqq", axis_key=1)


@pytest.mark.parametrize("length", [0, 1])
def test_nothing_waits_for_a_residual_of_one(length: int) -> None:
    assert quantized(260, decode_steps=4, residual_length=length).total == quantized(260).total


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ({"nbits": 8}, "nbits 8"),
        ({"backend": "hqq", "nbits": 3}, "nbits 3"),
        ({"axis_key": 1}, "axis_key 1"),
        ({"backend": "hqq", "axis_value": -1}, "axis_value -1"),
        ({"backend": "fp8", "nbits": 4}, "takes no nbits"),
        ({"backend": "fp8", "version": "5.15"}, "5.23"),
        ({"decode_steps": 256}, "leave no prefill"),
    ],
)
def test_what_the_backends_refuse(args: dict[str, Any], what: str) -> None:
    with pytest.raises(EngineRejectsError, match=what):
        quantized(256, **args)


@pytest.mark.parametrize(
    "layer",
    [Sliding(window=11, kv_heads=2, head_dim=128), (SMALL, Index(index_dim=32)), ShortConv(channels=8, conv_kernel=3), Shared(), Nothing()],
)
def test_only_full_layers_are_quantised(layer: Any) -> None:
    with pytest.raises(EngineRejectsError, match="every layer must be full attention"):
        quantized(256, model(SMALL, layer))


@pytest.mark.parametrize("fields", [{"traits": {"is_encoder_decoder": True}}, {"family": "minimax"}])
def test_models_that_take_no_quantized_cache(fields: dict[str, Any]) -> None:
    with pytest.raises(EngineRejectsError, match="quantized cache does not take"):
        quantized(256, model(SMALL, **fields))


@pytest.mark.parametrize(
    "args",
    [
        {"max_cache_len": 8},
        {"cache_implementation": "quantized", "max_cache_len": 8},
        {"nbits": 4},
        {"cache_implementation": "static", "decode_steps": 1},
    ],
)
def test_a_setting_of_another_cache_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="means nothing"):
        get_engine("transformers").plan(model(SMALL), Workload(context=256, engine_args=args))


@given(
    tokens=st.integers(min_value=1, max_value=2000),
    steps=st.integers(min_value=0, max_value=600),
    sequences=st.integers(min_value=1, max_value=4),
)
def test_quantized_sums_hold(tokens: int, steps: int, sequences: int) -> None:
    found = quantized(tokens + steps, decode_steps=steps, sequences=sequences)
    assert found.total == sum(line.bytes for line in found.lines)
    assert found.total <= sequences * (tokens + steps) * TOKEN
