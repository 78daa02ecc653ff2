"""`html`: one page without scripts or anything fetched."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from kvcalc.render.layout import cells
from kvcalc.render.view import NUMBERS, Facts, Table, Text

if TYPE_CHECKING:
    from kvcalc.render.view import View

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color-scheme: light dark }
h1 { font-size: 1.3rem }
table { border-collapse: collapse; margin: 1rem 0 }
caption { text-align: left; font-weight: bold }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #8886; text-align: left; vertical-align: top }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.w { font-weight: bold }
""".strip()


def render(view: View) -> str:
    """The view as a page of its own."""
    said = [f'<li class="w">warning: {escape(text)}</li>' for text in view.warnings] + [f"<li>{escape(text)}</li>" for text in view.notes]
    body = [
        f"<h1>{escape(view.headline)}</h1>",
        *(f"<ul>{''.join(said)}</ul>" for _ in said[:1]),
        *(_block(block) for block in view.blocks),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(view.headline)}</title><style>{_STYLE}</style>'
    return "\n".join(["<!doctype html>", f'<html lang="en"><head>{head}</head><body>', *body, "</body></html>", ""])


def _block(block: Table | Facts | Text) -> str:
    caption = f"<caption>{escape(block.title)}</caption>" if block.title else ""
    if isinstance(block, Text):
        title = f"<h2>{escape(block.title)}</h2>" if block.title else ""
        return title + "<pre>" + escape("\n".join(block.lines)) + "</pre>"
    if isinstance(block, Facts):
        rows = "".join(f"<tr><th>{escape(label)}</th><td>{escape(value)}</td></tr>" for label, value in block.rows)
        return f"<table>{caption}{rows}</table>"
    marks = [' class="n"' if column.kind in NUMBERS else "" for column in block.columns]
    head = "".join(f"<th{mark}>{escape(column.title)}</th>" for column, mark in zip(block.columns, marks, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{mark}>{escape(text)}</td>" for text, mark in zip(row, marks, strict=True)) + "</tr>" for row in cells(block)
    )
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
