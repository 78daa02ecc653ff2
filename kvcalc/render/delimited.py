"""`csv`: the main table with raw values, bytes as integers."""

from __future__ import annotations

import csv
import io
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError
from kvcalc.render.view import Table

if TYPE_CHECKING:
    from kvcalc.render.view import View

#: A cell that begins like this is a formula to a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def render(view: View) -> str:
    """One header line, one line a row. Raises UsageError if the answer has no table."""
    table = view.data or next((block for block in view.blocks if isinstance(block, Table)), None)
    if table is None:
        raise UsageError("--format csv: this answer is no table", "use plain, markdown or json")
    kept = [index for index, column in enumerate(table.columns) if column.kind not in ("bar", "size")]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([table.columns[index].key for index in kept])
    writer.writerows([_raw(row[index]) for index in kept] for row in table.rows)
    return stream.getvalue()


def _raw(value: Any) -> Any:
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value
