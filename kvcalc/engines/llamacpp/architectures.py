"""llama.cpp's architectures: which one a model converts to, and what its allocator does for each.

    GGUF file ── its own name (trait gguf_architecture)
    config.json, catalogue ── FAMILIES: the architecture that convert_hf_to_gguf.py writes for that model_type

Sources: llama-arch.cpp, llama-model.cpp `create_memory`, conversion/*.py (llama.cpp b11549).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UnsupportedArchitectureError, nearest
from kvcalc.core.states import Kda, Mamba1, Mamba2
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

#: Architecture ← the model_types that convert to it.
_CONVERTED = {
    "afmoe": "afmoe",
    "apertus": "apertus",
    "arcee": "arcee",
    "arctic": "arctic",
    "baichuan": "baichuan",
    "bailingmoe": "bailing_moe",
    "bailingmoe2": "bailing_moe_v2 sarvam_moe",
    "bailingmoe3": "bailing_hybrid bailing_moe_v3",
    "bitnet": "bitnet",
    "bloom": "bloom",
    "chameleon": "chameleon",
    "chatglm": "chatglm glm",
    "codeshell": "codeshell",
    "cohere2": "cohere2",
    "cohere2moe": "cohere2_moe",
    "command-r": "cohere",
    "dbrx": "dbrx",
    "deci": "deci nemotron-nas",
    "deepseek": "deepseek",
    "deepseek2": "deepseek_v2 deepseek_v3 kimi_k2 glm4_moe_lite youtu",
    "deepseek2-ocr": "deepseek_ocr2_text unlimited_ocr_text",
    "deepseek32": "deepseek_v32",
    "deepseek4": "deepseek_v4",
    "dots1": "dots1",
    "dots3note": "dots3note dots3_note dots3_note_text",
    "ernie4_5": "ernie4_5 ernie4_5_text",
    "paddleocr": "paddleocr_vl_text",
    "ernie4_5-moe": "ernie4_5_moe",
    "exaone": "exaone",
    "exaone-moe": "exaone_moe",
    "exaone4": "exaone4",
    "falcon": "falcon RefinedWeb RefinedWebModel",
    "falcon-h1": "falcon_h1",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3 gemma3_text",
    "gemma3n": "gemma3n gemma3n_text",
    "gemma4": "gemma4 gemma4_text gemma4_unified_text",
    "gemma4-assistant": "gemma4_assistant gemma4_unified_assistant",
    "glm-dsa": "glm_moe_dsa",
    "glm4": "glm4 glm4v_text glm_ocr_text",
    "glm4moe": "glm4_moe glm4v_moe_text solar_open",
    "glm5-next": "glm5_next glm5_next_text",
    "gpt-oss": "gpt_oss",
    "gpt2": "gpt2",
    "gptneox": "gpt_neox",
    "granite": "granite",
    "granite_swa": "granite_swa granitemoe_swa",
    "granitehybrid": "granitemoehybrid bamba",
    "granitemoe": "granitemoe granitemoeshared",
    "graniteswitch": "granite_switch",
    "grok": "grok-1 grok",
    "grovemoe": "grove_moe",
    "hrm_text": "hrm_text",
    "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan hunyuan_v1_moe",
    "hunyuan_vl": "hunyuan_vl_text",
    "hy_v3": "hy_v3",
    "hy_v4": "hy_v4",
    "internlm2": "internlm2",
    "jais": "jais",
    "jais2": "jais2",
    "jamba": "jamba",
    "kimi-linear": "kimi_linear",
    "laguna": "laguna",
    "lfm2": "lfm2",
    "lfm2moe": "lfm2_moe",
    "llama": "llama mistral mixtral internlm3 iquestcoder",
    "llama4": "llama4 llama4_text",
    "maincoder": "maincoder",
    "mamba": "mamba falcon_mamba",
    "mamba2": "mamba2",
    "maple": "maple",
    "mellum": "mellum",
    "mimo2": "mimo_v2 mimo_v2_flash",
    "minicpm": "minicpm",
    "minicpm3": "minicpm3",
    "minimax-01": "minimax_text_01 minimax_m1",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3 minimax_m3_text minimax_m3_vl_text",
    "mistral3": "mistral3 ministral3",
    "mistral4": "mistral4",
    "mpt": "mpt",
    "muse-glimmer": "muse_glimmer muse_glimmer_text",
    "nanbeige": "nanbeige",
    "nemotron": "nemotron",
    "nemotron_h": "nemotron_h nemotron_h_puzzle",
    "olmo": "olmo",
    "olmo2": "olmo2 olmo3",
    "olmoe": "olmoe",
    "openelm": "openelm",
    "orion": "orion",
    "pangu-embedded": "PanguEmbedded pangu_embedded",
    "phi2": "phi",
    "phi3": "phi3",
    "phimoe": "phimoe",
    "plamo": "plamo",
    "plamo2": "plamo2",
    "plamo3": "plamo3",
    "plm": "plm",
    "qwen": "qwen",
    "qwen2": "qwen2 qwen2_audio",
    "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen2_5_omni_text",
    "qwen3": "qwen3",
    "qwen35": "qwen3_5 qwen3_5_text",
    "qwen35moe": "qwen3_5_moe qwen3_5_moe_text",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen3vl": "qwen3_vl qwen3_vl_text qwen3_asr_text",
    "qwen3vlmoe": "qwen3_vl_moe qwen3_vl_moe_text qwen3_omni_moe_text",
    "qwen4exp": "qwen4_exp qwen4_exp_text",
    "rwkv6": "rwkv6",
    "rwkv7": "rwkv7",
    "seed_oss": "seed_oss",
    "smallthinker": "smallthinker",
    "smollm3": "smollm3",
    "spark2_5": "spark2_5",
    "stablelm": "stablelm stablelm_epoch",
    "starcoder": "gpt_bigcode",
    "starcoder2": "starcoder2",
    "step35": "step3p5",
    "talkie": "talkie",
    "xverse": "xverse",
}
FAMILIES: dict[str, str] = {family: name for name, families in _CONVERTED.items() for family in families.split()}

#: Architectures that only a GGUF file names: encoders, draft models, and what kvcalc reads no config.json of.
FILES_ONLY = frozenset(
    """
    arwkv7 bert clef cogvlm dflash dream eagle3 eurobert gemma-embedding jina-bert-v2 jina-bert-v3 kimi-k3 llada llada-moe llama-embed
    modern-bert nemotron_h_moe neo-bert nomic-bert nomic-bert-moe pockettts qwen3tts refact rnd1 rwkv6qwen2 t5 t5encoder
    wavtokenizer-dec
    """.split()  # noqa: SIM905  a table of words, not 28 lines of one
)
KNOWN = frozenset(FAMILIES.values()) | FILES_ONLY

#: Classes of config.json that convert differently from the model_type they share.
_CLASSES = {
    "KimiK3ForConditionalGeneration": "kimi-k3",
    "DeepseekOCRForCausalLM": "deepseek2-ocr",
    "DeepseekOCR2ForCausalLM": "deepseek2-ocr",
    "UnlimitedOCRForCausalLM": "deepseek2-ocr",
}

#: Architectures that read `attention.sliding_window`; every other stores its window layers in full.
WINDOWED = frozenset(
    """
    gemma2 gemma3 gemma3n gemma4 gpt-oss cohere2 cohere2moe llama4 olmo2 exaone4 exaone-moe afmoe mellum muse-glimmer plamo3 laguna
    smallthinker mimo2 step35 spark2_5 maple granite_swa dots3note deepseek4 dflash lfm2 lfm2moe
    """.split()  # noqa: SIM905  a table of words, not 27 lines of one
)
#: Converters that write no pattern of window layers, so that the loader's own holds: the last of each period is full, or the first.
PERIODS: dict[str, tuple[int, bool]] = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "gpt-oss": (2, False),
    "laguna": (4, True),
    "llama4": (4, False),
}
#: Those of them whose loader has window layers even where the config has none.
ALWAYS_WINDOWED = frozenset(("cohere2", "gemma2", "gpt-oss"))
#: Windows that the loader sets whatever the file says (llama4.cpp, smallthinker.cpp).
FIXED_WINDOWS = {"llama4": 8192, "smallthinker": 4096}
#: exaone4.cpp: only a model of 64 layers has windows.
EXAONE4_WINDOWED_LAYERS = 64
#: gemma3n.cpp: the layers that own a cache, whatever the model says.
GEMMA3N_OWNERS = 20

#: Recurrent states can be rolled back: one row more for each drafted token (llama-arch.cpp `llm_arch_supports_rs_rollback`).
ROLLBACK = frozenset(
    (
        "kimi-k3",
        "qwen35",
        "qwen35moe",
        "qwen4exp",
        "deepseek4",
        "glm5-next",
        "nemotron_h",
        "nemotron_h_moe",
        "lfm2",
        "lfm2moe",
        "bailingmoe3",
    )
)
#: The cache of the whole model also holds the draft layers.
KEEPS_DRAFTS = frozenset(
    (
        "minimax-m3",
        "hy_v4",
        "deepseek4",
        "bailingmoe3",
        "kimi-linear",
        "kimi-k3",
        "granitehybrid",
        "jamba",
        "plamo2",
        "lfm2",
        "lfm2moe",
        "falcon-h1",
    )
)
#: A draft context of these repeats the cache of the whole model instead of holding the draft layers alone.
DRAFTS_REPEAT_MODEL = (
    KEEPS_DRAFTS - {"deepseek4", "bailingmoe3"}
    | {"qwen4exp", "minimax-01", "nemotron_h", "mamba", "mamba2"}
    | {"rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"}
)
#: Architectures that compute a draft of their own (models/*.cpp, graph_mtp): the graph of any other finds no cache for its layers.
DRAFT_GRAPHS = frozenset(
    """
    bailingmoe3 cohere2moe deepseek2 deepseek32 deepseek4 glm-dsa glm4moe glm5-next hy_v3 mimo2 nemotron_h_moe qwen3next qwen35
    qwen35moe step35
    """.split()  # noqa: SIM905  a table of words, not 15 lines of one
)
#: Converters that write the draft layers of a config.json; the others drop them.
WRITES_DRAFTS = frozenset(
    """
    deepseek32 glm-dsa glm4 glm4moe glm5-next qwen3next qwen35 qwen35moe nemotron_h_moe hy_v3 exaone4 exaone-moe step35 mimo2
    bailingmoe3 cohere2 cohere2moe dots3note
    """.split()  # noqa: SIM905  a table of words, not 18 lines of one
)
#: model_types whose converter writes draft layers although their architecture's other converters drop them.
FAMILIES_WITH_DRAFTS = frozenset(("glm4_moe_lite",))
#: Draft layers attend densely, without index keys, but here.
INDEXED_DRAFTS = frozenset(("glm5-next",))
#: Rows that an index key takes in its cache: key, gate and pooled key; key and pooled key (llama-memory-hybrid-idx.cpp).
POOLED_INDEX_ROWS = {"glm5-next": 3, "qwen4exp": 2}
#: Blocks that are a feed-forward alone stand outside the cache.
FEED_FORWARD_BLOCKS = frozenset(("nemotron_h", "nemotron_h_moe"))
#: Latents that the architecture stores as expanded heads whatever the file holds.
EXPANDED = frozenset(("minicpm3", "plm"))
#: Converters that leave the V width at embedding / heads.
UNTOLD_VALUE = frozenset(("kimi-linear", "bailingmoe3", "minicpm3"))
#: Flash attention is forced off (llama-context.cpp).
NO_FLASH = frozenset(("grok",))
#: `--split-mode tensor` is refused (llama-arch.cpp `llm_arch_supports_sm_tensor`).
NO_TENSOR_SPLIT = frozenset(
    """
    grok mpt plamo2 minicpm3 gemma3n mamba mamba2 jamba falcon-h1 olmo2 olmoe deepseek2 deepseek32 hy_v4 dots3note glm-dsa bitnet t5
    nemotron_h nemotron_h_moe granitehybrid minimax-01 minimax-m2 minimax-m3 mistral4 kimi-linear bailingmoe3 kimi-k3 glm5-next
    qwen3tts qwen4exp
    """.split()  # noqa: SIM905  a table of words, not 31 lines of one
)
#: Under `--split-mode tensor`, these architectures' caches or states stand whole on every device (llama-model.cpp).
MIRRORED_CACHE = frozenset(("deepseek4", "hrm_text"))
MIRRORED_STATE = frozenset(("deepseek4", "hrm_text", "lfm2", "lfm2moe"))


def architecture_name(architecture: Architecture) -> str:
    """The llama.cpp architecture of a model. Raises UnsupportedArchitectureError where it converts to none."""
    own = architecture.traits.get("gguf_architecture")
    if own is not None:
        if not isinstance(own, str) or own not in KNOWN:
            raise UnsupportedArchitectureError(f"llama.cpp has no architecture '{clean(own, 60)}'", nearest(str(own), KNOWN))
        return own
    if architecture.class_name in _CLASSES:
        return _CLASSES[architecture.class_name]
    name = FAMILIES.get(architecture.family)
    if name is None or (name == "bailingmoe3" and not _has(architecture, Kda)):
        raise UnsupportedArchitectureError(
            f"llama.cpp has no architecture for model_type '{clean(architecture.family, 60)}': no converter writes it as GGUF",
            nearest(architecture.family, FAMILIES),
        )
    if name == "nemotron_h" and any(key in architecture.traits for key in ("n_routed_experts", "num_experts")):
        return "nemotron_h_moe"
    if name == "granitehybrid" and not _has(architecture, Mamba1, Mamba2):
        return "granite"
    return name


def _has(architecture: Architecture, *kinds: type) -> bool:
    return any(isinstance(state, kinds) for state in architecture.states)
