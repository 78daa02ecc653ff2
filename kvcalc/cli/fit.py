"""`kvcalc fit MODEL`: the inverse question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET, UsageError
from kvcalc.core.units import clean, parse_bytes

if TYPE_CHECKING:
    from kvcalc.questions.request import Request

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc fit llama-3.1-8b -e vllm --kv-memory 60GiB
  kvcalc fit llama-3.1-8b -e vllm --gpu h100-80gb --ctx 8k -n 32 --require
  kvcalc fit llama-3.1-8b -e vllm --gpu h100-80gb --table --kv-dtype auto,fp8
  kvcalc fit llama-3.3-70b -e vllm --gpus all --ctx 32k -n 8
  kvcalc fit llama-3.1-8b --kv-memory 40GiB --lengths lognormal:mean=2k:p99=16k
"""

Memory = Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="Memory of a device that is not in the catalogue.")]
Weights = Annotated[str | None, typer.Option("--weights", metavar="SIZE", help="Weights, all devices together.")]
WeightDtype = Annotated[
    str | None, typer.Option("--weight-dtype", metavar="FORMAT", help="Type of the weights, such as bf16, fp8 or q4_k_m. [the config's]")
]
Overhead = Annotated[str | None, typer.Option("--overhead", metavar="SIZE", help="What the engine keeps besides, per device.")]
Utilization = Annotated[str | None, typer.Option("--utilization", metavar="FRACTION", help="Share of the memory that the engine takes.")]


@app.command(epilog=_EXAMPLES)
def fit(
    model: options.Model,
    *,
    kv_memory: options.KvMemory = None,
    gpu: options.Gpu = None,
    gpus: Annotated[str | None, typer.Option("--gpus", metavar="all", help="Rank every accelerator that is enough.")] = None,
    memory: Memory = None,
    weights: Weights = None,
    weight_dtype: WeightDtype = None,
    overhead: Overhead = None,
    utilization: Utilization = None,
    ctx: options.Context = None,
    sequences: options.Sequences = "1",
    lengths: Annotated[
        str | None,
        typer.Option(
            "--lengths",
            metavar="LENGTHS",
            help="Requests of different lengths instead of --ctx: a FILE, a list, or lognormal:mean=2k:p99=16k.",
        ),
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="How many sequences of each length fit; --kv-dtype may be a list.")] = False,
    beyond: Annotated[bool, typer.Option("--beyond", help="Do not stop at the model's maximum context.")] = False,
    require: Annotated[bool, typer.Option("--require", help="Exit 1 if it does not fit.")] = False,
    kv_dtype: options.KvDtype = "auto",
    engine: options.Engine = "ideal",
    engine_arg: options.EngineArgs = None,
    tp: options.TensorParallel = None,
    pp: options.PipelineParallel = "1",
    dcp: options.DecodeContextParallel = "1",
    shared_prefix: options.SharedPrefix = "0",
    set_: options.Set = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """Does it fit? Largest context, most sequences, the engine's own capacity, and what would make it fit."""
    from kvcalc.render.output import say

    shares = shares_of(weights, weight_dtype, overhead, utilization, memory)
    _one_memory(kv_memory, gpu, gpus, shares)
    say(options.bare_sizes({"--kv-memory": kv_memory, "--memory": memory, "--weights": weights, "--overhead": overhead}))
    formats = options.words(kv_dtype, "--kv-dtype") if table else [kv_dtype]
    request = options.make_request(
        model,
        ctx=ctx,
        sequences=sequences,
        kv_dtype=formats[0],
        engine=engine,
        engine_arg=engine_arg,
        tp=tp,
        pp=pp,
        dcp=dcp,
        gpu=gpu,
        shared_prefix=shared_prefix,
        kv_memory=kv_memory,
        sets=set_,
        revision=revision,
        offline=offline,
    )
    if table:
        options.refuse(
            "--table",
            {"--sequences": sequences != "1", "--beyond": beyond, "--require": require, "--lengths": lengths, "--gpus": gpus},
        )
        return _table(request, formats, shares, format_, output)
    if gpus is not None:
        options.refuse("--gpus", {"--lengths": lengths, "--beyond": beyond, "--tp": tp, "--pp": pp != "1", "--memory": memory})
        return _rank(request, shares, require=require, format_=format_, output=output)
    if lengths is not None:
        options.refuse(
            "--lengths",
            {
                "--ctx": ctx,
                "--sequences": sequences != "1",
                "--beyond": beyond,
                "--require": require,
                "--dcp": dcp != "1",
                "--shared-prefix": shared_prefix != "0",
            },
        )
        return _traffic(request, lengths, shares, format_, output)
    return _fit(request, shares, beyond=beyond, require=require, format_=format_, output=output)


def shares_of(
    weights: str | None, weight_dtype: str | None, overhead: str | None, utilization: str | None, memory: str | None
) -> dict[str, Any]:
    """What divides a card's memory, only what was given."""
    if weights is not None:
        options.refuse("--weights", {"--weight-dtype": weight_dtype})
    given = {
        "weights": None if weights is None else parse_bytes(weights, "--weights"),
        "weight_dtype": weight_dtype,
        "overhead": None if overhead is None else parse_bytes(overhead, "--overhead"),
        "utilization": None if utilization is None else options.fraction(utilization, "--utilization"),
        "memory": None if memory is None else parse_bytes(memory, "--memory"),
    }
    return {key: value for key, value in given.items() if value is not None}


def _one_memory(kv_memory: str | None, gpu: str | None, gpus: str | None, shares: dict[str, Any]) -> None:
    """Exactly one source of memory, and nothing that would be ignored. Raises UsageError."""
    if gpus is not None and gpus != "all":
        raise UsageError(f"--gpus: '{clean(gpus, 40)}' is not 'all'", "one card is named with --gpu NAME[:COUNT]")
    if gpus is not None and (gpu is not None or kv_memory is not None):
        raise UsageError("--gpus all looks through every card by itself", "leave out --gpu and --kv-memory")
    if kv_memory is not None and shares:
        named = ", ".join("--" + key.replace("_", "-") for key in shares)
        raise UsageError(f"{named}: --kv-memory already says what is left for the cache", "leave one of them out")
    if kv_memory is None and gpu is None and gpus is None and "memory" not in shares:
        raise UsageError("fit: no memory to fit into", "give --kv-memory 60GiB, --gpu h100-80gb, --memory 24GiB or --gpus all")


def _fit(request: Request, shares: dict[str, Any], *, beyond: bool, require: bool, format_: str | None, output: str | None) -> int:
    from kvcalc.questions.fit_card import fit_or_size
    from kvcalc.render import emit
    from kvcalc.render.fit_view import view

    found = fit_or_size(request, beyond=beyond, **shares)
    emit(found.document(), view, format_, output)
    return EXIT_OVER_BUDGET if require and not found.fits else EXIT_OK


def _table(request: Request, formats: list[str], shares: dict[str, Any], format_: str | None, output: str | None) -> int:
    from kvcalc.questions.fit_card import table_or_size
    from kvcalc.render import emit
    from kvcalc.render.fit_table_view import view

    emit(table_or_size(request, formats, **shares).document(), view, format_, output)
    return EXIT_OK


def _rank(request: Request, shares: dict[str, Any], *, require: bool, format_: str | None, output: str | None) -> int:
    from kvcalc.questions.fit_card import rank, rank_document
    from kvcalc.render import emit
    from kvcalc.render.sizing_view import rank_view

    rows = rank(request, **shares)
    emit(rank_document(request, rows), rank_view, format_, output)
    return EXIT_OVER_BUDGET if require and not rows else EXIT_OK


def _traffic(request: Request, lengths: str, shares: dict[str, Any], format_: str | None, output: str | None) -> int:
    from kvcalc.questions.fit_card import size
    from kvcalc.questions.lengths import read_lengths, traffic
    from kvcalc.render import emit
    from kvcalc.render.sizing_view import lengths_view
    from kvcalc.sources import load

    if request.engine != "ideal" or request.workload.engine_args:
        raise UsageError("--lengths compares ways of allocating, not engines", "leave out --engine and --engine-arg")
    architecture = load(request.model)
    workload = request.workload
    each = workload.kv_memory if workload.kv_memory is not None else size(request, **shares).memory.kv_likely
    found = traffic(architecture, workload.kv_dtype, read_lengths(lengths), each * workload.devices)
    emit(found.document(), lengths_view, format_, output)
    return EXIT_OK
