"""`kvcalc gpus list`: the accelerators that `--gpu` knows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kvcalc.cli import options
from kvcalc.cli.root import group
from kvcalc.core.errors import EXIT_OK

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
    from dataclasses import asdict

    from kvcalc.hardware import gpus
    from kvcalc.render import emit
    from kvcalc.render.gpus_view import view

    wanted = (text or "").strip().lower()
    rows = [asdict(gpu) for gpu in gpus().values() if wanted in f"{gpu.id} {gpu.name} {gpu.vendor}".lower()]
    notes = (
        ["measured: the median of public prints of engines; nominal: the capacity as sold, of which the driver keeps a part"]
        if rows
        else [options.no_match(wanted, gpus())]
    )
    document: dict[str, Any] = {
        "schema": "kvcalc.gpus/1",
        "model": None,
        "workload": None,
        "engine": None,
        "kv_dtype": None,
        "gpus": rows,
        "notes": notes,
        "warnings": [],
    }
    emit(document, view, format_, output)
    return EXIT_OK
