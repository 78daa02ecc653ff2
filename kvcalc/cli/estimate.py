"""`kvcalc estimate MODEL`."""

from __future__ import annotations

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app

app = make_app()


_EXAMPLES = """\b
Examples:
  kvcalc estimate llama-2-7b --ctx 128k
  kvcalc estimate gemma-3-27b --ctx 32k -n 16 -e vllm --tp 2
  kvcalc estimate ./config.json --set kv_heads=8 --explain
"""


@app.command(epilog=_EXAMPLES)
def estimate(
    model: options.Model,
    *,
    ctx: options.Context = None,
    sequences: options.Sequences = "1",
    kv_dtype: options.KvDtype = "auto",
    engine: options.Engines = None,
    engine_arg: options.EngineArgs = None,
    tp: options.TensorParallel = None,
    pp: options.PipelineParallel = "1",
    dcp: options.DecodeContextParallel = "1",
    gpu: options.Gpu = None,
    shared_prefix: options.SharedPrefix = "0",
    set_: options.Set = None,
    explain: options.Explain = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """What one model's cache takes, line by line."""
    from kvcalc.estimate import estimate as ask
    from kvcalc.render import emit
    from kvcalc.render.estimate_view import view

    engines = engine or ["ideal"]
    request = options.make_request(
        model,
        ctx=ctx,
        sequences=sequences,
        kv_dtype=kv_dtype,
        engine=engines[0],
        engine_arg=engine_arg,
        tp=tp,
        pp=pp,
        dcp=dcp,
        gpu=gpu,
        shared_prefix=shared_prefix,
        sets=set_,
    )
    document = ask(request).to_dict()
    emit(document, view, format_, output)
    return 0
