"""What files leave to the config class of their model_type, loaded once and only when a config.json is read."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

#: model_types that share another's config class, or were renamed to it.
_SAME_CLASS = {
    "RefinedWeb": "falcon",
    "RefinedWebModel": "falcon",
    "interns2_mobius_text": "qwen3_5_moe_text",
    "kimi_k2": "deepseek_v3",
    "mimo_v2": "mimo_v2_flash",
    "minimax_m3": "minimax_m3_vl_text",
    "minimax_m3_text": "minimax_m3_vl_text",
    "nemotron_h_puzzle": "nemotron_h",
}

#: Wrappers that only engines know, and the language models inside them (vLLM 0.33, SGLang 0.5.23: their config classes).
_WRAPPERS = {
    "deepseek_v41": "deepseek_v41_text",
    "interns2_mobius": "interns2_mobius_text",
    "kimi_k3": "kimi_linear",
    "kimi_vl": "deepseek_v3",
    "moondream3": "moondream3_text",
    "step3_vl": "step3_text",
    "step5_vl": "step5",
}

#: Class defaults of model_types that only engines know (the same sources).
_ENGINE_CLASSES: dict[str, dict[str, Any]] = {
    "gigachat3_5": {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "linear_conv_kernel_dim": 4},
    "iquest_q1": {"head_dim": 128, "sliding_window": 4096, "num_hybrid_layers_block": 21},
    "spark2_5": {"head_dim": 256, "sliding_window": 512},
    "step3_text": {"num_attention_groups": 1, "head_dim": 256},
    "step5": {"num_attention_groups": 8},
}


@lru_cache(maxsize=1)
def _tables() -> dict[str, dict[str, Any]]:
    """class_defaults.json, as tools/generate_class_defaults.py wrote it."""
    loaded: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("class_defaults.json").read_bytes())
    return loaded


def class_defaults(model_type: str) -> dict[str, Any]:
    """The defaults of one model_type; empty where no class is known."""
    name = _SAME_CLASS.get(model_type, model_type)
    found: dict[str, Any] = _tables()["defaults"].get(name) or _ENGINE_CLASSES.get(name, {})
    return found


def text_type(model_type: str) -> str | None:
    """The model_type of the language model inside a wrapper (image, audio, …), where the file leaves it out."""
    found: str | None = _tables()["text"].get(model_type) or _WRAPPERS.get(model_type)
    return found


def has_layer_types(model_type: str) -> bool:
    """The class says of each layer what it is; the cache of one that does not follows `sliding_window` and `attention_chunk_size`."""
    return _SAME_CLASS.get(model_type, model_type) not in _tables()["untyped"]
