"""The cache's type: `kv_cache_config.dtype`, the checkpoint's own word, or the model's type.

    FP16, BF16 2 B · FP8 1 B · FLOAT 4 B · NVFP4 half a byte and an fp8 scale for 16 elements
    fp8_ds_mla: DeepSeek-V4 only, 584 B a row

Source: TensorRT-LLM, _torch/pyexecutor/_util.py (_create_kv_cache_manager) and resource_manager.py (get_cache_bytes_per_token).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError, nearest
from kvcalc.core.formats import FORMATS, Format, get_format, one_format
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.traits import Traits

#: Row of DeepSeek-V4 on Hopper: 448 B of fp8, 64 rotary elements in bf16, 8 B of scales.
DS_MLA = "fp8_ds_mla"
#: What a dtype may be called.
NAMES = {
    "fp8": "fp8",
    "fp8_e4m3": "fp8",
    "nvfp4": "nvfp4",
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "fp32": "fp32",
    "float32": "fp32",
    DS_MLA: DS_MLA,
}
#: Types that a cache has because the model has them, never by request.
OWN = ("bf16", "fp16", "fp32")


def model_format(architecture: Architecture) -> tuple[Format, str]:
    """The model's own type, and what there is to say about it."""
    if architecture.dtype is None:
        return FORMATS["bf16"], "the config does not say its dtype: bf16 assumed"
    return get_format(architecture.dtype, "dtype"), ""


def cache_format(architecture: Architecture, kv_dtype: str) -> Format:
    """The cache's type for `kv_cache_config.dtype kv_dtype`. Raises EngineRejectsError for one that TensorRT-LLM does not have."""
    asked = one_format(kv_dtype, "TensorRT-LLM").lower()
    own, _ = model_format(architecture)
    if asked == "auto":
        found = FORMATS.get(_checkpoint_says(architecture.traits), own)
    else:
        name = NAMES.get(asked)
        if name is None:
            hint = nearest(asked, NAMES) or "it has auto, fp8 and nvfp4"
            raise EngineRejectsError(f"TensorRT-LLM has no KV cache of type '{clean(kv_dtype, 40)}'", hint)
        found = FORMATS[name]
    if found.name in OWN and architecture.dtype is not None and found is not own:
        raise EngineRejectsError(
            f"TensorRT-LLM keeps the cache of a {own.name} model in {own.name}, fp8 or nvfp4, not in {found.name}", "leave the type at auto"
        )
    return found


def _checkpoint_says(traits: Traits) -> str:
    """The type that the checkpoint's quantization asks for, or an empty string."""
    algorithm = traits.kv_cache_quant_algo
    if algorithm is not None:
        return {"FP8": "fp8", "NVFP4": "nvfp4"}.get(algorithm.upper(), "")
    scheme = traits.kv_cache_scheme
    is_fp8 = isinstance(scheme, Mapping) and scheme.get("type") == "float" and scheme.get("num_bits") == 8
    return "fp8" if is_fp8 else ""
