"""Which storage format SGLang gives its cache: `--kv-cache-dtype`, what "auto" means, and what a model refuses.

Source: SGLang 0.5.23, model_executor/model_runner_components/kv_cache_dtype.py, arg_groups/{overrides,kv_cache_hook}.py,
configs/model_config.py (_get_and_verify_dtype).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import EngineRejectsError, nearest
from kvcalc.core.formats import FORMATS, get_format, one_format
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.traits import Traits
    from kvcalc.engines.sglang.classes import ClassRule

#: kvcalc's and PyTorch's spellings → the flag's.
FLAGS = {
    "fp8": "fp8_e4m3",
    "float8_e4m3fn": "fp8_e4m3",
    "fp8_e4m3": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "fp8_e5m2": "fp8_e5m2",
    "mxfp8": "mxfp8",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "nvfp4": "nvfp4",
    "fp4_mx_block16": "fp4_mx_block16",
}
FP8 = "fp8_e4m3"
FOUR_BITS = ("nvfp4", "fp4_mx_block16")


class CacheType(NamedTuple):
    """The flag in force ("auto" if the model's own type), the format of a row, and what there is to say about it."""

    flag: str
    format: Format
    note: str = ""


def model_format(architecture: Architecture) -> tuple[Format, str]:
    """The type that SGLang runs the model in, and a note where it is not the file's."""
    if architecture.traits.quantization == "mxfp4":
        return FORMATS["bf16"], ""
    found = get_format(architecture.dtype, "dtype") if architecture.dtype else None
    if found is not None and found.name != "fp32":
        return found, ""
    chosen = "bf16" if architecture.family.startswith("gemma") else "fp16"
    said = "says float32" if found else "does not say its dtype"
    return FORMATS[chosen], f"the config {said}: SGLang runs the model in {chosen}"


def cache_type(architecture: Architecture, kv_dtype: str, rule: ClassRule, capability: int, *, indexed: bool) -> CacheType:
    """The cache's type for `--kv-cache-dtype kv_dtype`. Raises EngineRejectsError for one that SGLang does not have."""
    asked = one_format(kv_dtype, "SGLang").lower()
    flag = "auto" if asked == "auto" else FLAGS.get(asked, "")
    if not flag:
        hint = nearest(asked, FLAGS) or "auto, bf16, fp8_e4m3, fp8_e5m2, mxfp8, nvfp4 or fp4_mx_block16"
        raise EngineRejectsError(f"SGLang has no kv-cache-dtype '{clean(kv_dtype, 40)}'", hint)
    model, note = model_format(architecture)
    if indexed:
        flag = _indexed_flag(flag, capability, sinks=has_sinks(architecture, rule))
    elif flag == "auto" and (rule.fp8 or _checkpoint_is_fp8(architecture.traits)):
        flag = FP8
    if rule.compressed and flag != FP8:
        raise EngineRejectsError(f"SGLang keeps DeepSeek-V4 in fp8_e4m3, and {flag} was asked for", "leave kv-cache-dtype at auto")
    if flag == "auto":
        return CacheType(flag, model, note)
    return CacheType(flag, get_format(flag), "" if asked != "auto" else _said(flag, capability, indexed=indexed))


def has_sinks(architecture: Architecture, rule: ClassRule) -> bool:
    """Whether attention has learned sinks: by the class, or by the flags of its config (_detect_attention_sinks)."""
    return rule.sinks or any(architecture.traits.get(flag, default) for flag, default in rule.sink_flags.items())


def _indexed_flag(flag: str, capability: int, *, sinks: bool) -> str:
    """Sparse attention over latents (DSA) knows two types; its own choice is fp8 from Blackwell on, where it has no sinks."""
    if sinks and flag not in ("auto", "bfloat16"):
        raise EngineRejectsError("SGLang keeps sparse attention with sinks in bf16", "leave kv-cache-dtype at auto")
    if flag == "auto":
        return FP8 if capability >= 100 and not sinks else "bfloat16"
    if flag not in (FP8, "bfloat16"):
        raise EngineRejectsError(f"SGLang's sparse attention stores bf16 or fp8_e4m3, and {flag} was asked for", "choose one of the two")
    return flag


def _said(flag: str, capability: int, *, indexed: bool) -> str:
    if indexed:
        return f"kv-cache-dtype auto is {flag} for sparse attention on compute capability {capability / 10:g}"
    return f"kv-cache-dtype auto is {flag} for this model"


def _checkpoint_is_fp8(traits: Traits) -> bool:
    """The checkpoint itself asks for an fp8 cache (ModelOpt's `kv_cache_quant_algo`, or its `kv_cache_scheme`)."""
    algorithm = traits.kv_cache_quant_algo
    if algorithm is not None:
        return algorithm.upper() == "FP8"
    scheme = traits.kv_cache_scheme
    is_modelopt = (traits.quantization or "").startswith("modelopt")
    return is_modelopt and isinstance(scheme, Mapping) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8)
