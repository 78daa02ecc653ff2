"""The view of `kvcalc.estimate/1`: total first, the figures behind it, then every line of the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import clean, show_bytes, show_tokens
from kvcalc.render.memory_view import devices_table, is_worth_a_table
from kvcalc.render.view import Column, Facts, Table, Text, View, cells_of

if TYPE_CHECKING:
    from kvcalc.questions.documents.common import Engine
    from kvcalc.questions.documents.estimate import EstimateDocument

_LINES = (
    Column("state", "state"),
    Column("layers", "layers", "count"),
    Column("buffer", "buffer"),
    Column("width", "width", "count", 3),
    Column("format", "format", "text", 2),
    Column("slots", "slots", "count", 1),
    Column("bytes", "bytes", "bytes"),
    Column("size", "size", "size", 4),
)


def view(document: EstimateDocument) -> View:
    """What `kvcalc estimate` shows."""
    blocks: list[Table | Facts | Text] = [Facts(tuple(_facts(document))), lines_table(document)]
    if is_worth_a_table(document.memory):
        blocks.append(devices_table(document.memory))
    if document.derivation:
        from kvcalc.render.explain_view import sections

        blocks.extend(sections(document.derivation))
    return View(
        headline=headline(document),
        blocks=tuple(blocks),
        notes=document.notes,
        warnings=document.warnings,
        data=_data(document),
    )


def headline(document: EstimateDocument) -> str:
    """`68,719,476,736 B (64 GiB) for 1 sequence of 131,072 (128k) tokens: llama-2-7b, fp16, ideal`."""
    workload, engine = document.workload, document.engine
    count = workload.sequences
    return (
        f"{show_bytes(document.bytes.total)} for {count:,} sequence{'s' if count != 1 else ''}"
        f" of {show_tokens(workload.context)} tokens: {clean(document.model.id)}, {document.kv_dtype}, {engine_name(engine)}"
    )


def engine_name(engine: Engine) -> str:
    """`vllm 0.33.0`; `ideal` has no version worth showing."""
    return str(engine.name) if engine.name == "ideal" else f"{engine.name} {engine.version}"


def _facts(document: EstimateDocument) -> list[tuple[str, str]]:
    figures, workload = document.bytes, document.workload
    rows = [("per token", show_bytes(figures.per_token))]
    if figures.growth_per_token != figures.per_token:
        rows[0] = ("per token", f"{show_bytes(figures.per_token)} in every layer that still holds it")
        rows.append(("next token", f"{show_bytes(figures.growth_per_token)}: what one token more adds to a sequence of this length"))
    if figures.fixed:
        rows.append(("fixed", f"{show_bytes(figures.fixed)} per sequence, whatever its length"))
    if workload.sequences > 1:
        rows.append(("per sequence", show_bytes(figures.per_sequence)))
    split = [
        f"{name} {ranks}"
        for name, ranks in (
            ("tp", workload.tensor_parallel),
            ("pp", workload.pipeline_parallel),
            ("dcp", workload.decode_context_parallel),
        )
        if ranks > 1
    ]
    if split:
        rows.append(("per device", f"{show_bytes(figures.per_device)} on the fullest ({', '.join(split)})"))
    if workload.shared_prefix:
        rows.append(("shared prefix", f"{show_tokens(workload.shared_prefix)} tokens, once for all sequences"))
    context = workload.context
    for hidden in document.out_of_sight:
        layers = f"{hidden.layers:,} layer{'s' if hidden.layers != 1 else ''}"
        rows.append(("out of sight", f"tokens 1 to {hidden.tokens:,} of {context:,}, for {layers}"))
    return rows


def lines_table(document: EstimateDocument) -> Table:
    """The lines of the plan; their bytes add up to the total."""
    rows = tuple(
        (
            line.state,
            line.layers or None,
            line.buffer,
            line.width or None,
            line.format,
            line.slots,
            line.bytes,
            line.bytes,
        )
        for line in document.lines
    )
    return Table(_LINES, rows)


def _data(document: EstimateDocument) -> Table:
    """For CSV: the lines with the formula."""
    columns = (*(column for column in _LINES if column.key != "size"), Column("formula", "formula", "prose"))
    return Table(columns, tuple(cells_of(line, columns) for line in document.lines))
