"""`kvcalc launch COMMAND…`: the engine's own launch command as the question."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvcalc.cli import fit as sizes
from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET, UsageError
from kvcalc.core.units import parse_bytes

if TYPE_CHECKING:
    from kvcalc.launch.ask import Launch

app = make_app()

_EXAMPLES = """\b
Examples:
  kvcalc launch --model llama-3.1-8b vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768 -tp 2
  kvcalc launch --model llama-3.1-8b --gpu h100-80gb:2 --require -- vllm serve /models/llama -tp 2 --port 8000
  kvcalc launch --model qwen3-32b llama-server -hf org/Qwen3-32B-GGUF:Q4_K_M -c 65536 -np 4 -ctk q8_0 -ctv q8_0 -fa on
"""


@app.command(epilog=_EXAMPLES, context_settings={"allow_interspersed_args": False})
def launch(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="The launch command, as words or in quotes; - for standard input, also of a manifest. All behind it is its own.",
        ),
    ],
    *,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="The model, where the command names what is not at hand.")
    ] = None,
    sequences: Annotated[
        str | None, typer.Option("--sequences", "-n", "--batch", metavar="COUNT", help="Sequences of full length. [the command's, else 1]")
    ] = None,
    gpu: options.Gpu = None,
    kv_memory: options.KvMemory = None,
    memory: sizes.Memory = None,
    weights: sizes.Weights = None,
    weight_dtype: sizes.WeightDtype = None,
    overhead: sizes.Overhead = None,
    utilization: sizes.Utilization = None,
    require: Annotated[bool, typer.Option("--require", help="Exit 1 if it does not fit.")] = False,
    revision: options.Revision = None,
    offline: options.Offline = False,
    explain: options.Explain = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """An engine's own launch command as the question: what its cache takes, and whether it fits.

    Nothing is executed. Options of kvcalc stand before the command.
    """
    from kvcalc.cli.estimate import answer_of
    from kvcalc.launch.ask import Told, answer, read_command, with_notes
    from kvcalc.launch.ask import launch as ask
    from kvcalc.render import emit
    from kvcalc.render.launch_view import view_of

    reading = read_command([_standard_input()] if command == ["-"] else command)
    if revision is not None and model is None:
        if reading.revision not in (None, revision):
            raise UsageError("--revision says something else than the command's own", "leave one of them out")
        reading.revision, revision = revision, None
    shares = sizes.shares_of(weights, weight_dtype, overhead, utilization, memory)
    if kv_memory is not None and shares:
        raise UsageError("--kv-memory already says what is left for the cache", "leave out what divides a card's memory")
    named = options.hub_model(model or reading.model or "-", revision if model else None, offline=offline)
    told = Told(
        model=named if model else None,
        sequences=None if sequences is None else options.count(sequences, "--sequences"),
        gpu=gpu,
        kv_memory=None if kv_memory is None else parse_bytes(kv_memory, "--kv-memory"),
        shares=shares,
    )
    found = ask(reading, told)
    _no_vain_options(found, shares, require=require, explain=explain)
    if found.has_memory:
        fitted, fits = answer(found)
        emit(with_notes(fitted, found), view_of(found.reading.remedy), format_, output)
    else:
        from kvcalc.render.estimate_view import view

        fits = True
        emit(with_notes(answer_of(found.request, explain=explain), found), view, format_, output)
    return EXIT_OVER_BUDGET if require and not fits else EXIT_OK


def _standard_input() -> str:
    from kvcalc.launch.words import LONGEST_TEXT

    text = sys.stdin.buffer.read(LONGEST_TEXT + 1).decode("utf-8", "replace")
    if not text.strip():
        raise UsageError("standard input is empty", "pipe the launch command into kvcalc")
    return text if any(letter.isspace() for letter in text.strip()) else text + " "


def _no_vain_options(found: Launch, shares: dict[str, Any], *, require: bool, explain: bool) -> None:
    """Raise UsageError for an option that this question would ignore."""
    if found.has_memory:
        options.refuse("a memory to fit into: the derivation is an estimate's", {"--explain": explain})
        if not found.on_card:
            options.refuse("the memory for the cache that the command gives", {"--" + key.replace("_", "-"): True for key in shares})
        return
    if require or shares:
        raise UsageError("there is no memory to fit into", "name one with --gpu h100-80gb, --memory 24GiB or --kv-memory 60GiB")
