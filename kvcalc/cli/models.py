"""`kvcalc models list|show|import|validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from kvcalc.cli import options
from kvcalc.cli.root import group
from kvcalc.core.errors import EXIT_OK, EXIT_USAGE

app = group("The catalogue: list, show, import, validate.")

_LIST = """\b
Examples:
  kvcalc models list
  kvcalc models list qwen3
  kvcalc models list --technique mla -f csv
"""
_SHOW = """\b
Examples:
  kvcalc models show gemma-3-27b
  kvcalc models show ./config.json
"""
_IMPORT = """\b
Examples:
  kvcalc models import ./config.json --id my-model -o my-model.yaml
"""
_VALIDATE = """\b
Examples:
  kvcalc models validate my-model.yaml
"""


@app.command("list", epilog=_LIST)
def list_(
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="In the id, the name, the repository or the family.")] = None,
    *,
    technique: Annotated[
        str | None, typer.Option("--technique", metavar="NAME", help="Such as mha, gqa, mqa, mla, swa, dsa or deltanet.")
    ] = None,
    family: Annotated[str | None, typer.Option("--family", metavar="NAME", help="The model_type, or its beginning.")] = None,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """Every model: layers, techniques, bytes per token."""
    from kvcalc.questions.documents.models import ModelListDocument
    from kvcalc.questions.models import list_models
    from kvcalc.render import emit
    from kvcalc.render.models_view import list_view
    from kvcalc.sources.catalogue import ids

    rows = list_models(text, technique, family)
    notes = ["bytes per token at the model's own type, in every layer that still holds it"]
    if not rows and text is not None:
        notes = [options.no_match(text, ids())]
    document = ModelListDocument(None, None, None, None, tuple(rows), tuple(notes), ())
    emit(document, list_view, format_, output)
    return EXIT_OK


@app.command(epilog=_SHOW)
def show(
    model: options.Model,
    *,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """One model: its layers, and where each number comes from."""
    from kvcalc.questions.models import show_model
    from kvcalc.render import emit
    from kvcalc.render.models_view import show_view
    from kvcalc.sources import load

    document = show_model(load(options.hub_model(model, revision, offline=offline)))
    emit(document, show_view, format_, output)
    return EXIT_OK


@app.command("import", epilog=_IMPORT)
def import_(
    model: options.Model,
    *,
    model_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="The id in the catalogue. [from the model's name]")] = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    output: options.OutputFile = None,
) -> int:
    """A config.json, a GGUF or a repository as a kvcalc YAML."""
    from kvcalc.questions.models import import_model
    from kvcalc.render.output import write

    write(import_model(options.hub_model(model, revision, offline=offline), model_id), output)
    return EXIT_OK


@app.command(epilog=_VALIDATE)
def validate(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="kvcalc YAML files, or folders of them.")],
    *,
    format_: options.Format = None,
    output: options.OutputFile = None,
) -> int:
    """Check files: keys, values, and the figures they expect."""
    from kvcalc.questions.documents.models import FileProblem, ValidationDocument
    from kvcalc.questions.models import validate_files
    from kvcalc.render import emit
    from kvcalc.render.models_view import validate_view

    problems = tuple(FileProblem(found.file, found.line, found.path, found.message) for found in validate_files(files))
    document = ValidationDocument(None, None, None, None, tuple(files), problems, (), ())
    emit(document, validate_view, format_, output)
    return EXIT_USAGE if problems else EXIT_OK
