"""What a plan refuses to hold."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import InternalError
from kvcalc.core.plan import Line, Plan


def plan(*sizes: int) -> Plan:
    lines = tuple(Line("full", 1, "key", 64, "bf16", 1, size, "") for size in sizes)
    return Plan("ideal", "", {}, "bf16", 1, lines, sum(sizes), sum(sizes), 0, 0, 0)


def test_nothing_is_a_size_and_less_than_nothing_is_none() -> None:
    assert plan(0, 7).total == 7
    with pytest.raises(InternalError, match="negative bytes"):
        plan(8, -1)
