"""`lmdeploy serve api_server MODEL --backend pytorch` (LMDeploy 0.18.0: cli/serve.py, cli/utils.py).

Every flag of its parser stands in one of the tables below. Underscores in a flag are dashes. Without `--backend pytorch` the command runs
TurboMind wherever that has the model, which kvcalc has no rules for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.flags import (
    Syntax,
    apply,
    asks,
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
from kvcalc.engines.base.reading import Reading, name, whole

if TYPE_CHECKING:
    from kvcalc.engines.base.launcher import Found

_SERVER = "api_server"
_BACKENDS = ("pytorch", "turbomind")
_DTYPES = {"auto": None, "float16": "fp16", "bfloat16": "bf16"}
#: `--quant-policy` by name (messages.py, QuantPolicy).
_POLICIES = {"none": 0, "int4": 4, "int8": 8, "fp8": 16, "fp8_e4m3": 16, "fp8_e5m2": 17, "turbo_quant": 42}
_FORMATS = {"awq": "int4", "gptq": "int4", "fp8": "fp8", "mxfp4": "mxfp4"}
_TRUE = ("1", "true", "on", "yes")
_BACKEND, _DEVICES = "--backend", "--tp, --dp and --ep"


def _policy(flag: str, text: str) -> int:
    word = text.lower()
    return _POLICIES[word] if word in _POLICIES else whole(flag, word, least=0)


def _kernel_block(reading: Reading, flag: str, text: str) -> None:
    if text.strip() != "-1":
        reading.settings["kernel_block_size"] = whole(flag, text)


def _dtype(reading: Reading, flag: str, text: str) -> None:
    if text not in _DTYPES:
        raise UsageError(f"{flag}: its value is not one of {', '.join(_DTYPES)}", "LMDeploy reads these")
    reading.dtype = _DTYPES[text]


def _backend(_reading: Reading, flag: str, text: str) -> None:
    if text not in _BACKENDS:
        raise UsageError(f"{flag}: its value is not one of {', '.join(_BACKENDS)}", "LMDeploy reads these")
    if text == "turbomind":
        raise UsageError(
            "--backend turbomind starts an engine that kvcalc has no rules for", "--backend pytorch starts the one whose rules it has"
        )


def _rank_count(_reading: Reading, flag: str, text: str) -> None:
    whole(flag, text)


_TRANSLATED = {
    **values(keeps("revision", name), "--revision"),
    **values(asks("context", whole), "--session-len"),
    **values(sets("quant_policy", _policy), "--quant-policy"),
    **values(sets("block_size", whole), "--cache-block-seq-len"),
    **values(_kernel_block, "--kernel-block-size"),
    **values(_dtype, "--dtype"),
    **values(_backend, _BACKEND),
    **values(_rank_count, "--tp --dp --ep"),
    **values(
        quantized({}, _FORMATS, weights("does not tell the size of the weights", unless=("hf",))),
        "--model-format",
    ),
}
_SETTINGS = settings("lmdeploy", without=("quant_policy", "block_size", "kernel_block_size", "fp32_mamba_ssm_dtype"))
_DRAFTS = "runs a draft with a cache of its own"
_REFUSED = {
    **values(refused("makes another model of this one", unless=("{}",)), "--hf-overrides"),
    **values(refused("sends the cache to another server"), "--kv-transfer-config"),
    **values(refused("splits the work of a server over several", unless=("Hybrid",)), "--role"),
    **values(refused("starts on another kind of device", unless=("cuda",)), "--device"),
    **values(refused("runs a diffusion model"), "--dllm-block-length"),
    **switches(refused("starts the engine without a cache"), "--empty-init"),
    **values(refused(_DRAFTS), "--speculative-algorithm --speculative-draft-model --speculative-dflash-block-size"),
}
_DOUBTED = {
    **lists(weights("keeps adapters in the memory of the card"), "--adapters"),
    **switches(weights("leaves the encoders out"), "--language-model-only"),
    **switches(weights("adds experts"), "--enable-eplb"),
}
_IDLE = idle_flags(__file__)
_FLAGS = {**_IDLE, **_DOUBTED, **_REFUSED, **_SETTINGS, **_TRANSLATED}


def _spell(word: str) -> tuple[str, bool]:
    """`--cache_max_entry_count` is `--cache-max-entry-count`."""
    return (word.replace("_", "-") if word.startswith("--") else word), False


_SYNTAX = Syntax(_FLAGS, _spell, dotted=True)
#: Remedies of `fit` in the words of the command.
_WORDS = {
    "context": "--session-len {}",
    "tensor_parallel": "--tp {}",
    "kv_dtype fp8": "--quant-policy 16",
    "kv_dtype int8": "--quant-policy 8",
    "kv_dtype int4": "--quant-policy 4",
}


def read(found: Found) -> Reading:
    """What the server is told. Raises UsageError for what it would refuse, or what kvcalc has no rule for."""
    words = list(found.words)
    if words[:1] != [_SERVER]:
        raise UsageError("lmdeploy serve starts no model without api_server", "write lmdeploy serve api_server MODEL")
    given = go_through(words[1:], _SYNTAX, positionals=1)
    reading = Reading("lmdeploy", words=_WORDS)
    apply(given, reading)
    said = {flag: value for flag, (_, value) in given.flags.items()}
    if _BACKEND not in said:
        reading.warnings.append(
            "without --backend pytorch LMDeploy runs TurboMind for the models that it has there: the figures are those of the PyTorch engine"
        )
    _ranks(reading, said)
    for variable, value in found.environment.items():
        _variable(reading, variable, value)
    return reading


def _ranks(reading: Reading, said: dict[str, Any]) -> None:
    """Attention is split over the cards of one of --dp groups (config.py, DistConfig): (--ep, or --tp without it) / --dp."""
    tensor, groups, experts = (whole(flag, said.get(flag, "1")) for flag in ("--tp", "--dp", "--ep"))
    world = experts if experts > 1 else tensor
    if world % groups or world % tensor:
        raise UsageError(
            f"{_DEVICES}: {world:,} ranks are not divided by {groups:,} groups and tensor parallel {tensor:,}",
            "LMDeploy does not start: --ep (or --tp without it) is a multiple of the others",
        )
    if world > 1:
        reading.keys["tensor_parallel"] = world // groups
        reading.options["tensor_parallel"] = "--tp"
    reading.replicas = groups


def _variable(reading: Reading, variable: str, value: str) -> None:
    """The variables that change bytes (pytorch/envs.py)."""
    if variable == "LMDEPLOY_FP32_MAMBA_SSM_DTYPE" and value.lower() in _TRUE:
        reading.settings["fp32_mamba_ssm_dtype"] = True
    elif variable == "LMDEPLOY_DSA_INDEXER_MAX_LOGITS_MB":
        reading.on_card.append(f"{variable} changes what is kept for scores: the memory left for the cache is estimated without it")
