"""`kvcalc plot [MODEL…]`: memory against context."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, UsageError, nearest
from kvcalc.core.units import clean, parse_tokens

if TYPE_CHECKING:
    from kvcalc.questions.documents.plot import PlotDocument

app = make_app()

#: Pictures, by the ending of the file that they are written to.
_PICTURES = ("svg", "png")
#: Pictures of other kinds, into which no table is written by mistake.
_NO_PICTURES = ("pdf", "jpg", "jpeg", "gif", "webp", "eps", "ps", "bmp", "tif", "tiff")
_EXAMPLES = """\b
Examples:
  kvcalc plot
  kvcalc plot llama-3.1-8b gemma-3-27b deepseek-v3 --ctx 128k
  kvcalc plot gpt-oss-20b -e ideal -e vllm --kv-memory 40GiB -n 16
  kvcalc plot llama-3.1-8b --kv-dtype auto,fp8,q4_0 --output cache.svg
"""


@app.command(epilog=_EXAMPLES)
def plot(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="The models. [32 layers of 32 heads x 128, as Llama-2-7B has]")
    ] = None,
    *,
    ctx: Annotated[str | None, typer.Option("--ctx", "-c", metavar="TOKENS", help="Where the chart ends. [the longest maximum]")] = None,
    from_: Annotated[str | None, typer.Option("--from", metavar="TOKENS", help="Where the chart begins. [1k]")] = None,
    linear: Annotated[bool, typer.Option("--linear", help="Linear axes instead of logarithmic ones.")] = False,
    techniques: Annotated[
        str | None, typer.Option("--techniques", "-t", metavar="LIST", help="A line for each what-if besides, such as gqa,mla,gqa+swa,fp8.")
    ] = None,
    engine: Annotated[
        list[str] | None, typer.Option("--engine", "-e", metavar="ENGINE", help="A line for each engine; repeatable. [ideal]")
    ] = None,
    engine_arg: options.EngineArgs = None,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", metavar="LIST", help="A line for each format: auto,fp8,q8_0/q4_0.")] = "auto",
    kv_memory: Annotated[
        str | None, typer.Option("--kv-memory", metavar="SIZE", help="Memory per device to draw beside the lines, such as 60GiB.")
    ] = None,
    sequences: options.Sequences = "1",
    tp: options.TensorParallel = None,
    pp: options.PipelineParallel = "1",
    dcp: options.DecodeContextParallel = "1",
    gpu: options.Gpu = None,
    shared_prefix: options.SharedPrefix = "0",
    set_: options.Set = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: Annotated[
        str | None,
        typer.Option("--format", "-f", metavar="FORMAT", help="table, plain, json, yaml, csv, markdown, html, svg, png. [by --output]"),
    ] = None,
    output: options.OutputFile = None,
) -> int:
    """Memory against context: models, what-ifs, engines and formats as lines of one chart."""
    from kvcalc.questions.plot import Plotting
    from kvcalc.questions.plot import plot as ask

    format_ = _known_format(format_, output)
    engines = list(dict.fromkeys(engine or ["ideal"]))
    formats = list(dict.fromkeys(options.words(kv_dtype, "--kv-dtype")))
    request = options.make_request(
        "-",
        ctx=ctx,
        sequences=sequences,
        kv_dtype=formats[0],
        engine=engines[0],
        engine_arg=engine_arg,
        tp=tp,
        pp=pp,
        dcp=dcp,
        gpu=gpu,
        shared_prefix=shared_prefix,
        kv_memory=kv_memory,
    )
    chart = ask(
        Plotting(
            workload=request.workload,
            models=list(dict.fromkeys(options.hub_models(models or (), revision, offline=offline))),
            techniques=options.words(techniques, "--techniques"),
            engines=engines,
            formats=formats,
            settings=options.key_values(set_ or (), "--set"),
            start=None if from_ is None else parse_tokens(from_, "--from"),
            linear=linear,
        )
    )
    _emit(chart.document(), format_, output)
    return EXIT_OK


def _known_format(name: str | None, output: str | None) -> str | None:
    """The format asked for, else the picture that the file's ending means. Raises UsageError before anything is computed."""
    from kvcalc.render import FORMATS, ending

    if name is None and output is not None:
        found = ending(output)
        if found in _NO_PICTURES:
            raise UsageError(f"--output: a chart is not written as {found}", "name a .svg or a .png")
        return found if found in _PICTURES else None
    known = (*FORMATS, *_PICTURES)
    if name is not None and name not in known:
        raise UsageError(f"--format: unknown format '{clean(name, 40)}'", nearest(name, known) or "one of " + ", ".join(known))
    if name == "png" and output in (None, "-") and sys.stdout.isatty():
        raise UsageError("--format png: a picture is no text for a terminal", "give --output FILE, or --format svg")
    return name


def _emit(document: PlotDocument, name: str | None, output: str | None) -> None:
    from kvcalc.render import emit
    from kvcalc.render.plot_view import view

    if name not in _PICTURES:
        emit(document, view, name, output)
        return
    from kvcalc.render.output import say, write, write_bytes

    if name == "svg":
        from kvcalc.render.plot_svg import render as as_svg

        write(as_svg(document), output)
    else:
        from kvcalc.render.plot_png import render as as_png

        write_bytes(as_png(document), output)
    said = (("warning", document.warnings), ("note", document.notes))
    say(f"{kind}: {clean(text, 1000)}" for kind, texts in said for text in texts)
