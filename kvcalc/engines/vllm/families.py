"""One row a model_type: what vLLM 0.33 serves it with, and every rule of its layers that no config says.

    OWN            a class of vLLM's own (models/, model_executor/models/)
    TRANSFORMERS   no class of its own, but one of transformers (5.16 to 5.20) that the Transformers backend drives: attention alone
    UNDRIVEN       transformers has a class, and the backend cannot drive it
    REMOVED        served up to an earlier release
    PLUGIN         served by a plugin
    ABSENT         neither has a class under this model_type

A class of vLLM's own decides before the model_type does (classes.py). A model_type without a row is refused.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Service(Enum):
    """Who serves a model."""

    OWN = "own"
    TRANSFORMERS = "transformers"
    UNDRIVEN = "undriven"
    REMOVED = "removed"
    PLUGIN = "plugin"
    ABSENT = "absent"


class Caches(Enum):
    """How a family's layers keep their cache: by attention.py and layers.py alone, or by a module of family_caches/."""

    ORDINARY = "ordinary"
    DEEPSEEK_V4 = "deepseek_v4"
    DEEPSEEK_V41 = "deepseek_v41"
    DOTS3_NOTE = "dots3_note"
    GLM5_NEXT = "glm5_next"
    INKLING = "inkling"
    KIMI_LINEAR = "kimi_linear"
    MINIMAX_M3 = "minimax_m3"
    QWEN4 = "qwen4"
    ZAYA = "zaya"


class Draft(NamedTuple):
    """How vLLM runs a family's own draft layers (speculative_method mtp).

    silent      draft layers where the config is silent; 0 = the config has to say
    known       kvcalc has a rule for their caches
    first_only  the first draft layer runs alone, however many the checkpoint has
    as_model    they are as the model's layers of the same numbers (models/exaone_moe.py)
    as_sparse   they are as the model's sparse layers, and this is what a config calls their number (models/*/mtp.py)
    window      they see a window, as the model's window layers do (models/mimo_v2_mtp.py)
    """

    silent: int = 0
    known: bool = True
    first_only: bool = False
    as_model: bool = False
    as_sparse: tuple[str, ...] = ()
    window: bool = False


class Family(NamedTuple):
    """What vLLM does with one model_type; the defaults are those of plain attention under a class of vLLM's own.

    service            who serves it
    last               the last release that had a class of its own for it
    caches             the rule of its caches
    unruled            what its caches are, where they are of a kind that kvcalc has no rule for
    mla                latents are one row of all heads (transformers_utils/model_arch_config_convertor.py)
    index_keys         index keys are kept beside attention other than MLA
    sinks              attention has sinks
    uneven             it names its kernel itself where K and V differ in width (models/mimo_v2.py)
    backend            the one attention backend that its model runs on
    sees_images        image tokens see each other if the config says so (use_bidirectional_attention)
    wider              tokens that a window sees beyond the config's (models/commandr.py: the token itself)
    attention_free     no layer has attention, so that prefix caching is off by default
    shares_rows        layers read other layers' rows, which have to be on their own pipeline stage
    recurrent          vLLM has a model with its recurrent layers
    matrix             the config's name for the type of recurrent matrices, and what a silent config means
    gdn_checkpoint     its gated DeltaNet can hand a state out from inside a prefill
    flash_kda          its KDA layers can run FlashKDA: their gate is full-rank and bounded (models/kimi_k3, models/glm5next)
    draft              its draft layers, None where vLLM has no MTP model for it
    pipeline           it can be cut into pipeline stages
    cross              vLLM has a model with its cross-attention
    fp8_on_blackwell   `auto` means fp8 on datacenter Blackwell (model_executor/models/config.py)
    deaf               its layers never hear of --kv-cache-dtype (models/falcon.py)
    """

    service: Service = Service.OWN
    last: str = ""
    caches: Caches = Caches.ORDINARY
    unruled: str = ""
    mla: bool = False
    index_keys: bool = False
    sinks: bool = False
    uneven: bool = False
    backend: str = ""
    sees_images: bool = False
    wider: int = 0
    attention_free: bool = False
    shares_rows: bool = False
    recurrent: bool = False
    matrix: tuple[str, str] | None = None
    gdn_checkpoint: bool = True
    flash_kda: bool = False
    draft: Draft | None = None
    pipeline: bool = True
    cross: bool = False
    fp8_on_blackwell: bool = False
    deaf: bool = False


#: Plain attention under a class of vLLM's own.
_PLAIN = """
    afmoe apertus aria_text bailing_moe bailing_moe_v2 beam bloom chatglm cohere cohere2_moe cohere_compass_text cosmos3_edge_text
    dbrx deci deepseek deepseek_ocr2_text ernie4_5 ernie4_5_vl_moe_text exaone exaone4 gemma gemma2 gemma3_text glm4 glm4v_moe_text
    glm4v_text gpt-sw3 gpt2 gptj granite granite4_vision_text granitemoe granitemoeshared hyperclovax internlm2 internlm3
    interns2_mobius_text iquest_loopcoder iquestcoder iquestloopcoder k2_horizon laguna llama llama4_text minicpm minicpm3 minimax_m2
    ministral3 mistral mixtral molmo2_text moondream3_text muse_glimmer_text muse_spark_text nemotron nemotron-nas olmoe opt orion
    param2moe phi3 phimoe plamo3 qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_asr_text qwen3_moe
    qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text sarvam_mla sarvam_moe solar stablelm step3_text telechat2 telechat3 teleflm
    unlimited_ocr_text voxtral_realtime_text
"""
_TRANSFORMERS = """
    arcee axk2 bert bert-generation bigbird_pegasus biogpt bitnet blenderbot blenderbot-small camembert canary_decoder ctrl cwm
    data2vec-text dia_decoder doge electra emu3_text_model ernie flex_olmo gemma4_assistant gemma4_unified_assistant glm
    glm_image_text gpt_bigcode gpt_neox helium hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text jais2 jetmoe kolibri1
    kosmos_2_5_text_model kosmos_2_text_model kyutai_speech_to_text longt5 m2m_100 marian mellum ministral mistral4 modernbert-decoder
    moonshine moonshine_streaming moshi mt5 musicgen_decoder musicgen_melody_decoder nanbeige nanochat nllb-moe olmo olmo2 olmo3
    pegasus pegasus_x phi pix2struct_text_model plbart pop2piano pp_formulanet_text recurrent_gemma roberta roberta-prelayernorm
    roc_bert seamless_m4t seamless_m4t_v2 seed_oss smollm3 solar_open speech_to_text starcoder2 switch_transformers t5 t5_gemma_module
    t5gemma2_decoder udop umt5 vaultgemma xlm-roberta xlm-roberta-xl xlstm xmod youtu zamba
"""
_UNDRIVEN = """
    big_bird blip_text_model codegen cpmant diffllama evolla fsmt git gpt_neo gpt_neox_japanese idefics led megatron-bert mvp
    openai-gpt prophetnet rembert roformer rwkv speecht5 trocr xglm xlm xlnet
"""
#: The last release → families that it had.
_REMOVED = {
    "0.9.2": "phi3small",
    "0.10.2": "mllama_text_model phi4flash",
    "0.22.0": "jais",
    "0.23.0": "baichuan bamba internlm minimax minimax_m1 minimax_text_01 qwen xverse",
    "0.24.0": "aquila grok-1",
    "0.25.0": "telechat",
    "0.26.0": "plamo2",
    "0.28.0": "RefinedWeb RefinedWebModel arctic mpt stablelm_epoch",
}
_PLUGIN = "bart florence2 mbart"
_ABSENT = """
    apertus1p5_text gigachat3_5 granite_docling_text hunyuan hy_v4_vl_text inkling2_loop_text inkling2_text iquest_q1 jet_nemotron
    lara_mini lfm3 minicpm_sala mistral_large4_text openelm rwkv5 rwkv6 rwkv7 spark2_5 xllm yi
    Klear afm7 baichuan_m1 bailing_moe_linear gear lille-130m plamo talkie youtu_llm
"""

_TAKEN_OVER = {"chameleon": "0.28.0", "dots1": "0.23.0", "persimmon": "0.25.0", "phi4_multimodal": "0.12.0"}

_MTP = Draft()
_ONE_MTP = Draft(1)
_UNRULED_MTP = Draft(known=False)
_MLA = Family(mla=True)
_SINKS = Family(sinks=True)
_RECURRENT = Family(recurrent=True)
_ATTENTION_FREE = Family(recurrent=True, attention_free=True)
_NEMOTRON_H = Family(recurrent=True, matrix=("mamba_ssm_cache_dtype", "float32"))
_QWEN3_5 = Family(recurrent=True, matrix=("mamba_ssm_dtype", "auto"), draft=_ONE_MTP)
_MIMO_V2 = Family(uneven=True, draft=Draft(1, first_only=True, window=True))
_MINIMAX_M3 = Family(caches=Caches.MINIMAX_M3, index_keys=True, draft=_ONE_MTP)
_SEES_IMAGES = Family(sees_images=True)
_WHOLE = Family(pipeline=False)

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(_PLAIN.split(), Family()),
    **dict.fromkeys(_TRANSFORMERS.split(), Family(Service.TRANSFORMERS)),
    **dict.fromkeys(_UNDRIVEN.split(), Family(Service.UNDRIVEN)),
    **dict.fromkeys(_PLUGIN.split(), Family(Service.PLUGIN)),
    **dict.fromkeys(_ABSENT.split(), Family(Service.ABSENT)),
    **{name: Family(Service.REMOVED, release) for release, names in _REMOVED.items() for name in names.split()},
    **{name: Family(Service.TRANSFORMERS, release) for name, release in _TAKEN_OVER.items()},
    # draft layers
    **dict.fromkeys(("ernie4_5_moe", "exaone4_5_text", "glm4_moe", "glm_ocr_text", "hy_v3", "mimo"), Family(draft=_MTP)),
    "exaone_moe": Family(draft=Draft(1, as_model=True)),
    "mimo_v2": _MIMO_V2,
    "mimo_v2_flash": _MIMO_V2,
    "step3p5": Family(draft=_ONE_MTP),
    "longcat_flash_ngram": Family(unruled="the tokens that its n-gram embedding looks back to, by rules that kvcalc has not read"),
    "step5": Family(
        unruled="summaries of token groups and a ring of the open one, whose sizes (sparse_config) are not among what kvcalc reads",
        draft=_UNRULED_MTP,
    ),
    # latents
    **dict.fromkeys(("axk1", "deepseek_v2", "kimi_k2"), _MLA),
    **dict.fromkeys(("deepseek_v3", "deepseek_v32", "glm4_moe_lite", "hy_v4", "pangu_ultra_moe"), Family(mla=True, draft=_MTP)),
    "deepseek_v4": Family(caches=Caches.DEEPSEEK_V4, index_keys=True, draft=_MTP),
    "deepseek_v41_text": Family(caches=Caches.DEEPSEEK_V41, mla=True, shares_rows=True),
    "dots3_note_text": Family(caches=Caches.DOTS3_NOTE, mla=True, draft=_UNRULED_MTP),
    "glm5_next_text": Family(
        caches=Caches.GLM5_NEXT,
        mla=True,
        recurrent=True,
        flash_kda=True,
        draft=Draft(as_sparse=("num_nextn_predict_layers",)),
        fp8_on_blackwell=True,
    ),
    "glm_moe_dsa": Family(mla=True, draft=_MTP, fp8_on_blackwell=True),
    "kimi_linear": Family(caches=Caches.KIMI_LINEAR, mla=True, recurrent=True),
    "longcat_flash": Family(mla=True, draft=_ONE_MTP),
    # index keys beside ordinary attention
    "minimax_m3": _MINIMAX_M3,
    "minimax_m3_text": _MINIMAX_M3,
    "minimax_m3_vl_text": _MINIMAX_M3,
    # recurrent layers
    **dict.fromkeys(("falcon_h1", "granitemoehybrid", "jamba", "lfm2", "lfm2_moe"), _RECURRENT),
    "alice_ai": Family(recurrent=True, pipeline=False),
    "bailing_hybrid": Family(mla=True, recurrent=True, draft=_MTP),
    "falcon_mamba": _ATTENTION_FREE,
    "inkling_text": Family(caches=Caches.INKLING, recurrent=True, draft=_UNRULED_MTP),
    "mamba": _ATTENTION_FREE,
    "mamba2": _ATTENTION_FREE._replace(pipeline=False),
    "nemotron_h": _NEMOTRON_H._replace(draft=_MTP),
    "nemotron_h_puzzle": _NEMOTRON_H,
    "olmo_hybrid": Family(recurrent=True, gdn_checkpoint=False),
    "qwen3_5_moe_text": _QWEN3_5,
    "qwen3_5_text": _QWEN3_5,
    "qwen3_next": Family(recurrent=True, draft=_ONE_MTP),
    "qwen4_exp_text": Family(
        caches=Caches.QWEN4,
        index_keys=True,
        recurrent=True,
        matrix=("mamba_ssm_dtype", "auto"),
        draft=Draft(as_sparse=("mtp_num_hidden_layers", "num_nextn_predict_layers")),
    ),
    "zamba2": Family(recurrent=True, pipeline=False),
    # The one family with states of fixed size that vLLM starts without keeping them.
    "zaya": Family(Service.TRANSFORMERS, caches=Caches.ZAYA, recurrent=True),
    # kernels, windows, images, types
    **dict.fromkeys(("gpt_oss", "granite_swa", "granitemoe_swa", "openai_privacy_filter"), _SINKS),
    "cohere2": Family(wider=1),
    "diffusion_gemma_text": _SEES_IMAGES,
    "falcon": Family(deaf=True),
    "flint": Family(backend="FLASHINFER"),
    "gemma4_text": _SEES_IMAGES,
    "gemma4_unified_text": _SEES_IMAGES,
    # cross-attention, and models that are not cut into stages
    "cohere_asr": Family(cross=True),
    "whisper": Family(cross=True, pipeline=False),
    "dory": _WHOLE,
    "gemma3n_text": _WHOLE,
    "hrm_text": _WHOLE,
    "paddleocr_vl_text": _WHOLE,
}

#: Wrappers whose image tokens see each other (is_mm_prefix_lm); Gemma 4 says so in its config.
IMAGE_WRAPPERS = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
#: Wrappers whose KDA layers can run FlashKDA.
FLASH_KDA_WRAPPERS = frozenset({"kimi_k3"})

_UNKNOWN = Family(Service.ABSENT)


def family_of(model_type: str) -> Family:
    """The row of a model_type; that of none for one without a row, which support.py refuses."""
    return FAMILIES.get(model_type, _UNKNOWN)
