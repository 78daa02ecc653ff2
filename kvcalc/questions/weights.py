"""What the weights take on one device, and how that is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean
from kvcalc.core.weights import WEIGHT_FORMATS, weight_format

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload


def weights_per_device(
    architecture: Architecture,
    workload: Workload,
    given: int | None,
    measured: int | None,
    weight_dtype: str | None,
    sure: dict[str, str],
) -> int:
    """Bytes of the weights on one device: given, measured from the checkpoint's files, else parameters x type; divided evenly."""
    if given is not None:
        total, sure["weights"] = given, "given"
    elif measured is not None:
        total, sure["weights"] = measured, "exact: the checkpoint's own tensor table"
    elif architecture.parameters is None:
        raise UsageError(
            f"the parameters of {clean(architecture.id)} are not known, so neither is the size of its weights", "give --weights SIZE"
        )
    else:
        name = weight_format(weight_dtype or architecture.dtype or "bf16")
        total = math.ceil(architecture.parameters * WEIGHT_FORMATS[name])
        sure["weights"] = f"estimated: {architecture.parameters:,} parameters in {name}"
    if workload.devices > 1:
        sure["weights"] += f"; divided evenly over {workload.devices} devices"
    return -(-total // workload.devices)
