"""The families that transformers has a class for, a row each: where the class departs from the rule, by the model_type of the file.

The rule: keys, values, latents, index keys and convolution columns in the model's own type, recurrent matrices in fp32, one column
more than a convolution must keep, KV heads as the config counts them. A family without a row is refused, and FOREIGN says of some that
there is no class. Source: the modeling files of transformers 5.24.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcalc.core.states import Full, Sliding
from kvcalc.core.states.base import MODEL

FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class Quirk:
    """One family's departures.

    recurrent, conv, index   the type of recurrent matrices, convolution columns and index keys
    extra_columns            convolution columns beyond the kernel - 1 that the mathematics needs
    gated_index              each index key has gate scores of its own width beside it, and a mark that it is no padding
    positions                int64 numbers a token beside the index keys of the first layer that has them
    latent_is_kv             the latent is cached as K and again as V
    broadcast                the config's field under which keys and values are repeated to every query head before they are cached
    modules                  recurrent and convolution state sits in the modules, outside the cache
    config_heads             where kinds of layers differ in heads or widths: the kind that has the config's own
    unpaged                  the kind of its layers that the paged cache does not know, where the states do not show it
    every_head               the config says its KV heads under a name that the paged cache does not read: it takes every head
    """

    recurrent: str = FP32
    conv: str = MODEL
    index: str = MODEL
    extra_columns: int = 1
    gated_index: bool = False
    positions: int = 0
    latent_is_kv: bool = False
    broadcast: str = ""
    modules: bool = False
    config_heads: type[Full | Sliding] | None = None
    every_head: bool = False
    unpaged: str = ""


RULE = Quirk()

#: Classes that follow the rule.
_PLAIN = """
    afmoe apertus apertus1p5_text arcee aria_text axk1 axk2 bailing_hybrid bamba bart beam bert bert-generation big_bird
    bigbird_pegasus biogpt bitnet blenderbot blenderbot-small blip_text_model bloom camembert canary_decoder chameleon codegen cohere
    cohere2 cohere2_moe cohere_asr cohere_compass_text cosmos3_edge_text cpmant ctrl cwm data2vec-text dbrx deepseek_ocr2_text
    deepseek_v2 deepseek_v3 deepseek_v32 dia_decoder diffllama diffusion_gemma_text doge dots1 electra emu3_text_model ernie ernie4_5
    ernie4_5_moe ernie4_5_vl_moe_text evolla exaone exaone4 exaone_moe falcon_h1 falcon_mamba flex_olmo flint fsmt gemma gemma2
    gemma3_text gemma3n_text gemma4_assistant gemma4_text gemma4_unified_assistant gemma4_unified_text git glm glm4 glm4_moe
    glm4_moe_lite glm4v_moe_text glm4v_text glm_image_text glm_moe_dsa glm_ocr_text gpt-sw3 gpt2 gpt_bigcode gpt_neo gpt_neox
    gpt_neox_japanese gpt_oss gptj granite granite4_vision_text granite_docling_text granite_swa granitemoe granitemoe_swa
    granitemoehybrid granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3 hy_v4 hy_v4_vl_text
    hyperclovax idefics internlm3 iquestcoder jais2 jamba jetmoe kimi_linear kolibri1 kosmos_2_5_text_model kosmos_2_text_model
    kyutai_speech_to_text laguna lara_mini led lfm2 lfm2_moe lfm3 llama llama4_text longcat_flash longt5 m2m_100 mamba mamba2 marian
    mbart megatron-bert mellum minicpm3 minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mistral4 mistral_large4_text
    mixtral mllama_text_model modernbert-decoder molmo2_text moonshine moonshine_streaming moshi mpt mt5 muse_glimmer_text
    muse_spark_text musicgen_decoder musicgen_melody_decoder mvp nanochat nemotron nemotron_h nllb-moe olmo olmo2 olmo3 olmo_hybrid
    olmoe opt paddleocr_vl_text pegasus pegasus_x persimmon phi phi3 phi4_multimodal phimoe pix2struct_text_model plbart pop2piano
    pp_formulanet_text prophetnet qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_5_moe_text qwen3_5_text
    qwen3_moe qwen3_next qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text rembert roberta roberta-prelayernorm roc_bert roformer
    rwkv sarvam_mla sarvam_moe seamless_m4t seamless_m4t_v2 seed_oss smollm3 solar_open speech_to_text speecht5 stablelm starcoder2
    step3p5 switch_transformers t5 t5_gemma_module t5gemma2_decoder trocr udop umt5 vaultgemma voxtral_realtime_text whisper xglm
    xlm-roberta xlm-roberta-xl xlstm xmod youtu zamba zamba2
"""
#: A row a family.
FAMILIES: dict[str, Quirk] = {
    **dict.fromkeys(_PLAIN.split(), RULE),
    "deepseek_v4": Quirk(latent_is_kv=True),
    "dots3_note_text": Quirk(index=FP32),
    "dory": Quirk(unpaged="looped"),
    "falcon": Quirk(broadcast="new_decoder_architecture", every_head=True),
    "glm5_next_text": Quirk(gated_index=True),
    **dict.fromkeys(("inkling_text", "inkling2_text", "inkling2_loop_text"), Quirk(conv=FP32)),
    "mimo_v2_flash": Quirk(config_heads=Full),
    "minimax": Quirk(recurrent=MODEL),
    "qwen4_exp_text": Quirk(positions=3),
    "recurrent_gemma": Quirk(modules=True),
    "unlimited_ocr_text": Quirk(unpaged="reference_sliding_attention"),
    "zaya": Quirk(recurrent=MODEL, extra_columns=0),
}

#: Classes that keep no cache at all: each step runs over everything again.
CACHELESS = frozenset({"openai-gpt", "xlm"})
#: Classes whose memory is no cache of keys and values, and what it is.
OTHERWISE = {"reformer": "hidden states with their hash buckets", "xlnet": "hidden states of a fixed number of past tokens"}
_FOREIGN = """
    Klear afm7 baichuan_m1 bailing_moe_linear gear lille-130m longcat_flash_ngram plamo plamo2 talkie youtu_llm
    RefinedWeb RefinedWebModel aquila arctic baichuan bailing_moe bailing_moe_v2 chatglm deci deepseek deepseek_v41_text gigachat3_5
    grok-1 hunyuan internlm internlm2 interns2_mobius_text iquest_loopcoder iquest_q1 iquestloopcoder jais jet_nemotron k2_horizon
    kimi_k2 mimo mimo_v2 minicpm minicpm_sala minimax_m1 minimax_m3 minimax_m3_text minimax_text_01 moondream3_text nanbeige
    nemotron-nas nemotron_h_puzzle openelm orion param2moe phi3small plamo3 qwen qwen3_asr_text rwkv5 rwkv6 rwkv7 solar spark2_5
    stablelm_epoch step3_text step5 telechat telechat2 telechat3 teleflm xllm xverse yi
"""
#: Families that transformers 5.24 has no class for: other engines' names, and code that lives beside the weights.
FOREIGN = frozenset(_FOREIGN.split())
