"""Linear attention between layers of softmax attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Fixed, Full, GatedDeltaNet, Index, Kda, Latent, Lightning, Recurrent, Sliding
from kvcalc.sources.hf.reader import read_config

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

QWEN = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256}
GDN = GatedDeltaNet(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
MLA = {"hidden_size": 2304, "num_attention_heads": 32, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "head_dim": 72}
KDA = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4}


def pattern(found: Architecture) -> str:
    """One letter a layer: L linear, A attention."""
    return "".join("L" if isinstance(found.layers.layer(i)[0], Recurrent) else "A" for i in range(found.layers.count))


def test_qwen3_next_leaves_its_linear_widths_to_the_class() -> None:
    """Qwen3-Next-80B: every 4th of 48 layers is full; conv channels 2 x 16 x 128 + 32 x 128 = 8192."""
    found = read_config({"model_type": "qwen3_next", "num_hidden_layers": 48, **QWEN})
    assert found.states == {GDN: 36, Full(kv_heads=2, head_dim=256, query_heads=16): 12}
    assert GDN.conv_channels == 8192
    assert pattern(found).startswith("LLLALLLA")


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({}, None),
        ({"mamba_ssm_dtype": "float32"}, "fp32"),
        ({"mamba_ssm_cache_dtype": "bfloat16"}, "bf16"),
        ({"mamba_ssm_dtype": "auto"}, None),
    ],
)
def test_the_type_of_the_matrices_is_what_the_file_declares(fields: dict[str, Any], dtype: str | None) -> None:
    found = read_config({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", "num_hidden_layers": 4, **QWEN, **fields}})
    (mixer,) = [state for state in found.states if isinstance(state, Recurrent)]
    assert mixer.state_dtype == dtype


def test_qwen35_draft_layers_are_full() -> None:
    found = read_config({"model_type": "qwen3_5_text", "num_hidden_layers": 4, "mtp_num_hidden_layers": 1, **QWEN})
    assert found.draft is not None
    assert found.draft.counts == {Full(kv_heads=2, head_dim=256, query_heads=16): 1}


def test_qwen4_keeps_compressed_index_keys_and_ngram_memory() -> None:
    """QSA keys are 1 x 128 for 4 tokens; layer 1 of `ple_layer_ids` is the first layer, for the list counts from 1."""
    qsa = {"indexer_n_heads": 16, "indexer_kv_heads": 1, "indexer_head_dim": 128, "indexer_budget": 2048, "indexer_compress_ratio": 4}
    found = read_config({"model_type": "qwen4_exp_text", "num_hidden_layers": 4, **QWEN, **qsa, "ple_layer_ids": [1]})
    assert found.layers.layer(3) == (Full(kv_heads=2, head_dim=256, query_heads=16),
                                     Index(index_dim=128, ratio=4, format="bf16"))  # fmt: skip
    # 4 streams x 2048 channels x (4 - 1) columns x 3 grams; two token ids of 8 bytes.
    assert found.layers.layer(0) == (
        GDN,
        Fixed(name="ngram_conv", elements=4 * 2048 * 9, state_dtype="model"),
        Fixed(name="ngram_ids", elements=4, state_dtype="fp32"),
    )
    assert found.layers.layer(1) == (GDN,)


def test_olmo_hybrid_derives_its_linear_heads() -> None:
    """Olmo-Hybrid-7B by the class: keys 0.75 x 3840 / 30 = 96 wide, values twice that."""
    found = read_config({"model_type": "olmo_hybrid"})
    mixer = GatedDeltaNet(key_heads=30, value_heads=30, key_head_dim=96, value_head_dim=192, conv_kernel=4)
    assert found.states[mixer] == 24
    assert pattern(read_config({"model_type": "olmo_hybrid", "num_hidden_layers": 3})) == "LLA"


def test_lara_mini_alternates_three_kinds() -> None:
    found = read_config({"model_type": "lara_mini", "num_hidden_layers": 5})
    assert [found.layers.layer(i)[0].kind for i in range(5)] == ["gated_deltanet", "sliding", "gated_deltanet", "full", "sliding"]


def test_kimi_counts_its_full_layers_from_one() -> None:
    """Kimi-Linear-48B: 4, 8, …, 24 and 27 of 27 layers are latent."""
    attention = {**KDA, "full_attn_layers": [4, 8, 12, 16, 20, 24, 27]}
    found = read_config({"model_type": "kimi_linear", "num_hidden_layers": 27, **MLA, "linear_attn_config": attention})
    assert found.states[Kda(heads=32, head_dim=128, conv_kernel=4)] == 20
    assert pattern(found) == "LLLA" * 6 + "LLA"


def test_kimi_without_a_list_has_every_fourth_layer_but_the_first() -> None:
    found = read_config({"model_type": "kimi_linear", "num_hidden_layers": 9, **MLA})
    assert pattern(found) == "LLLLALLLA"
    assert Kda(heads=32, head_dim=128, conv_kernel=4) in found.states


@pytest.mark.parametrize(
    ("fields", "kind", "letters"),
    [
        ({"short_conv_kernel_size": 4, "layer_group_size": 3}, "kda", "LLALLA"),
        # An incomplete last group is full.
        ({"short_conv_kernel_size": 4, "layer_group_size": 4}, "kda", "LLLAAA"),
        ({"architectures": ["BailingMoeV2_5ForCausalLM"], "layer_group_size": 3}, "lightning", "LLALLA"),
        ({"group_norm_size": 8, "linear_silu": False, "layer_group_size": 3}, "lightning", "LLALLA"),
        ({"short_conv_kernel_size": 4, "layer_group_size": [1, 0, 1, 1, 1, 0]}, "kda", "LALLLA"),
    ],
)
def test_ling_has_two_mixers_under_one_name(fields: dict[str, Any], kind: str, letters: str) -> None:
    found = read_config({"model_type": "bailing_hybrid", "num_hidden_layers": 6, **MLA, "head_dim": 128, **fields})
    assert pattern(found) == letters
    assert [state.kind for state in found.states if isinstance(state, Recurrent)] == [kind]
    assert any(isinstance(state, Latent) for state in found.states)


def test_glm5_next_pools_its_index_keys() -> None:
    found = read_config({"model_type": "glm5_next"})
    assert (found.family, pattern(found)[:8]) == ("glm5_next_text", "LLLALLLA")
    assert found.states[Kda(heads=64, head_dim=128, conv_kernel=4)] == 34
    assert found.states[Index(index_dim=128, top_k=2048, pool=16)] == 11
    assert found.states[Latent(latent_dim=512, rope_dim=0, query_heads=64, nope_dim=256, value_head_dim=256)] == 11


def test_minimax_and_its_original_read_different_fields() -> None:
    config = {"num_hidden_layers": 4, "hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
              "attn_type_list": [0, 0, 0, 1]}  # fmt: skip
    original = read_config({"model_type": "minimax_m1", **config})
    assert original.states == {Lightning(heads=64, head_dim=128): 3, Full(kv_heads=8, head_dim=128, query_heads=64): 1}
    assert pattern(read_config({"model_type": "minimax", **config})) == "ALAL"
    with pytest.raises(InvalidConfigError, match="attn_type_list"):
        read_config({"model_type": "minimax_text_01", **config, "attn_type_list": None})


def test_families_that_only_engines_know() -> None:
    giga = read_config({"model_type": "gigachat3_5", "num_hidden_layers": 3, **MLA, "full_attention_layers": [2],
                        "linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
                        "linear_value_head_dim": 128})  # fmt: skip
    assert pattern(giga) == "LLA"
    jet = read_config({"model_type": "jet_nemotron", "num_hidden_layers": 3, "hidden_size": 1536, "num_attention_heads": 12,
                       "num_key_value_heads": 2, "layer_types": ["jet", "attn", "swa"],
                       "efficient_attention_config": {"swa": {"window_size": 1152},
                                                      "jet": {"num_heads": 6, "head_dim": 96, "expand_v": 2.0, "conv_size": 4}}})  # fmt: skip
    assert list(jet.states) == [
        GatedDeltaNet(key_heads=6, value_heads=6, key_head_dim=96, value_head_dim=192, conv_kernel=4),
        Full(kv_heads=2, head_dim=128, query_heads=12),
        Sliding(window=1152, kv_heads=2, head_dim=128, query_heads=12),
    ]
    sala = read_config({"model_type": "minicpm_sala", "num_hidden_layers": 4, "hidden_size": 4096, "num_attention_heads": 32,
                        "num_key_value_heads": 2, "mixer_types": ["minicpm4", "lightning-attn"]})  # fmt: skip
    assert pattern(sala) == "ALAL"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "kimi_linear", "num_hidden_layers": 3, **MLA, "linear_attn_config": {**KDA, "full_attn_layers": [4]}}, "full_attn_layers"),
        ({"model_type": "kimi_linear", "num_hidden_layers": 3, **MLA, "linear_attn_config": {**KDA, "full_attn_layers": [0]}}, "full_attn_layers"),
        ({"model_type": "qwen3_next", "num_hidden_layers": 4, **QWEN, "full_attention_interval": 0}, "full_attention_interval"),
        ({"model_type": "qwen3_next", "num_hidden_layers": 4, **QWEN, "mamba_ssm_dtype": "int3"}, "mamba_ssm_dtype"),
        ({"model_type": "qwen3_next", "num_hidden_layers": 1, **QWEN, "layer_types": ["mamba3"]}, "mamba3"),
        ({"model_type": "jet_nemotron", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4}, "layer_types"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        read_config(config)


@pytest.mark.parametrize(("layers", "group", "tail"), [(6, 3, None), (7, 3, 1), (8, 3, 2), (2, 3, 2), (7, [1, 1, 0, 1, 1, 0, 1], None)])
def test_ling_says_how_many_layers_are_left_over(layers: int, group: object, tail: int | None) -> None:
    config = {"model_type": "bailing_hybrid", "num_hidden_layers": layers, **MLA, "head_dim": 128, "layer_group_size": group}
    assert read_config(config).traits.incomplete_group == tail
