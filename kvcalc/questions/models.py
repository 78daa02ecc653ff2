"""`models list|show|validate|import`: the catalogue as a table, one model, the check of a file, a config turned into YAML.

list_models     rows, filtered by text, technique and family
show_model      one architecture, in full
validate_files  every problem of every file, `expect` figures included
import_model    MODEL as a catalogue YAML
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kvcalc.core.errors import KvcalcError, UsageError, nearest
from kvcalc.core.fields import plain
from kvcalc.core.units import clean
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.questions.documents.models import KeptState, ListedModel, ModelDocument
from kvcalc.questions.documents.parts import model_of
from kvcalc.sources import catalogue, load
from kvcalc.sources.document import check
from kvcalc.sources.files import is_folder, read_bytes, shown
from kvcalc.sources.yaml_reader import LARGEST_FILE, Problem, problem_from, read_yaml
from kvcalc.sources.yaml_writer import to_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.questions.documents.models import CatalogueEntry
    from kvcalc.sources.yaml_reader import Document

#: Any context gives the same bytes per token; this one is every model's.
_CONTEXT = 1024
#: In a folder of this name a file's stem is its id.
_CATALOGUE = "model_configs"


def list_models(text: str | None = None, technique: str | None = None, family: str | None = None) -> list[ListedModel]:
    """The catalogue in order of id: `text` in id, name, hub or family; one technique; a family or its beginning.

    Raises UsageError for a technique or a family that no model has. A text that nothing matches gives no rows.
    """
    rows = [_row(catalogue.load_id(model_id)) for model_id in catalogue.ids()]
    if technique is not None:
        rows = _having(
            "technique", technique, rows, lambda row, word: word in row.techniques, {name for row in rows for name in row.techniques}
        )
    if family is not None:
        rows = _having("family", family, rows, lambda row, word: row.family.startswith(word), {row.family for row in rows})
    if text is not None:
        needle = text.strip().lower()
        rows = [row for row in rows if any(needle in field.lower() for field in (row.id, row.name, row.hub, row.family))]
    return rows


def _having(what: str, word: str, rows: list[ListedModel], holds: Callable[[ListedModel, str], bool], known: set[str]) -> list[ListedModel]:
    wanted = word.strip().lower()
    found = [row for row in rows if holds(row, wanted)]
    if not found:
        hint = nearest(wanted, sorted(known)) or f"one of {', '.join(sorted(known))}"
        raise UsageError(f"--{what}: no model has {what} '{clean(word, 40)}'", hint)
    return found


def _row(architecture: Architecture) -> ListedModel:
    plan = get_engine("ideal").plan(architecture, Workload(context=_CONTEXT))
    return ListedModel(
        id=architecture.id,
        name=architecture.name,
        hub=architecture.hub,
        family=architecture.family,
        layers=architecture.layers.count,
        techniques=architecture.techniques,
        dtype=architecture.dtype,
        bytes_per_token=plan.per_token,
        fixed_bytes=plan.fixed,
        max_context=architecture.max_context,
    )


def show_model(architecture: Architecture) -> ModelDocument:
    """`kvcalc.models/1` of one architecture: its layers, and where each number comes from."""
    return ModelDocument(
        model=model_of(architecture),
        workload=None,
        engine=None,
        kv_dtype=None,
        architecture=cast("CatalogueEntry", plain(architecture)),
        techniques=architecture.techniques,
        states=tuple(
            KeptState(
                state.kind, layers, {key: value for key, value in state.to_dict().items() if key != "kind" and value not in (None, False)}
            )
            for state, layers in architecture.states.items()
        ),
        notes=architecture.assumptions,
        warnings=(),
    )


def validate_files(paths: Sequence[str | Path]) -> list[Problem]:
    """Every problem of every file (of a folder: of its *.yaml), in order; `str(problem)` is `file:line: path: message`."""
    return [problem for path in paths for file in _yamls(Path(path)) for problem in validate(file)]


def _yamls(path: Path) -> list[Path]:
    """The file itself, or the *.yaml of a folder. Raises UsageError for a folder without any: checking nothing is no pass."""
    if not is_folder(path):
        return [path]
    found = sorted(path.glob("*.yaml"))
    if not found:
        raise UsageError(f"{shown(path)}: holds no .yaml file", "name the files, or a folder of them")
    return found


def validate(path: Path) -> list[Problem]:
    """Every problem of one file: what cannot be read, what is misspelt, an id that is not its stem, a figure that does not hold."""
    name = shown(path)
    try:
        document = read_yaml(read_bytes(path, LARGEST_FILE), name)
    except KvcalcError as error:
        return [problem_from(name, error.message)]
    architecture, problems = check(document)
    if architecture is None:
        return problems
    if path.resolve().parent.name == _CATALOGUE and architecture.id != path.stem:
        problems.append(document.problem(("id",), f"is '{clean(architecture.id)}', and must be the file's stem, '{clean(path.stem)}'"))
    if not problems:
        problems = [*_unmet(architecture, document)]
    return problems


def _unmet(architecture: Architecture, document: Document) -> Iterator[Problem]:
    """The expected figures that the engine does not give."""
    for index, expected in enumerate(architecture.expect):
        place = ("expect", index)
        workload = Workload(context=expected.context, sequences=expected.sequences, kv_dtype=expected.kv_dtype)
        try:
            total = get_engine(expected.engine).plan(architecture, workload).total
        except KvcalcError as error:
            yield document.problem(place, error.message)
            continue
        if total != expected.bytes:
            yield document.problem(
                place, f"says {expected.bytes:,} B, and {expected.engine} gives {total:,} B ({total - expected.bytes:+,} B)"
            )


def import_model(model: str, model_id: str | None = None) -> str:
    """MODEL (a config.json, a GGUF, a Hub repository, …) as a catalogue YAML. Raises what `load` raises, UsageError for an unfit id."""
    architecture = load(model)
    if model_id is not None and not catalogue.is_id(model_id):
        raise UsageError(
            f"--id: '{clean(model_id, 40)}' is no catalogue id", "lower-case letters, digits, '.', '_' and '-', such as llama-2-7b"
        )
    return to_yaml(replace(architecture, id=model_id or catalogue.id_from(architecture.id)))
