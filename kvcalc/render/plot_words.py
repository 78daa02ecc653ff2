"""What a chart says in words: its first line, its title, and what stands beside each line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import clean, human, show_bytes, show_tokens

if TYPE_CHECKING:
    from kvcalc.questions.documents.plot import PlotDocument, Series

_LONGEST_NAME = 100


def headline(document: PlotDocument) -> str:
    """The largest figure at the end of a line, and the smallest; with a memory, what fits into it."""
    series = sorted(document.series, key=lambda entry: -_last(document, entry))
    text = _end(document, series[0]) + (f"; smallest: {_end(document, series[-1])}" if len(series) > 1 else "")
    if document.kv_memory is None:
        return text
    fitting = [f"{fits(entry)} ({name(entry)})" if len(series) > 1 else fits(entry) for entry in document.series]
    return f"{text}; {show_bytes(document.kv_memory)} hold {', '.join(fitting)}"


def title(document: PlotDocument) -> str:
    """What all lines have in common: `KV cache of gpt-oss-20b under vllm, 16 sequences`; a geometry that is no model has no name."""
    model, workload = document.model, document.workload
    engines = {entry.engine.name for entry in document.series}
    text = "KV cache" + (f" of {clean(model.id, _LONGEST_NAME)}" if model and model.source else "")
    text += f" under {engines.pop()}" if len(engines) == 1 and engines != {"ideal"} else ""
    parts = [text, document.kv_dtype or ""]
    for count, unit in (
        (workload.sequences, "sequences"),
        (workload.tensor_parallel, "x tensor parallel"),
        (workload.pipeline_parallel, "x pipeline parallel"),
    ):
        parts.append(f"{count:,} {unit}" if count > 1 else "")
    return ", ".join(filter(None, parts))


def legend(document: PlotDocument) -> list[str]:
    """Each line's name with its last figure, and what fits into the memory; the memory itself at the end."""
    found = []
    for entry in document.series:
        text = f"{name(entry)}: {human(_last(document, entry))} at {entry.points[-1].context:,}"
        found.append(text if document.kv_memory is None else f"{text}, {fits(entry)} fit")
    return found if document.kv_memory is None else [*found, f"memory for the cache: {human(document.kv_memory)}"]


def fits(entry: Series) -> str:
    """`40,960 tokens`, `no tokens`."""
    return "no tokens" if entry.max_context is None else f"{entry.max_context:,} tokens"


def name(entry: Series) -> str:
    """A line's name, fit for a terminal."""
    return clean(entry.name, _LONGEST_NAME)


def _last(document: PlotDocument, entry: Series) -> int:
    return entry.points[-1].bytes_of(document.figure)


def _end(document: PlotDocument, entry: Series) -> str:
    return f"{show_bytes(_last(document, entry))} for {show_tokens(entry.points[-1].context)} tokens: {name(entry)}"
