"""One engine, one folder: outside of `kvcalc/engines/<engine>/` no string and no identifier of the code names an engine.

Docstrings and comments may: they cite where a rule was read. `ideal` is the default's name, and may stand anywhere.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kvcalc
from kvcalc.engines import ENGINES, get_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(kvcalc.__file__).parent
#: Aliases that are also the name of something else: the Hub, and the library of tensors that files are written for.
ELSEWHERE = {"hf", "huggingface", "ggml"}
#: File or folder → the names that it may say, and why.
ALLOWED: dict[str, tuple[str, set[str]]] = {
    "engines/registry.py": ("one line an engine", set(ENGINES)),
    "core/formats.py": ("says in which engine a format was read", {"vllm", "sglang"}),
    "sources/gguf/": ("the loader that decides what a GGUF file is", {"llama.cpp"}),
    "sources/hf/families/index.py": ("switch_transformers is a model type", {"transformers"}),
    "verify/": ("runs the library itself", {"transformers"}),
    "questions/documents/verify.py": ("holds what the library holds", {"transformers"}),
    "render/verify_view.py": ("shows what the library holds", {"transformers"}),
    "lab/": ("trains nothing, but may speak of the library", {"transformers"}),
}
#: Examples of command lines name some engine, as `kvcalc … -e NAME` has to.
EXAMPLES = re.compile(r"\nExamples:|^write it ")
#: Engine's folder → the engines that it runs or shares rules with.
BORROWS = {"ollama": {"llama.cpp"}}
HOMES = {place.folder.rpartition(".")[2]: name for name, place in ENGINES.items()}


def spellings(name: str) -> set[str]:
    """Every word that means the engine, in small letters."""
    return {name, get_engine(name).title.lower(), *(alias.lower() for alias in ENGINES[name].aliases)} - {"", *ELSEWHERE}


WORDS = {word: name for name in ENGINES if name != "ideal" for word in spellings(name)}
PATTERN = re.compile(r"(?<![a-z0-9])(" + "|".join(re.escape(word) for word in sorted(WORDS, key=len, reverse=True)) + r")(?![a-z0-9])")
FILES = sorted(ROOT.rglob("*.py"))


def named(path: Path) -> Iterator[tuple[int, str]]:
    """Line and engine of every string and identifier that names one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if id(node) in prose:
            continue
        for _, text in ast.iter_fields(node):
            if isinstance(text, str) and not EXAMPLES.search(text):
                for match in PATTERN.finditer(text.lower()):
                    yield getattr(node, "lineno", 0), WORDS[match[1]]


def allowed(file: str) -> set[str]:
    return set().union(*(names for place, (_, names) in ALLOWED.items() if file.startswith(place)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_an_engines_own_folder_names_it(path: Path) -> None:
    file = str(path.relative_to(ROOT))
    if folder_of(path) in HOMES:
        return
    assert not [(line, name) for line, name in named(path) if name not in allowed(file)], f"{file} names an engine"


def folder_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[1] if parts[0] == "engines" and len(parts) > 2 else ""


@pytest.mark.parametrize("path", [path for path in FILES if folder_of(path) in HOMES], ids=lambda path: str(path.relative_to(ROOT)))
def test_engines_import_no_other(path: Path) -> None:
    """But for `ideal`, whose arithmetic is everybody's, and the engine that they run."""
    own = folder_of(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvcalc.engines."):
            there = (node.module or "").split(".")[2]
            assert there not in HOMES or there in (own, "ideal") or HOMES[there] in BORROWS.get(own, ()), node.module


def test_nothing_is_allowed_that_is_not_there() -> None:
    for place in ALLOWED:
        assert (ROOT / place).exists(), place


@pytest.mark.parametrize("path", sorted((ROOT / "schemas").glob("*.json")), ids=lambda path: path.stem)
def test_no_schema_lists_engines(path: Path) -> None:
    found = {WORDS[match[1]] for match in PATTERN.finditer(path.read_text(encoding="utf-8").lower())}
    assert found <= ({"transformers"} if path.stem == "verify" else set())
