"""State-space models, alone and between layers of attention."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Full, Mamba1, Mamba2, Nothing
from kvcalc.sources.hf.reader import read_config

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
MIXER = {"mamba_d_state": 128, "mamba_d_conv": 4, "mamba_n_groups": 1}


@pytest.mark.parametrize(
    ("config", "inner"),
    [
        # Falcon-Mamba-7B says expand 16 and an inner width of 8192; the width is meant.
        ({"model_type": "falcon_mamba", "hidden_size": 4096, "expand": 16, "intermediate_size": 8192}, 8192),
        ({"model_type": "mamba", "hidden_size": 2560, "expand": 2}, 5120),
        ({"model_type": "mamba", "hidden_size": 2560}, 5120),
    ],
)
def test_mamba1(config: dict[str, Any], inner: int) -> None:
    assert read_config({**config, "num_hidden_layers": 64}).states == {Mamba1(inner_dim=inner, state_dim=16, conv_kernel=4): 64}


def test_mamba_codestral() -> None:
    """64 layers of 128 heads x 64, 8 groups of 128: conv channels 8192 + 2 x 8 x 128 = 10240."""
    found = read_config({"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64,
                         "state_size": 128, "n_groups": 8, "conv_kernel": 4})  # fmt: skip
    (mixer,) = found.states
    assert mixer == Mamba2(heads=128, head_dim=64, state_dim=128, groups=8, conv_kernel=4)
    assert isinstance(mixer, Mamba2)
    assert mixer.conv_channels == 10240


def test_nemotron_h_spells_its_layers() -> None:
    """Nemotron-H-56B in small: M Mamba, * attention, - MLP, E experts; head width under its old name."""
    mixer = {"mamba_num_heads": 256, "mamba_head_dim": 64, "ssm_state_size": 256, "n_groups": 8, "conv_kernel": 4}
    config = {"model_type": "nemotron_h", "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8, **mixer}
    spelt = read_config({**config, "attention_head_dim": 128, "hybrid_override_pattern": "M-M*E", "num_hidden_layers": 118})
    assert spelt.layers.order == ("linear", "mlp", "linear", "full", "moe")
    assert spelt.states == {
        Mamba2(heads=256, head_dim=64, state_dim=256, groups=8, conv_kernel=4): 2,
        Nothing(): 2,
        Full(kv_heads=8, head_dim=128, query_heads=64): 1,
    }
    listed = read_config({**config, "head_dim": 128, "layers_block_type": ["mamba", "mlp", "mamba", "attention", "moe"]})
    assert listed.states == spelt.states


@pytest.mark.parametrize(
    ("fields", "draft"),
    [
        ({"num_nextn_predict_layers": 1}, ("full", "moe")),
        ({"num_nextn_predict_layers": 2, "mtp_hybrid_override_pattern": "*E"}, ("full", "moe") * 2),
        ({"num_nextn_predict_layers": 1, "mtp_layers_block_type": ["attention", "mamba"]}, ("full", "linear")),
    ],
)
def test_nemotron_drafts_with_a_pattern_of_its_own(fields: dict[str, Any], draft: tuple[str, ...]) -> None:
    found = read_config({"model_type": "nemotron_h", "hybrid_override_pattern": "M*", **fields})
    assert found.draft is not None
    assert found.draft.order == draft


def test_granite_4_lists_its_layers_under_either_name() -> None:
    """Granite-4.0-H: mamba_d_head 'auto' is expand x hidden / heads. Granite-4.0-micro has mamba_* fields and no Mamba."""
    config = {"model_type": "granitemoehybrid", "num_hidden_layers": 3, **SMALL, **MIXER, "mamba_n_heads": 8, "mamba_expand": 2}
    mixer = Mamba2(heads=8, head_dim=16, state_dim=128, groups=1, conv_kernel=4)
    for name in ("layer_types", "layers_block_type"):
        assert read_config({**config, "mamba_d_head": "auto", name: ["mamba", "attention", "mamba"]}).states[mixer] == 2
    assert read_config(config).states == {mixer: 3}
    assert read_config({**config, "layer_types": ["attention"] * 3}).states == {Full(kv_heads=2, head_dim=16, query_heads=4): 3}


def test_falcon_h1_has_both_in_every_layer() -> None:
    """Falcon-H1-0.5B: 24 heads x 64, whatever expand x hidden says."""
    found = read_config({"model_type": "falcon_h1", "hidden_size": 1024, "num_hidden_layers": 36, "num_attention_heads": 8,
                         "num_key_value_heads": 2, "head_dim": 64, "mamba_n_heads": 24, "mamba_d_head": 64, **MIXER})  # fmt: skip
    assert found.states == {
        Full(kv_heads=2, head_dim=64, query_heads=8): 36,
        Mamba2(heads=24, head_dim=64, state_dim=128, groups=1, conv_kernel=4): 36,
    }
    by_class = read_config({"model_type": "falcon_h1"})
    assert Mamba2(heads=128, head_dim=8, state_dim=256, groups=1, conv_kernel=4) in by_class.states


def test_jamba_has_one_attention_in_each_period() -> None:
    """Jamba-v0.1: layers 4, 12, 20, 28 of 32."""
    found = read_config({"model_type": "jamba"})
    assert [i for i in range(32) if isinstance(found.layers.layer(i)[0], Full)] == [4, 12, 20, 28]
    assert found.states[Mamba1(inner_dim=8192, state_dim=16, conv_kernel=4)] == 28


def test_bamba_without_indices_has_no_attention() -> None:
    config = {"model_type": "bamba", "num_hidden_layers": 4, **SMALL, **MIXER, "mamba_n_heads": 8, "mamba_expand": 2}
    assert read_config({**config, "attn_layer_indices": [1, 3]}).layers.order == ("linear", "full", "linear", "full")
    assert read_config(config).layers.order == ("linear",) * 4


def test_zamba2_7b_shares_weights_and_not_caches() -> None:
    """81 Mamba-2 layers of 112 heads x 64; 13 of them with attention of 32 heads, 2 x 3584 / 32 = 224 wide. kv_channels means nothing."""
    hybrid = [6 + 6 * i for i in range(12)] + [80]
    found = read_config(
        {
            "model_type": "zamba2",
            "hidden_size": 3584,
            "num_hidden_layers": 81,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "kv_channels": 112,
            "mamba_headdim": 64,
            "mamba_ngroups": 2,
            "state_size": 64,
            "layers_block_type": ["hybrid" if i in hybrid else "mamba" for i in range(81)],
        }
    )
    assert found.states == {
        Mamba2(heads=112, head_dim=64, state_dim=64, groups=2, conv_kernel=4): 81,
        Full(kv_heads=32, head_dim=224, query_heads=32): 13,
    }


def test_zamba2_by_its_class_has_a_list_of_its_own() -> None:
    order = read_config({"model_type": "zamba2"}).layers.order
    assert [i for i, name in enumerate(order) if name == "hybrid"] == [6, 12, 18, 24, 30, 36, 42, 47, 51]
    assert len(order) == 54


def test_a_nemotron_that_lists_no_layers_has_the_class_s_four() -> None:
    found = read_config({"model_type": "nemotron_h", "num_hidden_layers": 52})
    assert found.layers.order == ("linear", "moe", "full", "mlp")
    assert any("four" in note for note in found.assumptions)


def test_the_mixers_width_is_not_the_attentions() -> None:
    """NemotronHConfig(head_dim=16): the mixer keeps its class default of 64."""
    found = read_config({"model_type": "nemotron_h", "head_dim": 16, "hybrid_override_pattern": "M*"})
    assert [getattr(state, "head_dim", None) for state in found.states] == [64, 16]


def test_zamba_by_its_class() -> None:
    found = read_config({"model_type": "zamba"})
    assert found.layers.order[:8] == ("linear", "linear", "hybrid", "linear", "linear", "linear", "linear", "hybrid")
    assert found.layers.layer(2) == (
        Full(kv_heads=16, head_dim=464, query_heads=16),
        Mamba1(inner_dim=7424, state_dim=16, conv_kernel=4),
    )


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        ({"model_type": "nemotron_h", "layers_block_type": ["lstm"]}, "lstm"),
        ({"model_type": "nemotron_h", "layers_block_type": "M*"}, "layers_block_type"),
        ({"model_type": "bamba", "attn_layer_indices": [99]}, "attn_layer_indices"),
        ({"model_type": "falcon_h1", "mamba_d_head": "wide"}, "mamba_d_head"),
        ({"model_type": "zamba2", "hidden_size": 64, "mamba_headdim": 999}, "mamba_headdim"),
        # Zamba2Config: `num_hidden_layers` (38) must be equal to the number of `layer_types` (54).
        ({"model_type": "zamba2", "num_hidden_layers": 38}, "54 layers"),
        ({"model_type": "jamba", "attn_layer_period": 0}, "attn_layer_period"),
    ],
)
def test_what_cannot_be_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        read_config(config)
