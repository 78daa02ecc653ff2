"""`kvcalc batch [FILE|-]`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_NOT_EVALUATED, EXIT_OK, UsageError
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

app = make_app()


_EXAMPLES = """\b
Examples:
  kvcalc batch requests.jsonl
"""


@app.command(epilog=_EXAMPLES)
def batch(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON Lines of requests; - is standard input.")] = "-",
) -> int:
    """Many questions in one process, as JSON Lines.

    JSON Lines in, JSON Lines out, in the same order. A line is {"command": "estimate", "model": "llama-2-7b", "context": 131072}; its answer is {"id", "ok", "result" or "error"}.
    The exit code is 0 if every line was answered with ok, else 3.
    """
    if file == "-":
        return _answer(sys.stdin)
    try:
        stream = Path(file).open(encoding="utf-8", errors="surrogateescape")  # noqa: SIM115  closed below
    except OSError as error:
        raise UsageError(f"cannot read '{clean(file)}': {error.strerror}", "give a file of JSON Lines, or - for standard input") from None
    with stream:
        return _answer(stream)


def _answer(stream: TextIO) -> int:
    """Each answer is flushed at once: the asker may be waiting for it before it asks the next."""
    from kvcalc.questions.batch import answers

    failed = False
    try:
        for ok, text in answers(_lines(stream)):
            failed = failed or not ok
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # the reader has seen enough; `close_streams` silences the rest
    return EXIT_NOT_EVALUATED if failed else EXIT_OK


def _lines(stream: TextIO) -> Iterator[str]:
    """The lines of `stream`; of one that is too long only so much that it is answered as too long."""
    from kvcalc.questions.batch import LONGEST_LINE

    most = LONGEST_LINE + 1
    while line := stream.readline(most):
        yield line
        while len(line) == most and not line.endswith("\n"):
            line = stream.readline(most)
