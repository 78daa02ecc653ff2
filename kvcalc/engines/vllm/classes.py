"""Hugging Face classes that vLLM 0.33 knows by name (model_executor/models/registry.py): its own, those that left, those of plugins.

A class decides where it stands here; of any other class the model_type does (families.py).
"""

from __future__ import annotations

from typing import NamedTuple

from kvcalc.engines.vllm.families import Service


class ModelClass(NamedTuple):
    """What vLLM does with one class.

    service    who serves it
    last       the last release that had a class of its own for it
    pipeline   it can be cut into pipeline stages (SupportsPP)
    cross      its cross-attention has a model
    flash_kda  its KDA layers can run FlashKDA: their gate is full-rank and bounded
    """

    service: Service = Service.OWN
    last: str = ""
    pipeline: bool = True
    cross: bool = False
    flash_kda: bool = False


#: Classes that vLLM has a model for.
_OWN = """
    AXK1ForCausalLM AfmoeForCausalLM AliceAIForCausalLM Alpamayo2Super ApertusForCausalLM AriaForConditionalGeneration
    AudioFlamingo3ForConditionalGeneration BagelForConditionalGeneration BailingMoeForCausalLM BailingMoeV2ForCausalLM
    BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration BeamForCausalLM
    BeeForConditionalGeneration BertForTokenClassification Blip2ForConditionalGeneration BloomForCausalLM
    ChatGLMForConditionalGeneration ChatGLMModel ClefFlashForJointSchema ClefOmniForJointSchema Cohere2ForCausalLM
    Cohere2MoeForCausalLM Cohere2VisionForConditionalGeneration CohereAsrForConditionalGeneration
    CohereCompassForConditionalGeneration CohereForCausalLM Cosmos3EdgeForConditionalGeneration Cosmos3ForConditionalGeneration
    DbrxForCausalLM DeciLMForCausalLM DeepseekForCausalLM DeepseekOCR2ForCausalLM DeepseekOCRForCausalLM DeepseekV2ForCausalLM
    DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekV41ForCausalLM DeepseekV4ForCausalLM DeepseekV4ForConditionalGeneration
    DeepseekVLV2ForCausalLM DiffusionGemmaForBlockDiffusion DomynEdgeForCausalLM DoryForCausalLM Dots3NoteForCausalLM
    DotsOCRForCausalLM Eagle2_5_VLForConditionalGeneration Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM
    Ernie4_5_VLMoeForConditionalGeneration Exaone4ForCausalLM Exaone4_5_ForConditionalGeneration ExaoneForCausalLM
    ExaoneMoEForCausalLM ExaoneMoeForCausalLM FalconForCausalLM FalconH1ForCausalLM FalconMambaForCausalLM
    FireRedASR2ForConditionalGeneration FlintForCausalLM FunASRForConditionalGeneration FunAudioChatForConditionalGeneration
    GLM4VForCausalLM GPT2LMHeadModel GPTJForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration
    Gemma3nForCausalLM Gemma3nForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration
    Gemma4UnifiedForConditionalGeneration GemmaForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
    Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration Glm5NextForCausalLM Glm5NextForConditionalGeneration
    GlmAsrForConditionalGeneration GlmMoeDsaForCausalLM GlmOcrForConditionalGeneration GptOssForCausalLM
    Granite4VisionForConditionalGeneration GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM
    GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM GraniteSWAForCausalLM GraniteSpeechForConditionalGeneration
    GraniteSpeechPlusForConditionalGeneration H2OVLChatModel HCXVisionV2ForCausalLM HYV3ForCausalLM HYV4ForCausalLM HfMoondream
    HrmTextForCausalLM HyperCLOVAXForCausalLM IQuestCoderForCausalLM IQuestLoopCoderForCausalLM Idefics3ForConditionalGeneration
    InklingForCausalLM InklingForConditionalGeneration InternLM2ForCausalLM InternLM3ForCausalLM InternS1ForConditionalGeneration
    InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration
    InternVLChatModel InternVLForConditionalGeneration IsaacForConditionalGeneration JambaForCausalLM K2HorizonForCausalLM
    KananaVForConditionalGeneration KeyeForConditionalGeneration KeyeVL1_5ForConditionalGeneration KimiK25ForConditionalGeneration
    KimiK3ForConditionalGeneration KimiLinearForCausalLM KimiVLForConditionalGeneration LLaMAForCausalLM LagunaForCausalLM
    Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm2VlForConditionalGeneration LightOnOCRForConditionalGeneration Llama4ForCausalLM
    Llama4ForConditionalGeneration LlamaForCausalLM Llama_Nemotron_Nano_VL LlavaForConditionalGeneration
    LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration LlavaOnevision2ForConditionalGeneration
    LlavaOnevisionForConditionalGeneration LongcatFlashForCausalLM LongcatFlashNgramForCausalLM Mamba2ForCausalLM MambaForCausalLM
    MiDashengLMModel MiMoForCausalLM MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM MiniCPM3ForCausalLM
    MiniCPMForCausalLM MiniCPMO MiniCPMOcrForConditionalGeneration MiniCPMV MiniCPMV4_6ForConditionalGeneration
    MiniCPMV4_7ForConditionalGeneration MiniMaxM2ForCausalLM MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration
    Ministral3ForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM MistralLarge3ForCausalLM MixtralForCausalLM
    ModernBertForTokenClassification Molmo2ForConditionalGeneration MolmoForCausalLM Moondream3ForCausalLM MoonshotKimiaForCausalLM
    MossAudioModel MossTranscribeDiarizeForConditionalGeneration MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration
    MuseSparkForConditionalGeneration NVLM_D NemotronForCausalLM NemotronHForCausalLM NemotronHPuzzleForCausalLM
    NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3
    NemotronParseForConditionalGeneration OPTForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM
    OpenAIPrivacyFilterForTokenClassification OpenCUAForConditionalGeneration OpenPanguVLForConditionalGeneration
    OpenVLAForActionPrediction OrionForCausalLM Ovis Ovis2_5 Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM
    PaddleOCRVLForConditionalGeneration PaliGemmaForConditionalGeneration PanguEmbeddedForCausalLM PanguProMoEV2ForCausalLM
    PanguUltraMoEForCausalLM Param2MoEForCausalLM Phi3ForCausalLM Phi3VForCausalLM Phi4ForCausalLMV Phi4MMForCausalLM
    PhiMoEForCausalLM PixtralForConditionalGeneration Plamo3ForCausalLM QianfanOCRForConditionalGeneration
    Qwen2AudioForConditionalGeneration Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen2VLForConditionalGeneration
    Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel Qwen2_5_VLForConditionalGeneration Qwen3ASRForConditionalGeneration
    Qwen3ASRForcedAlignerForTokenClassification Qwen3ASRRealtimeGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM
    Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration Qwen4ExpForCausalLM
    Qwen4ExpForConditionalGeneration RForConditionalGeneration RadioMBartPrefixForCausalLM Rnj1ForCausalLM
    RobertaForTokenClassification SarvamMLAForCausalLM SarvamMoEForCausalLM SkyworkR1VChatModel SmolVLMForConditionalGeneration
    SolarForCausalLM StableLmForCausalLM Step1ForCausalLM Step3TextForCausalLM Step3VLForConditionalGeneration Step3p5ForCausalLM
    Step3p7ForConditionalGeneration Step5ForCausalLM Step5ForConditionalGeneration StepVLForConditionalGeneration TeleChat2ForCausalLM
    TeleChat3ForCausalLM TeleFLMForCausalLM UltravoxModel UnlimitedOCRForCausalLM VoxtralForConditionalGeneration
    VoxtralRealtimeGeneration WhisperForConditionalGeneration XLMRobertaForTokenClassification Zamba2ForCausalLM
"""
#: Classes that its registry hands to the Transformers backend.
_TRANSFORMERS = """
    ArceeForCausalLM CwmForCausalLM Emu3ForConditionalGeneration FlexOlmoForCausalLM GPTBigCodeForCausalLM GPTNeoXForCausalLM
    GlmForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM HunYuanVLForConditionalGeneration Jais2ForCausalLM
    Kolibri1ForCausalLM MellumForCausalLM NanbeigeForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM PhiForCausalLM
    SeedOssForCausalLM SmolLM3ForCausalLM Starcoder2ForCausalLM VaultGemmaForCausalLM VibeVoiceAsrForConditionalGeneration
"""
#: Release → classes that it was the last to have (_PREVIOUSLY_SUPPORTED_MODELS).
_REMOVED: dict[str, str] = {
    "0.9.2": "Phi3SmallForCausalLM",
    "0.10.2": "MotifForCausalLM Phi4FlashForCausalLM DonutForConditionalGeneration MllamaForConditionalGeneration",
    "0.22.0": "JAISLMHeadModel",
    "0.23.0": """
        ErnieModel InternLM2VEForCausalLM QWenLMHeadModel QwenVLForConditionalGeneration InternLMForCausalLM XverseForCausalLM
        BambaForCausalLM MiniMaxForCausalLM MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM
        MiniMaxVL01ForConditionalGeneration BaiChuanForCausalLM BaichuanForCausalLM Tarsier2ForConditionalGeneration
    """,
    "0.24.0": """
        AquilaModel AquilaForCausalLM Grok1ModelForCausalLM Grok1ForCausalLM TarsierForConditionalGeneration
        MantisForConditionalGeneration
    """,
    "0.25.0": "TeleChatForCausalLM",
    "0.26.0": "Plamo2ForCausalLM OuroForCausalLM",
    "0.28.0": """
        ArcticForCausalLM Cheers CheersForConditionalGeneration Fairseq2LlamaForCausalLM
        FireRedLIDForConditionalGeneration GritLM HCXVisionForCausalLM MPTForCausalLM MptForCausalLM RWForCausalLM
        StableLMEpochForCausalLM
    """,
}
#: The same for classes that transformers still has, so that the Transformers backend takes over.
_TAKEN_OVER: dict[str, str] = {
    "0.12.0": "Phi4MultimodalForCausalLM",
    "0.23.0": "Dots1ForCausalLM",
    "0.24.0": "MusicFlamingoForConditionalGeneration AyaVisionForConditionalGeneration",
    "0.25.0": "PersimmonForCausalLM FuyuForCausalLM",
    "0.28.0": "ChameleonForConditionalGeneration",
}
_PLUGIN = "BartModel BartForConditionalGeneration Florence2ForConditionalGeneration MBartForConditionalGeneration"
#: A class that transformers has and the backend cannot drive.
_UNDRIVEN = "BailingHybridForCausalLM"
_NO_PIPELINE = """
    AliceAIForCausalLM AriaForConditionalGeneration CohereAsrForConditionalGeneration DiffusionGemmaForBlockDiffusion
    DomynEdgeForCausalLM DoryForCausalLM Gemma3nForCausalLM Gemma3nForConditionalGeneration HrmTextForCausalLM
    IQuestLoopCoderForCausalLM Idefics3ForConditionalGeneration Mamba2ForCausalLM NemotronH_Nano_Omni_Reasoning_V3
    NemotronH_Nano_VL_V2 NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3 NemotronParseForConditionalGeneration
    PaddleOCRVLForConditionalGeneration Phi4MMForCausalLM SmolVLMForConditionalGeneration WhisperForConditionalGeneration
    Zamba2ForCausalLM
"""

CLASSES: dict[str, ModelClass] = {
    **dict.fromkeys(_OWN.split(), ModelClass()),
    **dict.fromkeys(_TRANSFORMERS.split(), ModelClass(Service.TRANSFORMERS)),
    **{name: ModelClass(Service.REMOVED, release) for release, names in _REMOVED.items() for name in names.split()},
    **{name: ModelClass(Service.TRANSFORMERS, release) for release, names in _TAKEN_OVER.items() for name in names.split()},
    **dict.fromkeys(_PLUGIN.split(), ModelClass(Service.PLUGIN)),
    _UNDRIVEN: ModelClass(Service.UNDRIVEN),
    **dict.fromkeys(_NO_PIPELINE.split(), ModelClass(pipeline=False)),
    "KimiK3ForConditionalGeneration": ModelClass(flash_kda=True),
    "NemotronParseForConditionalGeneration": ModelClass(pipeline=False, cross=True),
}
