"""What vLLM 0.33 cannot serve (model_executor/models/registry.py).

Classes that an earlier release had are named with that release. A class that vLLM does not have runs through its Transformers
backend where transformers has it; that backend serves attention alone: recurrent layers and cross-attention need a class of
vLLM's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

#: Hugging Face class → the last release that had it.
REMOVED: dict[str, str] = {
    name: release
    for release, names in {
        "0.9.2": "Phi3SmallForCausalLM",
        "0.10.2": "MotifForCausalLM Phi4FlashForCausalLM DonutForConditionalGeneration MllamaForConditionalGeneration",
        "0.12.0": "Phi4MultimodalForCausalLM",
        "0.22.0": "JAISLMHeadModel",
        "0.23.0": """
            ErnieModel InternLM2VEForCausalLM QWenLMHeadModel QwenVLForConditionalGeneration InternLMForCausalLM XverseForCausalLM
            Dots1ForCausalLM BambaForCausalLM MiniMaxForCausalLM MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM
            MiniMaxVL01ForConditionalGeneration BaiChuanForCausalLM BaichuanForCausalLM Tarsier2ForConditionalGeneration
        """,
        "0.24.0": """
            AquilaModel AquilaForCausalLM Grok1ModelForCausalLM Grok1ForCausalLM TarsierForConditionalGeneration
            MantisForConditionalGeneration MusicFlamingoForConditionalGeneration AyaVisionForConditionalGeneration
        """,
        "0.25.0": "TeleChatForCausalLM PersimmonForCausalLM FuyuForCausalLM",
        "0.26.0": "Plamo2ForCausalLM OuroForCausalLM",
        "0.28.0": """
            ArcticForCausalLM ChameleonForConditionalGeneration Cheers CheersForConditionalGeneration Fairseq2LlamaForCausalLM
            FireRedLIDForConditionalGeneration GritLM HCXVisionForCausalLM MPTForCausalLM MptForCausalLM RWForCausalLM
            StableLMEpochForCausalLM
        """,
    }.items()
    for name in names.split()
}

#: The same by model_type, for configs that name no class.
REMOVED_FAMILIES: dict[str, str] = {
    "bamba": "0.23.0",
    "minimax": "0.23.0",
    "minimax_m1": "0.23.0",
    "minimax_text_01": "0.23.0",
    "plamo2": "0.26.0",
    "mllama_text_model": "0.10.2",
    "phi4flash": "0.10.2",
    "phi3small": "0.9.2",
    "mpt": "0.28.0",
    "arctic": "0.28.0",
}

#: Removed classes that transformers still has, so that the Transformers backend takes over.
TAKEN_OVER = frozenset(
    {
        "AyaVisionForConditionalGeneration",
        "ChameleonForConditionalGeneration",
        "Dots1ForCausalLM",
        "FuyuForCausalLM",
        "MusicFlamingoForConditionalGeneration",
        "PersimmonForCausalLM",
        "Phi4MultimodalForCausalLM",
    }
)

#: Families, and a class, that vLLM has no class for and whose transformers class its Transformers backend cannot drive either.
NOT_SERVED = frozenset(
    [
        "BailingHybridForCausalLM",
        "big_bird",
        "cpmant",
        "diffllama",
        "evolla",
        "fsmt",
        "git",
        "gpt_neo",
        "gpt_neox_japanese",
        "idefics",
        "led",
        "megatron-bert",
        "mvp",
        "openai-gpt",
        "prophetnet",
        "rembert",
        "roformer",
        "trocr",
        "xglm",
        "xlm",
        "xlnet",
    ]
)

#: Models that left for a plugin of their own.
PLUGINS = frozenset({"BartModel", "BartForConditionalGeneration", "Florence2ForConditionalGeneration", "MBartForConditionalGeneration"})
PLUGIN_FAMILIES = frozenset({"bart", "mbart", "florence2"})

#: Families and classes whose vLLM model keeps caches of its own kind, for which kvcalc has no rule (vllm/models/*).
OWN_CACHES: dict[str, str] = {
    "step5": "summaries of token groups and a ring of the open one, whose sizes (sparse_config) are not among what kvcalc reads",
}

#: Recurrent layers that vLLM has a model for, by family.
RECURRENT_FAMILIES = frozenset(
    [
        "alice_ai",
        "bailing_hybrid",
        "falcon_h1",
        "falcon_mamba",
        "glm5_next_text",
        "granitemoehybrid",
        "inkling_text",
        "jamba",
        "kimi_linear",
        "lfm2",
        "lfm2_moe",
        "mamba",
        "mamba2",
        "nemotron_h",
        "nemotron_h_puzzle",
        "olmo_hybrid",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_next",
        "qwen4_exp_text",
        "zamba2",
    ]
)


#: The one family with states of fixed size that vLLM starts without keeping them (own/zaya.py).
THROUGH_TRANSFORMERS = "zaya"

#: Families and classes whose cross-attention vLLM has a model for.
CROSS_ATTENTION = frozenset({"cohere_asr", "whisper", "NemotronParseForConditionalGeneration"})

#: Classes and families that cannot be cut into pipeline stages (no SupportsPP).
NO_PIPELINE = frozenset(
    {
        "AliceAIForCausalLM",
        "AriaForConditionalGeneration",
        "CohereAsrForConditionalGeneration",
        "DiffusionGemmaForBlockDiffusion",
        "DomynEdgeForCausalLM",
        "DoryForCausalLM",
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
        "HrmTextForCausalLM",
        "IQuestLoopCoderForCausalLM",
        "Idefics3ForConditionalGeneration",
        "Mamba2ForCausalLM",
        "NemotronH_Nano_Omni_Reasoning_V3",
        "NemotronH_Nano_VL_V2",
        "NemotronH_Omni_Reasoning_V3",
        "NemotronH_Super_Omni_Reasoning_V3",
        "NemotronParseForConditionalGeneration",
        "PaddleOCRVLForConditionalGeneration",
        "Phi4MMForCausalLM",
        "SmolVLMForConditionalGeneration",
        "WhisperForConditionalGeneration",
        "Zamba2ForCausalLM",
    }
)
NO_PIPELINE_FAMILIES = frozenset({"alice_ai", "dory", "gemma3n_text", "hrm_text", "mamba2", "paddleocr_vl_text", "whisper", "zamba2"})


def check_pipeline(architecture: Architecture, stages: int) -> None:
    """Raises EngineRejectsError for several pipeline stages of a model that vLLM does not cut: n-gram embeddings read the first's token ids."""
    embeds = any(getattr(state, "name", "") == "ngram_conv" for state in architecture.states)
    if stages > 1 and (embeds or architecture.class_name in NO_PIPELINE or architecture.family in NO_PIPELINE_FAMILIES):
        shown = clean(architecture.class_name or architecture.family, 60)
        raise EngineRejectsError(f"vLLM refuses pipeline parallelism for {shown}", "use tensor parallelism")


def check_support(architecture: Architecture) -> str | None:
    """A sentence where vLLM serves the model through transformers. Raises UnsupportedArchitectureError for one that it cannot serve."""
    name, family = architecture.class_name, architecture.family
    shown = clean(name or family, 60)
    last = REMOVED.get(name) or REMOVED_FAMILIES.get(family)
    if last is not None and name not in TAKEN_OVER:
        raise UnsupportedArchitectureError(f"{shown} is unsupported by vLLM 0.33: {last} was the last release that had it")
    if name in PLUGINS or family in PLUGIN_FAMILIES:
        raise UnsupportedArchitectureError(f"{shown} is unsupported by vLLM 0.33 itself: it is served by a plugin")
    if any(state.kind == "cross" for state in architecture.states) and not CROSS_ATTENTION & {name, family}:
        raise UnsupportedArchitectureError(f"{shown} is unsupported by vLLM 0.33, which has no model with its cross-attention")
    if not NOT_SERVED.isdisjoint((name, family)):
        raise UnsupportedArchitectureError(f"{shown} is unsupported by vLLM 0.33, which has no class for it that its backends can drive")
    own = OWN_CACHES.get(name) or OWN_CACHES.get(family)
    if own is not None:
        raise UnsupportedArchitectureError(
            f"kvcalc has no rule for {shown} under vLLM 0.33, which keeps {own}", "engine ideal gives what the cache itself takes"
        )
    if family not in RECURRENT_FAMILIES and family != THROUGH_TRANSFORMERS and any(state.is_recurrent for state in architecture.states):
        raise UnsupportedArchitectureError(f"{shown} is unsupported by vLLM 0.33, which has no model with its recurrent layers")
    if last is not None:
        return f"{shown} left vLLM after {last}: its Transformers backend serves it"
    return None
