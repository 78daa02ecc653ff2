"""`kvcalc check [FILE]`: the CI gate."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvcalc.cli.root import app as make_app
from kvcalc.core.errors import EXIT_OK, KvcalcError, UsageError, nearest
from kvcalc.core.units import clean

if TYPE_CHECKING:
    from kvcalc.questions.documents.check import CheckDocument

app = make_app()

#: Where GitHub and GitLab say that the checkout is.
_ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
#: Reports by the ending of `--output`.
_REPORT_ENDINGS = {"sarif": "sarif", "xml": "junit"}
#: What the first lines of a report hold, by format: JSON and YAML, JUnit, SARIF, GitLab.
_REPORT_SIGNS = (b"kvcalc.check/1", b'<testsuites name="kvcalc"', b"sarif-2.1.0", b"kvcalc-budget")
#: How an error about a file begins.
_PLACE = re.compile(r"([^:\n]+):([1-9][0-9]*): ")

_EXAMPLES = """\b
Examples:
  kvcalc check
  kvcalc check deploy/kvcalc.yaml --report junit=kvcalc.xml --report sarif=kvcalc.sarif
  kvcalc check --baseline kvcalc-baseline.json --format github
"""


@app.command(epilog=_EXAMPLES)
def check(
    file: Annotated[list[str] | None, typer.Argument(metavar="FILE", help="Budgets. [the nearest kvcalc.yaml upwards]")] = None,
    *,
    changed: Annotated[
        bool, typer.Option("--changed", help="The FILEs are those of a change: each leads to the budgets nearest to it.")
    ] = False,
    config: Annotated[str | None, typer.Option("--config", metavar="FILE", help="The same as FILE.")] = None,
    only: Annotated[list[str] | None, typer.Option("--only", metavar="NAME", help="Only this budget; repeatable.")] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", metavar="FILE", help="An earlier JSON answer, for growth.")] = None,
    update_baseline: Annotated[bool, typer.Option("--update-baseline", help="Write today's answer to the baseline file.")] = False,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit 0 where budgets are exceeded; errors keep their codes.")] = False,
    report: Annotated[
        list[str] | None, typer.Option("--report", metavar="FORMAT=FILE", help="Write another report besides, in any format; repeatable.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="table, plain, json, yaml, csv, markdown, html, junit, sarif, github, gitlab. [by --output]",
        ),
    ] = None,
    output: Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, whole or not at all.")] = None,
) -> int:
    """Budgets in kvcalc.yaml against what the engines allocate: exit 0 all met, 1 exceeded, 2 or 3 not evaluated."""
    from kvcalc.budgets.check import check as ask
    from kvcalc.core.errors import EXIT_OVER_BUDGET
    from kvcalc.questions.documents.kinds import plain
    from kvcalc.render.documents import as_json
    from kvcalc.render.output import write

    if file and config is not None:
        raise UsageError("FILE and --config name the budgets twice", "give one of them")
    if update_baseline and baseline is None:
        raise UsageError("--update-baseline needs the file to write", "add --baseline FILE")
    if update_baseline and only:
        raise UsageError("--update-baseline writes the figures of every budget, and --only leaves some out", "leave one of them out")
    format_ = _known_format(format_, output)
    reports = [_report(text) for text in report or ()]
    files = _budget_files(file or ([config] if config is not None else []), changed=changed)
    _clear([path for _, path in reports] + ([output] if output else []), [*files, *([baseline] if baseline else [])])
    try:
        # While the baseline is being replaced there is none to compare with: growth limits must not stop the update.
        gate = ask(files, baseline=None if update_baseline else baseline, only=only or (), replacing_baseline=update_baseline)
    except KvcalcError as error:
        if format_ == "github":
            _annotate(error, output)
        raise
    document = gate.document()
    for name, path in reports:
        write(_text(document, name), path)
    _emit(document, format_, output)
    if update_baseline and baseline is not None:
        write(as_json(plain(document)), baseline)
    code = gate.exit_code
    return EXIT_OK if exit_zero and code == EXIT_OVER_BUDGET else code


def _budget_files(given: list[str], *, changed: bool) -> list[Path]:
    """The budget files that the command line means, each once. Raises UsageError for one that does not exist."""
    from kvcalc.budgets.check import budget_file, nearest_files

    if changed:
        return list(nearest_files(given))
    return list(dict.fromkeys(budget_file(name) for name in given)) if given else [budget_file()]


def _clear(outputs: list[str], read: list[str | Path]) -> None:
    """Remove the reports of an earlier run: whatever becomes of this one, they must not stand for it.

    Raises UsageError, before anything is removed, for an output that is one of the files that are read, or stands twice.
    """
    places = [Path(output).expanduser() for output in outputs if output != "-"]
    for index, place in enumerate(places):
        if any(place.exists() and Path(file).exists() and place.samefile(file) for file in read):
            raise UsageError(f"'{clean(place)}' is read by this command, and an output never replaces an input", "write to another file")
        if any(place.resolve() == other.resolve() for other in places[:index]):
            raise UsageError(f"'{clean(place)}' is to be written twice", "give each report a file of its own")
    for place in places:
        if place.is_file() and not place.is_symlink() and _is_report(place):
            place.unlink()


def _is_report(place: Path) -> bool:
    """The file is an earlier answer of this command: nothing else is ever removed."""
    try:
        with place.open("rb") as file:
            beginning = file.read(4096)
    except OSError:
        return False
    return beginning.strip() == b"[]" or any(sign in beginning for sign in _REPORT_SIGNS)  # GitLab's report of no finding is an empty list


def _known_format(name: str | None, output: str | None) -> str | None:
    """The format asked for, else the report that the file's ending means. Raises UsageError before anything is computed."""
    from kvcalc.render import ENDINGS, ending

    if name is None:
        return (_REPORT_ENDINGS | ENDINGS).get(ending(output))
    known = _formats()
    if name not in known:
        raise UsageError(f"--format: unknown format '{clean(name, 40)}'", nearest(name, known) or "one of " + ", ".join(known))
    return name


def _report(text: str) -> tuple[str, str]:
    """`junit=kvcalc.xml` → format and file."""
    name, equals, path = text.partition("=")
    if not equals or not path or name not in _formats():
        raise UsageError(f"--report: '{clean(text, 60)}' is not FORMAT=FILE", "formats: " + ", ".join(_formats()))
    return name, path


def _formats() -> tuple[str, ...]:
    """Every format of a gate's answer."""
    from kvcalc.render import FORMATS
    from kvcalc.render.reports import REPORTS

    return tuple(dict.fromkeys((*FORMATS, *REPORTS)))


def _text(document: CheckDocument, name: str) -> str:
    from kvcalc.render import text_of
    from kvcalc.render.check_view import view
    from kvcalc.render.reports import REPORTS, report

    return report(_from_root(document), name) if name in REPORTS else text_of(document, view, name)


def _from_root(document: CheckDocument) -> CheckDocument:
    """The document with its file as the CI system names it: from the root of the checkout, wherever the job's step runs."""
    file = _inside(document.file)
    return replace(document, file=file, budgets=tuple(replace(budget, file=file) for budget in document.budgets))


def _inside(file: str) -> str:
    """A file of the working folder as seen from the root of the checkout; one outside of it as it is."""
    root = next((Path(found).resolve() for name in _ROOTS if (found := os.environ.get(name))), None)
    path = Path(file).resolve()
    return path.relative_to(root).as_posix() if root is not None and path.is_relative_to(root) else file


def _annotate(error: KvcalcError, output: str | None) -> None:
    """A file that cannot be read as budgets, on the line where it cannot."""
    from kvcalc.render.output import write
    from kvcalc.render.reports.github import annotation

    place = _PLACE.match(error.message)
    file, line = (_inside(place[1]), int(place[2])) if place else ("", 1)
    write(annotation(file, line, "KV-cache budgets", [error.message, error.hint]) + "\n", output)


def _emit(document: CheckDocument, name: str | None, output: str | None) -> None:
    from kvcalc.render import emit
    from kvcalc.render.check_view import view
    from kvcalc.render.output import write
    from kvcalc.render.reports import REPORTS

    if name not in REPORTS:
        emit(document, view, name, output)
        return
    write(_text(document, name), output)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if name == "github" and summary:
        _append(_text(document, "markdown"), summary)


def _append(text: str, path: str) -> None:
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"cannot write the job summary: {error.strerror}", "unset GITHUB_STEP_SUMMARY") from None
