"""Where the memory lies, device by device: the table that estimates and fits share."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from kvcalc.render.view import Column, Table, cells_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.common import Device, Memory

_PARTS = (
    Column("weights", "weights", "bytes", 1),
    Column("cache", "cache", "bytes"),
    Column("overhead", "overhead", "bytes", 2),
    Column("total", "total", "bytes", 3),
    Column("limit", "of", "bytes", 4),
)
_COLUMNS = (Column("device", "device"), *_PARTS)


def is_worth_a_table(memory: Memory) -> bool:
    """There is more to say than the cache of one device."""
    return len(memory.devices) > 1 or any(device.limit is not None for device in memory.devices)


def devices_table(memory: Memory) -> Table:
    """A row for each device; neighbours that hold the same are one row."""
    rows: list[tuple[Any, ...]] = []
    for parts, group in groupby(memory.devices, key=lambda device: cells_of(device, _PARTS)):
        alike: list[Device] = list(group)
        first, last = alike[0].device, alike[-1].device
        rows.append((first if first == last else f"{first}-{last}, each", *parts))
    return Table(_COLUMNS, tuple(rows), "Memory by device, B")
