"""llama.cpp's architectures, one row each: the model_types that convert to it, and what the allocator does for it.

    GGUF file ── its own name (trait gguf_architecture)
    config.json, catalogue ── the architecture that convert_hf_to_gguf.py writes for that model_type

A row without model_types is an architecture that only a GGUF file names: an encoder, a draft model, or one of which kvcalc reads
no config.json. Sources: llama-arch.cpp, llama-model.cpp `create_memory`, conversion/*.py (llama.cpp b11549).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import UnsupportedArchitectureError, nearest
from kvcalc.core.states import Kda, Mamba1, Mamba2
from kvcalc.core.units import clean
from kvcalc.engines.base.families import unknown_family

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture


class Windows(NamedTuple):
    """How an architecture reads `attention.sliding_window`; any other stores its window layers in full.

    period       its converter writes no pattern, so that the loader's own holds: one layer in so many is full, 0 = as the model says
    dense_first  the first of a period is the full one, not the last
    always       the loader has window layers even where the config has none
    fixed        the window that the loader sets whatever the file says (llama4.cpp, smallthinker.cpp), 0 = the file's
    layers       only models of so many layers have windows (exaone4.cpp), 0 = all
    """

    period: int = 0
    dense_first: bool = False
    always: bool = False
    fixed: int = 0
    layers: int = 0


class Drafts(NamedTuple):
    """What becomes of a model's draft layers.

    written        converters write them; the others drop them       families   model_types whose converter does so although the others do not
    kept           the cache of the whole model also holds them
    repeats_model  a draft context repeats the cache of the whole model instead of holding the draft layers alone
    computed       there is a graph of its own for them (models/*.cpp, graph_mtp): any other finds no cache for its layers
    indexed        they have index keys; elsewhere they attend densely
    """

    written: bool = False
    kept: bool = False
    repeats_model: bool = False
    computed: bool = False
    indexed: bool = False
    families: frozenset[str] = frozenset()


#: Draft layers that no converter writes and nothing computes.
DROPPED = Drafts()


@dataclass(frozen=True, slots=True)
class ArchitectureRule:
    """One architecture.

    families             model_types that convert to it
    needs, otherwise     states without one of which the converter writes another architecture, "" = none at all
    with_experts         the architecture that it writes where the model has experts
    windows, drafts      as above; None: windows are not read
    rolls_back           recurrent states keep one row more for each drafted token (llama-arch.cpp `llm_arch_supports_rs_rollback`)
    index_rows           rows that an index key takes: key, gate and pooled key, or key and pooled key (llama-memory-hybrid-idx.cpp)
    feed_forward_blocks  blocks that are a feed-forward alone stand outside the cache
    expands_latents      latents are stored as expanded heads whatever the file holds
    untold_value         the converter leaves the V width at embedding / heads
    compressed           DeepSeek-V4's entries (llama-kv-cache-dsv4.cpp)
    narrow_convolution   the convolution sees the inner width alone: the file says 0 groups (conversion/plamo.py)
    owners               the layers that own a cache, whatever the model says (gemma3n.cpp), 0 = as the model says
    flash                flash attention is possible (llama-context.cpp)
    splits_tensors       `--split-mode tensor` is possible (llama-arch.cpp `llm_arch_supports_sm_tensor`)
    mirrors_cache, mirrors_state    under it, caches or states stand whole on every device (llama-model.cpp)
    """

    families: str = ""
    needs: tuple[type, ...] = ()
    otherwise: str = ""
    with_experts: str = ""
    windows: Windows | None = None
    drafts: Drafts = DROPPED
    rolls_back: bool = False
    index_rows: int = 0
    feed_forward_blocks: bool = False
    expands_latents: bool = False
    untold_value: bool = False
    compressed: bool = False
    narrow_convolution: bool = False
    owners: int = 0
    flash: bool = True
    splits_tensors: bool = True
    mirrors_cache: bool = False
    mirrors_state: bool = False


ARCHITECTURES: dict[str, ArchitectureRule] = {
    "afmoe": ArchitectureRule("afmoe", windows=Windows(period=4)),
    "apertus": ArchitectureRule("apertus"),
    "arcee": ArchitectureRule("arcee"),
    "arctic": ArchitectureRule("arctic"),
    "arwkv7": ArchitectureRule(drafts=Drafts(repeats_model=True)),
    "baichuan": ArchitectureRule("baichuan"),
    "bailingmoe": ArchitectureRule("bailing_moe"),
    "bailingmoe2": ArchitectureRule("bailing_moe_v2 sarvam_moe"),
    "bailingmoe3": ArchitectureRule(
        "bailing_hybrid bailing_moe_v3",
        needs=(Kda,),
        rolls_back=True,
        drafts=Drafts(written=True, kept=True, computed=True),
        untold_value=True,
        splits_tensors=False,
    ),
    "bert": ArchitectureRule(),
    "bitnet": ArchitectureRule("bitnet", splits_tensors=False),
    "bloom": ArchitectureRule("bloom"),
    "chameleon": ArchitectureRule("chameleon"),
    "chatglm": ArchitectureRule("chatglm glm"),
    "clef": ArchitectureRule(),
    "codeshell": ArchitectureRule("codeshell"),
    "cogvlm": ArchitectureRule(),
    "cohere2": ArchitectureRule("cohere2", windows=Windows(period=4, always=True), drafts=Drafts(written=True)),
    "cohere2moe": ArchitectureRule("cohere2_moe", windows=Windows(), drafts=Drafts(written=True, computed=True)),
    "command-r": ArchitectureRule("cohere"),
    "dbrx": ArchitectureRule("dbrx"),
    "deci": ArchitectureRule("deci nemotron-nas"),
    "deepseek": ArchitectureRule("deepseek"),
    "deepseek2": ArchitectureRule(
        "deepseek_v2 deepseek_v3 kimi_k2 glm4_moe_lite youtu",
        drafts=Drafts(computed=True, families=frozenset(("glm4_moe_lite",))),
        splits_tensors=False,
    ),
    "deepseek2-ocr": ArchitectureRule("deepseek_ocr2_text unlimited_ocr_text"),
    "deepseek32": ArchitectureRule("deepseek_v32", drafts=Drafts(written=True, computed=True), splits_tensors=False),
    "deepseek4": ArchitectureRule(
        "deepseek_v4",
        windows=Windows(),
        rolls_back=True,
        drafts=Drafts(kept=True, computed=True),
        mirrors_cache=True,
        mirrors_state=True,
        compressed=True,
    ),
    "dflash": ArchitectureRule(windows=Windows()),
    "dots1": ArchitectureRule("dots1"),
    "dots3note": ArchitectureRule(
        "dots3note dots3_note dots3_note_text", windows=Windows(), drafts=Drafts(written=True), splits_tensors=False
    ),
    "dream": ArchitectureRule(),
    "eagle3": ArchitectureRule(),
    "ernie4_5": ArchitectureRule("ernie4_5 ernie4_5_text"),
    "ernie4_5-moe": ArchitectureRule("ernie4_5_moe"),
    "eurobert": ArchitectureRule(),
    "exaone": ArchitectureRule("exaone"),
    "exaone-moe": ArchitectureRule("exaone_moe", windows=Windows(), drafts=Drafts(written=True)),
    "exaone4": ArchitectureRule("exaone4", windows=Windows(layers=64), drafts=Drafts(written=True)),
    "falcon": ArchitectureRule("falcon RefinedWeb RefinedWebModel"),
    "falcon-h1": ArchitectureRule("falcon_h1", drafts=Drafts(kept=True, repeats_model=True), splits_tensors=False),
    "gemma": ArchitectureRule("gemma"),
    "gemma-embedding": ArchitectureRule(),
    "gemma2": ArchitectureRule("gemma2", windows=Windows(period=2, always=True)),
    "gemma3": ArchitectureRule("gemma3 gemma3_text", windows=Windows(period=6)),
    "gemma3n": ArchitectureRule("gemma3n gemma3n_text", windows=Windows(period=5), splits_tensors=False, owners=20),
    "gemma4": ArchitectureRule("gemma4 gemma4_text gemma4_unified_text", windows=Windows()),
    "gemma4-assistant": ArchitectureRule("gemma4_assistant gemma4_unified_assistant"),
    "glm-dsa": ArchitectureRule("glm_moe_dsa", drafts=Drafts(written=True, computed=True), splits_tensors=False),
    "glm4": ArchitectureRule("glm4 glm4v_text glm_ocr_text", drafts=Drafts(written=True)),
    "glm4moe": ArchitectureRule("glm4_moe glm4v_moe_text solar_open", drafts=Drafts(written=True, computed=True)),
    "glm5-next": ArchitectureRule(
        "glm5_next glm5_next_text",
        rolls_back=True,
        drafts=Drafts(written=True, computed=True, indexed=True),
        index_rows=3,
        splits_tensors=False,
    ),
    "gpt-oss": ArchitectureRule("gpt_oss", windows=Windows(period=2, always=True)),
    "gpt2": ArchitectureRule("gpt2"),
    "gptneox": ArchitectureRule("gpt_neox"),
    "granite": ArchitectureRule("granite"),
    "granite_swa": ArchitectureRule("granite_swa granitemoe_swa", windows=Windows()),
    "granitehybrid": ArchitectureRule(
        "granitemoehybrid bamba",
        needs=(Mamba1, Mamba2),
        otherwise="granite",
        drafts=Drafts(kept=True, repeats_model=True),
        splits_tensors=False,
    ),
    "granitemoe": ArchitectureRule("granitemoe granitemoeshared"),
    "graniteswitch": ArchitectureRule("granite_switch"),
    "grok": ArchitectureRule("grok-1 grok", flash=False, splits_tensors=False),
    "grovemoe": ArchitectureRule("grove_moe"),
    "hrm_text": ArchitectureRule("hrm_text", mirrors_cache=True, mirrors_state=True),
    "hunyuan-dense": ArchitectureRule("hunyuan_v1_dense"),
    "hunyuan-moe": ArchitectureRule("hunyuan hunyuan_v1_moe"),
    "hunyuan_vl": ArchitectureRule("hunyuan_vl_text"),
    "hy_v3": ArchitectureRule("hy_v3", drafts=Drafts(written=True, computed=True)),
    "hy_v4": ArchitectureRule("hy_v4", drafts=Drafts(kept=True, repeats_model=True), splits_tensors=False),
    "internlm2": ArchitectureRule("internlm2"),
    "jais": ArchitectureRule("jais"),
    "jais2": ArchitectureRule("jais2"),
    "jamba": ArchitectureRule("jamba", drafts=Drafts(kept=True, repeats_model=True), splits_tensors=False),
    "jina-bert-v2": ArchitectureRule(),
    "jina-bert-v3": ArchitectureRule(),
    "kimi-k3": ArchitectureRule(rolls_back=True, drafts=Drafts(kept=True, repeats_model=True), splits_tensors=False),
    "kimi-linear": ArchitectureRule("kimi_linear", drafts=Drafts(kept=True, repeats_model=True), untold_value=True, splits_tensors=False),
    "laguna": ArchitectureRule("laguna", windows=Windows(period=4, dense_first=True)),
    "lfm2": ArchitectureRule("lfm2", windows=Windows(), rolls_back=True, drafts=Drafts(kept=True, repeats_model=True), mirrors_state=True),
    "lfm2moe": ArchitectureRule(
        "lfm2_moe", windows=Windows(), rolls_back=True, drafts=Drafts(kept=True, repeats_model=True), mirrors_state=True
    ),
    "llada": ArchitectureRule(),
    "llada-moe": ArchitectureRule(),
    "llama": ArchitectureRule("llama mistral mixtral internlm3 iquestcoder"),
    "llama-embed": ArchitectureRule(),
    "llama4": ArchitectureRule("llama4 llama4_text", windows=Windows(period=4, fixed=8192)),
    "maincoder": ArchitectureRule("maincoder"),
    "mamba": ArchitectureRule("mamba falcon_mamba", drafts=Drafts(repeats_model=True), splits_tensors=False),
    "mamba2": ArchitectureRule("mamba2", drafts=Drafts(repeats_model=True), splits_tensors=False),
    "maple": ArchitectureRule("maple", windows=Windows()),
    "mellum": ArchitectureRule("mellum", windows=Windows()),
    "mimo2": ArchitectureRule("mimo_v2 mimo_v2_flash", windows=Windows(), drafts=Drafts(written=True, computed=True)),
    "minicpm": ArchitectureRule("minicpm"),
    "minicpm3": ArchitectureRule("minicpm3", expands_latents=True, untold_value=True, splits_tensors=False),
    "minimax-01": ArchitectureRule("minimax_text_01 minimax_m1", drafts=Drafts(repeats_model=True), splits_tensors=False),
    "minimax-m2": ArchitectureRule("minimax_m2", splits_tensors=False),
    "minimax-m3": ArchitectureRule(
        "minimax_m3 minimax_m3_text minimax_m3_vl_text", drafts=Drafts(kept=True, repeats_model=True), splits_tensors=False
    ),
    "mistral3": ArchitectureRule("mistral3 ministral3"),
    "mistral4": ArchitectureRule("mistral4", splits_tensors=False),
    "modern-bert": ArchitectureRule(),
    "mpt": ArchitectureRule("mpt", splits_tensors=False),
    "muse-glimmer": ArchitectureRule("muse_glimmer muse_glimmer_text", windows=Windows()),
    "nanbeige": ArchitectureRule("nanbeige"),
    "nemotron": ArchitectureRule("nemotron"),
    "nemotron_h": ArchitectureRule(
        "nemotron_h nemotron_h_puzzle",
        with_experts="nemotron_h_moe",
        rolls_back=True,
        drafts=Drafts(repeats_model=True),
        feed_forward_blocks=True,
        splits_tensors=False,
    ),
    "nemotron_h_moe": ArchitectureRule(
        rolls_back=True, drafts=Drafts(written=True, computed=True), feed_forward_blocks=True, splits_tensors=False
    ),
    "neo-bert": ArchitectureRule(),
    "nomic-bert": ArchitectureRule(),
    "nomic-bert-moe": ArchitectureRule(),
    "olmo": ArchitectureRule("olmo"),
    "olmo2": ArchitectureRule("olmo2 olmo3", windows=Windows(), splits_tensors=False),
    "olmoe": ArchitectureRule("olmoe", splits_tensors=False),
    "openelm": ArchitectureRule("openelm"),
    "orion": ArchitectureRule("orion"),
    "paddleocr": ArchitectureRule("paddleocr_vl_text"),
    "pangu-embedded": ArchitectureRule("PanguEmbedded pangu_embedded"),
    "phi2": ArchitectureRule("phi"),
    "phi3": ArchitectureRule("phi3"),
    "phimoe": ArchitectureRule("phimoe"),
    "plamo": ArchitectureRule("plamo"),
    "plamo2": ArchitectureRule("plamo2", narrow_convolution=True, drafts=Drafts(kept=True, repeats_model=True), splits_tensors=False),
    "plamo3": ArchitectureRule("plamo3", windows=Windows()),
    "plm": ArchitectureRule("plm", expands_latents=True),
    "pockettts": ArchitectureRule(),
    "qwen": ArchitectureRule("qwen"),
    "qwen2": ArchitectureRule("qwen2 qwen2_audio"),
    "qwen2moe": ArchitectureRule("qwen2_moe"),
    "qwen2vl": ArchitectureRule("qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text"),
    "qwen3": ArchitectureRule("qwen3"),
    "qwen35": ArchitectureRule("qwen3_5 qwen3_5_text", rolls_back=True, drafts=Drafts(written=True, computed=True)),
    "qwen35moe": ArchitectureRule("qwen3_5_moe qwen3_5_moe_text", rolls_back=True, drafts=Drafts(written=True, computed=True)),
    "qwen3moe": ArchitectureRule("qwen3_moe"),
    "qwen3next": ArchitectureRule("qwen3_next", drafts=Drafts(written=True, computed=True)),
    "qwen3tts": ArchitectureRule(splits_tensors=False),
    "qwen3vl": ArchitectureRule("qwen3_vl qwen3_vl_text qwen3_asr_text"),
    "qwen3vlmoe": ArchitectureRule("qwen3_vl_moe qwen3_vl_moe_text qwen3_omni_moe_text"),
    "qwen4exp": ArchitectureRule(
        "qwen4_exp qwen4_exp_text", rolls_back=True, drafts=Drafts(repeats_model=True), index_rows=2, splits_tensors=False
    ),
    "refact": ArchitectureRule(),
    "rnd1": ArchitectureRule(),
    "rwkv6": ArchitectureRule("rwkv6", drafts=Drafts(repeats_model=True)),
    "rwkv6qwen2": ArchitectureRule(drafts=Drafts(repeats_model=True)),
    "rwkv7": ArchitectureRule("rwkv7", drafts=Drafts(repeats_model=True)),
    "seed_oss": ArchitectureRule("seed_oss"),
    "smallthinker": ArchitectureRule("smallthinker", windows=Windows(fixed=4096)),
    "smollm3": ArchitectureRule("smollm3"),
    "spark2_5": ArchitectureRule("spark2_5", windows=Windows()),
    "stablelm": ArchitectureRule("stablelm stablelm_epoch"),
    "starcoder": ArchitectureRule("gpt_bigcode"),
    "starcoder2": ArchitectureRule("starcoder2"),
    "step35": ArchitectureRule("step3p5", windows=Windows(), drafts=Drafts(written=True, computed=True)),
    "t5": ArchitectureRule(splits_tensors=False),
    "t5encoder": ArchitectureRule(),
    "talkie": ArchitectureRule("talkie"),
    "wavtokenizer-dec": ArchitectureRule(),
    "xverse": ArchitectureRule("xverse"),
}
#: model_type → architecture.
FAMILIES: dict[str, str] = {family: name for name, rule in ARCHITECTURES.items() for family in rule.families.split()}

#: Classes of config.json that convert differently from the model_type they share.
_CLASSES = {
    "KimiK3ForConditionalGeneration": "kimi-k3",
    "DeepseekOCRForCausalLM": "deepseek2-ocr",
    "DeepseekOCR2ForCausalLM": "deepseek2-ocr",
    "UnlimitedOCRForCausalLM": "deepseek2-ocr",
}
#: Fields of a config that say that a model has experts.
_EXPERTS = ("n_routed_experts", "num_experts")


def architecture_name(architecture: Architecture, engine: str = "llama.cpp") -> str:
    """The llama.cpp architecture of a model. Raises UnsupportedArchitectureError where it converts to none, in the name of `engine`."""
    own = architecture.traits.gguf_architecture
    if own is not None:
        if own not in ARCHITECTURES:
            raise UnsupportedArchitectureError(f"llama.cpp has no architecture '{clean(own, 60)}'", nearest(own, ARCHITECTURES))
        return own
    name = FAMILIES.get(architecture.family)
    if name is None:
        raise unknown_family(engine, architecture, "no converter writes it as GGUF")
    if architecture.class_name in _CLASSES:
        return _CLASSES[architecture.class_name]
    rule = ARCHITECTURES[name]
    if rule.with_experts and any(architecture.traits.get(key) is not None for key in _EXPERTS):
        return rule.with_experts
    if rule.needs and not any(isinstance(state, rule.needs) for state in architecture.states):
        if not rule.otherwise:
            raise UnsupportedArchitectureError(
                f"llama.cpp's converter writes a {clean(architecture.family, 60)} as GGUF only with {rule.needs[0].__name__} layers"
            )
        return rule.otherwise
    return name
