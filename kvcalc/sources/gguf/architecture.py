"""GGUF metadata → Architecture: the mathematics of the file's blocks, and what only llama.cpp's allocator needs as traits.

gguf_architecture       general.architecture, on which llama.cpp's rules are keyed
gguf_expanded_latent    the file stores the expanded heads of its latents
gguf_value_length       width of a V head where no state says it (checked by llama.cpp, never stored)
gguf_head_dims          widths of K and V heads of a file that has heads and no attention
gguf_value_width        the widest V row where it belongs to a block that keeps none
gguf_keeps_drafts       draft blocks, counted from 0, that the model's own cache keeps too
gguf_lacks_windows      the file has a window, and no block that slides
gguf_router             the last block is Granite-Switch's router
gguf_causal             false for models that see the whole batch
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import UnsupportedArchitectureError, nearest
from kvcalc.core.states import Chunked, Full, Latent, Nothing, Sliding
from kvcalc.core.traits import Traits
from kvcalc.core.units import clean
from kvcalc.sources.gguf.attention import lacks_window_blocks
from kvcalc.sources.gguf.blocks import read_blocks
from kvcalc.sources.gguf.metadata import Metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.core.architecture import Source
    from kvcalc.sources.gguf.attention import States

#: Every architecture that llama.cpp b11549 loads (llama-arch.cpp LLM_ARCH_NAMES); `clip` and `gptj` have no loader.
KNOWN = frozenset(
    """
    afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom chameleon chatglm clef
    codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash dots1
    dots3note dream eagle3 ernie4_5 ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1 gemma gemma-embedding gemma2
    gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 glm4moe glm5-next gpt-oss gpt2 gptneox granite granite_swa granitehybrid
    granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 hy_v4 internlm2 jais jais2 jamba
    jina-bert-v2 jina-bert-v3 kimi-k3 kimi-linear laguna lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba
    mamba2 maple mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 modern-bert mpt muse-glimmer
    nanbeige nemotron nemotron_h nemotron_h_moe neo-bert nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr
    pangu-embedded phi2 phi3 phimoe plamo plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe
    qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 rwkv6qwen2 rwkv7 seed_oss smallthinker smollm3 spark2_5
    stablelm starcoder starcoder2 step35 t5 t5encoder talkie wavtokenizer-dec xverse
    """.split()  # noqa: SIM905  a table of words, not 150 lines of one
)

#: llama.cpp architecture → model_type of the same layers in config.json, on which other engines key their rules.
FAMILIES: dict[str, str] = {
    "bailingmoe": "bailing_moe",
    "bailingmoe2": "bailing_moe_v2",
    "bailingmoe3": "bailing_hybrid",
    "chatglm": "glm",
    "cohere2moe": "cohere2_moe",
    "command-r": "cohere",
    "deci": "nemotron-nas",
    "deepseek2": "deepseek_v3",
    "deepseek32": "deepseek_v32",
    "deepseek4": "deepseek_v4",
    "ernie4_5-moe": "ernie4_5_moe",
    "exaone-moe": "exaone_moe",
    "falcon-h1": "falcon_h1",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "glm-dsa": "glm_moe_dsa",
    "glm4moe": "glm4_moe",
    "glm5-next": "glm5_next_text",
    "gpt-oss": "gpt_oss",
    "gptneox": "gpt_neox",
    "granitehybrid": "granitemoehybrid",
    "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan_v1_moe",
    "kimi-k3": "kimi_linear",
    "kimi-linear": "kimi_linear",
    "lfm2moe": "lfm2_moe",
    "llama4": "llama4_text",
    "mimo2": "mimo_v2_flash",
    "minimax-01": "minimax_text_01",
    "minimax-m2": "minimax_m2",
    "minimax-m3": "minimax_m3_vl_text",
    "nemotron_h_moe": "nemotron_h",
    "phi2": "phi",
    "qwen2moe": "qwen2_moe",
    "qwen2vl": "qwen2_5_vl_text",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen3vl": "qwen3_vl_text",
    "qwen3vlmoe": "qwen3_vl_moe_text",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
    "qwen4exp": "qwen4_exp_text",
    "starcoder": "gpt_bigcode",
    "step35": "step3p5",
}

#: general.file_type of files whose tensors have one plain type (llama.h LLAMA_FTYPE).
_DTYPES = {0: "fp32", 1: "fp16", 32: "bf16"}
_ID = re.compile(r"[^A-Za-z0-9._/@-]+")
_LONGEST_ID = 120


def read_metadata(raw: Mapping[str, Any], *, model_id: str = "", source: Source | None = None) -> Architecture:
    """The architecture of a GGUF file's keys. Raises InvalidConfigError, UnsupportedArchitectureError."""
    meta = Metadata(raw)
    if meta.architecture not in KNOWN:
        name = clean(meta.architecture, 60)
        raise UnsupportedArchitectureError(f"llama.cpp has no architecture '{name}', and kvcalc no rule for it", nearest(name, KNOWN))
    blocks = read_blocks(meta)
    drafts = 0 if meta.architecture == "graniteswitch" else meta.drafts
    trunk = len(blocks) - drafts
    return Architecture(
        id=_ID.sub("-", model_id or meta.text("general.name"))[:_LONGEST_ID].strip("-") or meta.architecture,
        name=clean(meta.text("general.name"), _LONGEST_ID),
        source=source,
        family=FAMILIES.get(meta.architecture, meta.architecture),
        dtype=_DTYPES.get(file_type) if isinstance(file_type := raw.get("general.file_type"), int) else None,
        max_context=meta.integer("context_length", 0) or None,
        hidden_dim=meta.embedding,
        layers=_layout(blocks[:trunk] or blocks),
        draft=_layout(blocks[trunk:]) if drafts else None,
        traits=_traits(meta, blocks),
        assumptions=_assumptions(meta, blocks),
    )


def _layout(blocks: Sequence[States]) -> Layout:
    """Blocks in order, each set of states under a name of its own, folded to the shortest pattern that repeats."""
    names: dict[States, str] = {}
    taken: dict[str, int] = {}
    for states in blocks:
        if states not in names:
            name = "_".join(dict.fromkeys(state.kind for state in states))
            taken[name] = taken.get(name, 0) + 1
            names[states] = name if taken[name] == 1 else f"{name}_{taken[name]}"
    order = tuple(names[states] for states in blocks)
    period = next((p for p in range(1, len(order)) if order[p:] == order[:-p]), len(order))
    pattern = order[:period]
    return Layout(pattern=pattern, count=len(order), states={name: states for states, name in names.items() if name in pattern})


def _traits(meta: Metadata, blocks: Sequence[States]) -> Traits:
    traits: dict[str, Any] = {"gguf_architecture": meta.architecture}
    distinct = [state for states in dict.fromkeys(blocks) for state in states]
    latents = [state for state in distinct if isinstance(state, Latent)]
    heads = [state.kv_heads * state.value_width for state in distinct if isinstance(state, Full | Sliding | Chunked)]
    if latents and meta.architecture in _EXPANDED and not _has_mla(meta):
        traits["gguf_expanded_latent"] = True
    elif latents and meta.architecture not in _OWN_VALUE and meta.value != latents[0].latent_dim:
        traits["gguf_value_length"] = meta.value
    attends = any(isinstance(state, Full | Sliding | Chunked | Latent) for states in blocks[: meta.trunk] for state in states)
    if not attends and meta.key:
        traits["gguf_head_dims"] = (meta.key, meta.value)
    if lacks_window_blocks(meta):
        traits["gguf_lacks_windows"] = True
    if heads and meta.value * max(meta.kv_heads) > max(heads):
        idle = [meta.value * meta.kv_heads[i] for i in range(meta.blocks) if blocks[i][0].is_recurrent or isinstance(blocks[i][0], Nothing)]
        if max(idle, default=0) > max(heads):
            traits["gguf_value_width"] = max(idle)
    bare = [i for i, width in enumerate(meta.feed_forward[meta.trunk :]) if not width]
    if meta.architecture in _MIXED_DRAFTS and bare:
        traits["gguf_keeps_drafts"] = tuple(bare)
    if meta.architecture == "graniteswitch":
        traits["gguf_router"] = True
    if not meta.flag("attention.causal", default=True):
        traits["gguf_causal"] = False
    return Traits(**traits)


def _has_mla(meta: Metadata) -> bool:
    return meta.architecture not in ("minicpm3", "plm") and bool(
        meta.integer("attention.key_length_mla", 0) and meta.integer("attention.value_length_mla", 0)
    )


#: Draft blocks without a feed-forward of their own look like the model's attention (llama-model.cpp `create_memory`).
_MIXED_DRAFTS = frozenset(("nemotron_h", "nemotron_h_moe"))
#: Architectures whose latents llama.cpp may store as expanded heads.
_EXPANDED = frozenset(("deepseek2", "mistral4", "minicpm3", "plm", "deepseek32", "glm-dsa"))
#: Architectures whose loader takes the V width from elsewhere: kv_lora_rank (kimi-k3.cpp, glm5-next.cpp), or K alone (deepseek4).
_OWN_VALUE = frozenset(("kimi-k3", "glm5-next", "deepseek4"))


def _assumptions(meta: Metadata, blocks: Sequence[States]) -> tuple[str, ...]:
    if all(isinstance(state, Nothing) for states in blocks for state in states):
        return (f"a {clean(meta.architecture, 40)} model keeps no cache: an encoder, a classifier or a diffusion model",)
    return ()
