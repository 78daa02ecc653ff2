"""The families that depart from the rule, against the library's own classes in small sizes (where torch and transformers are installed)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from kvcalc.engines.transformers.families import FOREIGN
from kvcalc.sources.hf.families.index import INDEX
from kvcalc.verify import verify

pytestmark = pytest.mark.skipif(find_spec("torch") is None or find_spec("transformers") is None, reason="needs torch and transformers")

_SIZES = {
    "vocab_size": 131,
    "hidden_size": 144,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "dtype": "bfloat16",
}
_EXPERTS = {"moe_intermediate_size": 32, "num_experts_per_tok": 2}
_HEADS = {"num_key_value_heads": 3, "head_dim": 40, "sliding_window": 11}
_LATENT = {"kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 24}
_INDEX = {"index_head_dim": 32, "index_n_heads": 2, "index_topk": 7}
_WINDOW_AND_FULL = {"layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2}

#: A family and the fields that make it small.
SMALL: dict[str, dict[str, Any]] = {
    "mistral": _HEADS,
    "gemma2": _HEADS | {"query_pre_attn_scalar": 40},
    "llama4_text": {
        "num_key_value_heads": 3,
        "head_dim": 40,
        "attention_chunk_size": 11,
        "intermediate_size_mlp": 64,
        "num_local_experts": 4,
    },
    "starcoder2": {"num_key_value_heads": 3, "sliding_window": 11},
    "falcon": {"num_kv_heads": 3, "new_decoder_architecture": True},
    "gpt_bigcode": {"n_embd": 144, "n_layer": 6, "n_head": 6},
    "mimo_v2_flash": _HEADS | _EXPERTS | {"v_head_dim": 24, "n_routed_experts": 4},
    "deepseek_v3": _LATENT | _EXPERTS | {"n_routed_experts": 8, "n_group": 2, "topk_group": 1},
    "deepseek_v32": _LATENT | _EXPERTS | _INDEX | {"n_routed_experts": 8, "n_group": 2, "topk_group": 1},
    "dots3_note_text": _LATENT
    | _EXPERTS
    | _INDEX
    | {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "sliding_window": 11, "swa_kv_lora_rank": 32, "swa_qk_rope_head_dim": 8}
    | {"swa_q_lora_rank": 16, "swa_qk_nope_head_dim": 16, "swa_v_head_dim": 24, "swa_num_attention_heads": 6}
    | {"num_key_value_heads": 6, "swa_num_key_value_heads": 6, "swa_head_dim": 24},
    "minimax": {"num_key_value_heads": 3, "head_dim": 40, "num_local_experts": 4, "num_experts_per_tok": 2, "block_size": 8},
    "inkling_text": {"num_key_value_heads": 3, "head_dim": 40, "sliding_window_size": 11, "swa_num_attention_heads": 4, "swa_head_dim": 32}
    | _EXPERTS
    | {"swa_num_key_value_heads": 2, "n_routed_experts": 4, "d_rel": 8},
    "zaya": {"num_key_value_heads": 3, "head_dim": 40, "num_experts": 4, "num_experts_per_tok": 1},
    "recurrent_gemma": {"num_key_value_heads": 1, "lru_width": 144, "attention_window_size": 11},
    "lfm2": {"num_key_value_heads": 3, "full_attn_idxs": [2, 5]},
    "gemma3n_text": {"num_key_value_heads": 3, "head_dim": 40, "sliding_window": 11, "num_kv_shared_layers": 2, "laurel_rank": 4}
    | {"vocab_size_per_layer_input": 131, "hidden_size_per_layer_input": 14, "activation_sparsity_pattern": [0.0] * 6}
    | _WINDOW_AND_FULL,
    "olmo3": {"num_key_value_heads": 3, "sliding_window": 11} | _WINDOW_AND_FULL,
    "bert": {},
    "llama": {"num_key_value_heads": 3, "sliding_window": 11},
    "doge": {"num_key_value_heads": 3, "sliding_window": 11, "num_experts": 4},
    "deepseek_v2": _LATENT | _EXPERTS | {"n_routed_experts": 8, "n_group": 1, "sliding_window": 11, "moe_intermediate_size": 32},
    "glm4_moe_lite": _LATENT | _EXPERTS | {"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "head_dim": 4},
    "nemotron_h": {"num_key_value_heads": 3, "head_dim": 16, "n_groups": 2, "mamba_num_heads": 4, "ssm_state_size": 10}
    | {"hybrid_override_pattern": "M*-*M*"},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 3, "head_dim": 16},
    "openai-gpt": {"n_embd": 144, "n_layer": 6, "n_head": 6},
    "deepseek_v4": _EXPERTS
    | {"head_dim": 32, "qk_rope_head_dim": 8, "num_key_value_heads": 1, "q_lora_rank": 24, "o_lora_rank": 16, "o_groups": 2}
    | {"index_head_dim": 16, "index_n_heads": 2, "sliding_window": 11, "n_routed_experts": 4, "num_hidden_layers": 3}
    | {"compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8}}
    | {"layer_types": ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]},
    "qwen4_exp_text": {
        "num_key_value_heads": 3,
        "head_dim": 40,
        "num_experts": 4,
        "shared_expert_intermediate_size": 32,
        "num_hidden_layers": 8,
    }
    | _EXPERTS
    | {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 10, "linear_value_head_dim": 14, "hc_lowrank": 8}
    | {"indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 32, "indexer_budget": 8, "indexer_compress_ratio": 4}
    | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}},
}


@pytest.mark.parametrize("family", SMALL)
def test_small_models_are_equal_to_the_byte(family: str) -> None:
    config = {"model_type": family} | _SIZES | SMALL[family]
    for context in (6, 32):
        found = verify({"hf_config": config}, context)
        assert [row.layer for row in found.layers if row.difference] == []


def test_families_without_a_class_are_those_that_the_library_does_not_know() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    assert {family for family in INDEX if family not in CONFIG_MAPPING} <= FOREIGN
    assert {family for family in FOREIGN if family in CONFIG_MAPPING} == set()
