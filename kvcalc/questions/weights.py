"""What the weights take on one device, and how that is known.

    given            --weights                                     exact            the files' own tensor table
    one type         parameters x bytes of the type                with --weight-dtype, or where the checkpoint has one type
    as published     (parameters - kept) x type + kept x 2 B       checkpoints that are quantised as they are released

`kept` stays in bf16: embeddings and the output layer; where only the experts are quantised, attention too.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean
from kvcalc.core.weights import WEIGHT_FORMATS, weight_format

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState
    from kvcalc.core.workload import Workload


class Published(NamedTuple):
    """How a checkpoint is quantised as it is released.

    each      bytes of one quantised parameter, scales included
    experts   only the experts are quantised
    """

    words: str
    each: Fraction
    experts: bool


#: By the trait `weight_types`, and by the `quant_method` of a config.json that says as much.
PUBLISHED: dict[str, Published] = {
    "fp8": Published("fp8 with a scale for 128 x 128, embeddings in bf16", 1 + Fraction(4, 128 * 128), experts=False),
    "mxfp4 experts": Published("mxfp4 in the experts, the rest in bf16", WEIGHT_FORMATS["mxfp4"], experts=True),
    "int4 experts": Published("int4 with a scale for 32 in the experts, the rest in bf16", Fraction(1, 2) + Fraction(2, 32), experts=True),
}
_METHODS = {"fp8": "fp8", "mxfp4": "mxfp4 experts"}


def weights_per_device(
    architecture: Architecture,
    workload: Workload,
    given: int | None,
    measured: int | None,
    weight_dtype: str | None,
    sure: dict[str, str],
    *,
    usual: str | None = None,
) -> int:
    """Bytes of the weights on one device, divided evenly; how they are known goes into `sure`.

    usual    the type that the engine's models have where neither the question nor the checkpoint says one

    Raises UsageError for a type that kvcalc does not know, and where neither the size nor the parameters are known.
    """
    published = published_as(architecture)
    if given is not None:
        total, sure["weights"] = given, "given"
    elif measured is not None:
        total, sure["weights"] = measured, "exact: the checkpoint's own tensor table"
    elif architecture.parameters is None:
        raise UsageError(
            f"the parameters of {clean(architecture.id)} are not known, so neither is the size of its weights", "give --weights SIZE"
        )
    elif weight_dtype is None and published is not None:
        kept = min(_kept(architecture, attention=published.experts), architecture.parameters)
        total = math.ceil((architecture.parameters - kept) * published.each) + 2 * kept
        sure["weights"] = f"estimated: {architecture.parameters:,} parameters as published, {published.words}"
    else:
        name = weight_format(weight_dtype or usual or architecture.dtype or "bf16")
        total = math.ceil(architecture.parameters * WEIGHT_FORMATS[name])
        sure["weights"] = f"estimated: {architecture.parameters:,} parameters in {name}"
        if weight_dtype is None and usual is not None:
            sure["weights"] += ", the engine's usual type"
    if workload.devices > 1:
        sure["weights"] += f"; divided evenly over {workload.devices} devices"
    return -(-total // workload.devices)


def published_as(architecture: Architecture) -> Published | None:
    """How the checkpoint is quantised as it is released; None where it is not, or where kvcalc does not know how."""
    traits = architecture.traits
    return PUBLISHED.get(traits.weight_types or _METHODS.get(traits.quantization or "", ""))


def _kept(architecture: Architecture, *, attention: bool) -> int:
    """Parameters that stay in bf16, as far as the file says them: the embeddings, both ends, and attention."""
    hidden = architecture.hidden_dim or 0
    kept = 2 * (architecture.traits.vocab_size or 0) * hidden
    if attention:
        kept += sum(layers * hidden * _projected(state) for state, layers in architecture.states.items())
    return kept


def _projected(state: AnyState) -> int:
    """Elements that a layer's projections have for each of the hidden state: queries and output, keys and values."""
    from kvcalc.core.states import Chunked, Full, Sliding

    match state:
        case Full() | Sliding() | Chunked():
            value = state.value_head_dim or state.head_dim
            return (state.query_heads or state.kv_heads) * (state.head_dim + value) + state.kv_heads * (state.head_dim + value)
        case _:
            return 0  # latents and recurrent layers: under a hundredth of such a model
