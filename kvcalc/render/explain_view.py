"""The view of `kvcalc.explain/1`, and of the derivation that `--explain` adds to other documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import show_bytes, show_tokens
from kvcalc.render.view import Text, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcalc.questions.documents.common import Section
    from kvcalc.questions.documents.explain import ExplainDocument


def view(document: ExplainDocument) -> View:
    """What `kvcalc explain` shows."""
    return View(
        headline=_headline(document),
        blocks=tuple(sections(document.sections)),
        notes=document.notes,
        warnings=document.warnings,
    )


def _headline(document: ExplainDocument) -> str:
    workload = document.workload
    if document.bytes is None or workload is None:
        return f"{document.subject} ({document.kind})"
    count = workload.sequences
    return (
        f"{show_bytes(document.bytes.total)} for {count:,} sequence{'s' if count != 1 else ''} of"
        f" {show_tokens(workload.context)} tokens: {document.subject} ({document.kind})"
    )


def sections(found: Iterable[Section]) -> Iterable[Text]:
    """Each section as text: formula, numbers, prose."""
    for section in found:
        lines = [f"    {line}".rstrip() for line in section.formula]
        lines.extend(f"  = {line}" if section.formula else f"    {line}" for line in section.numbers)
        lines.extend(f"  {line}".rstrip() for line in section.text)
        yield Text(tuple(lines), section.title)
