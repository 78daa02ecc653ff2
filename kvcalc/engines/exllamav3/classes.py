"""The architectures of ExLlamaV3 1.6.5, one row a class: what its layers are beyond their states, and what it refuses to load.

The engine goes by the one name in `architectures` of config.json (architecture/architectures.py), never by model_type. A model
without such a name (a GGUF) is taken for the class of its family.

    ring       window layers are rings of fixed size (SlidingAttention); None = the window is only a mask over full pages
               the number is what the class takes off `sliding_window`: the ring keeps the tokens before the newest
    asserts    fields that the class holds to a value, where the file has them (`assert_cfg`, and asserts of its own)
    needs      fields without which the class does not load
    every      a layer list that the class does not read: where only that list names the full layers, every n-th is full instead
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.states import Full
from kvcalc.core.units import clean
from kvcalc.engines.base.families import unknown_family

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

#: What a class holds a field to: the field, and the values with which it loads.
Assert = tuple[str, tuple[object, ...]]

_SILU: Assert = ("hidden_act", ("silu",))
_ONE_GROUP: tuple[Assert, ...] = (("n_group", (1,)), ("topk_group", (1,)))
_NORMED: Assert = ("norm_topk_prob", (True,))
_SIGMOID: Assert = ("scoring_func", ("sigmoid",))
_NOAUX: Assert = ("topk_method", ("noaux_tc",))


@dataclass(frozen=True, slots=True)
class ModelClass:
    """One architecture of the engine. See the module's text for what its fields say."""

    name: str
    families: tuple[str, ...]
    asserts: tuple[Assert, ...] = ()
    ring: int | None = None
    needs: tuple[str, ...] = ()
    every: tuple[str, int] | None = None


#: Every architecture that generates text and stands alone; the drafters (DFlash, Gemma 4's and Muse's assistants) do not.
CLASSES: tuple[ModelClass, ...] = (
    ModelClass("AfmoeForCausalLM", ("afmoe",), (_SILU, ("score_func", ("sigmoid",)), *_ONE_GROUP), ring=0),
    ModelClass("ApertusForCausalLM", ("apertus",), (("hidden_act", ("xielu",)),)),
    ModelClass("ArceeForCausalLM", ("arcee",), (("hidden_act", ("relu2",)),)),
    ModelClass("BailingMoeV3ForCausalLM", ("bailing_hybrid",), (_SILU, ("score_function", ("sigmoid",)), _NORMED)),
    ModelClass("Cohere2ForCausalLM", ("cohere2",), (_SILU,)),
    ModelClass("CohereForCausalLM", ("cohere",), (_SILU,)),
    ModelClass("DeciLMForCausalLM", ("nemotron-nas", "deci"), (_SILU,)),
    ModelClass("DeepseekV3ForCausalLM", ("deepseek_v3", "kimi_k2"), (_SILU, *_ONE_GROUP, _SIGMOID, _NOAUX)),
    ModelClass("DeepseekV4ForCausalLM", ("deepseek_v4",), (("scoring_func", ("sqrtsoftplus",)), _NOAUX)),
    ModelClass("Dots1ForCausalLM", ("dots1",), (_SILU, ("scoring_func", ("noaux_tc",)), _NORMED)),
    ModelClass("Ernie4_5_ForCausalLM", ("ernie4_5",), (_SILU,)),
    ModelClass("Ernie4_5_MoeForCausalLM", ("ernie4_5_moe",), (_SILU, ("moe_gate_act", ("softmax",)), ("moe_layer_interval", (1,)))),
    ModelClass("Exaone4ForCausalLM", ("exaone4",), (_SILU,)),
    ModelClass("Gemma2ForCausalLM", ("gemma2",), (("hidden_act", ("gelu_pytorch_tanh",)),)),
    ModelClass("Gemma3ForCausalLM", ("gemma3_text",)),
    ModelClass("Gemma3ForConditionalGeneration", ()),
    ModelClass(
        "Gemma4ForConditionalGeneration",
        ("gemma4_text",),
        (("hidden_activation", ("gelu_pytorch_tanh",)), ("hidden_size_per_layer_input", (0,))),
        ring=1,
    ),
    ModelClass(
        "Gemma4UnifiedForConditionalGeneration",
        ("gemma4_unified_text",),
        (("hidden_activation", ("gelu_pytorch_tanh",)), ("hidden_size_per_layer_input", (0,))),
        ring=1,
    ),
    ModelClass("Glm4ForCausalLM", ("glm4",), (_SILU,)),
    ModelClass("Glm4MoeForCausalLM", ("glm4_moe",), (_SILU, _NORMED)),
    ModelClass("Glm4MoeLiteForCausalLM", ("glm4_moe_lite",), (_SILU, *_ONE_GROUP, _NOAUX, _NORMED)),
    ModelClass("Glm4vForConditionalGeneration", ("glm4v_text",), (_SILU,)),
    ModelClass("Glm4vMoeForConditionalGeneration", ("glm4v_moe_text",), (_SILU, _NORMED)),
    ModelClass(
        "Glm5NextForConditionalGeneration",
        ("glm5_next_text",),
        (_SILU, *_ONE_GROUP, _SIGMOID, _NOAUX, _NORMED, ("index_kpool_compress", (True,)), ("mhc", (True,))),
        needs=("indexer_types",),
    ),
    ModelClass(
        "GlmMoeDsaForCausalLM",
        ("glm_moe_dsa",),
        (
            _SILU,
            *_ONE_GROUP,
            _SIGMOID,
            _NOAUX,
            _NORMED,
            ("rope_interleave", (True,)),
            ("indexer_rope_interleave", (True,)),
        ),
        needs=("indexer_types",),
    ),
    ModelClass("GptOssForCausalLM", ("gpt_oss",), ring=1),
    ModelClass("HCXVisionV2ForCausalLM", (), (_SILU, ("residual_multiplier", (1,)))),
    ModelClass(
        "HYV3ForCausalLM",
        ("hy_v3",),
        (_SILU, ("moe_router_use_sigmoid", (True,)), ("moe_router_enable_expert_bias", (True,)), ("route_norm", (True,))),
    ),
    ModelClass("HyperCLOVAXForCausalLM", ("hyperclovax",), (_SILU, ("residual_multiplier", (1,)))),
    ModelClass("IQuestCoderForCausalLM", ("iquestcoder",), (_SILU,)),
    ModelClass(
        "KimiLinearForCausalLM",
        ("kimi_linear",),
        (
            _SILU,
            ("num_expert_group", (1,)),
            ("topk_group", (1,)),
            ("mla_use_nope", (True,)),
            ("moe_router_activation_func", ("sigmoid",)),
            ("moe_renormalize", (True,)),
            ("num_nextn_predict_layers", (0,)),
        ),
    ),
    ModelClass(
        "LagunaForCausalLM",
        ("laguna",),
        (
            ("gating", ("per-head",)),
            ("swa_attention_sink_enabled", (False,)),
            ("decoder_sparse_step", (1,)),
            _NORMED,
            ("moe_apply_router_weight_on_input", (False,)),
        ),
        ring=0,
        needs=("gating", "norm_topk_prob"),
    ),
    ModelClass("Lfm2ForCausalLM", ("lfm2",), (_SILU,), every=("full_attn_idxs", 4)),
    ModelClass("Lfm2MoeForCausalLM", ("lfm2_moe",), (_SILU, _NORMED), every=("full_attn_idxs", 4)),
    ModelClass("Lfm2VlForConditionalGeneration", (), (_SILU,), every=("full_attn_idxs", 4)),
    ModelClass("LlamaForCausalLM", ("llama",), (_SILU,)),
    ModelClass("MiMoForCausalLM", ("mimo",), (_SILU,)),
    ModelClass(
        "MiMoV2ForCausalLM",
        ("mimo_v2",),
        (_SILU, *_ONE_GROUP, _SIGMOID, _NOAUX, _NORMED, ("attention_projection_layout", ("fused_qkv",)), ("n_shared_experts", (0,))),
        ring=1,
    ),
    ModelClass("MiniMaxM2ForCausalLM", ("minimax_m2",), (_SILU, _NORMED, ("qk_norm_type", ("per_layer",)))),
    ModelClass("Ministral3ForCausalLM", ("ministral3",), (_SILU,)),
    ModelClass("MistralForCausalLM", ("mistral",), (_SILU,)),
    ModelClass("Mistral3ForConditionalGeneration", ("mistral4",), (_SILU, *_ONE_GROUP, _NORMED)),
    ModelClass("MixtralForCausalLM", ("mixtral",), (_SILU,)),
    ModelClass("MuseGlimmerForConditionalGeneration", ("muse_glimmer_text",), (("hidden_activation", ("silu",)),), ring=1),
    ModelClass(
        "NemotronHForCausalLM",
        ("nemotron_h",),
        (("mamba_hidden_act", ("silu",)), ("mlp_hidden_act", ("relu2",)), *_ONE_GROUP, _NORMED),
    ),
    ModelClass("NemotronH_Omni_Reasoning_V3", (), (("mamba_hidden_act", ("silu",)), ("mlp_hidden_act", ("relu2",)))),
    ModelClass("Olmo3ForCausalLM", ("olmo3",), (_SILU,)),
    ModelClass("OlmoHybridForCausalLM", ("olmo_hybrid",), (_SILU,)),
    ModelClass("Phi3ForCausalLM", ("phi3",), (_SILU,)),
    ModelClass("Qwen2ForCausalLM", ("qwen2",), (_SILU,)),
    ModelClass("Qwen2_5_VLForConditionalGeneration", ("qwen2_5_vl_text",), (_SILU,)),
    ModelClass("Qwen3ForCausalLM", ("qwen3",), (_SILU,)),
    ModelClass("Qwen3MoeForCausalLM", ("qwen3_moe",), (_SILU, _NORMED)),
    ModelClass("Qwen3NextForCausalLM", ("qwen3_next",), (_SILU, _NORMED, ("use_sliding_window", (False,)))),
    ModelClass("Qwen3VLForConditionalGeneration", ("qwen3_vl_text",), (_SILU,)),
    ModelClass("Qwen3VLMoeForConditionalGeneration", ("qwen3_vl_moe_text",), (_SILU, _NORMED)),
    ModelClass("Qwen3_5ForCausalLM", ("qwen3_5_text",), (_SILU,)),
    ModelClass("Qwen3_5ForConditionalGeneration", (), (_SILU,)),
    ModelClass("Qwen3_5MoeForCausalLM", ("qwen3_5_moe_text",), (_SILU, _NORMED)),
    ModelClass("Qwen3_5MoeForConditionalGeneration", (), (_SILU, _NORMED)),
    ModelClass("Qwen4ExpForConditionalGeneration", ("qwen4_exp_text",), (_SILU, _NORMED)),
    ModelClass("SeedOssForCausalLM", ("seed_oss",), (_SILU,)),
    ModelClass("SmolLM3ForCausalLM", ("smollm3",), (_SILU,)),
    ModelClass("SolarOpenForCausalLM", ("solar_open",), (_SILU, _NORMED)),
    ModelClass("Spark2_5ForCausalLM", ("spark2_5",), (("hidden_act", ("gelu",)),), ring=0),
    ModelClass("Step3p5ForCausalLM", ("step3p5",), (("norm_expert_weight", (True,)), ("use_moe_router_bias", (True,))), ring=0),
    ModelClass("Step3p7ForConditionalGeneration", (), (("norm_expert_weight", (True,)), ("use_moe_router_bias", (True,))), ring=0),
)

_BY_NAME = {row.name: row for row in CLASSES}
_BY_FAMILY = {family: row for row in CLASSES for family in row.families}


def find_class(family: str, class_name: str) -> ModelClass | None:
    """The row of an architecture: by its class, or by its family where the file names no class; None where the engine has none."""
    return _BY_NAME.get(class_name) if class_name else _BY_FAMILY.get(family)


def _said(architecture: Architecture, name: str) -> object:
    """What the file says under that name; None where it is silent."""
    declared = architecture.traits.declared or {}
    return declared[name] if name in declared else getattr(architecture.traits, name, None)


def layer_order(architecture: Architecture, row: ModelClass) -> tuple[str, ...]:
    """The names of the layers' states in the order that the class builds them."""
    order = architecture.layers.order
    if row.every is None or not _said(architecture, row.every[0]):
        return order
    full = next((name for name in order if any(isinstance(state, Full) for state in architecture.layers.states[name])), order[0])
    rest = next((name for name in order if name != full), full)
    return tuple(rest if (i + 1) % row.every[1] else full for i in range(len(order)))


def class_of(architecture: Architecture) -> ModelClass:
    """The architecture's row, once it is sure that the class loads it. Raises UnsupportedArchitectureError, EngineRejectsError."""
    row = find_class(architecture.family, architecture.class_name)
    if row is None:
        raise unknown_family("exllamav3", architecture, "ExLlamaV3 1.6.5 has no such architecture")
    for name, allowed in row.asserts:
        value = _said(architecture, name)
        if value is not None and value not in allowed:
            raise EngineRejectsError(
                f"ExLlamaV3 does not load {row.name} with {name} = {clean(repr(value), 40)}: its class holds it to {allowed[0]!r}",
                "ask an engine that serves it, or ideal",
            )
    for name in row.needs:
        if _said(architecture, name) is None:
            raise EngineRejectsError(
                f"ExLlamaV3 does not load {row.name} without {name} in config.json", "ask an engine that serves it, or ideal"
            )
    return row
