"""The views of `kvcalc.models/1`: the catalogue, one model, the problems of files."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from kvcalc.core.units import clean, show_bytes, show_tokens
from kvcalc.render.view import Column, Facts, Table, Text, View, cells_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.models import ListedModel, ModelDocument, ModelListDocument, ValidationDocument

_MODELS = (
    Column("id", "model"),
    Column("layers", "layers", "count", 2),
    Column("techniques", "techniques"),
    Column("bytes_per_token", "bytes per token", "bytes"),
    Column("fixed_bytes", "fixed bytes", "bytes", 1),
    Column("max_context", "max context", "count", 3),
    Column("dtype", "dtype", "text", 5),
    Column("family", "family", "text", 4),
    Column("hub", "hub", "text", 6),
)
_STATES = (
    Column("kind", "state"),
    Column("layers", "layers", "count"),
    Column("fields", "fields", "prose"),
)
_PROBLEMS = (
    Column("file", "file"),
    Column("line", "line", "count"),
    Column("path", "path"),
    Column("message", "message", "prose"),
)


def list_view(document: ModelListDocument) -> View:
    """What `kvcalc models list` shows."""
    models = document.models
    rows = tuple(tuple(_cell(row, column.key) for column in _MODELS) for row in models)
    return View(
        headline=f"{len(models):,} model{'s' if len(models) != 1 else ''}",
        blocks=(Table(_MODELS, rows),),
        notes=document.notes,
    )


def _cell(row: ListedModel, key: str) -> Any:
    value = getattr(row, key)
    if key == "techniques":
        return ", ".join(value) or None
    return value if key == "bytes_per_token" else value or None


def show_view(document: ModelDocument) -> View:
    """What `kvcalc models show` shows."""
    about, model = document.architecture, document.model
    rows = tuple(
        (state.kind, state.layers, ", ".join(f"{key}={value}" for key, value in state.fields.items()) or None) for state in document.states
    )
    order = about["layers"]["pattern"]
    pattern = Text((f"  {_runs(order)}",), f"Pattern of the {about['layers']['count']} layers, repeated") if len(set(order)) > 1 else None
    table = Table(_STATES, rows)
    return View(
        headline=f"{clean(model.id)}: {about.get('name') or model.model_type}, {about['layers']['count']} layers, "
        + (", ".join(document.techniques) or "no cache"),
        blocks=(Facts(tuple(_facts(document))), table, *([pattern] if pattern else [])),
        notes=document.notes,
        data=table,
    )


def _runs(order: list[str]) -> str:
    """`sliding*5, full`, as a YAML's pattern."""
    runs = [(name, len(list(group))) for name, group in groupby(order)]
    return ", ".join(name if count == 1 else f"{name}*{count}" for name, count in runs)


def _facts(document: ModelDocument) -> list[tuple[str, str]]:
    about, model = document.architecture, document.model
    source: dict[str, Any] = dict(about.get("source") or {})
    found = [
        ("family", model.model_type),
        ("dtype", model.dtype or "not said: bf16 is assumed"),
        ("max context", "not said" if model.max_context is None else f"{show_tokens(model.max_context)} tokens"),
        ("parameters", f"{about['parameters']:,}" if about.get("parameters") else ""),
        ("hub", about.get("hub", "")),
        ("license", about.get("license", "")),
        ("source", ", ".join(str(source[key]) for key in ("file", "where", "revision", "read") if source.get(key))),
        ("assumed", ", ".join(f"{field} ({how})" for field, how in source.get("assumed", {}).items())),
        *(
            (
                "expected",
                f"{show_bytes(item['bytes'])} at {show_tokens(item['context'])} tokens"
                + (f" ({item['note']})" if item.get("note") else ""),
            )
            for item in about.get("expect", ())
        ),
    ]
    return [(label, clean(value, 200)) for label, value in found if value]


def validate_view(document: ValidationDocument) -> View:
    """What `kvcalc models validate` shows: a problem a line, as compilers write them."""
    problems = document.problems
    table = Table(_PROBLEMS, tuple(cells_of(problem, _PROBLEMS) for problem in problems))
    if not problems:
        return View(headline="every file is valid", data=table)
    lines = tuple(
        ": ".join(part for part in (f"{item.file}:{item.line}" if item.line else item.file, item.path, item.message) if part)
        for item in problems
    )
    return View(headline=f"{len(problems):,} problem{'s' if len(problems) != 1 else ''}", blocks=(Text(lines),), data=table)
