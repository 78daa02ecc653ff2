"""`reconcile`: an engine's start-up log against what kvcalc computes for the same model and settings.

    log ── lines.py ── one recogniser an engine ── the one that found figures ── rows: log, kvcalc, difference, reason

Nothing of a log is executed or looked up unless MODEL is not given and the log names a catalogue model or prints its own metadata;
of its text only the figures are repeated.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from kvcalc.core.errors import EXIT_NOT_EVALUATED, EXIT_OK, EXIT_OVER_BUDGET, KvcalcError, UsageError
from kvcalc.engines import get_engine
from kvcalc.engines.base.logs import Recogniser, Row
from kvcalc.engines.registry import module, names
from kvcalc.questions.documents.common import Engine
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import model_of
from kvcalc.questions.documents.reconcile import ReconcileDocument, SequencesFigure, Trouble, WholeFigure
from kvcalc.reconcile.lines import log_lines
from kvcalc.reconcile.trouble import trouble_of
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture


def recognisers() -> list[Recogniser]:
    """One of each engine that has one, in the order in which they are preferred."""
    found: list[Recogniser] = []
    for name in names():
        own = module(name, "startlog")
        if own is not None:
            found.append(own.RECOGNISER())
    return sorted(found, key=lambda recogniser: -recogniser.preference)


@dataclass(frozen=True, slots=True)
class Reconciliation(Answer):
    """One log's answer; without an engine nothing was recognised."""

    log: str
    engine: str | None
    version: str
    architecture: Architecture | None
    settings: dict[str, Any]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    trouble: Trouble | None = None

    @property
    def exit_code(self) -> int:
        """0 all within print rounding, 1 a difference, 3 nothing recognised; what a log complains of is no difference."""
        if not self.rows and self.trouble is None:
            return EXIT_NOT_EVALUATED
        return EXIT_OK if all(row.within for row in self.rows) else EXIT_OVER_BUDGET

    def document(self) -> ReconcileDocument:
        """`kvcalc.reconcile/1`."""
        return ReconcileDocument(
            model=model_of(self.architecture) if self.architecture else None,
            workload=None,
            engine=Engine(self.engine, self.version, self.settings) if self.engine else None,
            kv_dtype=None,
            log=self.log,
            rows=tuple(_figure(row) for row in self.rows),
            trouble=self.trouble,
            notes=self.notes,
            warnings=(),
        )


def _figure(row: Row) -> WholeFigure | SequencesFigure:
    """A figure of a document: only sequences come in fractions (26.91 GiB is no whole number of bytes, and the nearest one is printed)."""
    if row.unit == "sequences":
        logged, low, high, difference = (
            round(value) if value.denominator == 1 else round(float(value), 6) for value in (row.logged, row.low, row.high, row.difference)
        )
        return SequencesFigure(row.figure, "sequences", row.line, logged, low, high, difference, row.within, row.reason)
    return WholeFigure(
        row.figure,
        cast("Any", row.unit),
        row.line,
        logged=round(row.logged),
        expected=round(row.low),
        expected_high=round(row.high),
        difference=round(row.difference),
        within=row.within,
        reason=row.reason,
    )


def reconcile(stream: BinaryIO, log: str, model: str | None = None, *, given: Mapping[str, Any] | None = None) -> Reconciliation:
    """Read a log to its end and recompute its figures. Raises what loading and planning raise, UsageError without a model.

    given    settings that the log does not say, or says wrong: those of a Workload, and the engine's own by their names
    """
    readers = recognisers()
    marks = list(dict.fromkeys(mark for reader in readers for mark in reader.marks))
    for number, line in log_lines(stream, marks):
        for reader in readers:
            reader.hear(line, number)
            with suppress(ValueError):  # a damaged number: the line says nothing
                reader.feed(line, number)
    found = next((reader for reader in readers if reader.recognised), None)
    if found is None:
        found = next((reader for reader in readers if reader.complains), None)
    if found is None:
        known = ", ".join(get_engine(reader.engine).title or reader.engine for reader in readers)
        said = f"no memory figure of a known engine was found: give the log from the engine's start on ({known})"
        return Reconciliation(log, None, "", None, {}, (), (said,))
    architecture, note = _model(found, model)
    told = found.give(given or {})
    rows = tuple(found.rows(architecture)) if found.recognised else ()
    notes = [*((note,) if note else ()), *told, *found.notes]
    ours = get_engine(found.engine).version
    if found.seen.version and not all(row.within for row in rows) and not ours.startswith(found.seen.version):
        notes.append(f"the log is of {found.engine} {found.seen.version}, and kvcalc has the rules of {ours}")
    return Reconciliation(
        log,
        found.engine,
        found.seen.version,
        architecture,
        dict(found.seen.settings),
        rows,
        tuple(notes),
        trouble_of(found, architecture),
    )


def _model(found: Recogniser, model: str | None) -> tuple[Architecture, str]:
    """The model given, else the log's own metadata, else the catalogue's model of the name that the log prints."""
    if model is not None:
        return load(model), ""
    if found.metadata:
        return load({"gguf_metadata": found.metadata}), "model read from the metadata that the log prints"
    hint = "give it: kvcalc reconcile LOG --model MODEL"
    if found.seen.model:
        from kvcalc.sources.catalogue import by_hub, suggest

        known = by_hub(found.seen.model)
        if known:
            return load(known), f"model named in the log: {known}"
        hint += f"; {suggest(found.seen.model)}"
    raise UsageError("the log does not name a model that the catalogue has", hint)


__all__ = ["KvcalcError", "Reconciliation", "Row", "recognisers", "reconcile"]
