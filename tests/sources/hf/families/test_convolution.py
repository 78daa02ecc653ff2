"""Short convolutions and other states of fixed size; layers that run more than once."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Fixed, Full, RgLru, Rwkv, ShortConv, Sliding
from kvcalc.sources.hf.reader import read_config

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
FULL = Full(kv_heads=2, head_dim=16, query_heads=4)


def test_lfm2_lists_its_attention_layers_or_their_types() -> None:
    """LFM2-1.2B: attention on 2, 5, 8, 10, 12, 14 of 16; a convolution of kernel 3 over the hidden width elsewhere."""
    config = {"model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
    conv = ShortConv(channels=2048, conv_kernel=3)
    full = [2, 5, 8, 10, 12, 14]
    types = ["full_attention" if i in full else "conv" for i in range(16)]
    by_index = read_config({**config, "full_attn_idxs": full})
    assert by_index.states == {conv: 10, Full(kv_heads=8, head_dim=64, query_heads=32): 6}
    assert read_config({**config, "layer_types": types}).layers == by_index.layers
    assert read_config(config).layers.order == ("full",) * 16


def test_lfm3_by_its_class() -> None:
    found = read_config({"model_type": "lfm3", "num_hidden_layers": 8})
    assert found.layers.order == ("conv", "conv", "full", "conv", "sliding", "conv", "full", "conv")
    assert found.states[ShortConv(channels=2048, conv_kernel=7)] == 5


def test_recurrent_gemma_repeats_its_blocks() -> None:
    """RecurrentGemma-2B: 26 layers, two recurrences and a window of 2048 with one KV head, and again: 18 and 8."""
    found = read_config({"model_type": "recurrent_gemma", "num_key_value_heads": 1})
    assert found.states == {
        RgLru(lru_dim=2560, conv_kernel=4): 18,
        Sliding(window=2048, kv_heads=1, head_dim=256, query_heads=10): 8,
    }


def test_inkling_keeps_four_convolutions_in_fp32() -> None:
    window = {"swa_num_attention_heads": 8, "swa_num_key_value_heads": 4, "swa_head_dim": 8, "sliding_window_size": 5}
    found = read_config({"model_type": "inkling_text", "num_hidden_layers": 6, "conv_kernel_size": 3, **SMALL, **window})
    narrow, hidden = ShortConv(channels=32, conv_kernel=3, conv_dtype="fp32"), ShortConv(channels=64, conv_kernel=3, conv_dtype="fp32")
    assert found.layers.order == ("hybrid_sliding",) * 5 + ("hybrid",)
    assert found.layers.layer(0) == (Sliding(window=5, kv_heads=4, head_dim=8, query_heads=8), narrow, narrow, hidden, hidden)
    assert found.layers.layer(5) == (FULL, narrow, narrow, hidden, hidden)
    assert found.states[hidden] == 12
    local = read_config({"model_type": "inkling_text", "num_hidden_layers": 2, "local_layer_ids": [1], **SMALL, **window})
    assert local.layers.order == ("hybrid", "hybrid_sliding")


def test_inkling_s_windows_are_as_wide_as_their_class_where_only_head_dim_is_said() -> None:
    """InklingTextConfig(head_dim=16) keeps swa_head_dim = 128."""
    found = read_config({"model_type": "inkling_text", "num_hidden_layers": 2, "local_layer_ids": [0], "head_dim": 16})
    assert [found.layers.layer(i)[0].head_dim for i in (0, 1)] == [128, 16]  # type: ignore[union-attr]


def test_inkling2_loop_runs_its_core_several_times() -> None:
    """12 layers, of which 4 to 7 run three times: 12 + 2 x 4 = 20 caches. `loop_config` wins over the flat fields."""
    config = {"model_type": "inkling2_loop_text", "num_hidden_layers": 12, **SMALL}
    flat = read_config({**config, "loop_layer_index_start": 4, "loop_layer_index_end": 8, "loop_num_passes": 3})
    assert flat.layers.count == 20
    nested = read_config({**config, "loop_config": {"core_start": 4, "core_end": 8, "num_passes": 2}})
    assert nested.layers.count == 16


def test_zaya_mixes_with_the_tokens_before() -> None:
    """(4 + 2) x 16 channels x (2 - 1 + 3 - 1) columns, and half of V: 2 x 16 / 2."""
    found = read_config({"model_type": "zaya", "num_hidden_layers": 1, "cca_time0": 2, "cca_time1": 3, **SMALL})
    assert found.layers.layer(0) == (
        FULL,
        Fixed(name="cca_conv", elements=288, state_dtype="model"),
        Fixed(name="cca_value", elements=16, state_dtype="model"),
    )
    windowed = {"layer_types": ["hybrid_sliding"], "sliding_window": 7}
    assert read_config({"model_type": "zaya", "num_hidden_layers": 1, **SMALL, **windowed}).layers.layer(0)[0].kind == "sliding"


def test_rwkv_old_and_new() -> None:
    """RWKV-4: two last inputs and three fp32 vectors. RWKV-7 2.9B: 2560 / 64 = 40 heads of 64 x 64."""
    old = read_config({"model_type": "rwkv", "hidden_size": 768, "num_hidden_layers": 12, "context_length": 1024})
    assert list(old.states) == [
        Fixed(name="shift", elements=1536, state_dtype="model"),
        Fixed(name="wkv", elements=2304, state_dtype="fp32"),
    ]
    assert old.max_context == 1024
    new = read_config({"model_type": "rwkv7", "hidden_size": 2560, "num_hidden_layers": 32, "head_dim": 64})
    assert new.states == {Rwkv(heads=40, head_dim=64, hidden_dim=2560): 32}


def test_xlstm_keeps_a_matrix_a_vector_and_a_number_a_head() -> None:
    """xLSTM-7B: 8 heads, keys 4096 / 2 / 8 = 256, values 4096 / 8 = 512: 8 x (256 x 512 + 256 + 1)."""
    found = read_config({"model_type": "xlstm", "hidden_size": 4096, "num_heads": 8, "num_blocks": 32})
    assert found.states == {Fixed(name="mlstm", elements=8 * (256 * 512 + 256 + 1), state_dtype="model"): 32}


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"model_type": "hrm_text", "num_hidden_layers": 4, "H_cycles": 2, "L_cycles": 3}, 4 * 2 * 4),
        ({"model_type": "hrm_text", "num_hidden_layers": 32, "num_layers_per_stack": 4, "H_cycles": 2, "L_cycles": 3}, 32),
        ({"model_type": "nanbeige", "num_hidden_layers": 22, "num_loops": 2}, 44),
        ({"model_type": "nanbeige", "num_hidden_layers": 22}, 22),
        ({"model_type": "dory", "num_hidden_layers": 8, "n_input_layers": 2, "n_output_layers": 3, "n_recurrent_loops": 3}, 8 + 2 * 3),
        ({"model_type": "dory", "num_hidden_layers": 8, "n_input_layers": 2, "n_output_layers": 3, "n_recurrent_loops": 3,
          "recurrent_kv_cache_mode": "last_loop"}, 8),
        # Released files list attention and MLP apart: 16 entries are 8 layers.
        ({"model_type": "dory", "num_hidden_layers": 16, "n_input_layers": 4, "n_output_layers": 6, "n_recurrent_loops": 2,
          "layer_types": ["sliding_attention", "mlp"] * 8}, 8 + 3),
    ],
)  # fmt: skip
def test_every_pass_over_a_layer_has_its_own_cache(config: dict[str, Any], layers: int) -> None:
    assert read_config({**config, **SMALL}).layers.count == layers


def test_a_loop_coder_keeps_windows_in_its_later_passes() -> None:
    found = read_config({"model_type": "iquestloopcoder", "num_hidden_layers": 3, "loop_num": 3, "loop_window_size": 64, **SMALL})
    assert found.states == {FULL: 3, Sliding(window=64, kv_heads=2, head_dim=16, query_heads=4): 6}


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "lfm2", "num_hidden_layers": 2, "full_attn_idxs": [2]}, "full_attn_idxs"),
        ({"model_type": "hrm_text", "H_cycles": 10**6}, "H_cycles"),
        ({"model_type": "nanbeige", "num_hidden_layers": 1000, "num_loops": 1000}, "num_loops"),
        ({"model_type": "dory", "num_hidden_layers": 4, "n_input_layers": 3, "n_output_layers": 3}, "n_input_layers"),
        ({"model_type": "zaya", "num_hidden_layers": 1, "layer_types": ["hybrid_sliding"]}, "sliding_window"),
        ({"model_type": "rwkv7", "hidden_size": 32, "num_hidden_layers": 1, "head_dim": 64}, "head_dim"),
    ],
)
def test_what_cannot_be_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        read_config({**SMALL, **config})
