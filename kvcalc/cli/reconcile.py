"""`kvcalc reconcile LOG…`: logs against kvcalc; `--growth`: two measurements against a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_NOT_EVALUATED, EXIT_OK, EXIT_OVER_BUDGET, UsageError
from kvcalc.core.units import clean, parse_bytes, parse_tokens

if TYPE_CHECKING:
    from kvcalc.reconcile import Reconciliation

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc reconcile server.log --model llama-3.1-8b
  journalctl -u vllm | kvcalc reconcile -
  kvcalc reconcile server.log -m qwen3.6-27b --gpu rtx5090-32gb --tp 2
  kvcalc reconcile --growth 2.5GiB --tokens 4096 llama-3.1-8b
"""


@app.command(epilog=_EXAMPLES)
def reconcile(
    logs: Annotated[list[str], typer.Argument(metavar="LOG", help="Log files, - for standard input; with --growth the MODEL.")],
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="The model that ran, if the log does not say.")
    ] = None,
    growth: Annotated[str | None, typer.Option("--growth", metavar="SIZE", help="Observed growth of the memory.")] = None,
    tokens: Annotated[str | None, typer.Option("--tokens", metavar="TOKENS", help="Tokens that joined meanwhile.")] = None,
    start: Annotated[str, typer.Option("--start", metavar="TOKENS", help="Tokens held before.")] = "0",
    engine: options.Engine = "ideal",
    engine_arg: options.EngineArgs = None,
    kv_dtype: options.KvDtype = "auto",
    tp: options.TensorParallel = None,
    gpu: options.Gpu = None,
    sequences: options.Sequences = "1",
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """What each memory line of an engine's start-up log should be, and why it differs.

    --gpu, --tp, --kv-dtype and --engine-arg say what the log does not.
    """
    if growth is None:
        given = {"--tokens": tokens, "--start": start != "0", "--engine": engine != "ideal", "--sequences": sequences != "1"}
        useless = [name for name, value in given.items() if value]
        if useless:
            raise UsageError(f"{', '.join(useless)}: a log says this itself", "these options belong to --growth")
        named = options.hub_models([model] if model is not None else [], revision, offline=offline)
        return _logs(logs, next(iter(named), None), _known(engine_arg, kv_dtype, tp, gpu), format_, output)
    if tokens is None:
        raise UsageError("--growth needs the tokens that joined meanwhile", "add --tokens 4096")
    if len(logs) != 1 or model is not None:
        raise UsageError("--growth takes one MODEL and no log", "kvcalc reconcile --growth 2.5GiB --tokens 4096 MODEL")
    from kvcalc.questions.growth import growth as ask
    from kvcalc.render import emit
    from kvcalc.render.reconcile_view import growth_view

    request = options.make_request(
        logs[0],
        ctx=None,
        sequences=sequences,
        kv_dtype=kv_dtype,
        engine=engine,
        engine_arg=engine_arg,
        tp=tp,
        pp="1",
        dcp="1",
        gpu=gpu,
        shared_prefix="0",
        revision=revision,
        offline=offline,
    )
    observed = parse_bytes(growth, "--growth")
    found = ask(request, observed, parse_tokens(tokens, "--tokens"), parse_tokens(start, "--start", least=0))
    emit(found.document(), growth_view, format_, output)
    return found.exit_code


def _known(engine_arg: list[str] | None, kv_dtype: str, tp: str | None, gpu: str | None) -> dict[str, Any]:
    """What the user knows and a log does not say, under the names of a Workload."""
    known: dict[str, Any] = dict(options.key_values(engine_arg or (), "--engine-arg"))
    if kv_dtype != "auto":
        known["kv_dtype"] = kv_dtype
    if tp is not None:
        known["tensor_parallel"] = options.count(tp, "--tp")
    if gpu is not None:
        from kvcalc.hardware import parse_gpu

        card, cards = parse_gpu(gpu)
        known["gpu"] = card.id
        if ":" in gpu and known.setdefault("tensor_parallel", cards) != cards:
            raise UsageError(f"--gpu: {cards} devices are not --tp {known['tensor_parallel']}", "leave out the count, or make them agree")
    return known


def _logs(logs: list[str], model: str | None, known: dict[str, Any], format_: str | None, output: str | None) -> int:
    """Every log, one answer each; the worst code: 3, then 1."""
    from kvcalc.render import emit
    from kvcalc.render.reconcile_view import view

    if output is not None and len(logs) > 1:
        raise UsageError("--output takes one log", "reconcile them one by one")
    codes = set()
    for log in logs:
        found = _read(log, model, known)
        emit(found.document(), view, format_, output)
        codes.add(found.exit_code)
    return next((code for code in (EXIT_NOT_EVALUATED, EXIT_OVER_BUDGET) if code in codes), EXIT_OK)


def _read(log: str, model: str | None, known: dict[str, Any]) -> Reconciliation:
    import sys

    from kvcalc.core import inputs
    from kvcalc.reconcile import reconcile as ask
    from kvcalc.sources.files import user_path

    if log == "-":
        return ask(sys.stdin.buffer, "standard input", model, given=known)
    path = user_path(log)
    try:
        with path.open("rb") as stream:
            inputs.note(stream.fileno())
            return ask(stream, clean(path.name), model, given=known)
    except OSError as error:
        hint = "paste the lines into standard input: kvcalc reconcile - --model MODEL" if any(sign in log for sign in " \n") else ""
        raise UsageError(f"cannot read '{clean(log)}': {error.strerror}", hint or "name a log file, or - for standard input") from None
