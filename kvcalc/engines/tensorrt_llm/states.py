"""Recurrent state: what a request holds in the layers of a hybrid, on one rank.

    conv   conv_dim / tp x (kernel - 1) in the model's type; KDA kernel columns
    ssm    heads / tp x one head's matrix in mamba_ssm_cache_dtype: the option, else the config's field of that name, else the model's type
           KDA always in fp32

A config's `mamba_ssm_dtype` says what to compute in; TensorRT-LLM does not read it for the cache.

Source: TensorRT-LLM, _torch/pyexecutor/config_utils.py (extract_mamba_kv_cache_params, resolve_ssm_cache_dtype) and
kv_cache/mamba_cache_manager/.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import FORMATS, get_format
from kvcalc.core.states import Kda, Recurrent
from kvcalc.core.units import clean
from kvcalc.engines.tensorrt_llm.families import FAMILIES
from kvcalc.engines.tensorrt_llm.layers import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format

#: Columns beyond kernel - 1 that KDA's convolution keeps: its kernels hold the whole window of the last inputs.
KDA_COLUMNS = 1


def read_parts(architecture: Architecture, names: Sequence[str], model: Format, ssm_dtype: str, ranks: int) -> dict[Part, int]:
    """The parts that a request holds in the named layers. Raises EngineRejectsError for hybrids that TensorRT-LLM does not serve."""
    found: Counter[Part] = Counter()
    for name, layers in Counter(names).items():
        for state in architecture.layers.states[name]:
            if isinstance(state, Recurrent):
                _check_family(architecture, state)
                for part in _parts(state, model, _ssm_format(architecture, state, model, ssm_dtype), ranks):
                    found[part] += layers
    return dict(found)


def _check_family(architecture: Architecture, state: Recurrent) -> None:
    row = FAMILIES.get(architecture.family)
    if row is None or not row.recurrent:
        raise EngineRejectsError(
            f"TensorRT-LLM has no cache for the {state.kind} layers of {clean(architecture.family)}",
            "it serves the hybrids of Nemotron-H, Qwen3-Next, Qwen3.5 and Kimi Linear",
        )


def _ssm_format(architecture: Architecture, state: Recurrent, model: Format, asked: str) -> Format:
    if isinstance(state, Kda):
        return FORMATS["fp32"]
    if asked != "auto":
        return get_format(asked, "mamba_ssm_cache_dtype")
    declared = architecture.traits.mamba_ssm_cache_dtype
    return get_format(declared, "mamba_ssm_cache_dtype") if declared is not None and declared != "auto" else model


def _parts(state: Recurrent, model: Format, ssm: Format, ranks: int) -> list[Part]:
    found: list[Part] = []
    for buffer in state.buffers():
        elements, unit = (buffer.width, "channels") if buffer.role == "conv" else (buffer.vectors, "heads")
        if elements % ranks:
            raise EngineRejectsError(
                f"tensor parallel size {ranks} cannot split the {elements} {unit} of {state.kind}", f"choose a size that divides {elements}"
            )
        stored = model if buffer.role == "conv" else ssm
        rows = buffer.extent.size + (KDA_COLUMNS if isinstance(state, Kda) and buffer.role == "conv" else 0)
        found.append(Part(state.kind, buffer.name, buffer.elements, stored.name, rows, rows * stored.row_bytes(buffer.elements // ranks)))
    return found
