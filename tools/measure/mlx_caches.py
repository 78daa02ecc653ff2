"""Ask mlx-lm's own model classes and cache objects what they hold, for configs written here: tests/cases/mlx.jsonl.

    PYTHON tools/measure/mlx_caches.py >tests/cases/mlx.jsonl        PYTHON has mlx-lm (pip install 'mlx[cpu]' mlx-lm); no GPU, no weights

MLX is lazy: a model is built and called without any arithmetic, and its caches know their bytes all the same. The calls are those of
`generate.py: generate_step`: the prompt in steps, its last token alone, then one token a call; after each, quantization as there.
"""

from __future__ import annotations

import json
from typing import Any

import mlx.core as mx
import mlx_lm
from mlx.utils import tree_map_with_path
from mlx_lm.generate import maybe_quantize_kv_cache
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes

ABOUT = (
    "What mlx-lm {version} on mlx {core} (CPU) itself holds: its model classes built from these configs, called as generate_step does, weights in bf16 but "
    "for those that the class keeps in fp32 (cast_predicate), "
    "sum of cache.nbytes. Configs were written for these tests and hold only what bears on the cache; an error is the library's own."
)

#: What the classes want beside the fields that bear on a cache; none of it moves a byte.
COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "rms_norm_eps": 1e-5,
    "layer_norm_eps": 1e-5,
    "norm_eps": 1e-5,
    "norm_epsilon": 1e-5,
    "layer_norm_epsilon": 1e-5,
    "rope_theta": 10000.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "bfloat16",
}


def config_of(model_type: str, *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A config of four layers, 4 query and 2 KV heads, with these fields."""
    sizes = {"hidden_size": 160, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 5, "num_key_value_heads": 5}
    found = COMMON | sizes | {"model_type": model_type}
    for part in (*parts, fields):
        found |= part
    return {key: value for key, value in found.items() if value != ABSENT}


#: Small experts of every spelling.
EXPERTS: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "routed_scaling_factor": 1.0,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
}
LATENT: dict[str, Any] = {"kv_lora_rank": 64, "q_lora_rank": 48, "qk_rope_head_dim": 32, "qk_nope_head_dim": 32, "v_head_dim": 96}
INDEX: dict[str, Any] = {"index_head_dim": 64, "index_n_heads": 2, "index_topk": 16}
GROUPED: dict[str, Any] = {"hidden_size": 192, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64}
TYPES = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
MIXED: dict[str, Any] = {"layer_types": TYPES, "sliding_window": 700}
MAMBA2: dict[str, Any] = {"mamba_num_heads": 6, "mamba_head_dim": 32, "ssm_state_size": 16, "conv_kernel": 4, "n_groups": 2}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "partial_rotary_factor": 0.5,
}

#: Scaled rotary embeddings as some classes want them.
SCALED: dict[str, Any] = {"rope_parameters": {"rope_theta": 1e4, "llama_4_scaling_beta": 0.1, "original_max_position_embeddings": 4096}}
ROPES: dict[str, Any] = {"rope_parameters": {kind: {"rope_type": "default", "rope_theta": 1e4} for kind in sorted(set(TYPES))}}
YARN: dict[str, Any] = {"type": "yarn", "factor": 1.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}
LONG: dict[str, Any] = {"short_factor": [1.0] * 16, "long_factor": [1.0] * 16, "original_max_position_embeddings": 4096, "type": "longrope"}
#: A field that a config does without.
ABSENT = "absent"
#: For classes with names of their own for every size.
BARE: dict[str, Any] = dict.fromkeys(
    ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"), ABSENT
)

CONFIGS: dict[str, dict[str, Any]] = {}


def add(name: str, model_type: str, *parts: dict[str, Any], **fields: Any) -> None:
    """One more config to ask."""
    CONFIGS[name] = config_of(model_type, *parts, **fields)


for name in (
    "llama",
    "qwen3",
    "smollm3",
    "ernie4_5",
    "gemma",
    "gemma2",
    "helium",
    "internlm3",
    "mimo",
    "olmo2",
    "seed_oss",
    "stablelm",
    "glm",
    "nemotron",
):
    add(name, name, GROUPED, use_bias=False, use_qkv_bias=False, hidden_act="silu", partial_rotary_factor=0.5)
add("llama listed", "llama", GROUPED, MIXED)
add("mistral", "mistral", GROUPED, sliding_window=300)
add("ministral3", "ministral3", GROUPED, MIXED, SCALED)
add("mistral3 ministral3", "mistral3", text_config=config_of("ministral3", GROUPED, MIXED, SCALED))
add("mistral3 mistral4", "mistral3", text_config=config_of("mistral4", EXPERTS, LATENT, SCALED))
add("pixtral", "pixtral", text_config=config_of("mistral", GROUPED, sliding_window=300))
add("qwen2", "qwen2", GROUPED, use_sliding_window=True, sliding_window=300, max_window_layers=1)
add("qwen2_vl", "qwen2_vl", GROUPED, vision_config={})
add("phi3", "phi3", (GROUPED | {"head_dim": 40}), sliding_window=300)
add("phi", "phi", GROUPED, partial_rotary_factor=0.5)
add(
    "phimoe",
    "phimoe",
    GROUPED,
    EXPERTS,
    sliding_window=300,
    rope_scaling={
        "short_factor": [1.0] * 16,
        "long_factor": [1.0] * 16,
        "short_mscale": 1.0,
        "long_mscale": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "longrope",
    },
)
add("mixtral", "mixtral", GROUPED, EXPERTS, sliding_window=300)
add("starcoder2", "starcoder2", GROUPED, sliding_window=300)
add("cohere", "cohere", (GROUPED | {"head_dim": 40}))
add("cohere2", "cohere2", GROUPED | {"head_dim": 32}, sliding_window=300, sliding_window_pattern=3, layer_types=TYPES)
add("gemma3_text", "gemma3_text", GROUPED, sliding_window=300, sliding_window_pattern=3, layer_types=TYPES)
add("gemma3", "gemma3", text_config=config_of("gemma3_text", GROUPED, sliding_window=300, num_hidden_layers=7))
add(
    "gemma3n",
    "gemma3n",
    text_config=config_of(
        "gemma3n_text",
        GROUPED,
        layer_types=TYPES,
        sliding_window=300,
        num_kv_shared_layers=1,
        num_hidden_layers=4,
        vocab_size_per_layer_input=128,
        hidden_size_per_layer_input=16,
        altup_num_inputs=2,
        altup_coef_clip=120.0,
        altup_correct_scale=True,
        altup_active_idx=0,
        laurel_rank=4,
        activation_sparsity_pattern=[0.0] * 4,
        final_logit_softcapping=30.0,
        rope_local_base_freq=10000.0,
        query_pre_attn_scalar=64.0,
    ),
)
add(
    "gemma4",
    "gemma4",
    text_config=config_of(
        "gemma4_text",
        GROUPED,
        layer_types=TYPES,
        sliding_window=300,
        num_kv_shared_layers=1,
        global_head_dim=96,
        attention_k_eq_v=True,
        num_global_key_value_heads=1,
        hidden_size_per_layer_input=16,
        vocab_size_per_layer_input=128,
    ),
)
add("gpt_oss", "gpt_oss", GROUPED, EXPERTS, sliding_window=300)
add("exaone4", "exaone4", GROUPED, sliding_window=300, sliding_window_pattern="LGL", rope_scaling=None)
add("exaone_moe", "exaone_moe", GROUPED, EXPERTS, MIXED, num_shared_experts=1, is_moe_layer=[False, True, True, True])
add("olmo3", "olmo3", GROUPED, sliding_window=300)
add("afmoe", "afmoe", GROUPED, EXPERTS, MIXED, num_dense_layers=1, num_shared_experts=1)
add("mellum", "mellum", GROUPED, EXPERTS, MIXED, ROPES)
add("laguna", "laguna", GROUPED, EXPERTS, MIXED)
add("spark2_5", "spark2_5", GROUPED, EXPERTS, ROPES, sliding_window=300)
add("plamo3", "plamo3", GROUPED, window_size=300, sliding_window_pattern=3)
add("plamo3 sliding", "plamo3", GROUPED, sliding_window=300)
add(
    "step3p5",
    "step3p5",
    GROUPED,
    MIXED,
    num_attention_groups=2,
    moe_num_experts=4,
    moe_top_k=2,
    share_expert_dim=32,
    moe_layers_enum="1,2,3",
    attention_other_setting={"num_attention_heads": 3, "num_attention_groups": 3, "head_dim": 64, "attention_type": "sliding_attention"},
)
add(
    "mimo_v2_flash",
    "mimo_v2_flash",
    GROUPED,
    (EXPERTS | {"moe_layer_freq": [0, 1, 1, 1]}),
    hybrid_layer_pattern=[0, 1, 1, 0],
    sliding_window_size=300,
    v_head_dim=32,
    swa_head_dim=64,
    swa_v_head_dim=48,
    swa_num_attention_heads=6,
    swa_num_key_value_heads=3,
    add_swa_attention_sink_bias=True,
    add_full_attention_sink_bias=False,
    layernorm_epsilon=1e-5,
    swa_rope_theta=10000.0,
    partial_rotary_factor=0.5,
)
add(
    "llama4",
    "llama4",
    text_config=config_of(
        "llama4_text",
        GROUPED,
        EXPERTS | {"num_experts_per_tok": 1},
        attention_chunk_size=512,
        intermediate_size_mlp=64,
        interleave_moe_layer_step=2,
        num_experts=4,
        use_qk_norm=True,
        rope_scaling=None,
        no_rope_layers=[1, 1, 1, 0],
        attn_temperature_tuning=4,
        floor_scale=8192,
        attn_scale=0.1,
    ),
)
add(
    "llama4_text", "llama4_text", GROUPED, attention_chunk_size=512, intermediate_size_mlp=64, use_qk_norm=True, no_rope_layers=[1, 1, 1, 0]
)
for name in ("deepseek_v3", "glm4_moe_lite", "mistral4", "kimi_k2"):
    add(name, name, EXPERTS, LATENT, SCALED)
add("kimi_k25", "kimi_k25", text_config=config_of("deepseek_v3", EXPERTS, LATENT))
add("kimi_vl", "kimi_vl", text_config=config_of("deepseek_v3", EXPERTS, LATENT))
add(
    "deepseek_v2",
    "deepseek_v2",
    (EXPERTS | {"topk_method": "gready", "scoring_func": "softmax"}),
    LATENT,
    hidden_act="silu",
    rope_scaling=YARN,
)
add("youtu_llm", "youtu_llm", LATENT)
add("minicpm3", "minicpm3", LATENT, dim_model_base=32, scale_depth=1.4, scale_emb=12, rope_scaling=LONG)
add("deepseek_v32", "deepseek_v32", EXPERTS, LATENT, INDEX)
add("glm_moe_dsa", "glm_moe_dsa", EXPERTS, LATENT, INDEX, indexer_types=["full", "shared", "full", "shared"])
add(
    "longcat_flash",
    "longcat_flash",
    LATENT,
    num_layers=2,
    ffn_hidden_size=64,
    expert_ffn_hidden_size=32,
    moe_topk=2,
    n_routed_experts=4,
    zero_expert_num=2,
    zero_expert_type="identity",
    attention_method="MLA",
    routed_scaling_factor=1.0,
    mla_scale_q_lora=True,
    mla_scale_kv_lora=True,
)
add(
    "longcat_flash_ngram",
    "longcat_flash_ngram",
    LATENT,
    num_layers=2,
    ffn_hidden_size=64,
    expert_ffn_hidden_size=32,
    moe_topk=2,
    n_routed_experts=4,
    zero_expert_num=2,
    routed_scaling_factor=1.0,
    mla_scale_q_lora=True,
    mla_scale_kv_lora=True,
    emb_neighbor_num=3,
    emb_split_num=2,
)
add("qwen3_next", "qwen3_next", GROUPED, EXPERTS, DELTA)
add("qwen3_5", "qwen3_5", text_config=config_of("qwen3_5_text", GROUPED, DELTA))
add("qwen3_5_moe", "qwen3_5_moe", text_config=config_of("qwen3_5_moe_text", GROUPED, EXPERTS, DELTA))
add(
    "olmo_hybrid",
    "olmo_hybrid",
    GROUPED,
    DELTA,
    linear_allow_neg_eigval=True,
    linear_use_gate=True,
    layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
)
add(
    "kimi_linear",
    "kimi_linear",
    EXPERTS,
    LATENT,
    head_dim=32,
    model_max_length=4096,
    num_experts_per_token=2,
    num_shared_experts=1,
    linear_attn_config={"num_heads": 3, "head_dim": 32, "short_conv_kernel_size": 4, "kda_layers": [1, 3], "full_attn_layers": [2, 4]},
)
add("bailing_hybrid", "bailing_hybrid", (EXPERTS | {"num_shared_experts": 1}), LATENT, head_dim=32, layer_group_size=3, group_norm_size=1)
add(
    "bailing_moe_v3",
    "bailing_hybrid",
    (EXPERTS | {"num_shared_experts": 1}),
    LATENT,
    architectures=["BailingMoeV3ForCausalLM"],
    head_dim=32,
    layer_group_size=3,
    short_conv_kernel_size=4,
)
add("bailing_moe_linear", "bailing_moe_linear", GROUPED, EXPERTS, num_shared_experts=1, layer_group_size=3, group_norm_size=1)
add(
    "mamba2",
    "mamba2",
    num_heads=6,
    head_dim=32,
    state_size=16,
    conv_kernel=4,
    n_groups=2,
    expand=2,
    hidden_size=96,
    use_bias=False,
    use_conv_bias=True,
    time_step_limit=[0.0, 1.0],
    time_step_rank=4,
)
add(
    "mamba",
    "mamba",
    state_size=16,
    conv_kernel=4,
    intermediate_size=192,
    hidden_size=96,
    use_bias=False,
    use_conv_bias=True,
    time_step_rank=4,
)
add(
    "falcon_mamba",
    "falcon_mamba",
    state_size=8,
    conv_kernel=3,
    intermediate_size=192,
    hidden_size=96,
    use_bias=False,
    use_conv_bias=True,
    time_step_rank=4,
)
add("nemotron_h", "nemotron_h", GROUPED, MAMBA2, hybrid_override_pattern="M*-M", mamba_proj_bias=False, use_bias=False, use_conv_bias=True)
add(
    "granitemoehybrid",
    "granitemoehybrid",
    (GROUPED | {"head_dim": 40}),
    EXPERTS,
    layer_types=["mamba", "attention", "mamba", "mamba"],
    mamba_n_heads=6,
    mamba_d_head=32,
    mamba_d_state=16,
    mamba_d_conv=4,
    mamba_n_groups=2,
    mamba_expand=1,
    mamba_proj_bias=False,
    mamba_conv_bias=True,
    embedding_multiplier=1.0,
    attention_multiplier=1.0,
    logits_scaling=1.0,
    residual_multiplier=1.0,
    shared_intermediate_size=32,
    position_embedding_type="rope",
)
add(
    "falcon_h1", "falcon_h1", GROUPED, mamba_n_heads=6, mamba_d_head=32, mamba_d_ssm=192, mamba_d_state=16, mamba_d_conv=4, mamba_n_groups=2
)
add(
    "jamba",
    "jamba",
    (GROUPED | {"head_dim": 40}),
    EXPERTS,
    attn_layer_offset=1,
    attn_layer_period=3,
    expert_layer_offset=1,
    expert_layer_period=2,
    mamba_d_conv=4,
    mamba_d_state=16,
    mamba_expand=2,
    mamba_dt_rank=4,
)
add(
    "plamo2",
    "plamo2",
    GROUPED,
    hidden_size_per_head=32,
    mamba_num_heads=6,
    mamba_d_state=16,
    mamba_d_conv=4,
    mamba_step=2,
    attention_window_size=300,
)
add(
    "lfm2",
    "lfm2",
    (GROUPED | {"head_dim": 40}),
    conv_L_cache=3,
    conv_bias=False,
    block_dim=192,
    block_multiple_of=64,
    block_ffn_dim_multiplier=1.0,
    block_auto_adjust_ff_dim=False,
    full_attn_idxs=[1, 3],
)
add(
    "lfm2-vl",
    "lfm2-vl",
    text_config=config_of(
        "lfm2",
        GROUPED,
        conv_L_cache=4,
        conv_bias=False,
        block_dim=192,
        block_multiple_of=64,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=False,
        full_attn_idxs=[0],
    ),
)
add(
    "recurrent_gemma",
    "recurrent_gemma",
    GROUPED,
    conv1d_width=3,
    logits_soft_cap=30.0,
    attention_window_size=300,
    block_types=["recurrent", "attention"],
)
add(
    "rwkv7",
    "rwkv7",
    hidden_size=192,
    head_dim=32,
    intermediate_size=64,
    decay_low_rank_dim=8,
    gate_low_rank_dim=8,
    a_low_rank_dim=8,
    v_low_rank_dim=8,
)
add(
    "gear",
    "gear",
    GROUPED,
    sliding_window=300,
    conv_L_cache=4,
    layer_types=["conv_mixer", "sliding_attention", "full_attention", "conv_mixer"],
)
add(
    "baichuan_m1",
    "baichuan_m1",
    GROUPED,
    sliding_window=300,
    sliding_window_layers=[1, 3],
    conv_window=2,
    num_swa_attention_heads=3,
    num_swa_key_value_heads=1,
)
add("afm7", "afm7", num_layers=6, num_kv_reuse_layers=2, num_heads=6, num_kv_heads=2, hidden_dim=192, hidden_dim_scale_factor=2.0)
add(
    "hunyuan",
    "hunyuan",
    GROUPED,
    use_cla=True,
    cla_share_factor=2,
    moe_topk=2,
    num_experts=4,
    num_shared_expert=1,
    use_mixed_mlp_moe=True,
    use_qk_norm=True,
    rope_scaling={"type": "dynamic", "factor": 1.0, "alpha": 1000.0},
)
add("nanbeige", "nanbeige", GROUPED, num_loops=3)
add("iquestloopcoder", "iquestloopcoder", GROUPED, loop_num=2, loop_window_size=64)
add(
    "nemotron-nas",
    "nemotron-nas",
    GROUPED,
    hidden_act="silu",
    block_configs=[
        {
            "attention": {
                "n_heads_in_group": 3,
                "no_op": False,
                "replace_with_linear": False,
                "sparsify": None,
                "num_sink_tokens": None,
                "unshifted_sink": False,
                "use_prefill_window_in_sink_attention": False,
                "window_length": None,
            },
            "ffn": {"ffn_mult": 1.0, "no_op": False, "replace_with_linear": False, "sparsify": None},
        },
        {
            "attention": {
                "n_heads_in_group": None,
                "no_op": True,
                "replace_with_linear": False,
                "sparsify": None,
                "num_sink_tokens": None,
                "unshifted_sink": False,
                "use_prefill_window_in_sink_attention": False,
                "window_length": None,
            },
            "ffn": {"ffn_mult": 1.0, "no_op": False, "replace_with_linear": False, "sparsify": None},
        },
    ]
    * 2,
)
add(
    "minimax_m3_vl",
    "minimax_m3_vl",
    text_config=config_of(
        "minimax_m3_text",
        GROUPED,
        EXPERTS | {"moe_layer_freq": [0, 1, 1, 1]},
        rotary_dim=32,
        use_qk_norm=True,
        sparse_attention_config={
            "sparse_index_dim": 64,
            "sparse_num_index_heads": 2,
            "sparse_topk_blocks": 2,
            "sparse_block_size": 16,
            "sparse_attention_freq": [0, 1, 1, 1],
            "use_sparse_attention": True,
            "sparse_init_block": 0,
            "sparse_local_block": 1,
            "sparse_disable_index_value": [1, 1, 1, 1],
            "sparse_score_type": "max",
        },
        dense_intermediate_size=64,
        shared_intermediate_size=32,
    ),
)
add("minimax", "minimax", GROUPED, EXPERTS, rotary_dim=32, shared_intermediate_size=32)
add("klear", "Klear", GROUPED, EXPERTS)
add("talkie", "talkie", GROUPED)
add("lille", "lille-130m", BARE, block_size=4096, n_embd=192, n_head=6, n_kv_heads=2, n_layer=4)
add("plamo", "plamo", GROUPED, n_shared_head=3)
add(
    "phi3small",
    "phi3small",
    GROUPED,
    gegelu_limit=20.0,
    dense_attention_every_n_layers=2,
    ff_intermediate_size=64,
    mup_attn_multiplier=1.0,
    mup_use_scaling=True,
    mup_embedding_multiplier=10.0,
    mup_width_multiplier=8.0,
    rope_embedding_base=10000,
    rope_position_scale=1.0,
    blocksparse_block_size=64,
    blocksparse_num_local_blocks=16,
    blocksparse_vert_stride=8,
)
add("qwen", "qwen", hidden_size=192, num_attention_heads=6, num_key_value_heads=6, kv_channels=32, n_layer=4)
add("gpt2", "gpt2", BARE, n_ctx=4096, n_embd=192, n_head=6, n_layer=4, n_positions=8192)
add("gpt_bigcode", "gpt_bigcode", BARE, n_embd=192, n_head=6, n_layer=4, n_positions=8192, n_inner=64, multi_query=True)
add("gpt_neox", "gpt_neox", hidden_size=192, num_attention_heads=6, rotary_emb_base=10000, rotary_pct=0.5)
add(
    "openelm",
    "openelm",
    head_dim=32,
    num_transformer_layers=3,
    model_dim=192,
    num_query_heads=[3, 6, 6],
    num_kv_heads=[1, 2, 3],
    ffn_multipliers=[1.0, 1.0, 1.0],
    ffn_with_glu=True,
    normalize_qk_projections=True,
    share_input_output_layers=True,
    rms_norm_eps=1e-6,
    rope_freq_constant=10000,
    ffn_dim_divisor=16,
)
add(
    "dbrx",
    "dbrx",
    BARE,
    d_model=192,
    n_heads=6,
    n_layers=4,
    attn_config={"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0},
    ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2, "moe_jitter_eps": 0},
)
add("nanochat", "nanochat", (GROUPED | {"head_dim": 40}))
add("apertus", "apertus", (GROUPED | {"head_dim": 40}), post_norm=False, qk_norm=True)
add("glm4_moe", "glm4_moe", GROUPED, EXPERTS, rope_scaling=None, use_qk_norm=True, partial_rotary_factor=0.5)
add("solar_open", "solar_open", GROUPED, EXPERTS, rope_scaling=None, use_qk_norm=True, partial_rotary_factor=1.0)
add("telechat3", "telechat3", GROUPED)
add("dots1", "dots1", GROUPED, EXPERTS)
add("deepseek", "deepseek", (GROUPED | {"head_dim": 40}), EXPERTS)
add(
    "granite",
    "granite",
    (GROUPED | {"head_dim": 40}),
    logits_scaling=1.0,
    attention_multiplier=1.0,
    embedding_multiplier=1.0,
    residual_multiplier=1.0,
)
add(
    "granitemoe",
    "granitemoe",
    (GROUPED | {"head_dim": 40}),
    EXPERTS,
    logits_scaling=1.0,
    attention_multiplier=1.0,
    embedding_multiplier=1.0,
    residual_multiplier=1.0,
)
add("minicpm", "minicpm", (GROUPED | {"head_dim": 40}), dim_model_base=32, scale_depth=1.4, scale_emb=12)
add("internlm2", "internlm2", GROUPED, bias=False)
add("hunyuan_v1_dense", "hunyuan_v1_dense", GROUPED, rope_scaling={"type": "dynamic", "factor": 1.0, "alpha": 1000.0})
add("exaone", "exaone", GROUPED | {"head_dim": 32}, num_layers=4)
add("qwen3_moe", "qwen3_moe", GROUPED, EXPERTS)
add("qwen2_moe", "qwen2_moe", (GROUPED | {"head_dim": 40}), EXPERTS)
add("qwen3_vl", "qwen3_vl", text_config=config_of("qwen3_vl_text", GROUPED))
add("glm4", "glm4", GROUPED, partial_rotary_factor=0.5)
add(
    "ernie4_5_moe",
    "ernie4_5_moe",
    GROUPED,
    use_bias=False,
    moe_num_experts=4,
    moe_k=2,
    moe_intermediate_size=32,
    moe_num_shared_experts=1,
    moe_layer_start_index=1,
    moe_layer_interval=1,
)
add("olmoe", "olmoe", GROUPED, EXPERTS)
add("muse_glimmer", "muse_glimmer", GROUPED, sliding_window=300, num_hidden_layers=6)
add(
    "gemma4_text",
    "gemma4_text",
    GROUPED,
    layer_types=TYPES,
    sliding_window=300,
    num_kv_shared_layers=0,
    global_head_dim=96,
    hidden_size_per_layer_input=0,
)
add(
    "kimi_k3",
    "kimi_k3",
    text_config=config_of(
        "kimi_linear",
        EXPERTS,
        LATENT,
        head_dim=32,
        model_max_length=4096,
        num_experts_per_token=2,
        num_shared_experts=1,
        linear_attn_config={"num_heads": 3, "head_dim": 32, "short_conv_kernel_size": 4, "kda_layers": [1, 3], "full_attn_layers": [2, 4]},
    ),
)
add("bailing_moe", "bailing_moe", (GROUPED | {"head_dim": 40}), EXPERTS, num_shared_experts=1)

add("gptj", "gptj", BARE, n_embd=192, n_head=6, n_layer=4, n_positions=4096, rotary_dim=16)
add("qwen3_vl_moe", "qwen3_vl_moe", text_config=config_of("qwen3_vl_moe_text", GROUPED, EXPERTS))
add(
    "lfm2_moe",
    "lfm2_moe",
    GROUPED | {"head_dim": 40},
    EXPERTS,
    conv_L_cache=3,
    conv_bias=False,
    use_expert_bias=True,
    num_dense_layers=1,
    full_attn_idxs=[1],
)

add(
    "deepseek_v41",
    "deepseek_v41",
    BARE,
    EXPERTS,
    hidden_size=192,
    num_hidden_layers=4,
    num_attention_heads=6,
    head_dim=64,
    q_lora_rank=48,
    qk_rope_head_dim=32,
    o_groups=2,
    o_lora_rank=16,
    sliding_window=128,
    compress_ratios=[0, 4, 4, 1],
    kv_source_layer_ids=[1, 3],
    index_source_layer_ids=[1, 3],
    index_n_heads=2,
    index_head_dim=64,
    index_topk=16,
    hc_mult=2,
)

#: Context, sequences and settings that every config is asked.
QUESTIONS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (1, 1, {}),
    (700, 1, {"max_tokens": 300}),
    (1500, 2, {"prefill_step_size": 1000}),
    (1500, 1, {"max_kv_size": 400, "max_tokens": 9}),
    (1500, 1, {"kv_bits": 4, "quantized_kv_start": 1000, "kv_group_size": 32, "max_tokens": 20}),
)


def held(config: dict[str, Any], context: int, sequences: int, args: dict[str, int]) -> int:
    """Bytes of the caches after the calls."""
    config = json.loads(json.dumps(config))
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    casts = getattr(model, "cast_predicate", lambda _: True)
    model.update(tree_map_with_path(lambda path, array: array.astype(mx.bfloat16) if casts(path) else array, model.parameters()))
    caches = make_prompt_cache(model, args.get("max_kv_size"))
    left = context - args.get("max_tokens", 0)
    step = args.get("prefill_step_size", 2048)
    calls = [step] * ((left - 1) // step) + [(left - 1) % step] * bool((left - 1) % step) + [1] * (1 + args.get("max_tokens", 0))
    for tokens in calls:
        model(mx.zeros((sequences, tokens), mx.int32), cache=caches)
        bits, group, start = args.get("kv_bits"), args.get("kv_group_size", 64), args.get("quantized_kv_start", 5000)
        maybe_quantize_kv_cache(caches, quantized_kv_start=start, kv_group_size=group, kv_bits=bits)
    return sum(cache.nbytes for cache in caches)


def answer(config: dict[str, Any], context: int, sequences: int, args: dict[str, int]) -> dict[str, Any]:
    """One question and what the library gave."""
    asked: dict[str, Any] = {"context": context, "sequences": sequences, "engine_args": args}
    try:
        return asked | {"bytes": held(config, context, sequences, args)}
    except Exception as error:  # noqa: BLE001  whatever the library raises is its answer
        return asked | {"error": f"{type(error).__name__}: {error}"[:120]}


def main() -> None:
    """Print the cases, a config a line."""
    print(json.dumps({"about": ABOUT.format(version=mlx_lm.__version__, core=mx.__version__)}))
    for name, config in CONFIGS.items():
        print(json.dumps({"name": name, "config": config, "asked": [answer(config, *asked) for asked in QUESTIONS]}), flush=True)


if __name__ == "__main__":
    main()
