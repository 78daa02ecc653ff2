"""The chart as SVG: one element a shape, no script, no style sheet, nothing fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from kvcalc.render.plot_scene import PAPER, Dot, Label, Stroke, scene
from kvcalc.render.plot_words import headline, title

if TYPE_CHECKING:
    from kvcalc.questions.documents.plot import PlotDocument

_ROLE = 'role="img" aria-labelledby="title description"'
_FONTS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


def render(document: PlotDocument) -> str:
    """The whole file. Readers who do not see the chart are given its title and its first line."""
    drawn = scene(document)
    size = f'width="{drawn.width}" height="{drawn.height}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawn.width} {drawn.height}" {size} {_ROLE} font-family="{_FONTS}">',
        f'<title id="title">{escape(title(document))}</title>',
        f'<desc id="description">{escape(headline(document))}</desc>',
        f'<rect {size} fill="{PAPER}"/>',
        *map(_element, drawn.shapes),
        "</svg>",
    )
    return "\n".join(lines) + "\n"


def _element(shape: Stroke | Dot | Label) -> str:
    if isinstance(shape, Label):
        return (
            f'<text x="{_short(shape.x)}" y="{_short(shape.y)}" font-size="{shape.size}" text-anchor="{shape.anchor}" '
            f'fill="{shape.colour}">{escape(shape.text)}</text>'
        )
    if isinstance(shape, Dot):
        return f'<circle cx="{_short(shape.x)}" cy="{_short(shape.y)}" r="{_short(shape.radius)}" fill="{shape.colour}"/>'
    points = " ".join(f"{_short(x)},{_short(y)}" for x, y in shape.points)
    dash = f' stroke-dasharray="{" ".join(map(str, shape.dash))}"' if shape.dash else ""
    return f'<polyline points="{points}" fill="none" stroke="{shape.colour}" stroke-width="{_short(shape.width)}" stroke-linejoin="round"{dash}/>'


def _short(value: float) -> str:
    """At most two decimals: a hundredth of a pixel is nothing."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
