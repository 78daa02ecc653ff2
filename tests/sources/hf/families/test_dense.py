"""Full attention under every spelling of heads and widths."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Full, Nothing, Shared
from kvcalc.sources.hf.reader import read_config


def heads(config: dict[str, object]) -> tuple[int, int, int | None, int]:
    """KV heads, width, query heads and layers of a model whose layers are all alike."""
    ((state, layers),) = read_config(config).states.items()
    assert isinstance(state, Full)
    return state.kv_heads, state.head_dim, state.query_heads, layers


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # Qwen3-1.7B is 128 wide whatever hidden / heads says; Mistral-Nemo 128, not 5120 / 32 = 160.
        ({"model_type": "qwen3", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28},
         (8, 128, 16, 28)),
        # Gemma-7B: 3072 / 16 = 192, and the class says 256.
        ({"model_type": "gemma", "hidden_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 28},
         (16, 256, 16, 28)),
        ({"model_type": "llama", "hidden_size": 5120, "num_attention_heads": 40, "num_hidden_layers": 40}, (40, 128, 40, 40)),
        ({"model_type": "llama", "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": None, "num_hidden_layers": 40},
         (40, 128, 40, 40)),
        ({"model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48}, (25, 64, 25, 48)),
        ({"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28}, (16, 256, 16, 28)),
        ({"model_type": "gpt_neo", "hidden_size": 2048, "num_heads": 16, "num_layers": 24}, (16, 128, 16, 24)),
        # Classes from before grouped queries ignore KV heads that a tool wrote into the file.
        ({"model_type": "gpt_neox", "hidden_size": 6144, "num_attention_heads": 64, "num_hidden_layers": 44, "num_key_value_heads": 8},
         (64, 96, 64, 44)),
        ({"model_type": "bloom", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 30}, (32, 128, 32, 30)),
        ({"model_type": "xglm", "d_model": 2048, "attention_heads": 16, "num_layers": 24}, (16, 128, 16, 24)),
        ({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32}, (32, 128, 32, 32)),
        ({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "attn_config": {"kv_n_heads": 8}}, (8, 128, 48, 40)),
        ({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40}, (1, 128, 48, 40)),
        ({"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "num_key_value_heads": 48}, (1, 128, 48, 40)),
        ({"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "multi_query": False}, (48, 128, 48, 40)),
        # Falcon-7B, Falcon-40B in both of its spellings, and an old Falcon without multi-query.
        ({"model_type": "falcon"}, (1, 64, 71, 32)),
        ({"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8, "num_hidden_layers": 60,
          "new_decoder_architecture": True}, (8, 64, 128, 60)),
        ({"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60,
          "new_decoder_architecture": True}, (8, 64, 128, 60)),
        ({"model_type": "falcon", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 24, "multi_query": False},
         (32, 64, 32, 24)),
        # ChatGLM2-6B: 2 groups, 128 channels each.
        ({"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "num_layers": 28, "multi_query_attention": True,
          "multi_query_group_num": 2, "kv_channels": 128}, (2, 128, 32, 28)),
        # Classes that derive the width whatever the file says, and one that knows it by another name (5.24.0).
        ({"model_type": "gpt_bigcode", "n_embd": 96, "n_head": 6, "n_layer": 2, "head_dim": 32}, (1, 16, 6, 2)),
        ({"model_type": "mpt", "d_model": 144, "n_heads": 4, "n_layers": 2, "head_dim": 16}, (4, 36, 4, 2)),
        ({"model_type": "glm4v_text", "hidden_size": 144, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 6,
          "head_dim": 32}, (4, 36, 4, 6)),
        ({"model_type": "jetmoe", "head_dim": 32, "num_key_value_heads": 4}, (4, 32, 8, 12)),
        ({"model_type": "jetmoe"}, (16, 128, 32, 12)),
        # GLM-4.5's class default leaves a rest: 4096 // 96 = 42.
        ({"model_type": "glm4_moe"}, (8, 42, 96, 46)),
        ({"model_type": "step3_text", "hidden_size": 7168, "num_attention_heads": 64, "num_hidden_layers": 61}, (1, 256, 64, 61)),
    ],
)  # fmt: skip
def test_heads_under_every_spelling(config: dict[str, object], expected: tuple[int, int, int, int]) -> None:
    assert heads(config) == expected


def test_a_pruned_llama_has_heads_of_its_own_in_every_layer() -> None:
    attention = [{"n_heads_in_group": 8}, {"n_heads_in_group": None, "no_op": True}, {"n_heads_in_group": 16}]
    found = read_config(
        {
            "model_type": "nemotron-nas",
            "hidden_size": 8192,
            "num_attention_heads": 64,
            "num_key_value_heads": None,
            "num_hidden_layers": 3,
            "block_configs": [{"attention": item} for item in attention],
        }
    )
    assert [found.layers.layer(i)[0] for i in range(3)] == [
        Full(kv_heads=8, head_dim=128, query_heads=64),
        Nothing(),
        Full(kv_heads=4, head_dim=128, query_heads=64),
    ]


def test_openelm_lists_its_heads_a_layer() -> None:
    found = read_config(
        {
            "model_type": "openelm",
            "model_dim": 1280,
            "head_dim": 64,
            "num_transformer_layers": 2,
            "num_kv_heads": [3, 5],
            "num_query_heads": [12, 20],
        }
    )
    assert list(found.states) == [Full(kv_heads=3, head_dim=64, query_heads=12), Full(kv_heads=5, head_dim=64, query_heads=20)]


def test_hunyuan_shares_only_where_use_cla_says_so() -> None:
    config = {"model_type": "hunyuan", "hidden_size": 6400, "num_attention_heads": 80, "num_key_value_heads": 8, "num_hidden_layers": 64}
    full = Full(kv_heads=8, head_dim=80, query_heads=80)
    assert read_config({**config, "cla_share_factor": 2}).states == {full: 64}
    found = read_config({**config, "cla_share_factor": 2, "use_cla": True})
    assert found.states[full] == 32
    assert found.layers.layer(5) == (Shared(shares_with=4),)


@pytest.mark.parametrize(
    ("fields", "longest"),
    [
        ({}, 704),
        ({"num_random_blocks": 2, "block_size": 16}, 144),
        ({"attention_type": "original_full"}, None),
        ({"is_decoder": True}, 704),
        ({"is_decoder": True, "add_cross_attention": True}, None),
    ],
)
def test_big_bird_says_which_prefill_it_caches(fields: dict[str, object], longest: int | None) -> None:
    """Prefills of 144 and 704 tokens are cached, 145 and 705 are not (5.24.0)."""
    assert read_config({"model_type": "big_bird", **fields}).traits.longest_dense_prefill == longest


@pytest.mark.parametrize(
    ("model_type", "fields", "windows"),
    [
        ("llama", {}, None),
        ("llama", {"sliding_window": None, "attention_chunk_size": 64}, 64),
        ("llama", {"sliding_window": 5, "attention_chunk_size": 64}, 5),
        ("llama", {"sliding_window": 0}, None),
        ("llama", {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}, (5, 0)),
        ("llama", {"layer_types": ["full_attention"] * 2, "sliding_window": 5}, None),
        ("gpt2", {"sliding_window": 5}, 5),
        ("deepseek_v3", {"sliding_window": 5}, 5),
        ("qwen3_vl_moe_text", {"sliding_window": 5}, 5),
        # The family says what it means, or the class names the type of each layer.
        ("mistral", {"sliding_window": 5}, None),
        ("qwen3_moe", {"sliding_window": 5, "use_sliding_window": False}, None),
        ("qwen3", {"sliding_window": 5}, None),
    ],
)
def test_a_window_in_the_file_of_a_class_that_knows_none(model_type: str, fields: dict[str, object], windows: object) -> None:
    """DynamicCache reads the words of any config; the model attends to everything (get_layer_types_and_kwargs, 5.24.0)."""
    found = read_config({"model_type": model_type, "num_hidden_layers": 2, **fields})
    assert found.traits.cache_windows == windows


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "nemotron-nas", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1, "block_configs": [7]},
         "block_configs"),
        ({"model_type": "nemotron-nas", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2,
          "block_configs": [{"attention": {"n_heads_in_group": 1}}]}, "block_configs"),
        ({"model_type": "nemotron-nas", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1,
          "block_configs": [{"attention": {"n_heads_in_group": 8}}]}, "n_heads_in_group"),
        ({"model_type": "dbrx", "d_model": 64, "n_heads": 4, "n_layers": 2, "attn_config": [8]}, "attn_config"),
        ({"model_type": "llama", "hidden_size": 100, "num_attention_heads": 7, "num_hidden_layers": 2}, "hidden_size"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_named(config: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfigError, match=named):
        read_config(config)
