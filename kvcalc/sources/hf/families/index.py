"""model_type → the function that reads it, as module and name, so that one model imports one module.

This table is what kvcalc supports; docs/families.md is printed from it.
"""

from __future__ import annotations

_READERS: dict[str, dict[str, str]] = {
    "dense": {
        "plain": """
            Klear apertus apertus1p5_text aquila arcee arctic aria_text baichuan bailing_moe bailing_moe_v2 bitnet chameleon cohere
            cosmos3_edge_text deepseek deepseek_ocr2_text diffllama doge emu3_text_model ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text
            evolla exaone flex_olmo gemma glm glm4 glm4_moe glm4v_moe_text glm_image_text glm_ocr_text granite
            granite4_vision_text granite_docling_text granitemoe granitemoeshared grok-1 helium hunyuan_vl_text hy_v3 hyperclovax
            internlm internlm2 internlm3 iquestcoder jais jais2 k2_horizon llama mimo minicpm minimax_m2 molmo2_text
            moondream3_text nanochat nemotron olmo olmo2 olmoe orion paddleocr_vl_text param2moe phi phi3small phi4_multimodal qwen
            qwen3_asr_text qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text sarvam_moe seed_oss solar solar_open stablelm
            stablelm_epoch step3_text telechat telechat2 telechat3 teleflm xllm xverse yi
        """,
        "every_head": """
            bert bert-generation biogpt bloom camembert codegen ctrl data2vec-text electra ernie git gpt-sw3
            gpt2 gpt_neo gpt_neox gpt_neox_japanese gptj idefics kosmos_2_5_text_model kosmos_2_text_model megatron-bert openai-gpt
            opt persimmon rembert roberta roberta-prelayernorm roc_bert roformer xglm xlm xlm-roberta xlm-roberta-xl xlnet
            xmod
        """,
        "derived": "glm4v_text",
        "big_bird": "big_bird",
        "cpmant": "cpmant",
        "jetmoe": "jetmoe",
        "nested": "dbrx mpt",
        "multi_query": "gpt_bigcode",
        "falcon": "falcon RefinedWeb RefinedWebModel",
        "grouped": "chatglm",
        "pruned": "deci nemotron-nas",
        "layered_heads": "openelm",
        "paired": "hunyuan hunyuan_v1_dense hunyuan_v1_moe",
    },
    "windows": {
        "whole": "kyutai_speech_to_text ministral ministral3 mistral mixtral moshi phi3 phimoe voxtral_realtime_text",
        "nominal": "starcoder2",
        "switched": "qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text qwen3",
        "switched_before": "qwen2_moe",
        "switched_whole": "qwen3_moe",
        "dots1": "dots1",
        "smollm3": "smollm3",
        "listed": "cohere_compass_text laguna mellum",
        "alternating": "gemma2 gpt_oss vaultgemma",
        "fourth": "olmo3 spark2_5",
        "first_of_four": "cwm granite_swa granitemoe_swa",
        "fifth": "kolibri1",
        "backward": "muse_glimmer_text muse_spark_text",
        "flint": "flint",
        "beam": "beam",
        "gemma3": "gemma3_text",
        "cohere2": "cohere2",
        "exaone4": "exaone4",
        "exaone_moe": "exaone_moe",
        "afmoe": "afmoe",
        "cohere2_moe": "cohere2_moe",
        "modernbert_decoder": "modernbert-decoder",
        "llama4": "llama4_text",
        "mimo": "mimo_v2 mimo_v2_flash",
        "step3p5": "step3p5 step5",
        "iquest_q1": "iquest_q1",
        "plamo3": "plamo3",
        "unlimited_ocr": "unlimited_ocr_text",
    },
    "sharing": {
        "gemma3n": "gemma3n_text",
        "gemma4": "diffusion_gemma_text gemma4_text gemma4_unified_text",
        "assistant": "gemma4_assistant gemma4_unified_assistant",
    },
    "latent": {
        "deepseek_v2": "deepseek_v2",
        "latent": "axk1 deepseek_v3 glm4_moe_lite kimi_k2 minicpm3 mistral4 sarvam_mla youtu youtu_llm",
        "double": "longcat_flash",
    },
    "indexed": {
        "everywhere": "axk2 deepseek_v32",
        "indexed": "glm_moe_dsa",
        "hunyuan4": "hy_v4 hy_v4_vl_text",
        "mistral_large4": "mistral_large4_text",
        "dots3": "dots3_note_text",
        "minimax_m3": "minimax_m3 minimax_m3_text minimax_m3_vl_text",
    },
    "compressed": {
        "v4": "deepseek_v4",
        "v41": "deepseek_v41_text",
    },
    "linear": {
        "qwen3_next": "interns2_mobius_text qwen3_5_moe_text qwen3_5_text qwen3_next",
        "olmo_hybrid": "olmo_hybrid",
        "lara_mini": "lara_mini",
        "qwen4_exp": "qwen4_exp_text",
        "gigachat": "gigachat3_5",
        "jet_nemotron": "jet_nemotron",
        "kimi_linear": "kimi_linear",
        "bailing_hybrid": "bailing_hybrid",
        "glm5_next": "glm5_next_text",
        "minimax": "minimax",
        "minimax_original": "minimax_m1 minimax_text_01",
        "minicpm_sala": "minicpm_sala",
    },
    "ssm": {
        "mamba1": "falcon_mamba mamba",
        "mamba2": "mamba2",
        "jamba": "jamba",
        "bamba": "bamba",
        "granite_hybrid": "granitemoehybrid",
        "parallel": "falcon_h1",
        "nemotron_h": "nemotron_h nemotron_h_puzzle",
        "zamba": "zamba",
        "zamba2": "zamba2",
    },
    "convolution": {
        "lfm2": "lfm2 lfm2_moe",
        "lfm3": "lfm3",
        "recurrent_gemma": "recurrent_gemma",
        "inkling": "inkling2_text inkling_text",
        "inkling_loop": "inkling2_loop_text",
        "zaya": "zaya",
        "rwkv4": "rwkv",
        "rwkv7": "rwkv5 rwkv6 rwkv7",
        "xlstm": "xlstm",
    },
    "loops": {
        "hrm_text": "hrm_text",
        "looped": "nanbeige",
        "loop_coder": "iquestloopcoder iquest_loopcoder",
        "dory": "dory",
    },
    "community": {
        "afm7": "afm7",
        "baichuan_m1": "baichuan_m1",
        "bailing_linear": "bailing_moe_linear",
        "gear": "gear",
        "lille": "lille-130m",
        "longcat_ngram": "longcat_flash_ngram",
        "plamo": "plamo",
        "plamo2": "plamo2",
        "talkie": "talkie",
    },
    "encoder_decoder": {
        "bart": """
            bart bigbird_pegasus blenderbot blenderbot-small blip_text_model canary_decoder fsmt led m2m_100 marian mbart
            musicgen_decoder musicgen_melody_decoder mvp nllb-moe pegasus pegasus_x plbart pp_formulanet_text prophetnet seamless_m4t
            seamless_m4t_v2 speech_to_text speecht5 trocr
        """,
        "whisper": "whisper",
        "t5": "longt5 mt5 pix2struct_text_model pop2piano switch_transformers t5 udop umt5",
        "grouped_decoder": "cohere_asr moonshine moonshine_streaming",
        "dia": "dia_decoder",
        "t5gemma": "t5_gemma_module",
        "t5gemma2": "t5gemma2_decoder",
        "mllama": "mllama_text_model",
    },
}

#: Every model_type that kvcalc reads: its module and its reader.
INDEX: dict[str, tuple[str, str]] = {
    model_type: (module, reader)
    for module, readers in _READERS.items()
    for reader, model_types in readers.items()
    for model_type in model_types.split()
}
