"""Changes one operator or constant at a time and asks whether a test notices: the measure of what the tests pin.

    python tools/mutate.py                               a sample of every module of TESTS
    python tools/mutate.py --per-module 12 --seed 3      another sample
    python tools/mutate.py kvcalc/questions/lengths.py   these modules alone
    python tools/mutate.py --at kvcalc/core/plan.py:98   every mutant of that line

The mutants: a comparison swapped for its neighbour or its opposite, `+` and `-`, `*` and `//`, `and` and `or`, a `not` taken away, an
integer one greater, a `min` or `max` with one of its arguments alone. Each is written into a temporary copy of the tree, where the
tests of TESTS for that module run one after another until the first failure; a run past --timeout counts as killed, as it would be seen.
A sample is what `random.Random(seed)` draws, so that a figure can be had again. Docstrings and the texts of messages are not touched.
Exit 1 if a mutant survived that EQUIVALENT does not list.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
#: A module or folder, and the tests that run for it: those that mirror it, fast enough to be run once a mutant.
TESTS: dict[str, tuple[str, ...]] = {
    "kvcalc/core/formats.py": ("tests/core",),
    "kvcalc/core/plan.py": ("tests/core",),
    "kvcalc/core/units.py": ("tests/core",),
    "kvcalc/core/weights.py": ("tests/core",),
    "kvcalc/core/workload.py": ("tests/core",),
    "kvcalc/core/traits.py": ("tests/core",),
    "kvcalc/core/states": ("tests/core",),
    "kvcalc/questions/card.py": ("tests/questions/test_card.py",),
    "kvcalc/questions/fit.py": ("tests/questions/test_fit.py",),
    "kvcalc/questions/lengths.py": ("tests/questions/test_lengths.py",),
    "kvcalc/engines/base/search.py": ("tests/engines/base",),
    "kvcalc/budgets": ("tests/budgets",),
    "kvcalc/engines/vllm": ("tests/engines/vllm",),
    "kvcalc/engines/vllm/groups.py": ("tests/engines/vllm/test_groups.py",),
    "kvcalc/engines/vllm/specs.py": ("tests/engines/vllm/test_groups.py",),
    "kvcalc/engines/sglang": ("tests/engines/sglang",),
    "kvcalc/engines/sglang/memory.py": ("tests/engines/sglang/test_memory.py",),
}
_GROUPS = "kvcalc/engines/vllm/groups.py"
_PROMOTED = "padded = max(spec.padded, spec.natural * block // spec.block) if spec.padded else 0"
_UNALIGNED = "a promoted kind has no alignment, so its page at the new block is that product already, and a page is never less"
#: Mutants that change nothing a caller can see: (file, the line's text, the change) and the reason.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "kvcalc/budgets/file.py",
        'if workload.context is not None and limits.get("min_context", 0) > workload.context > 0:',
        "0  →  1",
    ): "of the default alone: no context is above 0 and below 1",
    (
        "kvcalc/budgets/file.py",
        'if workload.context is not None and limits.get("min_context", 0) > workload.context > 0:',
        "limits.get('min_context', 0) > workload.context > 0  →  limits.get('min_context', 0) > workload.context >= 0",
    ): "a context of 0 is refused before, where the question is read",
    (_GROUPS, _PROMOTED, "max(spec.padded, spec.natural * block // spec.block)  →  spec.padded"): _UNALIGNED,
    (_GROUPS, _PROMOTED, "spec.natural * block  →  spec.natural // block"): _UNALIGNED,
    (_GROUPS, _PROMOTED, "0  →  1"): "a page of one byte is less than any page, and full layers of any spec are one type",
    (
        _GROUPS,
        "fitting = max(anchor // specs[bucket.layers[0]].page, 1)",
        "max(anchor // specs[bucket.layers[0]].page, 1)  →  anchor // specs[bucket.layers[0]].page",
    ): "the anchor is the widest of all, so at least one layer of a bucket of states",
}

_SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.FloorDiv,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.FloorDiv,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
_ANNOTATIONS = frozenset({"annotation", "returns", "type_comment", "decorator_list"})


@dataclass(frozen=True)
class Mutant:
    """One change: where it stands, what is written there (offsets into the file's bytes), and what stands there instead."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def change(self) -> str:
        """The change in words."""
        return f"{self.before}  →  {self.after}"


def _walk(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that are computed: no annotations, no docstrings, no texts of messages."""
    if isinstance(node, (ast.JoinedStr, ast.Raise)):
        return
    if isinstance(node, ast.expr):
        yield node
    for name, value in ast.iter_fields(node):
        if name in _ANNOTATIONS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _replacements(node: ast.expr) -> Iterator[ast.expr]:
    """What may stand in an expression's place."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for swap in _SWAPS.get(type(operator), ()):
                yield ast.Compare(left, [swap()], [right])  # type: ignore[list-item]
        case ast.Compare(left, operators, rights):
            for index, operator in enumerate(operators):
                for swap in _SWAPS.get(type(operator), ()):
                    yield ast.Compare(left, [*operators[:index], swap(), *operators[index + 1 :]], rights)  # type: ignore[list-item]
        case ast.BinOp(left, operator, right) if not (isinstance(left, ast.Constant) and isinstance(left.value, str)):
            for swap in _SWAPS.get(type(operator), ()):
                yield ast.BinOp(left, swap(), right)  # type: ignore[arg-type]
        case ast.BoolOp(operator, values):
            for swap in _SWAPS[type(operator)]:
                yield ast.BoolOp(swap(), values)  # type: ignore[arg-type]
        case ast.UnaryOp(ast.Not(), operand):
            yield operand
        case ast.Constant(int(value)) if not isinstance(value, bool):
            yield ast.Constant(value + 1)
        case ast.Call(ast.Name("min" | "max"), [_, _, *_] as arguments, []):
            yield from arguments


def mutants(file: str) -> list[Mutant]:
    """Every mutant of a file of the tree, in its order."""
    text = (ROOT / file).read_text(encoding="utf-8")
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in _walk(ast.parse(text)):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        found += [Mutant(file, node.lineno, start, end, ast.unparse(node), ast.unparse(other)) for other in _replacements(node)]
    return found


def survives(mutant: Mutant, tree: Path, tests: tuple[str, ...], timeout: float) -> bool:
    """Whether the tests pass with the mutant in a copy of the tree. The copy is as before afterwards."""
    path = tree / mutant.file
    source = path.read_bytes()
    # Parentheses keep the mutant one operand of what stands around it.
    path.write_bytes(source[: mutant.start] + f"({mutant.after})".encode() + source[mutant.end :])
    try:
        return _pass(tree, tests, timeout)
    finally:
        path.write_bytes(source)


def _pass(tree: Path, tests: tuple[str, ...], timeout: float) -> bool:
    # No bytecode: two changes within a second and of one length would be taken for the same file.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["nice", "-n", "2", sys.executable, "-m", "pytest", "-x", "-n0", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _files(name: str) -> list[str]:
    path = ROOT / name
    return [name] if path.is_file() else sorted(str(found.relative_to(ROOT)) for found in path.rglob("*.py"))


def _tests(file: str) -> tuple[str, ...]:
    near = [name for name in TESTS if file == name or file.startswith(f"{name}/")]
    if not near:
        raise SystemExit(f"{file}: TESTS names no tests for it")
    return TESTS[max(near, key=len)]


def _chosen(arguments: argparse.Namespace) -> list[Mutant]:
    if arguments.at:
        places = [(file, int(line)) for file, line in (place.rsplit(":", 1) for place in arguments.at)]
        return [mutant for file, line in places for mutant in mutants(file) if mutant.line == line]
    drawn: list[Mutant] = []
    for name in arguments.modules or TESTS:
        every = [mutant for file in _files(name) for mutant in mutants(file)]
        drawn += sorted(
            random.Random(f"{arguments.seed} {name}").sample(every, min(arguments.per_module, len(every))),  # noqa: S311
            key=lambda mutant: (mutant.file, mutant.start),
        )
    return drawn


def main() -> int:
    """Run the mutants asked for; a line each, and a table at the end."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("modules", nargs="*", help="modules or folders, from the root of the tree (default: all of TESTS)")
    parser.add_argument("--at", action="append", metavar="FILE:LINE", help="every mutant of a line, instead of a sample")
    parser.add_argument("--per-module", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that the tests of one mutant may take")
    arguments = parser.parse_args()
    table: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        chosen = _chosen(arguments)
        for tests in {_tests(mutant.file) for mutant in chosen}:
            if not _pass(tree, tests, 3 * arguments.timeout):
                raise SystemExit(f"{' '.join(tests)}: fails without a mutant, so that nothing can be told by it")
        for mutant in chosen:
            fate = "survived" if survives(mutant, tree, _tests(mutant.file), arguments.timeout) else "killed"
            line = (ROOT / mutant.file).read_text(encoding="utf-8").splitlines()[mutant.line - 1].strip()
            if fate == "survived" and (mutant.file, line, mutant.change) in EQUIVALENT:
                fate = "equivalent"
            table[mutant.file, fate] += 1
            print(f"{mutant.file}:{mutant.line}: {mutant.change}: {fate}", flush=True)
    fates = ("killed", "survived", "equivalent")
    print(f"\n{'module':44}{'mutants':>9}" + "".join(f"{fate:>12}" for fate in fates))
    for file in sorted({file for file, _ in table}):
        row = [table[file, fate] for fate in fates]
        print(f"{file:44}{sum(row):9}" + "".join(f"{count:12}" for count in row))
    total = [sum(count for (_, found), count in table.items() if found == fate) for fate in fates]
    print(f"{'all':44}{sum(total):9}" + "".join(f"{count:12}" for count in total))
    return 1 if total[1] else 0


if __name__ == "__main__":
    sys.exit(main())
