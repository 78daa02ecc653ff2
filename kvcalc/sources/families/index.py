"""model_type → the module that reads it, so that one model imports one module."""

from __future__ import annotations

_MODULES = {
    "dense": """
        llama qwen3_moe qwen3_vl_text qwen3_vl_moe_text gemma cohere olmo2 minimax_m2 opt phi3small
    """,
    "legacy": "gptj bloom mpt dbrx falcon RefinedWeb RefinedWebModel gpt2 gpt_bigcode nemotron-nas",
    "windows": """
        mistral mixtral ministral ministral3 phi3 phimoe starcoder2 qwen2 qwen3 qwen2_moe gemma2 gemma3_text gpt_oss
        cohere2 olmo3 exaone4 llama4_text mimo_v2_flash
    """,
    "sharing": "gemma3n_text gemma4_text gemma4_unified_text",
    "latent": "deepseek_v2 deepseek_v3 kimi_k2 longcat_flash glm4_moe_lite",
    "indexed": "deepseek_v32 glm_moe_dsa minimax_m3_vl_text",
    "compressed": "deepseek_v4 deepseek_v41_text",
    "linear": "qwen3_next qwen3_5_text qwen3_5_moe_text kimi_linear bailing_hybrid minimax_m1 minimax_text_01",
    "ssm": "mamba mamba2 falcon_mamba falcon_h1 granitemoehybrid jamba nemotron_h zamba2 lfm2",
    "encoder_decoder": "whisper",
}

#: Every model_type that kvcalc reads.
INDEX: dict[str, str] = {name: module for module, names in _MODULES.items() for name in names.split()}
