"""`vllm serve` and `python -m vllm.entrypoints.openai.api_server`, as of vLLM 0.33.0.

Every flag of its parser (engine/arg_utils.py, entrypoints/common/cli_args.py) stands in one of the tables below. `_` and `-` are the
same, `--x` is switched off by `--no-x`, `--enable-x` and `--disable-x` are each other's opposite, and `--flag.key value` is one key of
a JSON flag. `--config FILE` holds further flags, which those of the command override. Whole numbers may end in k, m, g, t (thousands) or K, M, G, T (1024s), decimals only before the small letters.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.core.units import LARGEST
from kvcalc.engines.base.config_file import with_file
from kvcalc.engines.base.flags import (
    IDLE,
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
    sets,
    settings,
    switches,
    values,
    weights,
)
from kvcalc.engines.base.reading import Reading, model, name, whole
from kvcalc.engines.vllm.settings import SERVER_FLAGS
from kvcalc.engines.vllm.speculation import METHODS

if TYPE_CHECKING:
    from kvcalc.engines.base.launcher import Found

_SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_HUMAN = re.compile(r"([0-9]{1,19})((?:\.[0-9]{1,12})?)([kKmMgGtT])", re.ASCII)
_DTYPES = {"half": "fp16", "float16": "fp16", "bfloat16": "bf16", "auto": None}
#: `--quantization` → the type of the weights; those of the second table are made so at start, the others name what the files hold.
_QUANTIZED = {
    **dict.fromkeys(("awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq"), "int4"),
    **dict.fromkeys(("mxfp4", "gpt_oss_mxfp4"), "mxfp4"),
    **dict.fromkeys(("fbgemm_fp8", "modelopt", "deepseek_v4_fp8"), "fp8"),
    "modelopt_fp4": "nvfp4",
}
_REQUANTIZED = {
    **dict.fromkeys(("fp8", "fp8_per_tensor", "fp8_per_block", "fp8_per_channel"), "fp8"),
    "int8_per_channel_weight_only": "int8",
    "nvfp4_per_token": "nvfp4",
}


def human(flag: str, text: str) -> int:
    """A whole number in vLLM's notation (utils/argparse_utils.py): 32k = 32,000, 32K = 32,768, 1.5k = 1,500.

    vLLM multiplies a float before a small letter, and cuts what is left behind the point: 1.001k is 1,000 there and here.
    """
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        return whole(flag, text)
    if match[2] and match[3] in "KMGT":
        raise UsageError(f"{flag}: its value is not a whole number", "decimals stand before k, m, g and t (thousands) only")
    scale = _SCALES[match[3]]
    number = int(float(match[1] + match[2]) * scale) if match[3] in "kmgt" else int(match[1]) * scale
    if not 1 <= number <= LARGEST:
        raise UsageError(f"{flag}: its value is out of range", f"between 1 and {LARGEST:,}")
    return number


def _length(flag: str, text: str) -> int:
    """`--max-model-len`: -1 and auto are the largest that fits."""
    return -1 if text.strip().lower() in ("-1", "auto") else human(flag, text)


def _dtype(reading: Reading, flag: str, text: str) -> None:
    if text not in _DTYPES:
        raise UsageError(f"{flag}: kvcalc reads half, float16, bfloat16 and auto", "vLLM's cache of a float32 model is not among its rules")
    reading.dtype = _DTYPES[text]


def _mapping(flag: str, given: Any) -> dict[str, Any]:
    """A JSON flag, as text or key by key."""
    if isinstance(given, dict):
        return given
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{flag}: its value is not a JSON object", f"quote it: {flag} '{{…}}'")
    return found


#: Keys of --speculative-config that change no byte of the cache.
_SPECULATION_IDLE = frozenset(
    ("prompt_lookup_max", "prompt_lookup_min", "quantization", "revision", "code_revision", "rejection_sample_method", "moe_backend",
     "draft_sample_method", "synthetic_acceptance_rate", "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests",
     "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob", "enforce_eager", "parallel_drafting", "draft_load_config")
)  # fmt: skip


def _speculation(reading: Reading, flag: str, given: Any) -> None:
    for key, value in _mapping(flag, given).items():
        word = str(key).replace("-", "_")
        if word == "method":
            _method(reading, flag, str(value))
        elif word == "num_speculative_tokens":
            reading.settings["num_speculative_tokens"] = whole(flag, str(value))
        elif word == "model":
            _draft(reading, flag, str(value))
        elif word not in _SPECULATION_IDLE:
            reading.warnings.append(f"{flag}: a key of it is none that kvcalc knows, and was not read")


def _method(reading: Reading, flag: str, text: str) -> None:
    word = "mtp" if name(flag, text).endswith("_mtp") else text
    if word not in METHODS:
        raise UsageError(f"{flag}: kvcalc has no rule for this method of speculation", "it has " + ", ".join(METHODS))
    reading.settings["speculative_method"] = word


def _draft(reading: Reading, _flag: str, text: str) -> None:
    """A draft model of its own; what of it is known goes by its method."""
    if text != "ngram":
        reading.settings.setdefault("speculative_method", None)
        return
    reading.settings["speculative_method"] = "ngram"


def _attention(reading: Reading, flag: str, given: Any) -> None:
    keys = _mapping(flag, given)
    if set(keys) != {"backend"}:
        raise UsageError(f"{flag}: kvcalc has a rule for its backend alone", "leave its other keys out")
    _backend(reading, flag, str(keys["backend"]))


def _backend(reading: Reading, flag: str, text: str) -> None:
    word = name(flag, text).upper()
    if word != "AUTO":
        reading.settings["attention_backend"] = word


def _hybrid(reading: Reading, _flag: str, value: Any) -> None:
    reading.settings["disable_hybrid_kv_cache_manager"] = value


def _data_parallel(reading: Reading, flag: str, text: str) -> None:
    reading.replicas = whole(flag, text)


_TRANSLATED = {
    **values(keeps("model", model), "--model"),
    **values(keeps("revision", name), "--revision"),
    **values(asks("context", _length), "--max-model-len"),
    **values(asks("kv_dtype", name), "--kv-cache-dtype"),
    **values(asks("tensor_parallel", whole), "--tensor-parallel-size/-tp"),
    **values(asks("pipeline_parallel", whole), "--pipeline-parallel-size/-pp"),
    **values(asks("decode_context_parallel", whole), "--decode-context-parallel-size/-dcp"),
    **values(asks("kv_memory", human), "--kv-cache-memory-bytes"),
    **values(_dtype, "--dtype"),
    **values(quantized(_REQUANTIZED, _QUANTIZED, weights("does not tell the size of the weights")), "--quantization/-q"),
    **values(_data_parallel, "--data-parallel-size/-dp"),
    **values(_speculation, "--speculative-config/-sc"),
    **values(_method, "--spec-method"),
    **values(_draft, "--spec-model"),
    **values(sets("num_speculative_tokens", whole), "--spec-tokens"),
    **values(_backend, "--attention-backend"),
    **values(_attention, "--attention-config/-ac"),
    **values(sets("max_num_batched_tokens", human), "--max-num-batched-tokens"),
    **switches(_hybrid, "--disable-hybrid-kv-cache-manager"),
}

_SETTINGS = settings(
    "vllm",
    shorts={"gpu_memory_utilization": "--device-memory-utilization"},
    without=("usage_context", "num_speculative_tokens", "speculative_method", "attention_backend", "max_num_batched_tokens",
             "disable_hybrid_kv_cache_manager"),
)  # fmt: skip

_DIFFERENT_MODEL = "makes another model of this one"
_REFUSED = {
    **values(refused("names a file in a way that vLLM does not read"), "--config"),
    **values(refused(_DIFFERENT_MODEL, unless=("{}",)), "--hf-overrides --model-class-overrides --hf-config-path --engram-config"),
    **values(refused(_DIFFERENT_MODEL, unless=("auto", "vllm")), "--model-impl"),
    **values(refused("starts a model that generates nothing", unless=("auto", "generate", "none")), "--runner --convert"),
    **values(refused("stretches the context, for which this release has --hf-overrides"), "--rope-scaling --rope-theta"),
    **values(refused("runs a diffusion model"), "--diffusion-config/-dc"),
    **switches(refused("caps the context at the model's window"), "--disable-sliding-window"),
    **switches(refused("starts an encoder without a cache"), "--mm-encoder-only"),
    **values(refused("gives the cache to a connector, which may change how it is laid out"), "--kv-transfer-config --ec-transfer-config"),
    **values(refused("adds a tier of the cache in host memory"), "--kv-offloading-size"),
    **values(refused("splits prefill over further GPUs", unless=("1",)), "--prefill-context-parallel-size/-pcp"),
    **values(refused("doubles the tokens of a step", unless=("balanced", "interactivity")), "--performance-mode"),
    **values(refused("changes the size of recurrent blocks"), "--mamba-block-size"),
    **values(refused("changes what a block of the prefix cache is"), "--prefix-match-unit"),
    **switches(refused("keeps another state of recurrent layers"), "--use-replayssm --enable-mamba-shared-prefix-checkpoint"),
    **values(refused("keeps another state of recurrent layers"), "--gdn-prefill-backend --kda-prefill-backend --kda-decode-backend"),
    **values(refused("may change how the engine is scheduled"), "--scheduler-cls --worker-cls --worker-extension-cls --additional-config"),
    **switches(refused("raises the tokens of a step", unless=(True,)), "--enable-chunked-prefill"),
    **switches(refused("keeps windows in another way", unless=(True,)), "--swa-bounded-replay"),
}  # fmt: skip


def _all_to_all(reading: Reading, flag: str, text: str) -> None:
    """Two of them have a step of their own under expert and data parallelism (config/parallel.py, use_batched_dp_moe)."""
    if text in ("deepep_low_latency", "nixl_ep"):
        doubted("may change the tokens of a step of models of experts: give --max-num-batched-tokens")(reading, flag, text)


_ADAPTERS = "keeps adapters in the memory of the card"
_DOUBTED = {
    **values(_all_to_all, "--all2all-backend"),
    **values(weights("moves weights to host memory", unless=("0", "0.0")), "--cpu-offload-gb --offload-group-size"),
    **values(IDLE, "--offload-backend --offload-num-in-group --offload-prefetch-step"),
    **lists(IDLE, "--cpu-offload-params --offload-params"),
    **switches(weights(_ADAPTERS), "--enable-lora"),
    **switches(weights("spreads experts over ranks"), "--enable-expert-parallel/-ep --enable-eplb"),
    **switches(weights("leaves the encoders out"), "--language-model-only"),
    **values(weights("keeps memory for encoders", unless=("0", "0.0")), "--mm-ipc-gpu-memory-gb"),
    **values(weights("loads another kind of weights", unless=("auto", "safetensors", "hf", "pt")), "--load-format"),
    **values(weights("changes the size of the weights"), "--quantization-config"),
}  # fmt: skip

_IDLE = idle_flags(__file__)

_FLAGS = {**_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED}
#: `-O3`: a level of optimization in one word.
_OPTIMIZED = re.compile(r"-O=?[0-9a-z]+", re.ASCII)
_OPPOSITES = (("--enable-", "--disable-"), ("--disable-", "--enable-"))


def _spell(word: str) -> tuple[str, bool]:
    """Other spellings of a flag: `_` for `-`, `--no-x`, `--enable-x` against `--disable-x`."""
    name_ = "--" + word[2:].replace("_", "-") if word.startswith("--") else word
    if name_ in _FLAGS:
        return name_, False
    plain, off = ("--" + name_[5:], True) if name_.startswith("--no-") else (name_, False)
    for ours, theirs in _OPPOSITES:
        if plain.startswith(ours) and plain not in _FLAGS:
            return theirs + plain.removeprefix(ours), not off
    return plain, off


_SYNTAX = Syntax(_FLAGS, _spell, dotted=True)


#: Remedies of `fit` in the words of the command.
_WORDS = {setting: f"{flag} {{}}" for setting, flag in SERVER_FLAGS.items()}


def read(found: Found) -> Reading:
    """What `vllm serve` or the API server is told. Raises UsageError for what it would refuse, or what kvcalc has no rule for."""
    words = [word for word in with_file(found, _SYNTAX, ("--config",)) if not _OPTIMIZED.fullmatch(word)]
    given = go_through(words, _SYNTAX, positionals=1 if found.program == "serve" else 0)
    reading = Reading("vllm", words=_WORDS)
    apply(given, reading)
    speculates = reading.settings.keys() & {"speculative_method", "num_speculative_tokens"}
    if speculates and reading.settings.get("speculative_method") is None:
        raise UsageError("the method of speculation is not said, and goes by the draft model's config", "name it: --spec-method eagle3")
    return reading
