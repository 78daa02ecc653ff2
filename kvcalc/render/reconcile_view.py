"""The views of `kvcalc.reconcile/1` and `kvcalc.growth/1`: log against kvcalc, difference, likely reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean, show_bytes
from kvcalc.render.view import Column, Facts, Table, View

if TYPE_CHECKING:
    from kvcalc.questions.documents.reconcile import GrowthDocument, ReconcileDocument, SequencesFigure, Trouble, WholeFigure

_COLUMNS = (
    Column("line", "line", "count", 3),
    Column("figure", "figure"),
    Column("logged", "log"),
    Column("expected", "kvcalc"),
    Column("difference", "difference", "text", 1),
    Column("state", "state"),
)
_DATA = (*_COLUMNS, Column("reason", "likely reason", "prose"))


def view(document: ReconcileDocument) -> View:
    """What `kvcalc reconcile LOG` shows."""
    rows, trouble = document.rows, document.trouble
    within = sum(row.within for row in rows)
    engine, model = document.engine, document.model
    if engine is None or model is None or not (rows or trouble):
        return View(f"nothing recognised: {clean(document.log)}", (), document.notes)
    version = f" {clean(engine.version, 20)}" if engine.version else ""
    whose = f"{engine.name}{version}, {clean(model.id)}"
    agree = f"{within} of {len(rows)} figure{'s' if len(rows) != 1 else ''} agree{'' if len(rows) != 1 else 's'}"
    cells = tuple(_row(row) for row in rows)
    table = Table(_COLUMNS, tuple(row[:-1] for row in cells), agree if trouble else "")
    settings = tuple((clean(key, 40), _setting(value)) for key, value in engine.args.items())
    blocks: list[Table | Facts] = [
        *_trouble(trouble),
        *_reasons(rows),
        *([table] if rows else []),
        *([Facts(settings)] if settings else []),
    ]
    headline = f"{trouble.text}: {whose}" if trouble else f"{agree}: {whose}"
    return View(headline, tuple(blocks), document.notes, data=Table(_DATA, cells))


def _reasons(rows: tuple[WholeFigure | SequencesFigure, ...]) -> list[Facts]:
    """Why figures differ, a reason once for all figures that it explains: what is read first, at any width."""
    said: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            said.setdefault(row.reason, []).append(row.figure)
    return [Facts(tuple((", ".join(figures), reason) for reason, figures in said.items()), "Likely reason")] if said else []


def _trouble(trouble: Trouble | None) -> list[Facts]:
    """What would end the complaint, each by itself."""
    if trouble is None or not trouble.ways:
        return []
    title = "It would start with one of" if trouble.kind == "refused" else "It would hold the prompt with"
    return [Facts(tuple((clean(way.flag, 60), clean(way.text, 400)) for way in trouble.ways), title)]


def _setting(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else clean(value, 60)


def _row(row: WholeFigure | SequencesFigure) -> tuple[Any, ...]:
    unit = row.unit
    expected = _amount(row.expected, unit)
    if row.expected_high != row.expected:
        expected = f"{_amount(row.expected, unit if unit == 'bytes' else '')} to {_amount(row.expected_high, unit)}"
    difference = "" if row.within else _amount(row.difference, unit)
    return (
        row.line,
        row.figure,
        _amount(row.logged, unit),
        expected,
        difference or None,
        "agrees" if row.within else "DIFFERS",
        row.reason or None,
    )


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return show_bytes(round(value))
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.6g}") + (f" {unit}" if unit else "")


def growth_view(document: GrowthDocument) -> View:
    """What `kvcalc reconcile --growth` shows."""
    facts = [
        ("observed", f"{show_bytes(document.observed)} over {document.tokens:,} tokens from {document.start:,}"),
        ("expected", show_bytes(document.expected)),
        ("ratio", f"{document.ratio:.4g}"),
    ]
    if document.reason:
        facts.append(("likely", document.reason))
    verdict = "as expected" if document.within else "NOT as expected"
    headline = f"{document.ratio:.4g} x {verdict}: {clean(document.model.id)} on {document.engine.name}, {document.kv_dtype}"
    return View(headline, (Facts(tuple(facts)),), document.notes, document.warnings)
