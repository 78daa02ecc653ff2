"""`kvcalc lab [TECHNIQUE…]`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc lab
  kvcalc lab gqa mla int4
  kvcalc lab --all
  kvcalc lab --preset gpt2-124m
  kvcalc lab paged prefix --layers 4 --heads 8 --dim 256 --tokens 500
"""


@app.command(epilog=_EXAMPLES)
def lab(
    techniques: Annotated[list[str] | None, typer.Argument(metavar="TECHNIQUE", help="None: kv, the cache itself.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Every technique.")] = False,
    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or mps.")] = "cpu",
    layers: Annotated[str | None, typer.Option("--layers", metavar="COUNT", help="Layers of the decoder. [4]")] = None,
    heads: Annotated[str | None, typer.Option("--heads", metavar="COUNT", help="Attention heads. [4]")] = None,
    dim: Annotated[str | None, typer.Option("--dim", metavar="WIDTH", help="Width of the decoder. [64]")] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", metavar="TOKENS", help="Tokens decoded after the prompt. [200]")] = None,
    threads: Annotated[str | None, typer.Option("--threads", metavar="COUNT", help="CPU threads. [1; the presets: all]")] = None,
    preset: Annotated[str | None, typer.Option("--preset", metavar="NAME", help="gpt2-124m: the size of the smallest GPT-2.")] = None,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """Run a small decoder of each technique here: real bytes against kvcalc's, cached against recomputed output, time both ways.

    Needs PyTorch: pip install 'kvcalc[lab]'. The exit code is 1 if a row that must be equal is not.
    """
    from kvcalc.core.units import parse_tokens
    from kvcalc.lab import ENTRIES, choose
    from kvcalc.lab.report import run
    from kvcalc.lab.sizes import make_sizes
    from kvcalc.render import chosen_format, emit
    from kvcalc.render.lab_view import view

    chosen_format(format_, output)  # refused before the work, not after it
    given = {"layers": layers, "heads": heads, "dim": dim, "threads": threads}
    numbers = {name: options.count(text, f"--{name}") for name, text in given.items() if text is not None}
    if tokens is not None:
        numbers["tokens"] = parse_tokens(tokens, "--tokens")
    names = choose(techniques or [], everything=everything)
    report = run(names, make_sizes(preset, device=device, **numbers), _progress)
    document = report.document()
    if not techniques and not everything:
        document = replace(document, notes=(*document.notes, "--all runs every technique: " + ", ".join(ENTRIES)))
    emit(document, view, format_, output)
    return EXIT_OK if report.passed else EXIT_OVER_BUDGET


def _progress(name: str) -> None:
    """A sign of life for people; nothing in a pipe."""
    from kvcalc.render.output import say

    if sys.stderr.isatty():
        say([f"measuring {name} …"])
