"""Families that live beside their weights: their layers, worked by hand from the modules' own code (mlx-lm 0.32.2, models/*.py)."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.workload import Workload
from kvcalc.engines.ideal.engine import Ideal
from kvcalc.sources.hf.families import read_family

SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("config", "elements"),
    [
        ({"model_type": "Klear"}, 4 * 1000 * 2 * 2 * 32),
        ({"model_type": "plamo", "n_shared_head": 3}, 4 * 1000 * 2 * 2 * 32),
        ({"model_type": "lille-130m", "n_embd": 128, "n_layer": 4, "n_head": 4, "n_kv_heads": 1}, 4 * 1000 * 2 * 32),
        ({"model_type": "talkie"}, 4 * 1000 * 2 * 4 * 128),
        ({"model_type": "afm7", "num_layers": 6, "num_kv_reuse_layers": 2, "num_heads": 4, "num_kv_heads": 2, "hidden_dim": 128}, 4 * 1000 * 128),
        ({"model_type": "baichuan_m1", "sliding_window": 100, "sliding_window_layers": [0, 2], "conv_window": 2}, 2 * 1100 * 128 + 4 * 128),
        ({"model_type": "gear", "sliding_window": 100, "layer_types": ["conv_mixer", "sliding_attention", "conv_mixer", "full_attention"]}, 1100 * 128 + 2 * 2 * 128),
        ({"model_type": "bailing_moe_linear", "layer_group_size": 4, "head_dim": 32}, 1000 * 128 + 3 * 4 * 32 * 32 * 2),
        ({"model_type": "plamo2", "hidden_size_per_head": 32, "mamba_num_heads": 8, "mamba_d_state": 16, "full_attention_idx": [1, 3]}, 2 * 1000 * 128 + 2 * (256 * 3 + 256 * 16 * 2)),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": ["*", "-"], "head_dim": 32}, 1000 * 128),
        ({"model_type": "youtu_llm", "kv_lora_rank": 48, "qk_rope_head_dim": 16}, 4 * 1000 * 64),
        ({"model_type": "longcat_flash_ngram", "num_layers": 4, "kv_lora_rank": 48, "qk_rope_head_dim": 16}, 4 * 2 * 1000 * 64),
    ],
    ids=lambda value: str(value.get("model_type")) if isinstance(value, dict) else "",
)  # fmt: skip
def test_the_elements_of_1000_tokens(config: dict[str, Any], elements: int) -> None:
    """fp32 matrices count twice: all figures in elements of 2 bytes."""
    architecture = read_family(SIZES | config)
    assert Ideal().plan(architecture, Workload(context=1000)).total == 2 * elements


def test_kda_layers_alone_say_which_layers_are_linear() -> None:
    config = SIZES | {"model_type": "kimi_linear", "kv_lora_rank": 8, "qk_rope_head_dim": 8}
    config |= {"linear_attn_config": {"num_heads": 2, "head_dim": 8, "short_conv_kernel_size": 4, "kda_layers": [1, 3]}}
    assert read_family(config).layers.order == ("linear", "full", "linear", "full")
