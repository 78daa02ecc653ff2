"""`kvcalc estimate MODEL`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import UsageError

if TYPE_CHECKING:
    from kvcalc.questions.estimate import Estimate
    from kvcalc.questions.request import Request
    from kvcalc.render import ViewOf

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
    document, view = _side_by_side(request, engines, explain=explain) if len(engines) > 1 else answer_of(request, explain=explain)
    emit(document, view, format_, output)
    return 0


def answer_of(request: Request, *, explain: bool) -> tuple[dict[str, Any], ViewOf]:
    """`kvcalc.estimate/1`, with `--explain` the derivation besides."""
    from kvcalc.questions.estimate import estimate as ask
    from kvcalc.render.estimate_view import view

    found = ask(request)
    document = found.to_dict()
    document["out_of_sight"] = _out_of_sight(found)
    if explain:
        from kvcalc.questions.explain import derivation

        document["derivation"] = [section.to_dict() for section in derivation(found.plan)]
    return document, view


def _out_of_sight(found: Estimate) -> list[dict[str, int]]:
    extents = {buffer.extent.kind for state in found.architecture.states for buffer in state.buffers()}
    if extents.isdisjoint(("window", "chunk")):
        return []
    from kvcalc.questions.work import out_of_sight

    hidden = out_of_sight(found.architecture, found.plan.context)
    return [{"layers": layers, "tokens": tokens} for tokens, layers in hidden.items()]


def _side_by_side(request: Request, engines: list[str], *, explain: bool) -> tuple[dict[str, Any], ViewOf]:
    """`kvcalc.compare/1`: the same question to several engines, in one table."""
    from kvcalc.questions.compare import Comparing, compare
    from kvcalc.render.compare_view import view

    if explain:
        raise UsageError("--explain derives one engine's figures at a time", "give one --engine")
    return compare(Comparing(request.workload, models=(request.model,), engines=engines)).to_dict(), view
