"""What SGLang 0.5.23 keys on the model's class, one row a class: its own lists and the defaults of single models.

    windows                    configs/model_config.py, is_hybrid_swa_model: any other model stores its windows in full length
    latent, indexed            configs/model_config.py, _derive_model_shapes and is_deepseek_dsa
    state                      arg_groups/overrides.py, _MAMBA_RADIX_CACHE_ARCHS and _MAMBA_EXTRA_BUFFER_ARCHS; configs/<model>.py
    backends and the rest      arg_groups/model_overrides/*.py

Names are those of `architectures` in config.json, as SGLang compares them. A class without a row here is served without any of
this; which families are served at all is said in families.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


class WindowPool(NamedTuple):
    """The pool of their own that a class's sliding layers get.

    ratio        tokens of it for one of the full pool
    own_shape    its rows have the shape of the sliding layers (is_hybrid_swa_compress), not that of the full ones
    less_one     SGLang counts the window without the current token (get_attention_sliding_window_size in models/*.py)
    every_layer  every layer is in it, whatever the layer keeps of the prefill (get_hybrid_layer_ids)
    optional     SGLang also serves the class when none of its layers slides
    """

    ratio: float = 0.8
    own_shape: bool = False
    less_one: bool = False
    every_layer: bool = False
    optional: bool = False


class StateRule(NamedTuple):
    """How SGLang keeps the recurrent state of one class.

    strategy    "extra_buffer": tracking slots beside the running ones · "no_buffer": pages of one token only · "plain": neither
    declared    the config's `mamba_ssm_dtype` is read; otherwise the state is fp32 whatever the config says
    """

    strategy: Literal["extra_buffer", "no_buffer", "plain"]
    declared: bool


class Backends(NamedTuple):
    """The attention backend that a class gets by default on SM100, SM90, and elsewhere; None: SGLang's general choice."""

    sm100: str | None = None
    sm90: str | None = None
    other: str | None = None


#: SGLang's general choice on every card.
GENERAL = Backends()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRule:
    """What SGLang does for one class and for no other reason.

    windows            the pool of its sliding layers; None: they are stored in full length
    latent             stored as latents; any other class with latents is refused
    indexed            its index keys are known, where the config has an `index_topk`
    compressed         DeepSeek-V4: pools of its own (deepseek_v4.py)
    state              how recurrent state is kept; None: the class has none, or is refused with it
    stateful_only      no attention: no key or value pool at all
    prefixes           no radix cache, "never" or as soon as the model has recurrent state ("stateless")
    whole_groups       the model asserts that its groups of layers are complete
    drops_rotary       the rotary part of a latent is left out on request
    sinks, sink_flags  attention has sinks, which FlashInfer cannot read; or the flag of the config that says so, and its default
    fp8                the cache is fp8 unless another format is asked for
    backends           the attention backend by default
    accepted, refused  backends without which, or with which, SGLang does not start (arg_groups/model_hook.py)
    one_token_pages    on SM100 it takes trtllm_mha only where nothing forces pages of one token
    paged_drafts       pages of 64 on SM100 where it speculates
    sparse_keys        MiniMax-M3: pages of 128, and index keys that follow the cache into fp8
    ngram_memory       Qwen4-Exp: n-gram embeddings in every slot, index keys in bf16, their pages of 64
    splits_on_hopper   decodes with FlashInfer on large Hopper cards, and prefills with the card's backend (model_overrides/qwen3_vl.py)
    counts_encoder     Whisper: the encoder's layers are counted with the decoder's
    next_token_layers  draft layers where the config does not say, by the defaults of SGLang's own config classes
    own_draft_layers   draft layers of the checkpoint read as its own draft model (_config_draft_model), 0 = what the config says
    """

    windows: WindowPool | None = None
    latent: bool = False
    indexed: bool = False
    compressed: bool = False
    state: StateRule | None = None
    stateful_only: bool = False
    prefixes: Literal["cached", "never", "stateless"] = "cached"
    whole_groups: bool = False
    drops_rotary: bool = False
    sinks: bool = False
    sink_flags: Mapping[str, bool] = field(default_factory=dict)
    fp8: bool = False
    backends: Backends = GENERAL
    accepted: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()
    one_token_pages: bool = False
    paged_drafts: bool = False
    sparse_keys: bool = False
    ngram_memory: bool = False
    splits_on_hopper: bool = False
    counts_encoder: bool = False
    next_token_layers: int = 0
    own_draft_layers: int = 0


def _alike(names: str, rule: ClassRule) -> dict[str, ClassRule]:
    return dict.fromkeys(names.split(), rule)


#: A class of which SGLang knows nothing special.
PLAIN = ClassRule()

CLASSES: dict[str, ClassRule] = {
    **_alike("BailingMoeV2_5ForCausalLM", ClassRule(latent=True, whole_groups=True, state=StateRule("extra_buffer", declared=False))),
    **_alike(
        "BailingMoeV3ForCausalLM BailingMoeV3VLForConditionalGeneration",
        ClassRule(latent=True, whole_groups=True, drops_rotary=True, state=StateRule("extra_buffer", declared=False)),
    ),
    **_alike(
        "BeamForCausalLM",
        ClassRule(windows=WindowPool(less_one=True, optional=True), backends=Backends(sm100="trtllm_mha", sm90="trtllm_mha")),
    ),
    **_alike(
        "DeepseekV2ForCausalLM DeepseekVL2ForCausalLM DotsVLMForCausalLM GigaChat35ForCausalLM Glm4MoeLiteForCausalLM KimiVLForConditionalGeneration MiniCPM3ForCausalLM SarvamMLAForCausalLM",
        ClassRule(latent=True),
    ),
    **_alike(
        "DeepseekV32ForCausalLM DeepseekV3ForCausalLM GlmMoeDsaForCausalLM MistralLarge3ForCausalLM PixtralForConditionalGeneration",
        ClassRule(latent=True, indexed=True, backends=Backends(sm100="trtllm_mla")),
    ),
    **_alike("DeepseekV4ForCausalLM", ClassRule(compressed=True, windows=WindowPool(ratio=0.1), fp8=True)),
    **_alike(
        "DiffusionGemmaForBlockDiffusion",
        ClassRule(windows=WindowPool(own_shape=True, less_one=True), backends=Backends(sm100="triton", sm90="triton", other="triton")),
    ),
    **_alike(
        "Dots3NoteForCausalLM",
        ClassRule(windows=WindowPool(less_one=True), latent=True, indexed=True, backends=Backends(sm100="trtllm_mla")),
    ),
    **_alike(
        "EmbeddingGemma2Model",
        ClassRule(prefixes="never", windows=WindowPool(own_shape=True), backends=Backends(sm100="triton", sm90="triton", other="triton")),
    ),
    **_alike(
        "Exaone4ForCausalLM",
        ClassRule(backends=Backends(sm100="trtllm_mha", sm90="fa3", other="fa3"), accepted=_words("fa3 triton trtllm_mha")),
    ),
    **_alike(
        "ExaoneMoEForCausalLM ExaoneMoeForCausalLM",
        ClassRule(
            own_draft_layers=1, backends=Backends(sm100="trtllm_mha", sm90="fa3", other="fa3"), accepted=_words("fa3 triton trtllm_mha")
        ),
    ),
    **_alike(
        "FalconH1ForCausalLM MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration",
        ClassRule(state=StateRule("extra_buffer", declared=True), backends=Backends(sm100="triton")),
    ),
    **_alike(
        "FalconMambaForCausalLM Mamba2ForCausalLM MambaForCausalLM", ClassRule(state=StateRule("plain", declared=False), stateful_only=True)
    ),
    **_alike(
        "Gemma4ForCausalLM Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration",
        ClassRule(
            windows=WindowPool(own_shape=True, less_one=True),
            backends=Backends(sm100="trtllm_mha", sm90="triton", other="triton"),
            accepted=_words("fa4 triton trtllm_mha"),
        ),
    ),
    **_alike(
        "Glm5NextForConditionalGeneration",
        ClassRule(
            own_draft_layers=1,
            latent=True,
            indexed=True,
            state=StateRule("extra_buffer", declared=False),
            backends=Backends(sm100="trtllm_mla"),
            next_token_layers=1,
        ),
    ),
    **_alike(
        "GptOssForCausalLM",
        ClassRule(
            windows=WindowPool(less_one=True),
            sinks=True,
            backends=Backends(sm100="trtllm_mha", sm90="fa3", other="triton"),
            accepted=_words("fa3 fa4 triton trtllm_mha"),
        ),
    ),
    **_alike(
        "GraniteMoeHybridForCausalLM", ClassRule(state=StateRule("extra_buffer", declared=False), backends=Backends(sm100="flashinfer"))
    ),
    **_alike("GraniteMoeSWAForCausalLM GraniteSWAForCausalLM", ClassRule(windows=WindowPool(), sinks=True)),
    **_alike(
        "HYV4ForCausalLM",
        ClassRule(
            own_draft_layers=1,
            latent=True,
            indexed=True,
            sink_flags={"learnable_sink": True},
            backends=Backends(sm100="trtllm_mla"),
            next_token_layers=1,
        ),
    ),
    **_alike("HYV3ForCausalLM Qwen3MoeForCausalLM", ClassRule(own_draft_layers=1)),
    **_alike(
        "InklingForConditionalGeneration",
        ClassRule(
            windows=WindowPool(ratio=0.1, own_shape=True, less_one=True),
            backends=Backends(sm100="fa4", sm90="fa4", other="triton"),
            accepted=_words("fa4 triton"),
            next_token_layers=8,
        ),
    ),
    **_alike(
        "InternS2MobiusForConditionalGeneration",
        ClassRule(own_draft_layers=1, state=StateRule("no_buffer", declared=True), one_token_pages=True),
    ),
    **_alike(
        "InternS2PreviewForConditionalGeneration Qwen3NextForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration",
        ClassRule(own_draft_layers=1, state=StateRule("extra_buffer", declared=True), one_token_pages=True),
    ),
    **_alike(
        "IQuestQ1ForCausalLM",
        ClassRule(windows=WindowPool(), sinks=True, backends=Backends(sm100="fa3", sm90="fa3", other="fa3"), accepted=_words("fa3")),
    ),
    **_alike(
        "JetNemotronForCausalLM JetVLMForConditionalGeneration",
        ClassRule(state=StateRule("no_buffer", declared=True), backends=Backends(sm100="triton")),
    ),
    **_alike("KimiK25ForConditionalGeneration", ClassRule(latent=True, backends=Backends(sm100="trtllm_mla"))),
    **_alike(
        "KimiK3ForConditionalGeneration",
        ClassRule(latent=True, state=StateRule("extra_buffer", declared=False), backends=Backends(sm100="trtllm_mla")),
    ),
    **_alike("KimiK3LinearForCausalLM", ClassRule(latent=True, state=StateRule("plain", declared=False))),
    **_alike("KimiLinearForCausalLM", ClassRule(latent=True, state=StateRule("extra_buffer", declared=False))),
    **_alike("LagunaForCausalLM", ClassRule(windows=WindowPool(optional=True))),
    **_alike(
        "Lfm2ForCausalLM Lfm2MoeForCausalLM",
        ClassRule(state=StateRule("no_buffer", declared=True), backends=Backends(sm100="flashinfer"), refused=_words("triton")),
    ),
    **_alike("Lfm2VlForConditionalGeneration NemotronH_Nano_VL_V2", ClassRule(state=StateRule("plain", declared=True))),
    **_alike(
        "Llama4ForCausalLM",
        ClassRule(backends=Backends(sm100="trtllm_mha", sm90="fa3", other="triton"), accepted=_words("fa3 triton trtllm_mha")),
    ),
    **_alike(
        "Llama4ForConditionalGeneration",
        ClassRule(
            windows=WindowPool(),
            backends=Backends(sm100="trtllm_mha", sm90="fa3", other="triton"),
            accepted=_words("fa3 triton trtllm_mha"),
        ),
    ),
    **_alike("LongcatFlashForCausalLM", ClassRule(latent=True, indexed=True, backends=Backends(sm100="trtllm_mla"), next_token_layers=1)),
    **_alike("MellumForCausalLM MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration", ClassRule(windows=WindowPool(less_one=True))),
    **_alike(
        "MiMoV2FlashForCausalLM MiMoV2ForCausalLM",
        ClassRule(
            own_draft_layers=1,
            windows=WindowPool(own_shape=True),
            sink_flags={"add_swa_attention_sink_bias": False, "add_full_attention_sink_bias": False},
            backends=Backends(sm100="fa4"),
        ),
    ),
    **_alike(
        "MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration",
        ClassRule(backends=Backends(sm100="fa4", sm90="fa3"), sparse_keys=True),
    ),
    **_alike("MiniCPMForCausalLM MiniCPMSALAForCausalLM", ClassRule(prefixes="stateless")),
    **_alike("MuseSparkForConditionalGeneration", ClassRule(windows=WindowPool(less_one=True), fp8=True)),
    **_alike(
        "NemotronHForCausalLM NemotronHPuzzleForCausalLM NemotronH_Omni_Reasoning_V3",
        ClassRule(
            own_draft_layers=1, state=StateRule("extra_buffer", declared=True), backends=Backends(sm100="trtllm_mha"), paged_drafts=True
        ),
    ),
    **_alike("Olmo2ForCausalLM", ClassRule(backends=Backends(sm100="trtllm_mha", sm90="fa3", other="fa3"), refused=_words("flashinfer"))),
    **_alike("Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM", ClassRule(own_draft_layers=1, state=StateRule("extra_buffer", declared=True))),
    **_alike("Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration", ClassRule(splits_on_hopper=True)),
    **_alike(
        "Qwen4ExpForConditionalGeneration",
        ClassRule(own_draft_layers=1, state=StateRule("extra_buffer", declared=True), one_token_pages=True, ngram_memory=True),
    ),
    **_alike(
        "Step3p5ForCausalLM Step3p7ForConditionalGeneration", ClassRule(windows=WindowPool(), backends=Backends(sm100="fa4", sm90="fa3"))
    ),
    **_alike("UnlimitedOCRForCausalLM", ClassRule(windows=WindowPool(every_layer=True))),
    **_alike("WhisperForConditionalGeneration", ClassRule(counts_encoder=True)),
}


def rule_of(class_name: str) -> ClassRule:
    """The row of a class, as SGLang compares its name."""
    return CLASSES.get(class_name, PLAIN)
