"""Accelerators: the names that are promised, and rows that can be used."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.hardware import get_gpu, gpus, parse_gpu

PROMISED = "a100-40gb a100-80gb h100-80gb h200-141gb b200-180gb l4-24gb l40s-48gb a10g-24gb rtx3090-24gb rtx4090-24gb"
GIB = 1024**3


def test_the_promised_names_and_enough_of_them() -> None:
    assert set(PROMISED.split()) <= set(gpus())
    assert len(gpus()) >= 60
    assert {gpu.vendor for gpu in gpus().values()} == {"nvidia", "amd", "intel", "apple", "google", "aws"}


@pytest.mark.parametrize("gpu", list(gpus().values()), ids=lambda gpu: gpu.id)
def test_rows_can_be_used(gpu: object) -> None:
    from kvcalc.hardware import Gpu

    assert isinstance(gpu, Gpu)
    assert 6 * GIB <= gpu.memory <= 512 * GIB
    assert 10**11 <= gpu.bandwidth <= 10**13
    assert (gpu.capability is not None) == (gpu.vendor == "nvidia")
    assert gpu.known in ("measured", "nominal")
    assert (gpu.known == "measured") == (gpu.prints > 0)
    if gpu.prints:
        assert gpu.low is not None
        assert gpu.high is not None
        assert gpu.low <= gpu.memory <= gpu.high
    assert gpu.windows is None or gpu.windows >= gpu.memory * 0.99
    assert gpu.source
    assert gpu.read


def test_totals_are_those_that_engines_print() -> None:
    """Medians of public prints in GiB, to the nearest MiB: CUDA's total, below the one that nvidia-smi shows."""
    for name, gib in {"h100-80gb": 79.18, "h200-141gb": 139.80, "t4-16gb": 14.56, "b300-288gb": 267.69, "rtx4090-24gb": 23.64}.items():
        assert abs(get_gpu(name).memory - gib * GIB) <= 2**20, name
    assert get_gpu("rtx4090-24gb").windows == 24_564 * 1024**2
    assert get_gpu("m3ultra-512gb").memory < 512 * GIB * 0.95


def test_counts_and_near_misses() -> None:
    assert parse_gpu("h100-80gb:2")[1] == 2
    assert parse_gpu("h100-80gb")[1] == 1
    for text in ("h100-80gb:", "h100-80gb:0", "h100-80gb:x", "h100-80gb:-1", "h100-80gb:9999999999"):
        with pytest.raises(UsageError, match="not a number of devices"):
            parse_gpu(text)
    with pytest.raises(UsageError) as caught:
        get_gpu("h100")
    assert "h100" in caught.value.hint
