"""What vLLM 0.33 cannot serve (model_executor/models/registry.py).

Classes that an earlier release had are named with that release. Classes that no release knew run through vLLM's Transformers
backend, which serves attention alone: recurrent layers need a class of vLLM's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.errors import UnsupportedArchitectureError
from kvcalc.units import clean

if TYPE_CHECKING:
    from kvcalc.architecture import Architecture

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
    "persimmon": "0.25.0",
    "dots1": "0.23.0",
}

#: Models that left for a plugin of their own.
PLUGINS = frozenset({"BartModel", "BartForConditionalGeneration", "Florence2ForConditionalGeneration", "MBartForConditionalGeneration"})
PLUGIN_FAMILIES = frozenset({"bart", "mbart", "florence2"})

#: Recurrent layers that vLLM has a model for, by family.
RECURRENT_FAMILIES = frozenset(
    [
        "alice_ai",
        "bailing_hybrid",
        "falcon_h1",
        "falcon_mamba",
        "glm5_next_text",
        "granitemoehybrid",
        "jamba",
        "kimi_k3",
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


def check_support(architecture: Architecture) -> None:
    """Raises UnsupportedArchitectureError for a model that vLLM 0.33 has no implementation of."""
    name, family = architecture.class_name, architecture.family
    last = REMOVED.get(name) or REMOVED_FAMILIES.get(family)
    if last is not None:
        raise UnsupportedArchitectureError(
            f"{clean(name or family, 60)} is unsupported by vLLM 0.33: {last} was the last release that had it"
        )
    if name in PLUGINS or family in PLUGIN_FAMILIES:
        raise UnsupportedArchitectureError(f"{clean(name or family, 60)} is unsupported by vLLM 0.33 itself: it is served by a plugin")
    if family not in RECURRENT_FAMILIES and any(state.is_recurrent for state in architecture.states):
        raise UnsupportedArchitectureError(
            f"{clean(name or family, 60)} is unsupported by vLLM 0.33, which has no model with its recurrent layers"
        )
