"""Over which devices llama.cpp lays the layers of a cache.

    layer   a layer's tensors lie on the layer's device: the first whose cumulative share exceeds (i - first) / layers,
            where the output layer counts as one more; layers that are not offloaded stay in host memory
    tensor  every tensor is cut by heads; single-headed caches and a few states stand whole on every device
    none    one GPU has everything

(llama-model.cpp `load_tensors`, `get_split_state`)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.units import clean
from kvcalc.engines.llamacpp import architectures as rules
from kvcalc.hardware import parse_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.core.workload import Workload

#: LLAMA_MAX_DEVICES of a build with CUDA (ggml GGML_CUDA_MAX_DEVICES).
MOST_DEVICES = 16
_PROPORTION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)
#: The host is one device more.
HOST = -1


@dataclass(frozen=True, slots=True)
class Devices:
    """The GPUs and how they share.

    count      GPUs                           mode     none, layer or tensor
    shares     proportions, one a GPU         first    layers before this one stay on the host
    nvidia     the GPUs are NVIDIA's
    """

    count: int
    mode: str
    shares: tuple[Fraction, ...]
    offloaded: int | None
    host_only: bool
    nvidia: bool

    def place(self, layer: int, layers: int) -> int:
        """The device of layer `layer` of `layers`: a GPU's number, or HOST."""
        if self.host_only:
            return HOST
        on_gpu = layers + 1 if self.offloaded is None else min(self.offloaded, layers + 1)
        first = layers + 1 - on_gpu
        if layer < first:
            return HOST
        position = Fraction(layer - first, on_gpu)
        total = Fraction(0)
        for device, share in enumerate(self.shares):
            total += share
            if total > position:
                return device
        return len(self.shares) - 1

    @property
    def copies(self) -> int:
        """GPUs that a tensor is cut over."""
        return self.count if self.mode == "tensor" else 1


def read_devices(workload: Workload, args: Mapping[str, Any]) -> Devices:
    """The devices that the workload and the settings speak of. Raises UsageError where they contradict, EngineRejectsError."""
    if workload.decode_context_parallel > 1:
        raise EngineRejectsError("llama.cpp has no decode context parallelism")
    if workload.tensor_parallel > 1 and workload.pipeline_parallel > 1:
        raise EngineRejectsError("llama.cpp splits over GPUs by layers or by tensors, not by both", "give --tp or --pp")
    gpu, cards = parse_gpu(workload.gpu) if workload.gpu else (None, 1)
    mode = args["split_mode"]
    if mode == "auto":
        mode = "tensor" if workload.tensor_parallel > 1 else "layer"
    if workload.tensor_parallel > 1 and mode != "tensor":
        raise UsageError(f"--tp {workload.tensor_parallel} splits by tensors, and split_mode is {mode}", "give --pp to split by layers")
    if workload.pipeline_parallel > 1 and mode not in ("layer", "row"):
        raise UsageError(f"--pp {workload.pipeline_parallel} splits by layers, and split_mode is {mode}", "give --tp to split by tensors")
    proportions = _proportions(args["tensor_split"])
    counts = {"--tp or --pp": workload.devices, "--gpu": cards, "tensor_split": len(proportions)}
    count = max(counts.values())
    for name, value in counts.items():
        if 1 < value < count:
            raise UsageError(f"{name} speaks of {value} GPUs, and another option of {count}", "give the same number")
    if mode == "none":
        count, proportions = 1, ()
    if count > MOST_DEVICES:
        raise EngineRejectsError(f"llama.cpp uses at most {MOST_DEVICES} GPUs, and {count} were asked")
    weights = proportions or (Fraction(1),) * count
    return Devices(
        count=count,
        mode="layer" if mode in ("row", "none") else mode,
        shares=tuple(weight / sum(weights) for weight in weights),
        offloaded=args["n_gpu_layers"],
        host_only=args["no_kv_offload"],
        nvidia=gpu is not None and gpu.vendor == "nvidia",
    )


def _proportions(given: Sequence[Any] | None) -> tuple[Fraction, ...]:
    found: list[Fraction] = []
    for item in given or ():
        if not _PROPORTION.fullmatch(str(item)):
            raise UsageError(f"tensor_split: {clean(repr(item), 40)} is not a proportion", "write it like 3,1")
        found.append(Fraction(str(item)))
    if given and (len(found) > MOST_DEVICES or not sum(found)):
        raise UsageError(f"tensor_split: needs 1 to {MOST_DEVICES} proportions, and not all of them 0", "write it like 3,1")
    return tuple(found)


def check_tensor_split(name: str, devices: Devices, heads: set[int], *, flash: bool) -> None:
    """Raise where `--split-mode tensor` is impossible, or where kvcalc does not know how it cuts."""
    if devices.mode != "tensor":
        return
    if name in rules.NO_TENSOR_SPLIT:
        raise EngineRejectsError(f"llama.cpp has no tensor split for {name}", "split by layers: --pp, or split_mode layer")
    if not flash:
        raise EngineRejectsError("llama.cpp's tensor split needs flash attention", "leave flash_attn at auto")
    uneven = sorted(count for count in heads if count % devices.count)
    if uneven or len(set(devices.shares)) > 1:
        raise UnsupportedArchitectureError(
            f"kvcalc knows llama.cpp's tensor split only where every GPU gets the same heads, and {devices.count} GPUs share {uneven or 'unequally'}",
            "split by layers: --pp, or split_mode layer",
        )
