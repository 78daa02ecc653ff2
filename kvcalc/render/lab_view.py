"""The view of `kvcalc.lab/1`: measured against expected bytes, cached against recomputed output, time both ways."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvcalc.render.view import Column, Facts, Table, Text, View

if TYPE_CHECKING:
    from kvcalc.questions.documents.lab import LabDocument, MeasuredOutput, Trial

_COLUMNS = (
    Column("name", "technique"),
    Column("measured", "tensors, B", "bytes"),
    Column("expected", "kvcalc, B", "bytes"),
    Column("bytes", "bytes"),
    Column("output", "output"),
    Column("error", "error", "text", 3),
    Column("same_next_token", "same next token", "text", 4),
    Column("uncached", "a token without", "time", 2),
    Column("cached", "with the cache", "time", 2),
    Column("speedup", "as fast", "ratio"),
    Column("about", "what is kept", "prose", 5),
)


def view(document: LabDocument) -> View:
    """What `kvcalc lab` shows."""
    rows = document.rows
    formulas = tuple(f"  {row.name}: {row.bytes.formula} = {row.bytes.expected:,} B" for row in rows)
    remarks = tuple(f"  {row.name}: {note}" for row in rows for note in row.notes)
    texts = [Text(formulas, "The bytes that kvcalc expects"), *([Text(remarks, "What they show")] if remarks else [])]
    return View(
        headline=_headline(rows),
        blocks=(Facts(tuple(_facts(document))), Table(_COLUMNS, tuple(_cells(row) for row in rows)), *texts),
        notes=document.notes,
        warnings=document.warnings,
    )


def _headline(rows: tuple[Trial, ...]) -> str:
    equal = sum(row.bytes.equal for row in rows)
    compared = [row.output.equal for row in rows if row.output.equal is not None]
    parts = [f"bytes equal in {equal} of {len(rows)}"]
    if compared:
        parts.append(f"output equal in {sum(compared)} of {len(compared)}")
    faster = sorted(_ratio(row.speedup) for row in rows if row.speedup)
    if faster:
        least, most = (f"{float(value):.1f}" for value in (faster[0], faster[-1]))
        parts.append(f"a token {least if least == most else f'{least} to {most}'} times as fast with the cache")
    return f"{len(rows)} technique{'s' if len(rows) != 1 else ''}: " + ", ".join(parts)


def _facts(document: LabDocument) -> list[tuple[str, str]]:
    model, work, machine = document.model, document.workload, document.machine
    tolerances = sorted({row.output.tolerance for row in document.rows if row.output.tolerance is not None})
    facts = [
        (
            "decoder",
            f"{model.layers} layers, {model.heads} heads, dim {model.dim}, {model.parameters:,} random weights in fp32",
        ),
        ("work", f"a prompt of {work.prompt:,} tokens, then {work.tokens:,} one by one"),
        ("machine", f"{machine.device} ({machine.name}), PyTorch {machine.torch}, threads: {machine.threads}"),
    ]
    if tolerances:
        facts.append(("equal output", f"no logit differs by more than {tolerances[-1]:g} of the largest"))
    return facts


def _cells(row: Trial) -> tuple[Any, ...]:
    output, seconds = row.output, row.seconds_per_token
    return (
        row.name,
        row.bytes.measured,
        row.bytes.expected,
        "equal" if row.bytes.equal else "DIFFERENT",
        _output(output),
        None if output.error is None else f"{output.error:.1e}",
        None if output.steps is None else f"{output.same_next_token:,} of {output.steps:,}",
        seconds.uncached,
        seconds.cached,
        _ratio(row.speedup) if row.speedup else None,
        row.about,
    )


def _output(output: MeasuredOutput) -> str | None:
    if output.equal is not None:
        return "equal" if output.equal else "DIFFERENT"
    return None if output.error is None else f"off by {output.error * 100:.2g} %"


def _ratio(value: float) -> Fraction:
    """One decimal: a measured time carries no more."""
    return Fraction(round(value * 10), 10)
