"""The view of `kvcalc.compare/1`: techniques, models or engines as rows against a baseline."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean, show_bytes, show_tokens
from kvcalc.render.view import Column, Table, Text, View, show

if TYPE_CHECKING:
    from kvcalc.questions.documents.compare import Attended, CompareDocument, Row, UsedTechnique

_FIGURES = (
    Column("per_token", "per token, B", "bytes", 1),
    Column("total", "total, B", "bytes"),
    Column("size", "size", "size", 4),
    Column("fixed", "fixed, B", "bytes", 5),
    Column("ratio", "ratio", "ratio"),
    Column("saving", "saved", "percent", 2),
    Column("bar", "", "bar", 6),
    Column("attended", "layers x positions read", "text", 3),
)
_TECHNIQUES = (Column("name", "technique"), *_FIGURES, Column("parameters", "parameters", "prose", 7))
_MODELS = (Column("name", "model"), Column("kv_dtype", "format", "text", 5), *_FIGURES)
_ENGINES = (
    Column("name", "engine"),
    Column("kv_dtype", "format", "text", 3),
    Column("per_sequence", "per sequence, B", "bytes"),
    Column("total", "total, B", "bytes", 3),
    Column("size", "size", "size", 5),
    Column("ratio", "ratio", "ratio", 2),
    Column("max_sequences", "fit", "count", 1),
    Column("tokens", "tokens that fit", "count", 6),
    Column("why", "why different", "prose"),
)
_COLUMNS = {"techniques": _TECHNIQUES, "models": _MODELS, "engines": _ENGINES}
_WORK = (
    Column("name", "technique"),
    Column("projections_with_cache", "projections", "work", 1),
    Column("projections_without_cache", "recomputed", "work", 2),
    Column("scores_with_cache", "scores", "work"),
    Column("scores_without_cache", "recomputed", "work"),
    Column("times", "times more", "text", 3),
)


def view(document: CompareDocument) -> View:
    """What `kvcalc compare` shows."""
    table = _table(document)
    blocks: list[Table | Text] = [_without_empty(_in_words(table, document)), *_failures(document), *_work(document)]
    return View(
        headline=_headline(document),
        blocks=tuple(blocks),
        notes=document.notes,
        warnings=document.warnings,
        data=_data(document, table),
    )


def _headline(document: CompareDocument) -> str:
    """The baseline's figure and the smallest one; of engines the smallest and the largest."""
    rows = [(row.name, row.bytes.total) for row in document.rows if row.bytes is not None]
    (first, base), workload = rows[0], document.workload
    count = workload.sequences
    asked = f"for {count:,} sequence{'s' if count != 1 else ''} of {show_tokens(workload.context)} tokens"
    least, most = (pick(rows, key=lambda row: row[1]) for pick in (min, max))
    if document.kind == "engines":
        ends = dict.fromkeys(f"{show_bytes(total)} on {name}" for name, total in (least, most))
        return f"{' to '.join(ends)}, {asked}: {clean(document.model.id if document.model else '')}"
    text = f"{show_bytes(base)} {asked}: {first}"
    if least is rows[0]:
        return text + ", the smallest here" if len(rows) > 1 else text
    return f"{text}; smallest: {least[0]}, {show_bytes(least[1])}, {show('ratio', Fraction(least[1], base))}"


def _table(document: CompareDocument) -> Table:
    columns = _COLUMNS[document.kind]
    baseline = next(row.bytes.total for row in document.rows if row.bytes is not None)
    rows = [_cells(row, baseline) for row in document.rows if row.bytes is not None or document.kind == "engines"]
    return Table(columns, tuple(tuple(row[column.key] for column in columns) for row in rows))


def _in_words(table: Table, document: CompareDocument) -> Table:
    """For people: an engine that holds not even one sequence says so, and so does one without an end."""
    place = next((index for index, column in enumerate(table.columns) if column.key == "max_sequences"), None)
    if place is None:
        return table
    rows = [list(cells) for cells in table.rows]
    for cells, row in zip(rows, document.rows, strict=True):
        if row.capacity is not None and cells[place] is None:
            longest, unbounded = row.capacity.max_context, row.capacity.unbounded
            cells[place] = "no limit" if unbounded or (longest is not None and longest >= document.workload.context) else "none"
    return Table(table.columns, tuple(tuple(cells) for cells in rows))


def _cells(row: Row, baseline: int) -> dict[str, Any]:
    figures, capacity = row.bytes, row.capacity
    total = None if figures is None else figures.total
    ratio = Fraction(total, baseline) if total is not None and baseline else None
    return {
        "name": row.name,
        "kv_dtype": row.kv_dtype,
        "per_token": None if figures is None else figures.per_token,
        "per_sequence": None if figures is None else figures.per_sequence,
        "total": total,
        "size": total,
        "fixed": None if figures is None else figures.fixed or None,
        "ratio": ratio,
        "saving": None if ratio is None else 1 - ratio,
        "attended": _attended(row.attended),
        "bar": ratio,
        "parameters": ", ".join(_technique(used) for used in row.techniques) or None,
        "max_sequences": None if capacity is None else capacity.max_sequences,
        "tokens": None if capacity is None else capacity.tokens,
        "why": row.error.message if row.error else "; ".join(row.why) or None,
    }


def _attended(found: tuple[Attended, ...] | None) -> str | None:
    return None if found is None else " + ".join(f"{part.layers} x {part.positions:,}" for part in found) or "0"


def _technique(used: UsedTechnique) -> str:
    return " ".join([used.name, *(f"{key}={value}" for key, value in used.parameters.items())])


def _without_empty(table: Table) -> Table:
    """Columns that no row fills are not shown."""
    kept = [index for index, _ in enumerate(table.columns) if any(row[index] is not None for row in table.rows)]
    return Table(tuple(table.columns[index] for index in kept), tuple(tuple(row[index] for index in kept) for row in table.rows))


def _failures(document: CompareDocument) -> list[Text]:
    """Rows that could not be computed, with the reason; engines show theirs in the table."""
    if document.kind == "engines":
        return []
    failed = [(row.name, row.error.message) for row in document.rows if row.error]
    lines = tuple(f"  {message}" if message.startswith(f"{name}:") else f"  {name}: {message}" for name, message in failed)
    return [Text(lines, "Not computed")] if lines else []


def _work(document: CompareDocument) -> list[Table]:
    """What the cache buys: multiply-adds with and without it."""
    rows = []
    for row in document.rows:
        if row.work is not None:
            cached, again = row.work.with_cache, row.work.without_cache
            more = Fraction(again.projections + again.scores, cached.projections + cached.scores or 1)
            rows.append((row.name, cached.projections, again.projections, cached.scores, again.scores, f"{round(more):,} x"))
    title = f"Multiply-adds of attention to generate {document.workload.context:,} tokens of one sequence: with the cache, and recomputed"
    columns = (Column("name", "model" if document.kind == "models" else "technique"), *_WORK[1:])
    return [Table(columns, tuple(rows), title)] if rows else []


def _data(document: CompareDocument, table: Table) -> Table:
    """For CSV: the table and the work in one."""
    if document.kind == "engines":
        return table
    columns = (*table.columns, *_WORK[1:-1])
    found = [row for row in document.rows if row.bytes is not None]
    rows = []
    for cells, row in zip(table.rows, found, strict=True):
        cached, again = (None, None) if row.work is None else (row.work.with_cache, row.work.without_cache)
        work = (cached.projections, again.projections, cached.scores, again.scores) if cached and again else (None,) * 4
        rows.append((*cells, *work))
    return Table(columns, tuple(rows))
