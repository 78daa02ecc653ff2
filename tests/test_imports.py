"""Imports run one way, and what is heavy is imported only where it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kvcalc
from kvcalc.cli.app import COMMANDS
from kvcalc.sources import catalogue

ROOT = Path(kvcalc.__file__).parent
#: Rooms from the ground up: a module may import from its own level and from those before it.
LEVELS = (
    ("core",),
    ("hardware",),
    ("sources",),
    ("engines",),
    ("questions",),
    ("budgets", "launch", "reconcile", "verify", "lab"),
    ("render",),
    ("cli",),
    ("__main__",),
)
ORDER = {name: level for level, names in enumerate(LEVELS) for name in names}
#: Third-party package → the rooms, or the single modules, that may import it.
HOMES = {
    "huggingface_hub": {"sources/hf/hub.py"},
    "rich": {"render", "cli"},
    "typer": {"cli"},
    "torch": {"lab", "verify"},
    "transformers": {"lab", "verify"},
}
FILES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports at run time, anywhere in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {id(child) for node in ast.walk(tree) if isinstance(node, ast.If) and _is_type_checking(node) for child in ast.walk(node)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _is_type_checking(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def room(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    here = room(path)
    if here == "__init__":
        return
    for name in imported(path):
        package, _, rest = name.partition(".")
        there = rest.partition(".")[0]
        if package == "kvcalc":
            assert ORDER.get(there, 0) <= ORDER[here], f"{here} imports {name}"
        if package in HOMES:
            assert {here, str(path.relative_to(ROOT))} & HOMES[package], f"{path.relative_to(ROOT)} imports {package}"


def modules_after(*arguments: str) -> set[str]:
    """Top-level packages in `sys.modules` after a command line, its output piped."""
    code = f"import sys\nfrom kvcalc.cli.app import run\nrun({list(arguments)!r})\nprint(*sys.modules, file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in found.stderr.splitlines()[-1].split()}


def test_an_estimate_in_a_pipe_loads_neither_hub_nor_http_nor_rich() -> None:
    loaded = modules_after("estimate", "llama-2-7b", "--ctx", "128k")
    assert not {"huggingface_hub", "httpx", "requests", "rich", "torch", "transformers", "numpy"} & loaded
    assert {"kvcalc", "typer"} <= loaded
    if catalogue._compiled() is not None:  # as in an installation; a checkout that was edited reads YAML, and checks it
        assert not {"pydantic", "yaml"} & loaded


@pytest.mark.parametrize(
    "arguments", [*((name, "--help") for name in COMMANDS), ("gpus", "--format", "json"), ("explain", "fp8"), ("--version",)]
)
def test_a_command_line_is_read_without_pydantic(arguments: tuple[str, ...]) -> None:
    """Fails where Typer no longer asks a parameter for `get_runtime_param`: then every option costs Pydantic's import again."""
    assert "pydantic" not in modules_after(*arguments)


def test_the_core_knows_no_pydantic() -> None:
    code = "import sys, kvcalc.core.architecture, kvcalc.core.traits\nfrom kvcalc.core.states import AnyState\nprint('pydantic' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


@pytest.mark.parametrize("arguments", [("compare",), ("models", "list"), ("explain", "mla"), ("--help",), ("estimate", "--help")])
def test_other_commands_in_a_pipe_stay_as_light(arguments: tuple[str, ...]) -> None:
    assert not {"huggingface_hub", "httpx", "rich", "torch", "transformers"} & modules_after(*arguments)


def test_one_engine_loads_no_other() -> None:
    code = "import sys, kvcalc\nkvcalc.estimate('llama-2-7b')\nprint(*(name for name in sys.modules if name.startswith('kvcalc.engines.')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert set(found) == {
        f"kvcalc.engines.{name}" for name in ("base", "base.engine", "base.folder", "base.memo", "ideal", "ideal.engine", "registry")
    }


# ── circles ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

MODULES = {".".join(("kvcalc", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path for path in FILES}
#: Pairs that know each other by the types of their arguments alone.
KNOWN_CIRCLES = {("kvcalc.engines.vllm.attention", "kvcalc.engines.vllm.start")}


def neighbours(path: Path, *, types: bool) -> set[str]:
    """Modules of kvcalc that a module imports anywhere in it, for its types too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in MODULES else node.module for name in whole)
    wanted = (
        found if types else {name for name in found if name in {*imported(path), *(name.rpartition(".")[0] for name in imported(path))}}
    )
    return {name for name in wanted if name in MODULES and MODULES[name] != path}


def circles(graph: dict[str, set[str]]) -> list[tuple[str, ...]]:
    """Groups of modules of which each leads to each (Tarjan)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        index[name] = lowest[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], index[other])
        if lowest[name] == index[name]:
            place = stack.index(name)
            group = tuple(sorted(stack[place:]))
            del stack[place:]
            if len(group) > 1:
                found.append(group)

    for name in graph:
        if name not in index:
            visit(name)
    return found


def test_no_module_leads_back_to_itself() -> None:
    """At run time, at the top of a module or inside of a function."""
    assert circles({name: neighbours(path, types=False) for name, path in MODULES.items()}) == []


def test_types_lead_back_nowhere_else() -> None:
    assert set(circles({name: neighbours(path, types=True) for name, path in MODULES.items()})) <= KNOWN_CIRCLES


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [("a", "b", "c")]
