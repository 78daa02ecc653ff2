"""The figures of an earlier run: bytes by budget name, from a previous `kvcalc.check/1` document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.units import MIB, clean
from kvcalc.sources.files import read_bytes, read_json

if TYPE_CHECKING:
    from pathlib import Path

#: A document of ten thousand budgets stays well under it.
LARGEST_BASELINE = 64 * MIB
#: More bytes than the largest question that kvcalc computes has.
LARGEST_TOTAL = 10**60


def read_baseline(path: Path) -> dict[str, int]:
    """Total bytes of every budget that was evaluated then. Raises InvalidConfigError, UnknownModelError for a missing file."""
    name = clean(path)
    document = read_json(read_bytes(path, LARGEST_BASELINE), name)
    budgets = document.get("budgets")
    if document.get("schema") != "kvcalc.check/1" or not isinstance(budgets, list):
        raise InvalidConfigError(
            f"{name} is not a kvcalc.check/1 document", "write one with `kvcalc check --baseline FILE --update-baseline`"
        )
    found: dict[str, int] = {}
    for entry in budgets:
        total = _total(entry)
        if total is None:
            continue
        if found.setdefault(entry["name"], total) != total:
            raise InvalidConfigError(
                f"{name}: a budget named '{clean(entry['name'], 60)}' stands twice with different figures",
                "write it anew with --update-baseline",
            )
    return found


def _total(entry: Any) -> int | None:
    """A budget's total; None for one that could not be evaluated, or that no cache has. A total of 0 has no growth to compare with."""
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        return None
    figures = entry.get("bytes")
    total = figures.get("total") if isinstance(figures, dict) else None
    return total if isinstance(total, int) and not isinstance(total, bool) and 0 < total <= LARGEST_TOTAL else None
