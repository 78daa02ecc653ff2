"""Latents, index keys and compressed rows: DeepSeek's line and its relatives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Compressed, Full, Index, Latent, Shared
from kvcalc.sources.hf.reader import read_config

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

MLA: dict[str, Any] = {
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "index_head_dim": 128,
    "index_topk": 2048,
}
LATENT = Latent(latent_dim=512, rope_dim=64, query_heads=128, nope_dim=128, value_head_dim=128)
INDEX = Index(index_dim=128, top_k=2048)

V4: dict[str, Any] = {"model_type": "deepseek_v4", "head_dim": 512, "qk_rope_head_dim": 64, "num_attention_heads": 64,
                      "sliding_window": 128, "index_head_dim": 128, "index_topk": 512}  # fmt: skip


def kinds(found: Architecture) -> list[str]:
    """The kinds of every layer's states, joined."""
    return ["+".join(state.kind for state in found.layers.layer(i)) for i in range(found.layers.count)]


def test_glm_4_7_flash_reads_head_dim_as_its_rotary_width() -> None:
    """Glm4MoeLiteConfig's attribute_map: head_dim → qk_rope_head_dim; DeepSeek-V3's `head_dim` means nothing."""
    config = {"model_type": "glm4_moe_lite", **MLA, "head_dim": 32}
    assert list(read_config(config).states) == [replace(LATENT, rope_dim=32)]
    assert list(read_config(config | {"model_type": "deepseek_v3"}).states) == [LATENT]


def test_deepseek_v3_keeps_one_latent_a_layer_and_one_draft_layer() -> None:
    found = read_config({"model_type": "deepseek_v3", **MLA, "num_nextn_predict_layers": 1, "head_dim": 7})
    assert found.states == {LATENT: 61}
    assert found.draft is not None
    assert found.draft.counts == {LATENT: 1}


def test_a_small_deepseek_v2_without_a_latent_has_heads() -> None:
    config = {"model_type": "deepseek_v2", "hidden_size": 1280, "num_hidden_layers": 12, "num_attention_heads": 10,
              "num_key_value_heads": 10}  # fmt: skip
    for said in ({"use_mla": False}, {"kv_lora_rank": None}):
        assert read_config({**config, **said}).states == {Full(kv_heads=10, head_dim=128, query_heads=10): 12}


def test_longcat_keeps_two_latents_a_layer() -> None:
    """28 layers, 56 latents; a file may count the attentions instead."""
    config = {"model_type": "longcat_flash", **MLA, "num_hidden_layers": None, "num_nextn_predict_layers": 1}
    found = read_config({**config, "num_layers": 28})
    assert (found.layers.count, found.states[LATENT]) == (28, 56)
    assert found.draft is not None
    assert found.draft.counts == {LATENT: 1}
    assert read_config({**config, "num_layers": None, "num_hidden_layers": 56}).states[LATENT] == 56


def test_deepseek_v32_indexes_every_layer() -> None:
    assert read_config({"model_type": "deepseek_v32", **MLA}).states == {LATENT: 61, INDEX: 61}


@pytest.mark.parametrize(
    ("fields", "own"),
    [
        ({}, {0, 1, 2, 3, 4, 5, 6, 7}),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, {0, 1, 2, 6}),
        ({"index_topk_freq": 2}, {0, 1, 3, 5, 7}),
        ({"index_topk_pattern": "FSSFSSFS"}, {0, 3, 6}),
        ({"index_topk_pattern": None, "indexer_types": ["full"] + ["shared"] * 8}, {0}),
        # A list wins over letters, letters over a schedule.
        ({"indexer_types": ["full"] * 8, "index_topk_pattern": "FSSSSSSS", "index_topk_freq": 4}, set(range(8))),
    ],
)
def test_glm5_says_in_four_ways_which_layers_own_an_indexer(fields: dict[str, Any], own: set[int]) -> None:
    found = read_config({"model_type": "glm_moe_dsa", **MLA, "num_hidden_layers": 8, **fields})
    assert {i for i, kind in enumerate(kinds(found)) if kind == "latent+index"} == own


def test_glm52_as_published() -> None:
    """78 layers, 21 with index keys: 0, 1, 2, 6, 10, … 74. Its head_dim 192 means nothing."""
    found = read_config({"model_type": "glm_moe_dsa", **MLA, "num_hidden_layers": 78, "num_attention_heads": 64, "head_dim": 192,
                         "index_topk_freq": 4, "index_skip_topk_offset": 3, "num_nextn_predict_layers": 1})  # fmt: skip
    assert found.states[INDEX] == 21
    assert sum(layers for state, layers in found.states.items() if isinstance(state, Latent)) == 78
    assert found.draft is not None
    assert INDEX in found.draft.counts


def test_hunyuan4_indexes_the_first_layer_and_every_fourth_from_the_second() -> None:
    found = read_config({"model_type": "hy_v4", **MLA, "num_hidden_layers": 34})
    assert found.states[INDEX] == 10


def test_mistral_large4_lets_layers_read_an_earlier_latent_and_drops_rope_where_nothing_turns() -> None:
    found = read_config({"model_type": "mistral_large4_text", **MLA, "num_hidden_layers": 8, "index_topk_freq": 2,
                         "kv_source_layers": [0, 0, 2, 3, 4, 5, 6, 6]})  # fmt: skip
    assert found.layers.layer(1) == (Shared(shares_with=0), INDEX)
    assert found.layers.layer(3) == (replace(LATENT, rope_dim=0), INDEX)
    assert found.layers.layer(4) == (LATENT,)
    assert found.layers.layer(7) == (Shared(shares_with=6), INDEX)
    with pytest.raises(InvalidConfigError, match="kv_source_layers"):
        read_config({"model_type": "mistral_large4_text", **MLA, "num_hidden_layers": 2, "kv_source_layers": [1, 1]})


def test_dots3_keeps_wider_latents_in_its_windows() -> None:
    """46 layers by the class: 13 indexed with 512 + 64 and fp32 keys, 33 windows of 512 with 1024 + 64."""
    found = read_config({"model_type": "dots3_note", "num_hidden_layers": 46})
    assert found.family == "dots3_note_text"
    window = Latent(latent_dim=1024, rope_dim=64, window=512, query_heads=64, nope_dim=192, value_head_dim=128)
    assert found.states[window] == 33
    assert found.states[Index(index_dim=128, top_k=2048, format="fp32")] == 13
    bare = read_config({"model_type": "dots3_note", "num_hidden_layers": 2, "use_dsa": False})
    assert kinds(bare) == ["latent", "latent"]


def test_minimax_m3_keeps_one_bf16_index_key_on_its_sparse_layers() -> None:
    text = {"num_hidden_layers": 5, "hidden_size": 6144, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
            "sparse_attention_config": {"sparse_index_dim": 128, "sparse_attention_freq": [0, 0, 1, 1, 1]}}  # fmt: skip
    found = read_config({"model_type": "minimax_m3_vl", "text_config": text})
    assert found.states == {Full(kv_heads=4, head_dim=128, query_heads=64): 5, Index(index_dim=128, format="bf16"): 3}
    listed = {**text, "sparse_attention_config": None, "layer_types": ["full_attention"] * 4 + ["minimax_m3_sparse"]}
    assert kinds(read_config({"model_type": "minimax_m3_vl", "text_config": listed})) == ["full"] * 4 + ["full+index"]


def test_deepseek_v4_flash_as_published() -> None:
    """43 layers and one draft layer in a list of 44: 2 window-only, 21 of ratio 4 with an indexer, 20 of ratio 128."""
    ratios = [0, 0, *[4, 128] * 20, 4, 0]
    found = read_config({**V4, "num_hidden_layers": 43, "num_nextn_predict_layers": 1, "compress_ratios": ratios})
    window = Latent(latent_dim=448, rope_dim=64, window=128, query_heads=64)
    assert found.states == {
        window: 43,
        Compressed(latent_dim=512, rope_dim=64, ratio=4): 21,
        Index(index_dim=128, top_k=512, ratio=4): 21,
        Compressed(latent_dim=512, rope_dim=64, ratio=128): 20,
    }
    assert found.draft is not None
    assert found.draft.counts == {window: 1}


def test_deepseek_v4_names_its_layers_or_leaves_them_to_the_class() -> None:
    types = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    named = read_config({**V4, "num_hidden_layers": 3, "layer_types": types, "compress_rates": {types[1]: 8, types[2]: 64}})
    assert named.layers.order == ("window", "ratio_8", "ratio_64")
    assert read_config({**V4, "num_hidden_layers": 5}).layers.order == ("ratio_128", "ratio_128", "ratio_128", "ratio_4", "ratio_128")


def test_deepseek_v41_keeps_compressed_rows_only_in_its_sources() -> None:
    text = {**V4, "model_type": "deepseek_v41_text", "num_hidden_layers": 6, "compress_ratios": [0, 2, 2, 1, 1, 1, 0],
            "kv_source_layer_ids": [1, 3], "num_nextn_predict_layers": 1}  # fmt: skip
    found = read_config({"model_type": "deepseek_v41", "text_config": text})
    assert kinds(found) == [
        "latent",
        "latent+compressed+index",
        "latent+shared",
        "latent+compressed+index",
        "latent+shared",
        "latent+shared",
    ]
    assert found.layers.layer(5)[1] == Shared(shares_with=3)
    assert found.states[Index(index_dim=128, top_k=512, ratio=2)] == 1


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "deepseek_v3", **MLA, "kv_lora_rank": "512"}, "kv_lora_rank"),
        ({"model_type": "glm_moe_dsa", **MLA, "index_topk_pattern": "FS"}, "index_topk_pattern"),
        ({"model_type": "glm_moe_dsa", **MLA, "indexer_types": ["none"] * 61}, "indexer_types"),
        ({**V4, "num_hidden_layers": 3, "compress_ratios": [0, 4]}, "compress_ratios"),
        ({**V4, "num_hidden_layers": 1, "layer_types": ["linear_attention"]}, "layer_types"),
        ({**V4, "num_hidden_layers": 1, "head_dim": 64}, "qk_rope_head_dim"),
        ({**V4, "model_type": "deepseek_v41_text", "num_hidden_layers": 2, "compress_ratios": [2, 2]}, "kv_source_layer_ids"),
        ({**V4, "model_type": "deepseek_v41_text", "num_hidden_layers": 2, "compress_ratios": [2, 2], "kv_source_layer_ids": [2]},
         "kv_source_layer_ids"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        read_config(config)
