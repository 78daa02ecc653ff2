"""The dynamic cache: what each kind of layer holds after a decode step. Figures marked "measured" are the library's own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.states import (
    Chunked,
    Compressed,
    Cross,
    Fixed,
    Full,
    GatedDeltaNet,
    Index,
    Latent,
    Lightning,
    Mamba2,
    Nothing,
    RgLru,
    Shared,
    ShortConv,
    Sliding,
    State,
)
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.transformers.engine import Transformers
from kvcalc.engines.transformers.families import CACHELESS, FAMILIES, FOREIGN, OTHERWISE
from kvcalc.engines.transformers.tensors import Rows
from kvcalc.sources.hf.families.index import INDEX
from kvcalc.sources.schema import read

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan

GQA = Full(kv_heads=8, query_heads=32, head_dim=128)
MLA = Latent(latent_dim=512, rope_dim=64, query_heads=128, nope_dim=128, value_head_dim=128)
ROW = 8 * (128 + 128) * 2


def model(*layers: State | tuple[State, ...], count: int | None = None, **fields: object) -> Architecture:
    names = [f"s{n}" for n in range(len(layers))]
    states = {name: list(kept) if isinstance(kept, tuple) else [kept] for name, kept in zip(names, layers, strict=True)}
    layout = read(Layout, {"pattern": names, "count": count or len(layers), "states": states})
    return read(Architecture, {"id": "m", "family": "llama", "dtype": "bfloat16", "layers": layout} | fields)


def plan(architecture: Architecture, context: int | None = 100, args: dict[str, Any] | None = None, **question: Any) -> Plan:
    return get_engine("transformers").plan(architecture, Workload(context=context, engine_args=args or {}, **question))


def test_full_layers_hold_every_token() -> None:
    found = plan(model(GQA, count=32), 4097, sequences=3)
    assert found.total == 3 * 32 * 4097 * ROW
    assert (found.per_sequence, found.per_token, found.growth_per_token, found.fixed) == (32 * 4097 * ROW, 32 * ROW, 32 * ROW, 0)
    assert (found.kv_dtype, found.version) == ("bf16", "5.24.0")


@pytest.mark.parametrize(("context", "rows"), [(1, 1), (10, 10), (11, 11), (12, 11), (32, 11)])
def test_a_window_of_11_holds_11_rows_once_full(context: int, rows: int) -> None:
    """W - 1 tokens are visible to the next step, as a view of a tensor of W (measured: W = 11 at 6, 13 and 32 tokens)."""
    assert plan(model(Sliding(window=11, kv_heads=3, head_dim=40)), context).total == rows * 3 * 80 * 2
    assert plan(model(Chunked(chunk=11, kv_heads=3, head_dim=40)), context).total == rows * 3 * 80 * 2


def test_a_window_of_one_token_never_drops_any() -> None:
    """`keys[-W + 1:]` is `keys[0:]` for W = 1."""
    assert plan(model(Sliding(window=1, kv_heads=1, head_dim=8)), 50).total == 50 * 16 * 2


def test_a_nominal_window_counts_because_the_class_follows_the_file() -> None:
    nominal = Sliding(window=11, nominal=True, kv_heads=3, head_dim=40)
    assert plan(model(nominal), 32).total == 11 * 3 * 80 * 2


def test_the_moment_is_said_where_a_window_has_filled() -> None:
    window = model(Sliding(window=11, kv_heads=1, head_dim=8))
    assert any("until" in note or "between" in note for note in plan(window, 12).notes)
    assert not plan(window, 11).notes


def test_keys_and_values_of_different_width() -> None:
    assert plan(model(Full(kv_heads=4, head_dim=192, value_head_dim=128)), 10).total == 10 * 4 * (192 + 128) * 2


def test_mla_is_cached_as_latent_and_rotary_key() -> None:
    """DeepSeek-V3: 61 x (512 + 64) x 2 B = 70,272 B a token."""
    found = plan(model(MLA, count=61), 4097)
    assert found.total == 4097 * 70_272
    assert [line.buffer for line in found.lines] == ["latent", "rope"]


def test_mla_without_a_rotary_part() -> None:
    assert plan(model(Latent(latent_dim=512)), 10).total == 10 * 512 * 2


@pytest.mark.parametrize("version", ["5.14", "5.14.1", "5.0"])
def test_mla_before_5_15_is_cached_as_every_head(version: str) -> None:
    """DeepSeek-V3: 128 heads x (128 + 64 + 128) x 2 B = 81,920 B a token and layer, 71 times the latent."""
    assert plan(model(MLA), 1, {"version": version}).total == 81_920


def test_expanded_heads_must_be_known() -> None:
    with pytest.raises(EngineRejectsError, match="query_heads"):
        plan(model(Latent(latent_dim=512, rope_dim=64)), 1, {"version": "5.14"})


@pytest.mark.parametrize("version", ["4.57", "5.25", "6", "five", ""])
def test_versions_that_are_not_known(version: str) -> None:
    with pytest.raises(UsageError, match="version"):
        plan(model(GQA), 1, {"version": version})


def test_index_keys_are_kept_unquantised_for_every_token() -> None:
    """DeepSeek-V3.2: 512 + 64 + 128 elements of 2 B = 1,408 B a token and layer, not 1,152 + 132."""
    assert plan(model((MLA, Index(index_dim=128))), 10).total == 10 * 1_408


def test_index_keys_are_not_compressed_and_positions_stand_once() -> None:
    """Qwen4: ratio 4 or not, one key a token; the first indexed layer also keeps three int64 positions a token."""
    indexed = (Full(kv_heads=2, head_dim=256), Index(index_dim=128, ratio=4))
    found = plan(model(indexed, count=3, family="qwen4_exp_text"), 8)
    assert found.total == 3 * 8 * (2 * 512 + 128) * 2 + 8 * 3 * 8
    assert [line.format for line in found.lines][-1] == "int64"


def test_dots3_keeps_its_index_keys_in_fp32() -> None:
    assert plan(model((MLA, Index(index_dim=128)), family="dots3_note_text"), 10).total == 10 * (1_152 + 128 * 4)


def test_glm_5_next_keeps_gates_beside_its_index_keys() -> None:
    """128 of key, 128 of gate scores and one mark: 514 B a token and layer, for every token (measured)."""
    assert plan(model((Latent(latent_dim=512), Index(index_dim=128, pool=16)), family="glm5_next_text"), 17).total == 17 * (1_024 + 514)


def test_gated_deltanet_keeps_k_columns_and_fp32_matrices() -> None:
    """Qwen3-Next-80B at 4,097 tokens, measured: 178,544,640 B."""
    net = GatedDeltaNet(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
    full = Full(kv_heads=2, head_dim=256)
    found = plan(model(net, net, net, full, count=48), 4097)
    assert found.fixed == 36 * (8192 * 4 * 2 + 32 * 128 * 128 * 4) == 77_856_768
    assert found.total == found.fixed + 12 * 4097 * 2 * 512 * 2 == 178_544_640


def test_the_config_of_the_state_type_is_not_read() -> None:
    """`mamba_ssm_dtype` and its kin change nothing here: matrices are fp32."""
    mixer = Mamba2(heads=12, head_dim=24, state_dim=10, groups=2, conv_kernel=4, state_dtype="bf16")
    assert plan(model(mixer), 5).total == 12 * 24 * 10 * 4 + (288 + 40) * 4 * 2


def test_a_short_convolution_keeps_k_columns() -> None:
    assert plan(model(ShortConv(channels=2048, conv_kernel=3)), 5).total == 2048 * 3 * 2


@pytest.mark.parametrize(("family", "size"), [("minimax", 2), ("bailing_hybrid", 4)])
def test_lightning_matrices(family: str, size: int) -> None:
    assert plan(model(Lightning(heads=32, head_dim=128), family=family), 5).total == 32 * 128 * 128 * size


def test_inkling_keeps_its_convolutions_in_fp32() -> None:
    assert plan(model(ShortConv(channels=100, conv_kernel=4), family="inkling_text"), 5).total == 100 * 4 * 4


def test_other_fixed_states_are_stored_in_their_own_type() -> None:
    states = (Fixed(name="shift", elements=10, state_dtype="model"), Fixed(name="sum", elements=10))
    assert plan(model(states), 5).total == 10 * 2 + 10 * 4


def test_recurrent_gemma_keeps_its_recurrence_outside_the_cache() -> None:
    layers = (RgLru(lru_dim=2560, conv_kernel=4), Sliding(window=2048, kv_heads=1, head_dim=256))
    found = plan(model(*layers, family="recurrent_gemma"), 100)
    assert found.total == 100 * 512 * 2
    assert any("modules" in note for note in found.notes)


def test_falcon_repeats_its_heads_before_caching_them() -> None:
    """Falcon-40B caches 128 heads, not 8; the old multi-query Falcon-7B one."""
    new = model(Full(kv_heads=8, query_heads=128, head_dim=64), family="falcon", traits={"new_decoder_architecture": True})
    old = model(Full(kv_heads=1, query_heads=71, head_dim=64), family="falcon", traits={"multi_query": True})
    assert plan(new, 10).total == 10 * 128 * 128 * 2
    assert plan(old, 10).total == 10 * 128 * 2


def test_layers_that_own_nothing() -> None:
    assert plan(model(GQA, Shared(shares_with=0), Nothing()), 10).total == 10 * ROW


def test_cross_attention_holds_the_source() -> None:
    """Whisper-large: 1,500 positions, whatever is decoded."""
    cross = Cross(kv_heads=20, head_dim=64, source_tokens=1500)
    assert plan(model(cross, count=32), 7).total == 32 * 1500 * 20 * 128 * 2


def test_a_decoder_without_its_encoder_has_no_source() -> None:
    """WhisperForCausalLM, 3 layers of 3 x 16, 13 tokens in bf16: 7,488 B measured; its config says is_encoder_decoder false (5.24.0)."""
    heads = {"kv_heads": 3, "head_dim": 16}
    whisper = model((Full(**heads), Cross(**heads, source_tokens=1500)), count=3, traits={"is_encoder_decoder": False})
    assert plan(whisper, 13).total == 3 * 13 * 2 * 48 * 2 == 7_488


def test_an_encoder_sees_one_token_at_least_and_an_image_none() -> None:
    cross = Cross(kv_heads=16, head_dim=64)
    assert plan(model(cross, count=12, traits={"is_encoder_decoder": True}), 7).total == 12 * 1 * 16 * 128 * 2
    assert plan(model(cross, count=12), 7).total == 0
    assert plan(model(cross, count=12, traits={"is_encoder_decoder": True, "is_decoder": True}), 7).total == 0


def v4(ratio: int, *, index: bool) -> tuple[State, ...]:
    window = Latent(latent_dim=448, rope_dim=64, window=128)
    kept: tuple[State, ...] = (window, Compressed(latent_dim=512, rope_dim=64, ratio=ratio))
    return (*kept, Index(index_dim=128, ratio=ratio)) if index else kept


def test_deepseek_v4_at_its_class_defaults() -> None:
    """43 layers, 23 of ratio 128 and 20 of ratio 4, at 4,097 tokens, measured: 33,060,864 B.

    heavily compressed   128 x 512 + 32 x 512 + 2 x 1 x 512 elements
    compressed sparse    128 x 512 + 1024 x (512 + 128) + 2 x 1 x 2 x (512 + 128) elements + overlaps 4 x (512 + 128) x (2 + 4) B
    """
    sparse, heavy = v4(4, index=True), v4(128, index=False)
    found = plan(model(heavy, heavy, *([heavy, sparse] * 20), heavy, family="deepseek_v4"), 4097)
    layer_128 = (128 * 512 + 32 * 512 + 2 * 512) * 2
    layer_4 = (128 * 512 + 1024 * 640 + 4 * 640) * 2 + 4 * 640 * 6
    assert found.total == 23 * layer_128 + 20 * layer_4 == 33_060_864


@pytest.mark.parametrize(("context", "measured"), [(6, 4_320), (13, 5_344), (32, 7_552), (33, 5_504)])
def test_small_deepseek_v4_as_measured(context: int, measured: int) -> None:
    """D = 32, I = 16, W = 11: one layer that only slides (K and V apart), one of ratio 4 with an indexer, one of ratio 8."""
    window = Latent(latent_dim=24, rope_dim=8, window=11)
    sparse = (window, Compressed(latent_dim=32, rope_dim=8, ratio=4), Index(index_dim=16, ratio=4))
    heavy = (window, Compressed(latent_dim=32, rope_dim=8, ratio=8))
    assert plan(model(window, sparse, heavy, family="deepseek_v4"), context).total == measured


def test_the_type_of_the_model_is_the_type_of_the_cache() -> None:
    assert plan(model(GQA, dtype="float32"), 10).total == 10 * 2 * ROW
    found = plan(model(GQA, dtype="float32"), 10, kv_dtype="fp16")
    assert (found.total, found.kv_dtype) == (10 * ROW, "fp16")
    assumed = plan(model(GQA, dtype=None), 10)
    assert assumed.total == 10 * ROW
    assert any("assumed" in note for note in assumed.notes)


@pytest.mark.parametrize("name", ["fp8", "q8_0", "int4", "nvfp4"])
def test_other_formats_need_the_quantized_cache(name: str) -> None:
    with pytest.raises(EngineRejectsError, match="computes in") as error:
        plan(model(GQA), 10, kv_dtype=name)
    assert "cache_implementation=quantized" in error.value.hint


def test_a_dtype_that_nothing_computes_in() -> None:
    with pytest.raises(EngineRejectsError, match="fp8"):
        plan(model(GQA, dtype="float8_e4m3fn"), 10)


@pytest.mark.parametrize("name", ["tensor_parallel", "pipeline_parallel", "decode_context_parallel"])
def test_one_device_only(name: str) -> None:
    with pytest.raises(EngineRejectsError, match="one device"):
        plan(model(GQA), 10, **{name: 2})


def test_a_shared_prefix_is_copied() -> None:
    found = plan(model(GQA), 100, sequences=4, shared_prefix=50)
    assert found.total == 4 * 100 * ROW
    assert any("own copy" in note for note in found.notes)


@pytest.mark.parametrize("family", sorted(CACHELESS))
def test_classes_without_a_cache(family: str) -> None:
    found = plan(model(GQA, family=family), 100)
    assert (found.total, found.growth_per_token) == (0, 0)
    assert any("no cache" in note for note in found.notes)


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra", "xmod"])
def test_encoders_that_generate_keep_a_cache_decoders_or_not(family: str, is_decoder: bool) -> None:
    """BertLMHeadModel.generate, 3 layers of 3 x 16 in fp32, 12 tokens: 13,824 B measured with and without `is_decoder` (5.24.0)."""
    small = model(Full(kv_heads=3, head_dim=16), count=3, family=family, dtype="float32", traits={"is_decoder": is_decoder})
    assert plan(small, 12).total == 3 * 12 * 2 * 48 * 4 == 13_824


@pytest.mark.parametrize(("context", "rows"), [(7, 7), (705, 705), (706, 1), (4001, 1)])
def test_block_sparse_attention_caches_nothing_of_a_long_prefill(context: int, rows: int) -> None:
    """BigBird, 3 random blocks of 64: measured on prefills of 6, 704, 705 and 4,000 tokens and one step (5.24.0)."""
    found = plan(model(GQA, family="big_bird", traits={"longest_dense_prefill": 704}), context)
    assert (found.total, found.growth_per_token) == (rows * ROW, ROW)
    assert any("block-sparse" in note for note in found.notes) == (rows == 1)


def test_an_incomplete_group_of_ling_is_linear_to_its_class() -> None:
    """BailingHybridConfig: full iff (i + 1) % layer_group_size == 0, so two layers behind one group of three stay linear."""
    mixer = Lightning(heads=4, head_dim=16)
    whole = model(mixer, mixer, MLA, MLA, MLA, family="bailing_hybrid", traits={"incomplete_group": 2})
    assert plan(whole, 32).total == 4 * 4 * 16 * 16 * 4 + 32 * 576 * 2


def test_a_soft_prompt_is_cached_before_every_sequence() -> None:
    """CpmAntForCausalLM.generate, prompt_length 4, 12 tokens of 3 x 3 x 16 in fp32: 18,432 B measured (5.24.0)."""
    found = plan(model(Full(kv_heads=3, head_dim=16), count=3, family="cpmant", dtype="float32", traits={"soft_prompt": 4}), 12)
    assert found.total == 3 * (12 + 4) * 2 * 48 * 4 == 18_432
    assert found.fixed == 3 * 4 * 2 * 48 * 4


@pytest.mark.parametrize(("windows", "rows"), [(0, 96), (11, 33), ([11, 0, 5], 48)])
def test_windows_that_a_file_gives_to_a_class_without_layer_types(windows: Any, rows: int) -> None:
    """DynamicCache follows `layer_types`, `sliding_window` and `attention_chunk_size` of any config, whatever the model attends to."""
    assert plan(model(GQA, count=3, family="llama", traits={"cache_windows": windows}), 32).total == rows * ROW


def test_such_windows_are_no_full_attention_to_the_quantized_cache() -> None:
    with pytest.raises(EngineRejectsError, match="sliding"):
        plan(model(GQA, count=2, traits={"cache_windows": 64}), 128, {"cache_implementation": "quantized"})


def test_windows_of_another_number_of_layers() -> None:
    with pytest.raises(UsageError, match="cache_windows"):
        plan(model(GQA, count=3, traits={"cache_windows": [1, 2]}), 10)


@pytest.mark.parametrize("family", sorted(FOREIGN | OTHERWISE.keys()))
def test_families_without_a_class_are_refused(family: str) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=family):
        plan(model(GQA, family=family), 10)


def test_every_family_has_a_row_or_is_refused() -> None:
    rows = FAMILIES.keys() | CACHELESS
    assert not FAMILIES.keys() & (FOREIGN | CACHELESS | OTHERWISE.keys())
    assert rows | FOREIGN | OTHERWISE.keys() >= INDEX.keys()
    assert rows <= INDEX.keys()
    assert {family for family in INDEX if Transformers().knows(family)} == rows
    with pytest.raises(UnsupportedArchitectureError, match="no rule of transformers for model_type 'zzz'"):
        plan(model(GQA, family="zzz"), 10)


def test_the_context_defaults_to_the_models_maximum() -> None:
    found = plan(model(GQA, max_context=64), None)
    assert (found.context, found.total) == (64, 64 * ROW)


@given(
    kind=st.sampled_from(["tokens", "window", "entries", "fixed", "reserved"]),
    size=st.integers(min_value=1, max_value=300),
    context=st.integers(min_value=1, max_value=1000),
)
def test_rows_never_shrink(kind: Any, size: int, context: int) -> None:
    rows = Rows(kind, size)
    assert 0 <= rows.held(context) <= rows.held(context + 1)


@given(size=st.integers(min_value=1, max_value=300), context=st.integers(min_value=1, max_value=1000))
def test_an_open_window_is_never_empty_after_a_step(size: int, context: int) -> None:
    assert 1 <= Rows("open", size).held(context) <= size
    assert Rows("after", size).held(context) == (size if context >= size else 0)


@given(context=st.integers(min_value=1, max_value=5000), sequences=st.integers(min_value=1, max_value=9))
def test_lines_add_up_and_sequences_multiply(context: int, sequences: int) -> None:
    mixed = model(GQA, Sliding(window=64, kv_heads=4, head_dim=64), (MLA, Index(index_dim=128)), ShortConv(channels=10, conv_kernel=3))
    found = plan(mixed, context, sequences=sequences)
    assert found.total == sum(line.bytes for line in found.lines) == sequences * found.per_sequence == found.per_device
    assert plan(mixed, context + 1).per_sequence - plan(mixed, context).per_sequence == found.growth_per_token
    assert found.total >= get_engine("ideal").plan(mixed, Workload(context=context, sequences=sequences)).total
