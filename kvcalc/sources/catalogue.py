"""The catalogue: one YAML a model, its stem the id; a question about one model reads one file, or one entry of the compiled ones.

load_id("llama-2-7b")     the architecture; of an unknown id, the error names the nearest ones
load_file(path)           any kvcalc YAML
read_mapping(document)    the same inline, as JSON
by_hub("org/name")        the id that stands for a Hub repository
compile_folder(folder)    the compiled catalogue (compiled.py), written when the package is built
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InternalError, InvalidConfigError, UnknownModelError, nearest
from kvcalc.core.units import clean
from kvcalc.sources import compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.sources.yaml_reader import Document

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.ASCII)
_HUB = re.compile(rb"^hub: *([^\s#]+)", re.MULTILINE)
_NUMBERS = re.compile(r"[0-9]+|[^0-9]+", re.ASCII)
#: The identity stands in the first lines of a file.
_HEAD = 1024
#: What a release's name adds to the model's: `Llama-2-7b-hf`, `Qwen3-Next-80B-A3B-Instruct`.
_RELEASE = re.compile(r"(-(hf|it|pt|base|chat|instruct|fp8|bf16|gguf))+$")
_MOST_NAMED = 3


@cache
def folder() -> Path:
    """Where the YAML files stand: inside the installed package, else at the top of the checkout."""
    for place in (_installed(), _installed().parents[1] / _installed().name):
        if place.is_dir():
            return place
    raise InternalError("kvcalc was installed without its catalogue", "reinstall kvcalc")


def _installed() -> Path:
    return Path(__file__).resolve().parents[1] / "model_configs"


@cache
def _compiled() -> compiled.Compiled | None:
    """The compiled catalogue, where there is one that is that of the YAML files."""
    place = folder()
    return compiled.read(place, installed=place == _installed())


@cache
def ids() -> tuple[str, ...]:
    """Every id, in order; numbers count as numbers: llama-2-7b before llama-2-13b."""
    made = _compiled()
    if made is not None:
        return made.ids
    return tuple(sorted((path.stem for path in folder().glob("*.yaml")), key=_order))


def _order(model_id: str) -> list[tuple[bool, int, str]]:
    return [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _NUMBERS.findall(model_id)]


def is_id(text: str) -> bool:
    """`text` could be an id: lower-case letters, digits, `.`, `_` and `-`."""
    return _ID.fullmatch(text) is not None


def id_from(name: str) -> str:
    """An id made of a model's name: `Meta-Llama/Llama-2-7b-hf` → `llama-2-7b`."""
    text = re.sub(r"[^a-z0-9.]+", "-", name.rpartition("/")[2].partition("@")[0].lower()[:100]).strip("-.")
    return _RELEASE.sub("", text) or text or "model"


def has(model_id: str) -> bool:
    """The catalogue has that id."""
    made = _compiled()
    return model_id in made.places if made is not None else is_id(model_id) and (folder() / f"{model_id}.yaml").is_file()


@lru_cache(maxsize=256)
def load_id(model_id: str) -> Architecture:
    """The model of that id. Raises UnknownModelError naming the nearest ones."""
    if not has(model_id):
        raise unknown(model_id)
    made = _compiled()
    return made.load(model_id) if made is not None else _from_yaml(model_id)


def _from_yaml(model_id: str) -> Architecture:
    architecture = load_file(folder() / f"{model_id}.yaml")
    if architecture.id != model_id:
        raise InvalidConfigError(f"{model_id}.yaml: id is '{clean(architecture.id)}', and must be the file's stem")
    return architecture


def load_file(path: Path) -> Architecture:
    """The model of a kvcalc YAML. Raises InvalidConfigError naming file and line."""
    from kvcalc.sources.files import read_bytes, shown
    from kvcalc.sources.yaml_reader import LARGEST_FILE, read_yaml

    return _read(read_yaml(read_bytes(path, LARGEST_FILE), shown(path)))


def read_mapping(document: Mapping[str, Any], name: str = "architecture") -> Architecture:
    """The model of a kvcalc document that is already a mapping; `name` is what messages call it."""
    from kvcalc.sources.yaml_reader import Document

    return _read(Document(name, document))


def read_text(text: str, name: str) -> Architecture:
    """The model of a kvcalc YAML given as text."""
    from kvcalc.sources.yaml_reader import read_yaml

    return _read(read_yaml(text, name))


def _read(document: Document) -> Architecture:
    from kvcalc.sources.document import read_document

    return read_document(document)


@cache
def hubs() -> dict[str, str]:
    """Hub repository in lower case → id, read from the head of each file without parsing it."""
    made = _compiled()
    if made is not None:
        return made.hubs
    found: dict[str, str] = {}
    for model_id in ids():
        with (folder() / f"{model_id}.yaml").open("rb") as file:
            match = _HUB.search(file.read(_HEAD))
        if match:
            found[match[1].decode("utf-8", "replace").lower()] = model_id
    return found


def by_hub(repo: str) -> str | None:
    """The id of the entry made from that Hub repository, whatever its case; a revision is ignored."""
    return hubs().get(repo.partition("@")[0].lower())


def unknown(model: str) -> UnknownModelError:
    """The error for a name that is no id and no file, with the nearest ids."""
    return UnknownModelError(f"unknown model '{clean(model)}': no catalogue id and no such file", suggest(model))


def suggest(model: str) -> str:
    """The ids that `model` may have meant: by its Hub name, by its beginning, by its spelling."""
    last = model.rpartition("/")[2].partition("@")[0].lower()[:100]
    by_name = [model_id for repo, model_id in hubs().items() if repo.rpartition("/")[2] == last]
    stem = id_from(last)
    near = [model_id for model_id in ids() if stem and model_id.startswith(stem)]
    found = list(dict.fromkeys([*by_name, *near]))[:_MOST_NAMED]
    if found:
        return "did you mean " + " or ".join(f"'{name}'" for name in found) + "?"
    return nearest(stem, ids()) or "`kvcalc models list` shows the catalogue"


def compile_folder(place: Path) -> None:
    """Compile the YAML files of a folder, each checked. Raises InvalidConfigError for one that is wrong."""
    found = {path.stem: load_file(path) for path in place.glob("*.yaml")}
    models = {model_id: found[model_id] for model_id in sorted(found, key=_order)}
    compiled.write(place, models, {model.hub.lower(): model_id for model_id, model in models.items() if model.hub})
