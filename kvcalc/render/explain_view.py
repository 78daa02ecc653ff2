"""The view of `kvcalc.explain/1`, and of the derivation that `--explain` adds to other documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.core.units import show_bytes, show_tokens
from kvcalc.render.view import Text, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def view(document: Mapping[str, Any]) -> View:
    """What `kvcalc explain` shows."""
    return View(
        headline=_headline(document),
        blocks=tuple(sections(document["sections"])),
        notes=tuple(document["notes"]),
        warnings=tuple(document["warnings"]),
    )


def _headline(document: Mapping[str, Any]) -> str:
    if document["bytes"] is None:
        return f"{document['subject']} ({document['kind']})"
    workload = document["workload"]
    count = workload["sequences"]
    return (
        f"{show_bytes(document['bytes']['total'])} for {count:,} sequence{'s' if count != 1 else ''} of"
        f" {show_tokens(workload['context'])} tokens: {document['subject']} ({document['kind']})"
    )


def sections(found: Iterable[Mapping[str, Any]]) -> Iterable[Text]:
    """Each section as text: formula, numbers, prose."""
    for section in found:
        lines = [f"    {line}".rstrip() for line in section["formula"]]
        lines.extend(f"  = {line}" if section["formula"] else f"    {line}" for line in section["numbers"])
        lines.extend(f"  {line}".rstrip() for line in section["text"])
        yield Text(tuple(lines), section["title"])
