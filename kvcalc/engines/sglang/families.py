"""The families that SGLang 0.5.23 serves, one row each: the class that it runs, and whose code that is.

    own            a class of SGLang's registry (models/*.py, EntryClass)
    transformers   no class of its own: it runs transformers' one, which must say that it can (model_loader/utils.py,
                   resolve_transformers_arch; `_supports_attention_backend` in transformers 5.19, which it pins)
    unsaid         neither; the pool is what its rules give, and the answer says that SGLang may not load the model

A family without a row is refused: that it stands in no list says nothing about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from kvcalc.core.states import Latent
from kvcalc.engines.base.families import unknown_family

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture


class Family(NamedTuple):
    """One family.

    class_name    the class of its files that name none
    code          whose code runs it: "own", "transformers" or "unsaid"
    """

    class_name: str
    code: Literal["own", "transformers", "unsaid"]


#: Class of SGLang's registry ← the model_types whose files are of that class.
_OWN = {
    "AfmoeForCausalLM": "afmoe",
    "ApertusForCausalLM": "apertus",
    "ArceeForCausalLM": "arcee",
    "BaichuanForCausalLM": "baichuan",
    "BailingMoeForCausalLM": "bailing_moe",
    "BailingMoeV2ForCausalLM": "bailing_moe_v2",
    "BailingMoeV3ForCausalLM": "bailing_hybrid",
    "BeamForCausalLM": "beam",
    "BertModel": "bert",
    "ChatGLMModel": "chatglm",
    "Cohere2ForCausalLM": "cohere2",
    "Cohere2MoeForCausalLM": "cohere2_moe",
    "CohereForCausalLM": "cohere",
    "Cosmos3EdgeForConditionalGeneration": "cosmos3_edge_text",
    "DbrxForCausalLM": "dbrx",
    "DeciLMForCausalLM": "deci nemotron-nas",
    "DeepseekForCausalLM": "deepseek",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV32ForCausalLM": "deepseek_v32",
    "DeepseekV3ForCausalLM": "deepseek_v3 kimi_k2",
    "DeepseekV4ForCausalLM": "deepseek_v4 deepseek_v41_text",
    "DiffusionGemmaForBlockDiffusion": "diffusion_gemma_text",
    "Dots3NoteForCausalLM": "dots3_note_text",
    "Ernie4_5_ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5_moe",
    "Ernie4_5_VLMoeForConditionalGeneration": "ernie4_5_vl_moe_text",
    "Exaone4ForCausalLM": "exaone4",
    "ExaoneForCausalLM": "exaone",
    "ExaoneMoeForCausalLM": "exaone_moe",
    "FalconH1ForCausalLM": "falcon_h1",
    "FalconMambaForCausalLM": "falcon_mamba",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "Gemma3nForConditionalGeneration": "gemma3n_text",
    "Gemma4AssistantForCausalLM": "gemma4_assistant",
    "Gemma4ForConditionalGeneration": "gemma4_text",
    "Gemma4UnifiedAssistantForCausalLM": "gemma4_unified_assistant",
    "Gemma4UnifiedForConditionalGeneration": "gemma4_unified_text",
    "GemmaForCausalLM": "gemma",
    "GigaChat35ForCausalLM": "gigachat3_5",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "Glm4vForConditionalGeneration": "glm4v_text",
    "Glm4vMoeForConditionalGeneration": "glm4v_moe_text",
    "Glm5NextForConditionalGeneration": "glm5_next_text",
    "GlmImageForConditionalGeneration": "glm_image_text",
    "GlmMoeDsaForCausalLM": "glm_moe_dsa",
    "GlmOcrForConditionalGeneration": "glm_ocr_text",
    "GPT2LMHeadModel": "gpt-sw3 gpt2",
    "GPTBigCodeForCausalLM": "gpt_bigcode",
    "GPTJForCausalLM": "gptj",
    "GptOssForCausalLM": "gpt_oss",
    "GraniteForCausalLM": "granite",
    "GraniteMoeForCausalLM": "granitemoe",
    "GraniteMoeHybridForCausalLM": "granitemoehybrid",
    "GraniteMoeSharedForCausalLM": "granitemoeshared",
    "GraniteMoeSWAForCausalLM": "granitemoe_swa",
    "GraniteSWAForCausalLM": "granite_swa",
    "Grok1ForCausalLM": "grok-1",
    "HrmTextForCausalLM": "hrm_text",
    "HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense",
    "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe",
    "HYV3ForCausalLM": "hy_v3",
    "HYV4ForCausalLM": "hy_v4",
    "InklingForConditionalGeneration": "inkling_text",
    "InternLM2ForCausalLM": "internlm2",
    "InternLM3ForCausalLM": "internlm3",
    "InternS2MobiusForConditionalGeneration": "interns2_mobius_text",
    "IQuestCoderForCausalLM": "iquestcoder",
    "IQuestLoopCoderForCausalLM": "iquestloopcoder iquest_loopcoder",
    "IQuestQ1ForCausalLM": "iquest_q1",
    "JetNemotronForCausalLM": "jet_nemotron",
    "K2HorizonForCausalLM": "k2_horizon",
    "KimiLinearForCausalLM": "kimi_linear",
    "LagunaForCausalLM": "laguna",
    "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2_moe",
    "Llama4ForConditionalGeneration": "llama4_text",
    "LlamaForCausalLM": "llama",
    "LongcatFlashForCausalLM": "longcat_flash",
    "Mamba2ForCausalLM": "mamba2",
    "MambaForCausalLM": "mamba",
    "MellumForCausalLM": "mellum",
    "MiMoForCausalLM": "mimo",
    "MiMoV2FlashForCausalLM": "mimo_v2_flash",
    "MiMoV2ForCausalLM": "mimo_v2",
    "MiniCPM3ForCausalLM": "minicpm3",
    "MiniCPMForCausalLM": "minicpm",
    "MiniCPMSALAForCausalLM": "minicpm_sala",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "MiniMaxM3SparseForCausalLM": "minimax_m3 minimax_m3_text",
    "MiniMaxM3SparseForConditionalGeneration": "minimax_m3_vl_text",
    "Ministral3ForCausalLM": "ministral3",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "MllamaForConditionalGeneration": "mllama_text_model",
    "MuseGlimmerForConditionalGeneration": "muse_glimmer_text",
    "MuseSparkForConditionalGeneration": "muse_spark_text",
    "NanbeigeForCausalLM": "nanbeige",
    "NemotronHForCausalLM": "nemotron_h",
    "NemotronHPuzzleForCausalLM": "nemotron_h_puzzle",
    "Olmo2ForCausalLM": "olmo2 olmo3",
    "OlmoeForCausalLM": "olmoe",
    "OlmoForCausalLM": "olmo",
    "OPTForCausalLM": "opt",
    "OrionForCausalLM": "orion",
    "PaddleOCRVLForConditionalGeneration": "paddleocr_vl_text",
    "PersimmonForCausalLM": "persimmon",
    "Phi3ForCausalLM": "phi3",
    "Phi3SmallForCausalLM": "phi3small",
    "Phi4MMForCausalLM": "phi4_multimodal",
    "PhiForCausalLM": "phi",
    "PhiMoEForCausalLM": "phimoe",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl_text",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen2VLForConditionalGeneration": "qwen2_vl_text",
    "Qwen3_5ForConditionalGeneration": "qwen3_5_text",
    "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe_text",
    "Qwen3ASRForConditionalGeneration": "qwen3_asr_text",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "Qwen3NextForCausalLM": "qwen3_next",
    "Qwen3OmniMoeForConditionalGeneration": "qwen3_omni_moe_text",
    "Qwen3VLForConditionalGeneration": "qwen3_vl_text",
    "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe_text",
    "Qwen4ExpForConditionalGeneration": "qwen4_exp_text",
    "QWenLMHeadModel": "qwen",
    "SarvamMLAForCausalLM": "sarvam_mla",
    "SarvamMoEForCausalLM": "sarvam_moe",
    "SolarForCausalLM": "solar",
    "Spark2_5ForCausalLM": "spark2_5",
    "StableLmForCausalLM": "stablelm",
    "Starcoder2ForCausalLM": "starcoder2",
    "Step3p5ForCausalLM": "step3p5",
    "Step3VLForConditionalGeneration": "step3_text",
    "TeleFLMForCausalLM": "teleflm",
    "UnlimitedOCRForCausalLM": "unlimited_ocr_text",
    "WhisperForConditionalGeneration": "whisper",
    "XllmForCausalLM": "xllm",
    "XLMRobertaModel": "xlm-roberta",
    "XverseForCausalLM": "xverse",
    "ZayaForCausalLM": "zaya",
}
#: Class of transformers that says it runs under another engine's attention ← model_types.
_TRANSFORMERS = {
    "AriaTextForCausalLM": "aria_text",
    "AXK1ForCausalLM": "axk1",
    "AXK2ForCausalLM": "axk2",
    "BertGenerationDecoder": "bert-generation",
    "BitNetForCausalLM": "bitnet",
    "CamembertForCausalLM": "camembert",
    "ChameleonForConditionalGeneration": "chameleon",
    "CohereCompassForCausalLM": "cohere_compass_text",
    "CTRLLMHeadModel": "ctrl",
    "CwmForCausalLM": "cwm",
    "Data2VecTextForCausalLM": "data2vec-text",
    "DeepseekOcr2ForConditionalGeneration": "deepseek_ocr2_text",
    "DiffLlamaForCausalLM": "diffllama",
    "DogeForCausalLM": "doge",
    "Dots1ForCausalLM": "dots1",
    "ElectraForCausalLM": "electra",
    "Emu3ForCausalLM": "emu3_text_model",
    "ErnieForCausalLM": "ernie",
    "FlexOlmoForCausalLM": "flex_olmo",
    "GlmForCausalLM": "glm",
    "GPTNeoXForCausalLM": "gpt_neox",
    "Granite4VisionForConditionalGeneration": "granite4_vision_text",
    "HeliumForCausalLM": "helium",
    "HunYuanVLForConditionalGeneration": "hunyuan_vl_text",
    "HyperCLOVAXForCausalLM": "hyperclovax",
    "IdeficsForVisionText2Text": "idefics",
    "Jais2ForCausalLM": "jais2",
    "JetMoeForCausalLM": "jetmoe",
    "KyutaiSpeechToTextForConditionalGeneration": "kyutai_speech_to_text",
    "MinistralForCausalLM": "ministral",
    "Mistral4ForCausalLM": "mistral4",
    "ModernBertDecoderForCausalLM": "modernbert-decoder",
    "MoshiForCausalLM": "moshi",
    "NanoChatForCausalLM": "nanochat",
    "NemotronForCausalLM": "nemotron",
    "Qwen2_5OmniForConditionalGeneration": "qwen2_5_omni_text",
    "RobertaForCausalLM": "roberta",
    "RobertaPreLayerNormForCausalLM": "roberta-prelayernorm",
    "RoCBertForCausalLM": "roc_bert",
    "SeedOssForCausalLM": "seed_oss",
    "SmolLM3ForCausalLM": "smollm3",
    "SolarOpenForCausalLM": "solar_open",
    "VaultGemmaForCausalLM": "vaultgemma",
    "VoxtralRealtimeForConditionalGeneration": "voxtral_realtime_text",
    "XLMRobertaXLForCausalLM": "xlm-roberta-xl",
    "XmodForCausalLM": "xmod",
    "YoutuForCausalLM": "youtu",
}
#: Class that neither has ← model_types.
_UNSAID = {
    "BloomForCausalLM": "bloom",
    "FalconForCausalLM": "falcon RefinedWeb RefinedWebModel",
    "MptForCausalLM": "mpt",
}


def _rows(code: Literal["own", "transformers", "unsaid"], classes: dict[str, str]) -> dict[str, Family]:
    return {family: Family(name, code) for name, families in classes.items() for family in families.split()}


FAMILIES: dict[str, Family] = _rows("own", _OWN) | _rows("transformers", _TRANSFORMERS) | _rows("unsaid", _UNSAID)

#: Classes that SGLang renames before it looks at them (configs/deepseek_v41.py).
RENAMED = {"DeepseekV41ForCausalLM": "DeepseekV4ForCausalLM"}
#: Words in the names of models whose params.json SGLang reads instead of config.json, and the class that it makes of a latent one
#: (utils/hf_transformers/mistral_utils.py, is_mistral_model and adapt_config_dict).
NATIVE_MISTRAL = ("mistral-large-3", "mistral-small-4", "leanstral")
NATIVE_CLASS = "PixtralForConditionalGeneration"


def family_of(architecture: Architecture) -> Family:
    """The row of the model's family. Raises UnsupportedArchitectureError where it has none."""
    found = FAMILIES.get(architecture.family)
    if found is None:
        raise unknown_family("sglang", architecture)
    return found


def class_of(architecture: Architecture) -> str:
    """The class that SGLang sees. Raises UnsupportedArchitectureError."""
    family = family_of(architecture)
    called = f"{architecture.hub} {architecture.id}".lower()
    if any(word in called for word in NATIVE_MISTRAL) and any(isinstance(state, Latent) for state in architecture.states):
        return NATIVE_CLASS
    name = architecture.class_name or family.class_name
    return RENAMED.get(name, name)
