"""`sglang serve` and `python -m sglang.launch_server`, as of SGLang 0.5.23.

Every flag of its parser (server_args.py, arg_groups/fields/) stands in one of the tables below. Prefixes of flags, which argparse would
complete, are not guessed, but for --tp and --dp, which everybody writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.config_file import with_file
from kvcalc.engines.base.flags import (
    Syntax,
    apply,
    asks,
    doubted,
    go_through,
    idle_flags,
    keeps,
    lists,
    quantized,
    refused,
    settings,
    switches,
    values,
    weights,
)
from kvcalc.engines.base.reading import Reading, model, name, whole
from kvcalc.engines.sglang.settings import SERVER_FLAGS

if TYPE_CHECKING:
    from kvcalc.engines.base.launcher import Found

_DTYPES = {"auto": None, "half": "fp16", "float16": "fp16", "bfloat16": "bf16", "float": "fp32", "float32": "fp32"}
#: `--quantization` → the type of the weights; `fp8` and its like are made so at start, the others name what the files hold.
_QUANTIZED = {
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16"), "int4"),
    **dict.fromkeys(("modelopt", "modelopt_fp8", "w8a8_fp8"), "fp8"),
    **dict.fromkeys(("modelopt_fp4", "petit_nvfp4"), "nvfp4"),
    "mxfp4": "mxfp4",
    "w8a8_int8": "int8",
}
_REQUANTIZED = {"fp8": "fp8", "nvfp4_online": "nvfp4"}
#: `--speculative-algorithm` → the setting; all others run a second model.
_SPECULATION = {"EAGLE": "EAGLE", "NEXTN": "NEXTN"}
_DRAFT = "--speculative-draft-model-path/--speculative-draft-model"
_STEPS, _BRANCHES, _DRAFTS = "--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"


def _dtype(reading: Reading, flag: str, text: str) -> None:
    if text not in _DTYPES:
        raise UsageError(f"{flag}: its value is not one of {', '.join(_DTYPES)}", "SGLang reads these")
    reading.dtype = _DTYPES[text]


def _speculation(reading: Reading, flag: str, text: str) -> None:
    word = name(flag, text).upper()
    if word not in _SPECULATION:
        raise UsageError(f"{flag}: kvcalc has no rule for this algorithm, which runs a second model", "it has EAGLE and NEXTN")
    reading.settings["speculative_algorithm"] = word


def _draft_model(reading: Reading, flag: str, text: str) -> None:
    reading.settings["speculative_draft_model_path"] = model(flag, text)


def _backend(reading: Reading, flag: str, text: str) -> None:
    reading.settings["attention_backend"] = {"nsa": "dsa"}.get(text, name(flag, text))


def _data_parallel(reading: Reading, flag: str, text: str) -> None:
    reading.replicas = whole(flag, text)


_TRANSLATED = {
    **values(keeps("model", model), "--model-path/--model"),
    **values(keeps("revision", name), "--revision"),
    **values(asks("context", whole), "--context-length"),
    **values(asks("kv_dtype", name), "--kv-cache-dtype"),
    **values(asks("tensor_parallel", whole), "--tp-size/--tensor-parallel-size/--tp"),
    **values(asks("pipeline_parallel", whole), "--pp-size/--pipeline-parallel-size"),
    **values(asks("decode_context_parallel", whole), "--dcp-size/--decode-context-parallel-size"),
    **values(_data_parallel, "--dp-size/--data-parallel-size/--dp"),
    **values(_dtype, "--dtype"),
    **values(quantized(_REQUANTIZED, _QUANTIZED, weights("does not tell the size of the weights", unless=("unquant",))), "--quantization"),
    **values(_speculation, "--speculative-algorithm"),
    **values(_draft_model, _DRAFT),
    **values(_backend, "--attention-backend"),
}
_SETTINGS = settings(
    "sglang",
    shorts={"attn_dp_size": "--attention-data-parallel-size", "enable_hierarchical_cache": "--enable-hicache"},
    without=("speculative_algorithm", "speculative_draft_model_path", "attention_backend", "dp_size"),
)

_PAGES = "decides pages beside --attention-backend"
_ROWS = "decides what rows of sparse attention hold"
_REFUSED = {
    **values(refused("names a file in a way that SGLang does not read"), "--config"),
    **values(refused("makes another model of this one", unless=("{}",)), "--json-model-override-args"),
    **values(refused("makes another model of this one", unless=("auto", "sglang")), "--model-impl"),
    **switches(refused("starts a model that generates nothing"), "--is-embedding --prefill-only-disable-kv-cache --encoder-only"),
    **values(refused("runs a diffusion model"), "--dllm-algorithm"),
    **values(refused("splits the work of a server over several", unless=("null", "none")), "--disaggregation-mode"),
    **values(refused("splits attention over contexts", unless=("1",)), "--attn-cp-size/--attention-context-parallel-size --dwdp-size"),
    **switches(refused("splits attention over contexts"), "--enable-prefill-cp --enable-dsa-cache-layer-split --enable-cp-decode-attn-tp"),
    **switches(refused("shares pools in another way"), "--enable-unified-memory --enable-kv-cache-sharding --enable-page-major-kv-layout"),
    **switches(refused("keeps another cache"), """--enable-hisparse --enable-lmcache --enable-flexkv --enable-unified-cache-external-linker
                                                  --enable-pdmux"""),
    **values(refused("keeps another cache", unless=("default",)), "--radix-cache-backend"),
    **values(refused(_PAGES), "--prefill-attention-backend --decode-attention-backend --c128-page-size --dsv4-attn-backend"),
    **values(refused(_ROWS), "--dsa-prefill-backend --dsa-decode-backend --dsv4-prefill-backend --qsa-indexer-dtype"),
    **switches(refused(_ROWS), "--enable-deepseek-v4-fp4-indexer"),
    **values(refused("keeps another state of recurrent layers"), "--int8-mamba-ckpt-size --mamba-max-states-per-path --linear-replayssm-cache-len"),
    **switches(refused("keeps another state of recurrent layers"), """--enable-int8-mamba-checkpoint --enable-linear-replayssm
                                                                      --enable-linear-replayssm-spec"""),
    **switches(refused("keeps windows in another way"), "--enable-encoder-swa-bounded-replay --enable-decoder-swa-bounded-replay"),
    **values(refused("changes the pool of drafts"), """--speculative-draft-kv-cache-dtype --speculative-draft-window-size
        --speculative-dflash-block-size --speculative-dspark-block-size --speculative-draft-sink-size --decoupled-spec-role"""),
    **values(refused("drafts more than one chain", unless=("1",)), _BRANCHES),
    **switches(refused("changes the number of drafts"), "--speculative-adaptive --enable-multi-layer-eagle"),
    **values(refused("dequantises the cache for prefill", unless=("auto",)), "--prefill-kv-cache-dequant-dtype"),
}  # fmt: skip

_SHARE = "changes what SGLang leaves free on a card"
_DOUBTED = {
    **values(doubted("limits requests of a pipeline stage, which kvcalc does not count"), "--pp-max-micro-batch-size"),
    **values(doubted("changes the size of the host tier"), "--hicache-host-memory-fraction --hicache-storage-backend"),
    **values(weights("moves weights to host memory", unless=("0", "0.0")), "--cpu-offload-gb --offload-group-size"),
    **values(weights("runs experts on the CPU"), "--kt-weight-path --kt-num-gpu-experts"),
    **switches(weights("keeps adapters in the memory of the card"), "--enable-lora"),
    **values(weights("spreads experts over ranks", unless=("1",)), "--ep-size/--expert-parallel-size/--ep"),
    **values(weights("keeps memory for images", unless=("default", "none")), "--mm-feature-transport"),
    **values(weights("adds experts", unless=("0",)), "--ep-num-redundant-experts"),
    **switches(weights("leaves the encoders out"), "--language-only --language-model-only"),
    **values(weights("loads another kind of weights", unless=("auto", "safetensors", "pt")), "--load-format"),
    **values(weights(_SHARE), """--cuda-graph-config --cuda-graph-backend-decode --cuda-graph-backend-prefill --cuda-graph-max-bs-decode
        --cuda-graph-max-bs-prefill --cuda-graph-max-seq-len-prefill --cuda-graph-prefill-max-context/--context-bucket"""),
    **lists(weights(_SHARE), "--cuda-graph-bs-decode --cuda-graph-bs-prefill"),
    **switches(weights(_SHARE), "--disable-cuda-graph --disable-prefill-cuda-graph --disable-decode-cuda-graph"),
}  # fmt: skip

_IDLE = idle_flags(__file__)

_FLAGS = {**_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED}


def _spell(word: str) -> tuple[str, bool]:
    """`--no-x` where it is no flag of its own."""
    off = word.startswith("--no-") and word not in _FLAGS
    return ("--" + word[5:], True) if off else (word, False)


_SYNTAX = Syntax(_FLAGS, _spell)


#: Remedies of `fit` in the words of the command.
_WORDS = {setting: f"{flag} {{}}" for setting, flag in SERVER_FLAGS.items()} | {
    "kv_dtype": "--kv-cache-dtype {}",
    "kv_dtype fp8": "--kv-cache-dtype fp8_e4m3",
}


def read(found: Found) -> Reading:
    """What the server is told. Raises UsageError for what it would refuse, or what kvcalc has no rule for."""
    given = go_through(with_file(found, _SYNTAX, ("--config",)), _SYNTAX, positionals=1 if found.program == "serve" else 0)
    reading = Reading("sglang", words=_WORDS)
    apply(given, reading)
    if reading.settings.get("enable_dp_attention"):
        reading.settings["dp_size"], reading.replicas = reading.replicas, 1
    _drafts(reading, {flag: value for flag, (_, value) in given.flags.items()})
    return reading


def _drafts(reading: Reading, given: dict[str, Any]) -> None:
    """Tokens verified at once: in one chain a step makes one, and SGLang corrects what it is told (speculative_hook.py).

    A draft that is the model itself is read from the same files. Raises UsageError for a second model.
    """
    draft = reading.settings.pop("speculative_draft_model_path", None)
    if "speculative_algorithm" not in reading.settings:
        reading.settings.pop("speculative_num_draft_tokens", None)
        return
    if draft is not None:
        if draft != reading.model:
            raise UsageError(
                f"{_DRAFT.partition('/')[0]} runs a second model, and kvcalc has no rule for that",
                "leave it out to see the cache without it",
            )
        reading.settings["speculative_draft_model_path"] = "itself"
    if _STEPS not in given:
        return
    steps = whole(_STEPS, given[_STEPS])
    if given.get(_BRANCHES) == "1":
        reading.settings["speculative_num_draft_tokens"] = steps + 1
    elif _DRAFTS not in given:
        raise UsageError(f"{_STEPS} without {_DRAFTS} leaves open how many tokens are verified at once", f"give {_DRAFTS}")
