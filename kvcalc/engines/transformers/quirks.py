"""Where a model class of transformers departs from the rule, by the model_type that its file carries.

The rule: keys, values, latents, index keys and convolution columns in the model's own type, recurrent matrices in fp32, one column
more than a convolution must keep, KV heads as the config counts them. Source: the modeling files of transformers 5.24.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvcalc.core.states.base import MODEL

FP32 = "fp32"


@dataclass(frozen=True, slots=True)
class Quirk:
    """One family's departures.

    recurrent, conv, index   the type of recurrent matrices, convolution columns and index keys
    extra_columns            convolution columns beyond the kernel - 1 that the mathematics needs
    gated_index              each index key has gate scores of its own width beside it, and a mark that it is no padding
    positions                int64 numbers a token beside the index keys of the first layer that has them
    latent_is_kv             the latent is cached as K and again as V
    broadcast                the config's field under which keys and values are repeated to every query head before they are cached
    modules                  recurrent and convolution state sits in the modules, outside the cache
    """

    recurrent: str = FP32
    conv: str = MODEL
    index: str = MODEL
    extra_columns: int = 1
    gated_index: bool = False
    positions: int = 0
    latent_is_kv: bool = False
    broadcast: str = ""
    modules: bool = False


RULE = Quirk()

QUIRKS: dict[str, Quirk] = {
    "deepseek_v4": Quirk(latent_is_kv=True),
    "dots3_note_text": Quirk(index=FP32),
    "falcon": Quirk(broadcast="new_decoder_architecture"),
    "glm5_next_text": Quirk(gated_index=True),
    **dict.fromkeys(("inkling_text", "inkling2_text", "inkling2_loop_text"), Quirk(conv=FP32)),
    "minimax": Quirk(recurrent=MODEL),
    "qwen4_exp_text": Quirk(positions=3),
    "recurrent_gemma": Quirk(modules=True),
    "zaya": Quirk(recurrent=MODEL, extra_columns=0),
}

#: Classes that keep no cache at all: each step runs over everything again.
CACHELESS = frozenset({"openai-gpt", "xlm"})
#: Classes whose memory is no cache of keys and values, and what it is.
OTHERWISE = {"reformer": "hidden states with their hash buckets", "xlnet": "hidden states of a fixed number of past tokens"}
_FOREIGN = """
    RefinedWeb RefinedWebModel aquila arctic baichuan bailing_moe bailing_moe_v2 chatglm deci deepseek deepseek_v41_text gigachat3_5
    grok-1 hunyuan internlm internlm2 interns2_mobius_text iquest_loopcoder iquest_q1 iquestloopcoder jais jet_nemotron k2_horizon
    kimi_k2 mimo mimo_v2 minicpm minicpm_sala minimax_m1 minimax_m3 minimax_m3_text minimax_text_01 moondream3_text nanbeige
    nemotron-nas nemotron_h_puzzle openelm orion param2moe phi3small plamo3 qwen qwen3_asr_text rwkv5 rwkv6 rwkv7 solar spark2_5
    stablelm_epoch step3_text step5 telechat telechat2 telechat3 teleflm xllm xverse yi
"""
#: Families that transformers 5.24 has no class for: other engines' names, and code that lives beside the weights.
FOREIGN = frozenset(_FOREIGN.split())
