"""TensorRT-LLM's families: one row for each model_type that kvcalc reads, with the cache manager that the engine's model class prefers.

A family without a row is refused: that nothing is known about it is no fact about it.

Source: TensorRT-LLM, docs/source/features/kvcache.md ("Selecting the KV Cache Manager"), get_preferred_kv_cache_manager_version of the
model classes and config_utils.py (is_hybrid_linear); merged in pull requests 16942 (GPT-OSS), 17396 (Gemma 3 and 4) and 19004 (Llama).
"""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """What the engine does with a family.

    second      `use_kv_cache_manager_v2: auto` is the second manager
    only        there is no other manager: the first cannot hold layers of two widths, nor DeepSeek-V4's rows
    recurrent   its recurrent layers have a cache; those of other families have none
    """

    second: bool = False
    only: bool = False
    recurrent: bool = False


#: Model classes that declare nothing, and so have the first manager.
_FIRST = """
    RefinedWeb RefinedWebModel afmoe apertus apertus1p5_text aquila arcee arctic aria_text axk1 axk2 baichuan bailing_hybrid
    bailing_moe bailing_moe_v2 bamba bart beam bert bert-generation big_bird bigbird_pegasus biogpt bitnet blenderbot blenderbot-small
    blip_text_model bloom camembert canary_decoder chameleon chatglm codegen cohere cohere2 cohere2_moe cohere_asr cohere_compass_text
    cosmos3_edge_text cpmant ctrl cwm data2vec-text dbrx deci deepseek deepseek_ocr2_text deepseek_v2 deepseek_v3 deepseek_v32
    dia_decoder diffllama doge dory dots1 dots3_note_text electra emu3_text_model ernie ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text
    evolla exaone exaone4 exaone_moe falcon falcon_h1 falcon_mamba flex_olmo flint fsmt gemma gemma2 gemma3n_text gemma4_assistant
    gemma4_unified_assistant gigachat3_5 git glm glm4 glm4_moe glm4_moe_lite glm4v_moe_text glm4v_text glm5_next_text glm_image_text
    glm_moe_dsa glm_ocr_text gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox gpt_neox_japanese gptj granite granite4_vision_text
    granite_docling_text granite_swa granitemoe granitemoe_swa granitemoehybrid granitemoeshared grok-1 helium hrm_text hunyuan
    hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3 hy_v4 hy_v4_vl_text hyperclovax idefics inkling2_loop_text inkling2_text
    inkling_text internlm internlm2 internlm3 interns2_mobius_text iquest_loopcoder iquest_q1 iquestcoder iquestloopcoder jais jais2
    jamba jet_nemotron jetmoe k2_horizon kimi_k2 kolibri1 kosmos_2_5_text_model kosmos_2_text_model kyutai_speech_to_text laguna
    lara_mini led lfm2 lfm2_moe lfm3 longcat_flash longt5 m2m_100 mamba mamba2 marian mbart megatron-bert mellum mimo mimo_v2
    mimo_v2_flash minicpm minicpm3 minicpm_sala minimax minimax_m1 minimax_m2 minimax_m3 minimax_m3_text minimax_m3_vl_text
    minimax_text_01 ministral ministral3 mistral mistral4 mistral_large4_text mixtral mllama_text_model modernbert-decoder molmo2_text
    moondream3_text moonshine moonshine_streaming moshi mpt mt5 muse_glimmer_text muse_spark_text musicgen_decoder
    musicgen_melody_decoder mvp nanbeige nanochat nemotron nemotron-nas nllb-moe olmo olmo2 olmo3 olmo_hybrid olmoe openai-gpt openelm
    opt orion paddleocr_vl_text param2moe pegasus pegasus_x persimmon phi phi3 phi3small phi4_multimodal phimoe pix2struct_text_model
    plamo3 plbart pop2piano pp_formulanet_text prophetnet qwen qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3
    qwen3_asr_text qwen3_moe qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text qwen4_exp_text recurrent_gemma rembert roberta
    roberta-prelayernorm roc_bert roformer rwkv rwkv5 rwkv6 rwkv7 sarvam_mla sarvam_moe seamless_m4t seamless_m4t_v2 seed_oss smollm3
    solar solar_open spark2_5 speech_to_text speecht5 stablelm stablelm_epoch starcoder2 step3_text step3p5 step5 switch_transformers
    t5 t5_gemma_module t5gemma2_decoder telechat telechat2 telechat3 teleflm trocr udop umt5 unlimited_ocr_text vaultgemma
    voxtral_realtime_text whisper xglm xllm xlm xlm-roberta xlm-roberta-xl xlnet xlstm xmod xverse yi youtu zamba zamba2 zaya
"""
FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_FIRST.split(), Family()),
    **dict.fromkeys(("gemma3_text", "gpt_oss", "llama", "llama4_text"), Family(second=True)),
    **dict.fromkeys(("deepseek_v4", "deepseek_v41_text"), Family(second=True, only=True)),
    **dict.fromkeys(("diffusion_gemma_text", "gemma4_text", "gemma4_unified_text"), Family(second=True, only=True)),
    **dict.fromkeys(
        ("kimi_linear", "nemotron_h", "nemotron_h_puzzle", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"),
        Family(second=True, recurrent=True),
    ),
}
