"""`kvcalc compare [MODEL…]`."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc compare --techniques gqa,mla,swa
  kvcalc compare --techniques gqa+swa:window=1024:ratio=5-1,mla+fp8
  kvcalc compare llama-3.1-8b --techniques mqa,mla,q8_0
  kvcalc compare llama-3.1-8b qwen3-8b gemma-3-12b --ctx 32k
  kvcalc compare gemma-3-27b --engines all --kv-memory 40GiB
"""


@app.command(epilog=_EXAMPLES)
def compare(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL", help="The models. [32 layers of 32 heads x 128, as Llama-2-7B has]")
    ] = None,
    *,
    techniques: Annotated[
        str | None,
        typer.Option("--techniques", "-t", metavar="LIST", help="Such as gqa,mla,gqa+swa:window=1024:ratio=5-1,fp8. [the usual ones]"),
    ] = None,
    engines: Annotated[
        str | None, typer.Option("--engines", metavar="LIST", help="One MODEL on these engines: all, or names with commas.")
    ] = None,
    ctx: options.Context = None,
    sequences: options.Sequences = "1",
    kv_dtype: options.KvDtype = "auto",
    engine: options.Engine = "ideal",
    engine_arg: options.EngineArgs = None,
    tp: options.TensorParallel = None,
    pp: options.PipelineParallel = "1",
    dcp: options.DecodeContextParallel = "1",
    gpu: options.Gpu = None,
    shared_prefix: options.SharedPrefix = "0",
    kv_memory: options.KvMemory = None,
    set_: options.Set = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """Techniques, models or engines side by side."""
    from kvcalc.questions.compare import Comparing
    from kvcalc.questions.compare import compare as ask
    from kvcalc.render import emit
    from kvcalc.render.compare_view import view

    request = options.make_request(
        "-",
        ctx=ctx,
        sequences=sequences,
        kv_dtype=kv_dtype,
        engine=engine,
        engine_arg=engine_arg,
        tp=tp,
        pp=pp,
        dcp=dcp,
        gpu=gpu,
        shared_prefix=shared_prefix,
        kv_memory=kv_memory,
    )
    found = ask(
        Comparing(
            workload=request.workload,
            models=options.hub_models(models or (), revision, offline=offline),
            techniques=options.words(techniques, "--techniques"),
            engines=options.words(engines, "--engines"),
            engine=engine,
            settings=options.key_values(set_ or (), "--set"),
        )
    )
    emit(found.document(), view, format_, output)
    return 0
