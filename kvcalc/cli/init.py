"""`kvcalc init MODEL…`: a commented starter file."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcalc.cli import options
from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, UsageError

app = make_app()


_EXAMPLES = """\b
Examples:
  kvcalc init llama-3.1-8b --output -
  kvcalc init llama-3.1-8b qwen3-32b -e vllm -n 16 --output budgets.yaml
"""


@app.command(epilog=_EXAMPLES)
def init(
    models: Annotated[list[str], typer.Argument(metavar="MODEL", help="The models that you serve.")],
    *,
    engine: options.Engine = "ideal",
    sequences: options.Sequences = "1",
    offline: options.Offline = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - for stdout.")] = "kvcalc.yaml",
) -> int:
    """A commented kvcalc.yaml with limits a little above what the models take today."""
    from kvcalc.budgets.init import starter
    from kvcalc.core.units import clean
    from kvcalc.render.output import say, write
    from kvcalc.sources.files import exists, user_path

    if output != "-" and exists(user_path(output)) and not force:
        raise UsageError(f"{clean(output)} exists", "give --force to replace it, or --output FILE")
    write(starter(options.hub_models(models, None, offline=offline), engine, options.count(sequences, "--sequences")), output)
    if output != "-":
        say([f"wrote {clean(output)}; next: kvcalc check"])
    return EXIT_OK
