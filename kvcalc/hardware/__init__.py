"""Accelerators: the facts of a card that an engine's defaults and a memory budget depend on.

`gpus.yaml` holds one row a card, each with its source. Names are those of `--gpu NAME[:COUNT]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator.

    memory       bytes: the total that engines divide, as they print it ("measured"), or the capacity as sold ("nominal"), as `known` says
    prints       how many public prints the measured total stands on; `low` and `high` are the least and the largest of them
    windows      the total under Windows and WSL, where a print is known
    bandwidth    bytes per second of its memory
    capability   CUDA compute capability x 10 (90 = Hopper, 100 = Blackwell data centre); None for other vendors
    """

    id: str
    name: str
    vendor: str
    memory: int
    known: str
    bandwidth: int
    capability: int | None
    source: str
    read: str
    prints: int = 0
    low: int | None = None
    high: int | None = None
    windows: int | None = None


@cache
def gpus() -> dict[str, Gpu]:
    """Every accelerator by its id, in the file's order."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = files("kvcalc.hardware").joinpath("gpus.yaml").read_text(encoding="utf-8")
    return {key: Gpu(id=key, **row) for key, row in yaml.load(text, loader).items()}  # noqa: S506  both loaders are safe ones


def get_gpu(name: str) -> Gpu:
    """The accelerator of that id. Raises UsageError naming the nearest ones."""
    found = gpus().get(name.strip().lower())
    if found is None:
        raise UsageError(f"--gpu: unknown accelerator '{clean(name, 40)}'", nearest(name.lower(), gpus()) or "see `kvcalc gpus list`")
    return found


def parse_gpu(text: str) -> tuple[Gpu, int]:
    """`h100-80gb:2` → the accelerator and how many. Raises UsageError."""
    name, colon, count = text.partition(":")
    if colon and not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= 65536 and len(count) < 9):
        raise UsageError(f"--gpu: '{clean(count, 20)}' is not a number of devices", "write it like h100-80gb:2")
    return get_gpu(name), int(count) if colon else 1
