"""`kvcalc`: which commands there are, and what becomes of an error.

Nothing heavy is imported here: a command's module is imported when the command runs (or when `--help` lists it).
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from kvcalc.core import inputs
from kvcalc.core.errors import EXIT_INTERRUPTED, EXIT_OK, InternalError, KvcalcError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Command → the module that holds its Typer app, in the order in which `--help` lists them.
COMMANDS: dict[str, str] = {
    "estimate": "kvcalc.cli.estimate",
    "fit": "kvcalc.cli.fit",
    "launch": "kvcalc.cli.launch",
    "compare": "kvcalc.cli.compare",
    "plot": "kvcalc.cli.plot",
    "explain": "kvcalc.cli.explain",
    "models": "kvcalc.cli.models",
    "gpus": "kvcalc.cli.gpus",
    "check": "kvcalc.cli.check",
    "init": "kvcalc.cli.init",
    "reconcile": "kvcalc.cli.reconcile",
    "chat": "kvcalc.cli.chat",
    "batch": "kvcalc.cli.batch",
    "verify": "kvcalc.cli.verify",
    "lab": "kvcalc.cli.lab",
}


#: Objects between two garbage collections. The usual 700 would collect hundreds of times while modules are imported, in vain.
_GC_THRESHOLD = 100_000


def main() -> NoReturn:
    """The console script: run, and leave with the exit code of what came of it.

    Start-up is a feature: collecting garbage while importing and once more at the end would cost a fifth of the whole.
    """
    gc.set_threshold(_GC_THRESHOLD)
    # Pydantic would read the metadata of every installed package at each start, to look for plugins that kvcalc has no use for.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while starting, or while leaving
        code = EXIT_INTERRUPTED
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Answer one command line; the exit code. Never raises."""
    from kvcalc.render.output import close_streams, tolerate_any_text

    tolerate_any_text()
    inputs.forget()
    try:
        code = _dispatch(list(arguments))
    except KvcalcError as error:
        code = _report(error, arguments)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except SystemExit as left:  # Typer leaves this way when its help meets a closed pipe, and after shell completion
        code = EXIT_OK if isinstance(left.__context__, BrokenPipeError) or not isinstance(left.code, int) else left.code
    except Exception as bug:  # noqa: BLE001  a traceback is for developers, a sentence for users
        if os.environ.get("KVCALC_DEBUG"):
            import traceback

            traceback.print_exc()
        code = _report(_internal(bug), arguments)
    return close_streams(code)


def _dispatch(arguments: list[str]) -> int:
    from kvcalc.cli.root import command_of, usage_error

    command = command_of(COMMANDS)
    try:
        code = command.main(arguments, prog_name="kvcalc", standalone_mode=False)
    except Exception as error:
        translated = usage_error(error)
        if translated is None:
            raise
        raise translated from error
    return code if isinstance(code, int) else EXIT_OK


def _internal(bug: Exception) -> InternalError:
    return InternalError(
        f"kvcalc failed with {type(bug).__name__}: {bug}", "this is a bug in kvcalc: KVCALC_DEBUG=1 shows where, please report it"
    )


def _report(error: KvcalcError, arguments: Sequence[str]) -> int:
    """The error as one sentence on stderr; with `--format json` its document on stdout besides."""
    from kvcalc.render.output import write_error

    write_error(error, as_json=_wants_json(arguments))
    return error.exit_code


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether the last `--format` is json: the command line may be the very thing that is wrong, so it is only scanned.

    Of `launch` the first one: the words of another program follow.
    """
    chosen = ""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if chosen and arguments[0] == "launch":
            break
        if argument in ("-f", "--format"):
            chosen = following
        elif argument.startswith("--format="):
            chosen = argument.removeprefix("--format=")
        elif argument.startswith("-f") and not argument.startswith("--"):
            chosen = argument[2:]
    return chosen == "json"
