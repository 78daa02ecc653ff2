"""What SGLang 0.5.23 keys on the model's class: its own lists and the defaults of single models.

    window pool      configs/model_config.py, is_hybrid_swa_model: any other model stores its windows in full length
    latents, index   configs/model_config.py, _derive_model_shapes and is_deepseek_dsa
    recurrent state  arg_groups/overrides.py, _MAMBA_RADIX_CACHE_ARCHS and _MAMBA_EXTRA_BUFFER_ARCHS; configs/<model>.py
    backends         arg_groups/model_overrides/*.py

Names are those of `architectures` in config.json, as SGLang compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DEEPSEEK_V4 = "DeepseekV4ForCausalLM"
QWEN4_EXP = "Qwen4ExpForConditionalGeneration"
WHISPER = "WhisperForConditionalGeneration"

#: Classes that SGLang renames before it looks at them (configs/deepseek_v41.py).
RENAMED = {"DeepseekV41ForCausalLM": DEEPSEEK_V4}

#: The class behind a family whose file does not name one, where SGLang has a rule for the class.
FAMILY_CLASSES = {
    "bailing_hybrid": "BailingMoeV3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": DEEPSEEK_V4,
    "deepseek_v41_text": DEEPSEEK_V4,
    "exaone4": "Exaone4ForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "falcon_mamba": "FalconMambaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma3n_text": "Gemma3nForConditionalGeneration",
    "gemma4_text": "Gemma4ForConditionalGeneration",
    "gemma4_unified_text": "Gemma4UnifiedForConditionalGeneration",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "glm5_next_text": "Glm5NextForConditionalGeneration",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "hy_v4": "HYV4ForCausalLM",
    "jet_nemotron": "JetNemotronForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "llama4_text": "Llama4ForConditionalGeneration",
    "longcat_flash": "LongcatFlashForCausalLM",
    "mamba": "MambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM",
    "minimax_m3_vl_text": "MiniMaxM3SparseForConditionalGeneration",
    "nemotron_h": "NemotronHForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo2ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForConditionalGeneration",
    "qwen3_5_text": "Qwen3_5ForConditionalGeneration",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen4_exp_text": QWEN4_EXP,
    "step3p5": "Step3p5ForCausalLM",
    "unlimited_ocr_text": "UnlimitedOCRForCausalLM",
}


#: Words in the names of models whose params.json SGLang reads instead of config.json, and the class that it makes of a latent one
#: (utils/hf_transformers/mistral_utils.py, is_mistral_model and adapt_config_dict).
NATIVE_MISTRAL = ("mistral-large-3", "mistral-small-4", "leanstral")
NATIVE_CLASS = "PixtralForConditionalGeneration"


def class_of(architecture: Architecture) -> str:
    """The class that SGLang sees, or an empty string."""
    called = f"{architecture.hub} {architecture.id}".lower()
    if any(word in called for word in NATIVE_MISTRAL) and any(state.kind == "latent" for state in architecture.states):
        return NATIVE_CLASS
    name = architecture.class_name or FAMILY_CLASSES.get(architecture.family, "")
    return RENAMED.get(name, name)


#: Models whose sliding layers get a pool of their own.
WINDOW_POOL = _names("""
    BeamForCausalLM Llama4ForConditionalGeneration DeepseekV4ForCausalLM GptOssForCausalLM GraniteSWAForCausalLM
    GraniteMoeSWAForCausalLM IQuestQ1ForCausalLM MiMoV2ForCausalLM MiMoV2FlashForCausalLM Step3p5ForCausalLM
    Step3p7ForConditionalGeneration Gemma4ForCausalLM Gemma4ForConditionalGeneration EmbeddingGemma2Model
    Gemma4UnifiedForConditionalGeneration DiffusionGemmaForBlockDiffusion LagunaForCausalLM MellumForCausalLM
    MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration MuseSparkForConditionalGeneration InklingForConditionalGeneration
    UnlimitedOCRForCausalLM Dots3NoteForCausalLM
""")

#: Of these, the ones whose every layer is in it, whatever the layer keeps of the prefill (get_hybrid_layer_ids).
ALL_IN_WINDOWS = _names("UnlimitedOCRForCausalLM")

#: Of these, the ones whose window pool has the shape of the sliding layers (is_hybrid_swa_compress); the others have that of the full ones.
SHAPED_WINDOWS = _names("""
    MiMoV2ForCausalLM MiMoV2FlashForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration EmbeddingGemma2Model
    InklingForConditionalGeneration Gemma4UnifiedForConditionalGeneration DiffusionGemmaForBlockDiffusion
""")

#: Of these, the ones that SGLang also serves when none of their layers slides.
WINDOWS_OPTIONAL = _names("BeamForCausalLM LagunaForCausalLM")

#: Models whose window SGLang counts without the current token (get_attention_sliding_window_size in models/*.py).
WINDOW_LESS_ONE = _names("""
    BeamForCausalLM GptOssForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration
    DiffusionGemmaForBlockDiffusion MellumForCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration
    MuseSparkForConditionalGeneration InklingForConditionalGeneration Dots3NoteForCausalLM
""")

#: Models with a smaller window pool than 0.8 of the full one.
WINDOW_RATIOS = {DEEPSEEK_V4: 0.1, "InklingForConditionalGeneration": 0.1}
DEFAULT_WINDOW_RATIO = 0.8

#: Models stored as latents; any other model with latents is not MLA to SGLang.
LATENT = _names("""
    DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM Glm4MoeLiteForCausalLM GlmMoeDsaForCausalLM
    Glm5NextForConditionalGeneration LongcatFlashForCausalLM HYV4ForCausalLM DotsVLMForCausalLM Dots3NoteForCausalLM
    MistralLarge3ForCausalLM PixtralForConditionalGeneration KimiK25ForConditionalGeneration GigaChat35ForCausalLM
    MiniCPM3ForCausalLM DeepseekVL2ForCausalLM KimiVLForConditionalGeneration KimiLinearForCausalLM KimiK3LinearForCausalLM
    KimiK3ForConditionalGeneration BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration
    SarvamMLAForCausalLM
""")

#: Models whose index keys SGLang knows, where the config has an `index_topk`.
INDEXED = _names("""
    DeepseekV3ForCausalLM DeepseekV32ForCausalLM MistralLarge3ForCausalLM PixtralForConditionalGeneration GlmMoeDsaForCausalLM
    Glm5NextForConditionalGeneration LongcatFlashForCausalLM Dots3NoteForCausalLM HYV4ForCausalLM
""")
MINIMAX_M3 = _names("MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration")

#: Models whose defaults follow DeepSeek's (arg_groups/model_overrides/deepseek_v2.py).
DEEPSEEK_FAMILY = _names("""
    DeepseekV3ForCausalLM DeepseekV32ForCausalLM KimiK25ForConditionalGeneration MistralLarge3ForCausalLM
    PixtralForConditionalGeneration GlmMoeDsaForCausalLM Glm5NextForConditionalGeneration HYV4ForCausalLM LongcatFlashForCausalLM
    Dots3NoteForCausalLM
""")

#: Models with attention sinks, which FlashInfer cannot serve, and models that say themselves whether they have some.
SINKS = _names("GptOssForCausalLM GraniteSWAForCausalLM GraniteMoeSWAForCausalLM IQuestQ1ForCausalLM")
SINK_FLAGS: dict[str, dict[str, bool]] = {
    "MiMoV2ForCausalLM": {"add_swa_attention_sink_bias": False, "add_full_attention_sink_bias": False},
    "MiMoV2FlashForCausalLM": {"add_swa_attention_sink_bias": False, "add_full_attention_sink_bias": False},
    "HYV4ForCausalLM": {"learnable_sink": True},
}

#: Ling's classes, whose model asserts that its groups are complete; the third generation leaves the rotary part out on request.
GROUPED = _names("BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration")
NO_ROTARY = _names("BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration")

#: Models without attention: no key or value pool at all.
PURE_STATE = _names("Mamba2ForCausalLM FalconMambaForCausalLM MambaForCausalLM")

#: Models whose cache is fp8 unless another format is asked for.
FP8_BY_DEFAULT = _names("DeepseekV4ForCausalLM MuseSparkForConditionalGeneration")


class StateRule(NamedTuple):
    """How SGLang keeps the recurrent state of one class.

    strategy    "extra_buffer": tracking slots beside the running ones · "no_buffer": pages of one token only · "plain": neither
    declared    the config's `mamba_ssm_dtype` is read; otherwise the state is fp32 whatever the config says
    """

    strategy: str
    declared: bool


RECURRENT: dict[str, StateRule] = {
    **dict.fromkeys(
        _names("""
            Qwen3NextForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration Qwen3_5ForCausalLM
            Qwen3_5MoeForCausalLM Qwen4ExpForConditionalGeneration InternS2PreviewForConditionalGeneration
            MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration NemotronHForCausalLM
            NemotronHPuzzleForCausalLM NemotronH_Omni_Reasoning_V3 FalconH1ForCausalLM
        """),
        StateRule("extra_buffer", declared=True),
    ),
    **dict.fromkeys(
        _names("""
            KimiLinearForCausalLM KimiK3ForConditionalGeneration BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM
            BailingMoeV3VLForConditionalGeneration GraniteMoeHybridForCausalLM Glm5NextForConditionalGeneration
        """),
        StateRule("extra_buffer", declared=False),
    ),
    **dict.fromkeys(
        _names("""
            InternS2MobiusForConditionalGeneration JetNemotronForCausalLM JetVLMForConditionalGeneration Lfm2ForCausalLM
            Lfm2MoeForCausalLM
        """),
        StateRule("no_buffer", declared=True),
    ),
    **dict.fromkeys(_names("Lfm2VlForConditionalGeneration NemotronH_Nano_VL_V2"), StateRule("plain", declared=True)),
    **dict.fromkeys(PURE_STATE | {"KimiK3LinearForCausalLM"}, StateRule("plain", declared=False)),
}


class Backends(NamedTuple):
    """The attention backend that a class gets by default on SM100, SM90, and elsewhere; None: SGLang's general choice."""

    sm100: str | None = None
    sm90: str | None = None
    other: str | None = None


#: Nemotron-H, which takes pages of 64 on SM100 where it speculates.
NEMOTRON_H = _names("NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Omni_Reasoning_V3")

BACKENDS: dict[str, Backends] = {
    **dict.fromkeys(
        _names("Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration"),
        Backends("trtllm_mha", "triton", "triton"),
    ),
    **dict.fromkeys(_names("DiffusionGemmaForBlockDiffusion EmbeddingGemma2Model"), Backends("triton", "triton", "triton")),
    **dict.fromkeys(_names("GptOssForCausalLM Llama4ForConditionalGeneration Llama4ForCausalLM"), Backends("trtllm_mha", "fa3", "triton")),
    **dict.fromkeys(
        _names("Exaone4ForCausalLM ExaoneMoEForCausalLM ExaoneMoeForCausalLM Olmo2ForCausalLM"), Backends("trtllm_mha", "fa3", "fa3")
    ),
    **dict.fromkeys(_names("MiMoV2ForCausalLM MiMoV2FlashForCausalLM"), Backends("fa4")),
    **dict.fromkeys(_names("Step3p5ForCausalLM Step3p7ForConditionalGeneration"), Backends("fa4", "fa3")),
    **dict.fromkeys(MINIMAX_M3, Backends("fa4", "fa3")),
    **dict.fromkeys(_names("FalconH1ForCausalLM JetNemotronForCausalLM JetVLMForConditionalGeneration"), Backends("triton")),
    **dict.fromkeys(_names("MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration"), Backends("triton")),
    **dict.fromkeys(_names("GraniteMoeHybridForCausalLM Lfm2ForCausalLM Lfm2MoeForCausalLM"), Backends("flashinfer")),
    **dict.fromkeys(NEMOTRON_H, Backends("trtllm_mha")),
    "BeamForCausalLM": Backends("trtllm_mha", "trtllm_mha"),
    "IQuestQ1ForCausalLM": Backends("fa3", "fa3", "fa3"),
    "InklingForConditionalGeneration": Backends("fa4", "fa4", "triton"),
    "KimiK3ForConditionalGeneration": Backends("trtllm_mla"),
    **dict.fromkeys(DEEPSEEK_FAMILY, Backends("trtllm_mla")),
}

#: Gated DeltaNet hybrids, which on SM100 take trtllm_mha only where nothing forces pages of one token.
ONE_TOKEN_PAGES = _names("""
    Qwen3NextForCausalLM Qwen3_5MoeForConditionalGeneration InternS2PreviewForConditionalGeneration
    InternS2MobiusForConditionalGeneration Qwen3_5ForConditionalGeneration Qwen4ExpForConditionalGeneration
""")

#: Next-token layers where the config does not say, by the defaults of SGLang's own config classes.
NEXT_TOKEN_LAYERS = {
    "LongcatFlashForCausalLM": 1,
    "HYV4ForCausalLM": 1,
    "Glm5NextForConditionalGeneration": 1,
    "InklingForConditionalGeneration": 8,
}

#: Models that decode with FlashInfer on large Hopper cards, and prefill with the card's backend (model_overrides/qwen3_vl.py).
SPLIT_ON_HOPPER = _names("Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration")

#: Backends without which SGLang does not start a class (arg_groups/model_hook.py).
ACCEPTED: dict[str, frozenset[str]] = {
    "GptOssForCausalLM": _names("triton trtllm_mha fa3 fa4"),
    "IQuestQ1ForCausalLM": _names("fa3"),
    "InklingForConditionalGeneration": _names("fa4 triton"),
    **dict.fromkeys(_names("Llama4ForConditionalGeneration Llama4ForCausalLM"), _names("fa3 triton trtllm_mha")),
    **dict.fromkeys(
        _names("Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration"), _names("trtllm_mha triton fa4")
    ),
    **dict.fromkeys(_names("Exaone4ForCausalLM ExaoneMoEForCausalLM ExaoneMoeForCausalLM"), _names("fa3 triton trtllm_mha")),
}

#: Backends that SGLang refuses for a class.
REFUSED: dict[str, frozenset[str]] = {
    "Olmo2ForCausalLM": _names("flashinfer"),
    "Lfm2ForCausalLM": _names("triton"),
    "Lfm2MoeForCausalLM": _names("triton"),
}
