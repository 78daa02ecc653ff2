"""Over which devices llama.cpp lays the layers of a cache.

    layer   a layer's tensors lie on the layer's device: the first whose cumulative share exceeds (i - first) / layers,
            where the output layer counts as one more; layers that are not offloaded stay in host memory
    tensor  every tensor is cut by heads; single-headed caches and a few states stand whole on every device
    none    one GPU has everything

(llama-model.cpp `load_tensors`, `get_split_state`)
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError, UsageError
from kvcalc.core.units import clean
from kvcalc.engines.llamacpp.architectures import ARCHITECTURES
from kvcalc.hardware import parse_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.core.workload import Workload

#: LLAMA_MAX_DEVICES of a build with CUDA (ggml GGML_CUDA_MAX_DEVICES).
MOST_DEVICES = 16
_PROPORTION = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", re.ASCII)
#: The host is one device more.
HOST = -1


@dataclass(frozen=True)
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

    @cached_property
    def unpadded(self) -> Devices:
        """The same devices with buffers that pad nothing."""
        return replace(self, nvidia=False)

    @property
    def copies(self) -> int:
        """GPUs that a tensor is cut over."""
        return self.count if self.mode == "tensor" and not self.host_only else 1


def read_devices(workload: Workload, args: Mapping[str, Any]) -> Devices:
    """The devices that the workload and the settings speak of. Raises UsageError where they contradict, EngineRejectsError."""
    split = args["tensor_split"]
    return _devices(
        (workload.tensor_parallel, workload.pipeline_parallel, workload.decode_context_parallel),
        workload.gpu,
        args["split_mode"],
        None if split is None else tuple(map(str, split)),
        args["n_gpu_layers"],
        args["no_kv_offload"],
    )


@lru_cache(maxsize=256)
def _devices(
    ranks: tuple[int, int, int], card: str | None, mode: str, split: tuple[str, ...] | None, offloaded: int | None, host_only: bool
) -> Devices:
    tp, pp, dcp = ranks
    if dcp > 1:
        raise EngineRejectsError("llama.cpp has no decode context parallelism")
    if tp > 1 and pp > 1:
        raise EngineRejectsError("llama.cpp splits over GPUs by layers or by tensors, not by both", "give --tp or --pp")
    gpu, cards = parse_gpu(card) if card else (None, 1)
    if mode == "auto":
        mode = "tensor" if tp > 1 else "layer"
    if tp > 1 and mode != "tensor":
        raise UsageError(f"--tp {tp} splits by tensors, and split_mode is {mode}", "give --pp to split by layers")
    if pp > 1 and mode not in ("layer", "row"):
        raise UsageError(f"--pp {pp} splits by layers, and split_mode is {mode}", "give --tp to split by tensors")
    proportions = _proportions(split)
    counts = {"--tp or --pp": tp * pp, "--gpu": cards, "tensor_split": len(proportions)}
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
        offloaded=offloaded,
        host_only=host_only,
        nvidia=gpu is not None and gpu.vendor == "nvidia",
    )


def _proportions(given: Sequence[str] | None) -> tuple[Fraction, ...]:
    found: list[Fraction] = []
    for item in given or ():
        if not _PROPORTION.fullmatch(item):
            raise UsageError(f"tensor_split: {clean(repr(item), 40)} is not a proportion", "write it like 3,1")
        found.append(Fraction(item))
    if given and (len(found) > MOST_DEVICES or not sum(found)):
        raise UsageError(f"tensor_split: needs 1 to {MOST_DEVICES} proportions, and not all of them 0", "write it like 3,1")
    return tuple(found)


def check_tensor_split(name: str, devices: Devices, heads: frozenset[int], *, flash: bool) -> None:
    """Raise where `--split-mode tensor` is impossible, or where kvcalc does not know how it cuts."""
    if devices.mode != "tensor":
        return
    if not ARCHITECTURES[name].splits_tensors:
        raise EngineRejectsError(f"llama.cpp has no tensor split for {name}", "split by layers: --pp, or split_mode layer")
    if not flash:
        raise EngineRejectsError("llama.cpp's tensor split needs flash attention", "leave flash_attn at auto")
    uneven = sorted(count for count in heads if count % devices.count)
    if uneven or len(set(devices.shares)) > 1:
        raise UnsupportedArchitectureError(
            f"kvcalc knows llama.cpp's tensor split only where every GPU gets the same heads, and {devices.count} GPUs share {uneven or 'unequally'}",
            "split by layers: --pp, or split_mode layer",
        )
