"""The model classes of LMDeploy 0.18's PyTorch engine, one row a class: which builder makes its cache, and whether it keeps a window.

The engine goes by the first name in `architectures` for its own model class (models/module_map.py), and by model_type for the
builder of its cache (configurations/). A model without such a name is taken for the class of its family.

    builder    plain    K and V of every layer alike                              DefaultModelConfigBuilder and most others
               expanded latents written out to all heads                          MiniCPM3
               latent   one row of latent and rotary key, no V                    DeepSeek-V2, V3, Kimi, GLM-4.7-Flash
               sparse   the same in bf16 or fp8_ds_mla, and index keys            DeepSeek-V3.2, GLM-5
               packed   rows of 584 B, compressed, and states beside the blocks   DeepSeek-V4
               spaced   K and V of every n-th layer, states of the others         Qwen3-Next
               listed   K and V of the full layers, states of the others          Qwen3.5
    windowed   `sliding_window` holds for all layers; else every layer keeps everything
    switched   the class has no window unless `use_sliding_window` says so
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvcalc.core.errors import EngineRejectsError
from kvcalc.engines.base.families import unknown_family

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

Builder = Literal["plain", "expanded", "latent", "sparse", "packed", "spaced", "listed"]


@dataclass(frozen=True, slots=True)
class ModelClass:
    """One class of the engine. See the module's text for what its fields say."""

    name: str
    families: tuple[str, ...] = ()
    builder: Builder = "plain"
    windowed: bool = True
    switched: bool = False


#: Every class that generates text and stands alone; the drafters (EAGLE, MTP, DFlash) do not.
CLASSES: tuple[ModelClass, ...] = (
    ModelClass("LlamaForCausalLM", ("llama",)),
    ModelClass("Llama4ForConditionalGeneration", ("llama4_text",), windowed=False),
    ModelClass("ChatGLMForConditionalGeneration", ("chatglm",), windowed=False),
    ModelClass("Glm4ForCausalLM", ("glm4",)),
    ModelClass("Glm4vForConditionalGeneration", ("glm4v_text",)),
    ModelClass("Glm4MoeForCausalLM", ("glm4_moe",)),
    ModelClass("Glm4MoeLiteForCausalLM", ("glm4_moe_lite",), "latent"),
    ModelClass("GlmMoeDsaForCausalLM", ("glm_moe_dsa",), "sparse"),
    ModelClass("InternLM2ForCausalLM", ("internlm2",)),
    ModelClass("InternLM2ForRewardModel"),
    ModelClass("InternLM3ForCausalLM", ("internlm3",)),
    ModelClass("MistralForCausalLM", ("mistral",)),
    ModelClass("MixtralForCausalLM", ("mixtral",)),
    ModelClass("GemmaForCausalLM", ("gemma",)),
    ModelClass("Gemma2ForCausalLM", ("gemma2",)),
    ModelClass("Gemma3ForCausalLM", ("gemma3_text",)),
    ModelClass("Gemma3ForConditionalGeneration", windowed=False),
    ModelClass("DeepseekForCausalLM", ("deepseek",)),
    ModelClass("DeepseekV2ForCausalLM", ("deepseek_v2",), "latent"),
    ModelClass("DeepseekV3ForCausalLM", ("deepseek_v3", "kimi_k2"), "latent"),
    ModelClass("KimiK25ForConditionalGeneration", (), "latent"),
    ModelClass("Kimi_K25ForConditionalGeneration", (), "latent"),
    ModelClass("DeepseekV32ForCausalLM", ("deepseek_v32",), "sparse"),
    ModelClass("DeepseekV4ForCausalLM", ("deepseek_v4",), "packed", windowed=False),
    ModelClass("DeepseekVLV2ForCausalLM", (), "latent"),
    ModelClass("HYV3ForCausalLM", ("hy_v3",)),
    ModelClass("LlavaForConditionalGeneration", (), windowed=False),
    ModelClass("LlavaNextForConditionalGeneration", (), windowed=False),
    ModelClass("Qwen2ForCausalLM", ("qwen2",), switched=True),
    ModelClass("Qwen2ForRewardModel", switched=True),
    ModelClass("Qwen2MoeForCausalLM", ("qwen2_moe",), switched=True),
    ModelClass("Qwen3ForCausalLM", ("qwen3",), switched=True),
    ModelClass("Qwen3MoeForCausalLM", ("qwen3_moe",), switched=True),
    ModelClass("Qwen2VLForConditionalGeneration", ("qwen2_vl_text",), switched=True),
    ModelClass("Qwen2_5_VLForConditionalGeneration", ("qwen2_5_vl_text",), switched=True),
    ModelClass("Qwen3VLForConditionalGeneration", ("qwen3_vl_text",)),
    ModelClass("Qwen3VLMoeForConditionalGeneration", ("qwen3_vl_moe_text",)),
    ModelClass("Qwen3OmniMoeForConditionalGeneration", ("qwen3_omni_moe_text",)),
    ModelClass("Qwen3NextForCausalLM", ("qwen3_next",), "spaced", windowed=False),
    ModelClass("Qwen3_5ForConditionalGeneration", ("qwen3_5_text",), "listed", windowed=False),
    ModelClass("Qwen3_5MoeForConditionalGeneration", ("qwen3_5_moe_text",), "listed", windowed=False),
    ModelClass("InternS2PreviewForConditionalGeneration", (), "listed", windowed=False),
    ModelClass("InternS2PreviewForCausalLM", (), "listed", windowed=False),
    ModelClass("MetaMoeForConditionalGeneration", (), "listed", windowed=False),
    ModelClass("InternS2MobiusForConditionalGeneration", (), "listed", windowed=False),
    ModelClass("InternS2MobiusForCausalLM", (), "listed", windowed=False),
    ModelClass("Phi3ForCausalLM", ("phi3",)),
    ModelClass("Phi3VForCausalLM"),
    ModelClass("PhiMoEForCausalLM", ("phimoe",)),
    ModelClass("CogVLMForCausalLM"),
    ModelClass("InternVLChatModel"),
    ModelClass("InternVLForConditionalGeneration"),
    ModelClass("InternS1ForConditionalGeneration"),
    ModelClass("InternS1ProForConditionalGeneration"),
    ModelClass("InternS1_1_ForConditionalGeneration"),
    ModelClass("MiniCPM3ForCausalLM", ("minicpm3",), "expanded"),
    ModelClass("MiniCPMV"),
    ModelClass("GptOssForCausalLM", ("gpt_oss",), windowed=False),
    ModelClass("SDARForCausalLM", ("sdar",), switched=True),
    ModelClass("SDARMoeForCausalLM", ("sdar_moe",), switched=True),
)

#: Classes that the engine once had, and the name that it gives to each family (models/module_map.py, REMOVED_MODEL_MAP).
REMOVED: dict[str, str] = {
    "InternLMForCausalLM": "InternLM",
    "QWenLMHeadModel": "Qwen and Qwen-VL",
    "BaiChuanForCausalLM": "Baichuan",
    "BaichuanForCausalLM": "Baichuan and Baichuan2",
    "Starcoder2ForCausalLM": "StarCoder2",
    "InternLM2VEForCausalLM": "Mono-InternVL",
    "MllamaForConditionalGeneration": "mllama",
}

_BY_NAME = {row.name: row for row in CLASSES}
_BY_FAMILY = {family: row for row in CLASSES for family in row.families}


def find_class(family: str, class_name: str) -> ModelClass | None:
    """The row of an architecture: by its class, or by its family where the file names no class; None where the engine has none."""
    return _BY_NAME.get(class_name) if class_name else _BY_FAMILY.get(family)


def class_of(architecture: Architecture) -> ModelClass:
    """The architecture's row. Raises EngineRejectsError for a class that was removed, UnsupportedArchitectureError for an unknown one."""
    row = find_class(architecture.family, architecture.class_name)
    if row is not None:
        return row
    removed = REMOVED.get(architecture.class_name)
    if removed is not None:
        raise EngineRejectsError(
            f"{removed} ({architecture.class_name}) support has been removed from LMDeploy", "ask an engine that serves it, or ideal"
        )
    raise unknown_family("lmdeploy", architecture, "LMDeploy 0.18's PyTorch engine has no such class")
