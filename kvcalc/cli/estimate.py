"""`kvcalc estimate MODEL`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import UsageError

if TYPE_CHECKING:
    from kvcalc.questions.documents.estimate import EstimateDocument
    from kvcalc.questions.request import Request

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
    revision: options.Revision = None,
    offline: options.Offline = False,
    explain: options.Explain = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """What one model's cache takes, line by line."""
    from kvcalc.render import emit

    engines = list(dict.fromkeys(engine or ["ideal"]))
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
        revision=revision,
        offline=offline,
    )
    if len(engines) > 1:
        _side_by_side(request, engines, explain, format_, output)
    else:
        from kvcalc.render.estimate_view import view

        emit(answer_of(request, explain=explain), view, format_, output)
    return 0


def answer_of(request: Request, *, explain: bool) -> EstimateDocument:
    """`kvcalc.estimate/1`, with `--explain` the derivation besides."""
    from kvcalc.questions.estimate import estimate as ask

    found = ask(request)
    document = found.document()
    if explain:
        from kvcalc.questions.explain import derivation

        document = replace(document, derivation=tuple(derivation(found.plan)))
    return document


def _side_by_side(request: Request, engines: list[str], explain: bool, format_: str | None, output: str | None) -> None:
    """`kvcalc.compare/1`: the same question to several engines, in one table."""
    from kvcalc.questions.compare import Comparing, compare
    from kvcalc.render import emit
    from kvcalc.render.compare_view import view

    if explain:
        raise UsageError("--explain derives one engine's figures at a time", "give one --engine")
    found = compare(Comparing(request.workload, models=(request.model,), engines=engines))
    emit(found.document(), view, format_, output)
