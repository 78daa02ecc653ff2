"""Which layers slide: the file's list, else each family's own rule."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Chunked, Full, Sliding
from kvcalc.sources.hf.reader import read_config

SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 100}


def letters(model_type: str, layers: int, **fields: Any) -> str:
    """One letter a layer: F full, S sliding, C chunked."""
    found = read_config({"model_type": model_type, "num_hidden_layers": layers, **SMALL, **fields})
    names = {"full": "F", "sliding": "S", "chunked": "C"}
    return "".join(names[found.layers.layer(i)[0].kind] for i in range(layers))


@pytest.mark.parametrize(
    ("model_type", "layers", "fields", "expected"),
    [
        ("mistral", 2, {}, "SS"),
        ("mistral", 2, {"sliding_window": None}, "FF"),
        ("mixtral", 2, {}, "FF"),
        ("phi3", 2, {"sliding_window": 9}, "SS"),
        # One field, three rules: Qwen2 slides behind max_window_layers, Qwen2-MoE before it, Qwen3-MoE does not look at it.
        ("qwen2", 6, {"sliding_window": 9, "use_sliding_window": True, "max_window_layers": 4}, "FFFFSS"),
        ("qwen2_moe", 6, {"sliding_window": 9, "use_sliding_window": True, "max_window_layers": 4}, "SFSFFF"),
        ("qwen3_moe", 3, {"sliding_window": 9, "use_sliding_window": True, "max_window_layers": 1}, "SSS"),
        ("qwen2", 3, {"sliding_window": 9, "use_sliding_window": False, "max_window_layers": 1}, "FFF"),
        ("dots1", 4, {"sliding_window": 9, "max_window_layers": 2}, "FFSS"),
        ("gemma2", 5, {}, "SFSFS"),
        ("gpt_oss", 4, {}, "SFSF"),
        ("gemma3_text", 7, {}, "SSSSSFS"),
        ("gemma3_text", 7, {"sliding_window_pattern": 3}, "SSFSSFS"),
        # The class writes this name into its files, and does not read it.
        ("gemma3_text", 7, {"_sliding_window_pattern": 3}, "SSSSSFS"),
        ("gemma3_text", 3, {"layer_types": ["full_attention", "sliding_attention", "full_attention", "full_attention"]}, "FSF"),
        ("cohere2", 5, {}, "SSSFS"),
        ("cohere2_moe", 7, {"first_k_dense_replace": 2, "prefix_dense_sliding_window_pattern": 1}, "FFSSSFS"),
        ("exaone4", 5, {"sliding_window": 9, "sliding_window_pattern": "LLLG"}, "SSSFF"),
        ("exaone4", 4, {"sliding_window": None}, "FFFF"),
        ("olmo3", 5, {}, "SSSFS"),
        ("afmoe", 4, {"global_attn_every_n_layers": 2}, "SFSF"),
        ("cwm", 5, {}, "FSSSF"),
        ("kolibri1", 6, {}, "SSSSFS"),
        ("flint", 8, {}, "FFSSSFSF"),
        ("beam", 8, {}, "SSSSSFSF"),
        ("muse_spark_text", 6, {}, "SFSSSF"),
        ("smollm3", 8, {"use_sliding_window": True, "sliding_window": 9}, "FFFSFFFS"),
        ("smollm3", 4, {"use_sliding_window": True, "sliding_window": 9, "no_rope_layers": [0, 1, 1, 0]}, "SFFS"),
        ("modernbert-decoder", 5, {}, "FSSFS"),
        ("laguna", 2, {}, "FF"),
        ("llama4_text", 5, {}, "CCCFC"),
        ("llama4_text", 4, {"no_rope_layers": [1, 0, 0, 1]}, "CFFC"),
        ("llama4_text", 2, {"attention_chunk_size": None}, "FF"),
        ("mimo_v2_flash", 8, {}, "FSSSSFSS"),
        ("mimo_v2_flash", 3, {"hybrid_layer_pattern": [1, 0, 1]}, "SFS"),
        ("iquest_q1", 8, {"num_hybrid_layers_block": 1}, "FFSSSFFF"),
        ("plamo3", 3, {"interleaved_sliding_window": [9, None, 7]}, "SFS"),
        ("plamo3", 9, {"sliding_window": 9}, "SSSSSSSFS"),
    ],
)
def test_every_rule(model_type: str, layers: int, fields: dict[str, Any], expected: str) -> None:
    assert letters(model_type, layers, **fields) == expected


def test_gemma3_27b_as_published_leaves_its_pattern_to_the_class() -> None:
    """google/gemma-3-27b-it: every 6th of 62 layers is full, so 10; the window is 1024, not the class's 4096."""
    found = read_config(
        {
            "model_type": "gemma3",
            "text_config": {
                "model_type": "gemma3_text",
                "hidden_size": 5376,
                "num_hidden_layers": 62,
                "num_attention_heads": 32,
                "num_key_value_heads": 16,
                "head_dim": 128,
                "sliding_window": 1024,
            },
        }
    )
    assert found.states == {
        Sliding(window=1024, kv_heads=16, head_dim=128, query_heads=32): 52,
        Full(kv_heads=16, head_dim=128, query_heads=32): 10,
    }


def test_a_window_that_cannot_close_is_nominal() -> None:
    """Ministral-8B: a window of 32,768 and a trained context of 32,768. Mistral-7B-v0.1's 4,096 does close."""
    base = {"model_type": "mistral", "num_hidden_layers": 2, **SMALL, "max_position_embeddings": 32768}
    (ministral,) = read_config({**base, "sliding_window": 32768}).states
    (mistral,) = read_config({**base, "sliding_window": 4096}).states
    assert isinstance(ministral, Sliding)
    assert isinstance(mistral, Sliding)
    assert (ministral.nominal, mistral.nominal) == (True, False)
    assert ministral.buffers()[0].extent.slots(131072) == 131072
    assert mistral.buffers()[0].extent.slots(131072) == 4096


@pytest.mark.parametrize(
    ("model_type", "fields", "nominal"),
    [
        ("starcoder2", {"sliding_window": 64}, True),
        ("exaone4", {}, True),
        ("exaone4", {"sliding_window": 64}, False),
        ("exaone_moe", {}, False),
    ],
)
def test_windows_that_only_the_files_word_or_the_class_knows_are_nominal(model_type: str, fields: dict[str, Any], nominal: bool) -> None:
    found = read_config({"model_type": model_type, "num_hidden_layers": 1, **SMALL, **fields})
    assert found.layers.layer(0)[0].to_dict()["nominal"] is nominal


def test_mimo_v2_flash_has_its_own_heads_in_window_layers() -> None:
    released = {
        "model_type": "mimo_v2_flash",
        "num_hidden_layers": 3,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "num_key_value_heads": 4,
        "head_dim": 192,
        "v_head_dim": 128,
        "sliding_window": 128,
        "hybrid_layer_pattern": [0, 1, 1],
        "num_nextn_predict_layers": 1,
    }
    window = {"swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128}
    sliding = Sliding(window=128, kv_heads=8, head_dim=192, value_head_dim=128, query_heads=64)
    found = read_config({**released, **window, "attention_chunk_size": 128})
    assert found.states == {Full(kv_heads=4, head_dim=192, value_head_dim=128, query_heads=64): 1, sliding: 2}
    assert found.draft is not None
    assert found.draft.layer(0) == (sliding,)
    assert read_config(released).states == found.states  # without swa_* fields: twice the KV heads


def test_step_keeps_its_draft_layers_at_the_end_of_the_list() -> None:
    """Step-3.5-Flash: 45 layers in a list of 48, window layers with 96 query heads and their own groups."""
    types = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 12
    found = read_config(
        {
            "model_type": "step3p5",
            "hidden_size": 4096,
            "num_hidden_layers": 45,
            "num_attention_heads": 64,
            "num_attention_groups": 8,
            "head_dim": 128,
            "sliding_window": 512,
            "layer_types": types,
            "num_nextn_predict_layers": 3,
            "attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
        }
    )
    sliding = Sliding(window=512, kv_heads=8, head_dim=128, query_heads=96)
    assert found.states == {Full(kv_heads=8, head_dim=128, query_heads=64): 12, sliding: 33}
    assert found.draft is not None
    assert found.draft.counts == {sliding: 3}


def test_modernbert_sees_half_of_its_local_attention() -> None:
    found = read_config({"model_type": "modernbert-decoder", "num_hidden_layers": 2, "local_attention": 128, **SMALL})
    assert found.layers.layer(1) == (Sliding(window=64, kv_heads=4, head_dim=16, query_heads=4),)


def test_bidirectional_gemma3_sees_half_its_window_and_one() -> None:
    found = read_config({"model_type": "gemma3_text", "num_hidden_layers": 1, "sliding_window": 512, **SMALL,
                         "use_bidirectional_attention": True})  # fmt: skip
    assert found.layers.layer(0)[0].to_dict()["window"] == 257


def test_per_layer_config_makes_layers_of_one_type_differ() -> None:
    config = {"model_type": "gemma3_text", "num_hidden_layers": 3, "layer_types": ["full_attention"] * 3, **SMALL,
              "per_layer_config": {"1": {"head_dim": 32}, "02": {"head_dim": 32}}}  # fmt: skip
    found = read_config(config)
    assert found.layers.order == ("full", "full_2", "full_2")
    assert [state.head_dim for state in found.states if isinstance(state, Full)] == [16, 32]
    with pytest.raises(InvalidConfigError, match="per_layer_config"):
        read_config({**config, "per_layer_config": {"1": 7}})


def test_llama4_chunks_are_not_windows() -> None:
    found = read_config({"model_type": "llama4_text", "num_hidden_layers": 48})
    assert found.states == {
        Chunked(chunk=8192, kv_heads=8, head_dim=128, query_heads=40): 36,
        Full(kv_heads=8, head_dim=128, query_heads=40): 12,
    }


@pytest.mark.parametrize(
    ("model_type", "fields", "named"),
    [
        ("gemma3_text", {"layer_types": ["sliding_attention"]}, "layer_types"),
        ("gemma3_text", {"layer_types": ["sliding"] * 4}, "sliding"),
        ("gemma3_text", {"layer_types": [1] * 4}, "layer_types"),
        ("gemma3_text", {"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ("gemma2", {"sliding_window": None, "layer_types": ["sliding_attention"] * 4}, "sliding_window"),
        ("mistral", {"sliding_window": -1}, "sliding_window"),
        ("qwen2", {"use_sliding_window": "yes"}, "use_sliding_window"),
        ("iquest_q1", {"num_hybrid_layers_block": 9}, "blocks"),
        ("llama4_text", {"no_rope_layers": [1, 0]}, "no_rope_layers"),
    ],
)
def test_a_pattern_that_cannot_be_is_named(model_type: str, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        letters(model_type, 4, **fields)
