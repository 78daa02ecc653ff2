"""One entry a model module of mlx-lm 0.32.2 (mlx_lm/models/*.py): what the module makes of a model's layers.

A module without `make_cache` gives every layer a `KVCache` whatever the config says of windows, and only on those does
`--max-kv-size` act. The others follow their own reading of the config, which is not always the config class's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

#: "ignored": no layer has a window · "as_read": as the states say · "listed": only where the file lists `layer_types` ·
#: "period": the last of each `sliding_window_pattern` layers is full, whatever `layer_types` lists ·
#: "listed_or_period": that, where the file lists none · "letters": the pattern's L
Windows = Literal["ignored", "as_read", "listed", "period", "listed_or_period", "letters"]
#: How latents are cached: "kept"; "expanded" to K and V of every head; "expanded_hidden": V of hidden // heads.
Latents = Literal["kept", "expanded", "expanded_hidden"]


@dataclass(frozen=True, slots=True)
class Family:
    """The rules of one module.

    module       file of mlx_lm/models without its suffix
    own_cache    it has `make_cache`: `--max-kv-size` does nothing
    windows      which layers rotate
    period       "period": layers to a period where the file does not say
    derived      heads are hidden // heads wide even where the file says `head_dim`
    own_width    a file without `head_dim` has a width of the module's own, the config class's
    latents      how latent attention is cached
    listed       the layers' caches stand in a CacheList
    fails        a forward pass fails once `--kv-bits` has converted a cache
    shards       `model.shard` exists: tensor parallelism works
    pipelines    `pipeline` exists: layers may be spread over machines
    shared_own   layers that read another's cache by the file keep one of their own all the same
    every_index  every layer has index keys, also those that take another layer's choice, and zeros as wide beside them
    uniform      every layer has the model's full attention, whatever else the file says it is
    one_head     attention has one KV head, whatever the file says
    window       "period": the window where the file does not say
    """

    module: str
    own_cache: bool = False
    windows: Windows = "ignored"
    period: int = 0
    derived: bool = False
    own_width: bool = False
    latents: Latents = "kept"
    listed: bool = False
    fails: bool = False
    shards: bool = False
    pipelines: bool = False
    shared_own: bool = False
    every_index: bool = False
    uniform: bool = False
    one_head: bool = False
    window: int = 0


#: Modules without `make_cache`, with `head_dim` as the file says it.
_PLAIN = """
    apertus bitnet cohere dbrx deepseek dots1 ernie4_5 ernie4_5_moe exaone gemma gemma2 glm glm4 glm4_moe gpt2 gpt_bigcode
    gpt_neox gptj granite granitemoe helium hunyuan hunyuan_v1_dense internlm2 internlm3 Klear bailing_moe lille-130m llama4_text mimo
    minicpm minimax mistral3 mixtral nanochat nemotron olmo olmo2 olmoe openelm phi phi3 phi3small phimoe phixtral pixtral plamo qwen qwen2 qwen2_moe
    qwen2_vl qwen3 qwen3_moe qwen3_vl qwen3_vl_moe seed_oss smollm3 solar_open stablelm starcoder2 talkie telechat3
"""
#: Modules without `make_cache` whose attention is latent.
_PLAIN_LATENT = "deepseek_v2 deepseek_v3 glm4_moe_lite kimi_k25 kimi_vl minicpm3 mistral4 youtu_llm"
#: Modules with `make_cache` that do as the states say.
_OWN = """
    afm7 afmoe bailing_hybrid bailing_moe_linear bailing_moe_v3 deepseek_v41 exaone_moe gear gemma3n gemma4 gemma4_text gpt_oss
    granitemoehybrid iquestloopcoder jamba kimi_k3 kimi_linear laguna lfm2 lfm2-vl lfm2_moe mamba mamba2 mellum mimo_v2_flash
    muse_spark nanbeige nemotron-nas nemotron_h olmo3 olmo_hybrid plamo2 qwen3_5 qwen3_5_moe qwen3_next
    rwkv7 spark2_5 step3p5 prism_hadamard_qwen35
"""
_DERIVED = """
    Klear apertus bailing_moe cohere deepseek granite granitemoe granitemoehybrid helium hunyuan internlm2 internlm3 mimo minicpm mixtral
    nanochat phi phi3 phi3small phimoe phixtral nemotron-nas qwen2 qwen2_moe qwen2_vl starcoder2 stablelm lfm2 lfm2-vl lfm2_moe jamba
"""
_SHARDS = """
    deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v41 exaone_moe glm4_moe glm4_moe_lite glm_moe_dsa gpt_oss iquestloopcoder kimi_k25
    kimi_k3 llama longcat_flash longcat_flash_ngram minimax minimax_m3_vl ministral3 mistral4 muse_spark qwen2 qwen3 qwen3_5 qwen3_5_moe
    qwen3_moe solar_open step3p5
"""
_PIPELINES = """
    bailing_hybrid deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v41 glm4_moe glm4_moe_lite glm_moe_dsa minimax_m3_vl ministral3 mistral4
    muse_spark qwen2 qwen3_5 qwen3_5_moe qwen3_moe qwen3_next solar_open
"""
#: Beside all whose attention is latent and stored as such.
_FAILS = "afm7 gemma2 stablelm phi phi3small phixtral plamo plamo2"


def _modules() -> dict[str, Family]:
    found = {name: Family(name) for name in _PLAIN.split()}
    found |= {name: Family(name) for name in _PLAIN_LATENT.split()}
    found |= {name: Family(name, own_cache=True, windows="as_read") for name in _OWN.split()}
    found |= {name: Family(name, own_cache=True, windows="listed") for name in ("llama", "ministral3")}
    found |= {
        "baichuan_m1": Family("baichuan_m1", own_cache=True, windows="as_read", listed=True),
        "falcon_h1": Family("falcon_h1", own_cache=True, listed=True),
        "deepseek_v32": Family("deepseek_v32", own_cache=True, listed=True, every_index=True),
        "glm_moe_dsa": Family("glm_moe_dsa", own_cache=True, listed=True, every_index=True),
        "minimax_m3_vl": Family("minimax_m3_vl", own_cache=True, listed=True),
        "longcat_flash": Family("longcat_flash", own_cache=True, listed=True),
        "longcat_flash_ngram": Family("longcat_flash_ngram", own_cache=True, listed=True),
        "gemma3": Family("gemma3", own_cache=True, windows="period", period=6),
        "gemma3_text": Family("gemma3_text", own_cache=True, windows="period", period=6),
        "cohere2": Family("cohere2", own_cache=True, windows="period", period=4),
        "plamo3": Family("plamo3", own_cache=True, windows="period", period=8, window=2048),
        "exaone4": Family("exaone4", own_cache=True, windows="letters"),
        "llama4": Family("llama4", own_cache=True, windows="as_read"),
        "muse_glimmer": Family("muse_glimmer", own_cache=True, windows="listed_or_period", period=4),
        "recurrent_gemma": Family("recurrent_gemma", own_cache=True, windows="as_read", derived=True, one_head=True),
    }
    for names, change in (
        (_DERIVED, {"derived": True}),
        (_SHARDS, {"shards": True}),
        (_PIPELINES, {"pipelines": True}),
        (_FAILS, {"fails": True}),
        ("deepseek_v2 youtu_llm", {"latents": "expanded"}),
        ("minicpm3", {"latents": "expanded_hidden"}),
        ("hunyuan", {"shared_own": True}),
        ("minimax", {"uniform": True}),
        ("gemma gemma2 gemma3 gemma3_text gemma3n gemma4 gemma4_text cohere2 gpt_oss", {"own_width": True}),
        ("plamo2", {"windows": "ignored"}),
    ):
        for name in names.split():
            found[name] = replace(found[name], **change)
    return found


#: Module → its rules.
MODULES: dict[str, Family] = _modules()

#: model_type → module, where they differ (`utils.MODEL_REMAPPING`).
REMAPPED = {
    "mistral": "llama",
    "iquestcoder": "llama",
    "xverse": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "kimi_k2": "deepseek_v3",
    "joyai_llm_flash": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "gemma4_unified": "gemma4",
    "deepseek_v41_text": "deepseek_v41",
}
#: Language models by the name that they have inside a wrapper → module of the wrapper.
_INNER = {
    "gemma3n_text": "gemma3n",
    "gemma4_unified_text": "gemma4",
    "qwen2_vl_text": "qwen2_vl",
    "qwen2_5_vl_text": "qwen2_vl",
    "qwen3_vl_text": "qwen3_vl",
    "qwen3_vl_moe_text": "qwen3_vl_moe",
    "qwen3_5_text": "qwen3_5",
    "qwen3_5_moe_text": "qwen3_5_moe",
    "minimax_m3_vl_text": "minimax_m3_vl",
    "minimax_m3_text": "minimax_m3_vl",
    "muse_glimmer_text": "muse_glimmer",
    "muse_spark_text": "muse_spark",
    "laguna_text": "laguna",
}


def family_of(architecture: Architecture) -> Family | None:
    """The rules of the module that mlx-lm loads for this model; None where it has none."""
    outer = str(architecture.traits.outer_model_type or architecture.family)
    return module_of(outer, architecture.class_name)


def module_of(model_type: str, class_name: str = "") -> Family | None:
    """The rules of the module that mlx-lm loads for a model_type and a class; None where it has none."""
    if (model_type, class_name) == ("bailing_hybrid", "BailingMoeV3ForCausalLM"):
        return MODULES["bailing_moe_v3"]
    name = REMAPPED.get(model_type, model_type)
    return MODULES.get(name) or MODULES.get(_INNER.get(name, ""))
