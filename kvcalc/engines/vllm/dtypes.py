"""The cache's type: what `--kv-cache-dtype` may say, what `auto` means, and the model type behind it (vLLM 0.33, utils/torch_utils.py).

auto → the checkpoint's own word about its cache (ModelOpt: fp8 or nvfp4), else the model's type
       compressed-tensors with a scheme for the cache: fp8, in every layer but MLA's
a float32 checkpoint runs in bfloat16
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, UsageError, nearest
from kvcalc.core.formats import ALIASES, FORMATS, one_format
from kvcalc.core.units import clean
from kvcalc.engines.vllm.families import family_of

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.traits import Traits

AUTO = "auto"
MODEL_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}

#: `--kv-cache-dtype` → kvcalc's format.
CACHE_DTYPES: dict[str, str] = {
    "float16": "fp16",
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "fp8_ds_mla": "fp8_ds_mla",
    "nvfp4_ds_mla": "nvfp4_ds_mla",
    "nvfp4": "nvfp4",
    "nvfp4_4over6": "nvfp4_4over6",
    **{name: name for name in FORMATS if name.startswith("turboquant_") or name.endswith("_per_token_head")},
    "ultraquant_4bit": "ultraquant_4bit",
}
#: Formats that only other hardware reads.
ROCM_ONLY = ("ultraquant_4bit", "octave_k3v4", "octave_k3v3", "octave_k3v3_compact")

#: Compute capability x 10 of datacenter Blackwell.
_BLACKWELL = range(100, 110)

#: ModelOpt's names of cache formats (utils/torch_utils.py, MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP).
_MODELOPT = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}


def model_dtype(architecture: Architecture) -> tuple[str, str | None]:
    """The type that the model runs in, and the sentence that says why, where it is not the checkpoint's own."""
    if architecture.dtype is None:
        return "bf16", "the config does not say its dtype: vLLM reads it from the weights, bf16 assumed"
    own = ALIASES.get(architecture.dtype, architecture.dtype)
    if own == "fp32":
        return "bf16", "the checkpoint is float32, and vLLM runs it in bfloat16"
    if own not in MODEL_DTYPES:
        return "bf16", f"vLLM does not compute in {own}: the model runs in bfloat16"
    return own, None


def cache_dtype(asked: str, architecture: Architecture, own: str, capability: int, *, mla: bool = False) -> tuple[str, str | None]:
    """The flag in force, and the sentence that says where it comes from; `mla`: all attention is. Raises UsageError, EngineRejectsError."""
    found, note = _flag(asked, architecture, own, capability, mla=mla)
    if family_of(architecture.family).deaf and found != AUTO:
        return AUTO, f"vLLM keeps the cache of {architecture.family} in the model's type, whatever the flag or the checkpoint says"
    return found, note


def _flag(asked: str, architecture: Architecture, own: str, capability: int, *, mla: bool) -> tuple[str, str | None]:
    word = one_format(asked, "vLLM").lower()
    if word == AUTO:
        found = _checkpoint_word(architecture.traits, mla=mla)
        if found is not None:
            return found, f"the checkpoint's quantization declares its cache, so auto means {found}"
        if family_of(architecture.family).fp8_on_blackwell and capability in _BLACKWELL:
            return "fp8_e4m3", f"vLLM stores {architecture.family} as fp8 on compute capability 10.x unless told otherwise"
        return AUTO, None
    if word in ROCM_ONLY:
        raise EngineRejectsError(f"vLLM stores a cache of {word} on ROCm only", "choose fp8")
    word = MODEL_DTYPES.get(ALIASES.get(word, word), word)
    if word not in CACHE_DTYPES:
        if ALIASES.get(word, word) in FORMATS:
            hint = "int8_per_token_head and int4_per_token_head are its integer formats" if word.startswith("int") else ""
            raise EngineRejectsError(f"vLLM has no cache of {clean(word, 40)}", hint or "one of auto, " + ", ".join(CACHE_DTYPES))
        raise UsageError(
            f"--kv-dtype: unknown format '{clean(asked, 40)}'", nearest(word, CACHE_DTYPES) or "one of auto, " + ", ".join(CACHE_DTYPES)
        )
    if word in MODEL_DTYPES.values():
        if CACHE_DTYPES[word] != own:
            raise EngineRejectsError(f"vLLM refuses a cache of {word} for a model that runs in {MODEL_DTYPES[own]}", "leave --kv-dtype out")
        return AUTO, None
    return word, None


def _checkpoint_word(traits: Traits, *, mla: bool) -> str | None:
    """What a ModelOpt or compressed-tensors checkpoint says about its cache; other words mean the model's type."""
    method = traits.quantization or ""
    scheme = traits.kv_cache_scheme
    if method == "compressed-tensors":
        return _scheme_word(scheme) if isinstance(scheme, Mapping) and not mla else None
    if not method.startswith("modelopt"):
        return None
    word = scheme or traits.kv_cache_quant_algo
    if isinstance(word, Mapping):
        bits, kind = word.get("num_bits"), word.get("type")
        if word.get("dynamic") is False and (bits, kind) == (8, "float"):
            return _MODELOPT["fp8"]
        return _MODELOPT["nvfp4"] if (bits, kind) == (4, "float") else None
    return _MODELOPT.get(word.lower()) if isinstance(word, str) else None


def _scheme_word(scheme: Mapping[str, Any]) -> str:
    """The only scheme that compressed_tensors.py accepts: fp8, symmetric. Raises EngineRejectsError."""
    bits, kind = scheme.get("num_bits"), scheme.get("type")
    if (bits, kind) != (8, "float"):
        raise EngineRejectsError(
            f"vLLM refuses the checkpoint's cache of {clean(str(bits), 20)}-bit {clean(str(kind), 20)}", "it reads fp8"
        )
    return "fp8"


def is_plain(asked: str) -> bool:
    """The flag names the model's type itself, which some families refuse where they take auto."""
    word = asked.lower()
    return MODEL_DTYPES.get(ALIASES.get(word, word), word) in MODEL_DTYPES.values()


def format_of(dtype: str, own: str) -> str:
    """The format behind a flag, by its name in kvcalc."""
    return own if dtype == AUTO else CACHE_DTYPES[dtype]
