"""`kvcalc gpus list`: the accelerators that `--gpu` knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from kvcalc.cli import options
from kvcalc.cli.root import group
from kvcalc.core.errors import EXIT_OK

if TYPE_CHECKING:
    from kvcalc.hardware import Gpu
    from kvcalc.questions.documents.models import Card

app = group("Accelerators: list.")

_EXAMPLES = """\b
Examples:
  kvcalc gpus list
  kvcalc gpus list h100
"""


@app.command("list", epilog=_EXAMPLES)
def list_(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="In the id, the name or the vendor.")] = None,
    *,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """Every accelerator: memory, bandwidth, how the memory is known, source."""
    from kvcalc.hardware import gpus
    from kvcalc.questions.documents.models import GpusDocument
    from kvcalc.render import emit
    from kvcalc.render.gpus_view import view

    wanted = (text or "").strip().lower()
    cards = tuple(_card(gpu) for gpu in gpus().values() if wanted in f"{gpu.id} {gpu.name} {gpu.vendor}".lower())
    note = "measured: the median of public prints of engines; nominal: the capacity as sold, of which the driver keeps a part"
    if not cards:
        note = options.no_match(wanted, gpus())
    document = GpusDocument(None, None, None, None, cards, (note,), ())
    emit(document, view, format_, output)
    return EXIT_OK


def _card(gpu: Gpu) -> Card:
    from kvcalc.questions.documents.models import Card

    return Card(
        id=gpu.id,
        name=gpu.name,
        vendor=gpu.vendor,
        memory=gpu.memory,
        known=cast("Any", gpu.known),
        bandwidth=gpu.bandwidth,
        capability=gpu.capability,
        source=gpu.source,
        read=gpu.read,
        prints=gpu.prints,
        low=gpu.low,
        high=gpu.high,
        windows=gpu.windows,
    )
