"""`kvcalc explain MODEL|TECHNIQUE|FORMAT|ENGINE`."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc explain mla
  kvcalc explain gqa+swa:window=512 --model llama-3.1-8b
  kvcalc explain q8_0
  kvcalc explain vllm
  kvcalc explain gemma-3-27b --ctx 32k
"""


@app.command(epilog=_EXAMPLES)
def explain(
    subject: Annotated[str, typer.Argument(metavar="MODEL|TECHNIQUE|FORMAT|ENGINE", help="What to explain.")],
    *,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Work a technique on this model's geometry.")] = None,
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
    set_: options.Set = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """The formula, with the numbers put in, and its source."""
    from kvcalc.questions.explain import explain as ask
    from kvcalc.render import emit
    from kvcalc.render.explain_view import view

    if revision is not None and model is None:
        subject = options.hub_model(subject, revision, offline=offline)
    elif model is not None:
        model = options.hub_model(model, revision, offline=offline)
    request = options.make_request(
        subject,
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
        offline=offline,
    )
    found = ask(subject, request.workload, engine=engine, model=model, settings=options.key_values(set_ or (), "--set"))
    emit(found.document(), view, format_, output)
    return 0
