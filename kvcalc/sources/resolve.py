"""What MODEL means: the first rule that fits.

    -                                   standard input
    http…                               a GGUF on the web
    . / ~ at the beginning              a path
    an id of the catalogue              its YAML
    something that exists on disk       a path
    org/name, org/name@revision         a Hub repository
    anything else                       unknown, with the nearest ids

A path is read by what it is: a folder by its config.json, a .gguf by its header, a .yaml as a kvcalc document, anything else by
its first bytes.
"""

from __future__ import annotations

import re
import sys
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from kvcalc.core.errors import GatedError, HubUnavailableError, InvalidConfigError, NotFoundError, UnknownModelError, UsageError
from kvcalc.core.units import clean
from kvcalc.sources import catalogue
from kvcalc.sources.files import LARGEST_CONFIG, decode, exists, read_bytes, read_json, shown

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

_GGUF_MAGIC = b"GGUF"
_CONFIG = "config.json"
#: What the Hub allows in names; revisions are branches, tags and commits.
_REPO = re.compile(r"([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95})(?:@([\w./-]{1,200}))?", re.ASCII)
_MOST_LISTED = 5
_STDIN = "standard input"


def resolve(model: str) -> Architecture:
    """The architecture behind the text MODEL. Raises UnknownModelError, InvalidConfigError, Hub errors, UsageError."""
    if model == "-":
        return _from_stdin()
    if not model or "\0" in model:
        raise UnknownModelError("the model has no name", "give a catalogue id, a path or org/name")
    if model.startswith(("https://", "http://")):
        return _from_url(model)
    if model.startswith((".", "/", "~")):
        return _from_path(model)
    if catalogue.has(model):
        return catalogue.load_id(model)
    if exists(Path(model)):
        return _from_path(model)
    match = _REPO.fullmatch(model)
    if match:
        return _from_hub(match[1], match[2])
    raise catalogue.unknown(model)


def _from_url(url: str) -> Architecture:
    if not url.startswith("https://"):
        raise UsageError("model: only https:// addresses are read", "write the same address with https://")
    if not url.partition("?")[0].partition("#")[0].lower().endswith(".gguf"):
        raise UsageError(f"model: '{clean(url)}' is no address of a .gguf file", "give https://…/x.gguf, or the Hub repository as org/name")
    from kvcalc.sources.gguf.remote import load_url

    return load_url(url)


@lru_cache(maxsize=64)
def _from_hub(repo: str, revision: str | None) -> Architecture:
    from kvcalc.sources.hf.hub import load_repo

    try:
        return load_repo(repo, revision)
    except (HubUnavailableError, GatedError, NotFoundError) as error:
        known = catalogue.by_hub(repo)
        if known is None:
            raise
        raise type(error)(error.message, f"the catalogue has this model as '{known}', which needs no network") from error


def _from_path(text: str) -> Architecture:
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise UnknownModelError(f"{shown(text)}: no such home folder", "write the whole path") from None
    if not exists(path):
        hint = catalogue.suggest(path.name) if path.name else ""
        raise UnknownModelError(f"{shown(text)}: no such file or folder", hint)
    if path.is_dir():
        path = _config_in(path)
    try:
        found = path.stat()
    except OSError as error:
        raise InvalidConfigError(f"{shown(path)}: cannot be read ({clean(error.strerror).lower()})") from None
    return _load_file(path, found.st_ino, found.st_mtime_ns, found.st_size)


def _config_in(folder: Path) -> Path:
    """The config.json of a folder. Raises InvalidConfigError that says what the folder holds instead."""
    path = folder / _CONFIG
    try:
        if path.exists():
            return path
        ggufs = sorted(entry.name for entry in folder.iterdir() if entry.name.lower().endswith(".gguf"))
    except OSError as error:
        raise InvalidConfigError(f"{shown(folder)}: cannot be read ({clean(error.strerror).lower()})") from None
    if not ggufs:
        raise InvalidConfigError(f"{shown(folder)}: holds no {_CONFIG}", f"give a folder with a {_CONFIG}, or a .gguf or .yaml file")
    named = ", ".join(clean(name, 60) for name in ggufs[:_MOST_LISTED]) + (", …" if len(ggufs) > _MOST_LISTED else "")
    raise InvalidConfigError(f"{shown(folder)}: holds no {_CONFIG}, but GGUF files: {named}", "name one of the files")


@lru_cache(maxsize=64)
def _load_file(path: Path, _inode: int, _changed: int, _size: int) -> Architecture:
    """A file by its suffix, else by its first bytes; read again only when it has changed."""
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return catalogue.load_file(path)
    if suffix == ".gguf" or (suffix != ".json" and _begins_with_magic(path)):
        from kvcalc.sources.gguf.reader import read_gguf

        return read_gguf(path)
    return _from_text(read_bytes(path), shown(path), path, is_json=suffix == ".json")


def _begins_with_magic(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
    except OSError:
        return False


@cache
def _from_stdin() -> Architecture:
    """A config.json or a kvcalc YAML on standard input, read once for a process."""
    data = sys.stdin.buffer.read(LARGEST_CONFIG + 1)
    if len(data) > LARGEST_CONFIG:
        raise InvalidConfigError(f"{_STDIN}: is more than {LARGEST_CONFIG:,} bytes, and a model's configuration is less")
    if not data.strip():
        raise InvalidConfigError(f"{_STDIN}: is empty", "pipe a config.json or a kvcalc YAML into kvcalc")
    return _from_text(data, _STDIN, None, is_json=False)


def _from_text(data: bytes, name: str, path: Path | None, *, is_json: bool) -> Architecture:
    """JSON where the text says so (a config.json, or a kvcalc document), else a kvcalc YAML."""
    text = decode(data, name)
    if not is_json and not text.lstrip().startswith("{"):
        return catalogue.read_text(text, name)
    document = read_json(text, name)
    if "model_type" not in document and {"family", "layers"} <= document.keys():
        return catalogue.read_mapping(document, name)
    from kvcalc.core.architecture import Source
    from kvcalc.sources.hf.reader import read_config

    return read_config(document, model_id=_id_of(path, document), source=Source(file=name))


def _id_of(path: Path | None, document: dict[str, object]) -> str:
    """What to call a config.json: its folder, else its stem, else what the file calls itself."""
    if path is None:
        own = document.get("_name_or_path")
        return clean(own) if isinstance(own, str) and own else "stdin"
    return clean(path.resolve().parent.name if path.name == _CONFIG else path.stem) or _CONFIG
