"""`check`: every budget of a `kvcalc.yaml`, met or not. Unknown is never a pass."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kvcalc.budgets.baseline import read_baseline
from kvcalc.budgets.evaluate import evaluate
from kvcalc.budgets.file import FILE_NAMES, file_in, find_file, read_budgets
from kvcalc.budgets.verdict import Verdict, exit_code
from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.units import clean
from kvcalc.questions.documents.check import CheckDocument, Summary
from kvcalc.questions.documents.kinds import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Gate(Answer):
    """Every verdict of one file."""

    file: str
    verdicts: tuple[Verdict, ...]

    @property
    def exit_code(self) -> int:
        """0 all met, 1 one exceeded, 3 one not evaluated, 2 one that cannot be asked (2, then 3, then 1)."""
        return exit_code(self.verdicts)

    def document(self) -> CheckDocument:
        """`kvcalc.check/1`."""
        states = [verdict.status for verdict in self.verdicts]
        return CheckDocument(
            model=None,
            workload=None,
            engine=None,
            kv_dtype=None,
            file=self.file,
            summary=Summary(
                budgets=len(states),
                passed=states.count("pass"),
                over=states.count("over"),
                errors=states.count("error"),
                exit_code=cast("Any", self.exit_code),
            ),
            budgets=tuple(verdict.document() for verdict in self.verdicts),
            notes=(),
            warnings=(),
        )


def check(
    file: str | Path | Sequence[Path] | None = None,
    *,
    baseline: str | Path | None = None,
    only: Sequence[str] = (),
    replacing_baseline: bool = False,
) -> Gate:
    """The budgets of `file` (or of several), or of the nearest kvcalc.yaml at or above the working folder; `only` names some of them.

    With `replacing_baseline`, limits on growth are left out: today's figures become the ones to compare with.

    Raises InvalidConfigError for a file that cannot be read as budgets or figures, UsageError if there is none.
    """
    paths = [budget_file(file)] if file is None or isinstance(file, str | Path) else list(file)
    budgets = [budget for path in paths for budget in read_budgets(path)]
    names = [budget.name for budget in budgets]
    for name in only:
        if name not in names:
            raise UsageError(
                f"no budget is named '{clean(name, 60)}'", nearest(name, names) or f"{budgets[0].file} has: " + ", ".join(names[:8])
            )
    earlier = None if baseline is None else read_baseline(_existing(baseline, "write it once with --update-baseline"))
    chosen = [budget for budget in budgets if not only or budget.name in only]
    if replacing_baseline:
        chosen = [budget.without_growth() for budget in chosen]
    return Gate(", ".join(dict.fromkeys(budget.file for budget in budgets)), evaluate(chosen, earlier))


def budget_file(file: str | Path | None = None) -> Path:
    """The file that is meant: the one named, that of the folder named, else the nearest at or above the working folder.

    Raises UsageError where it does not exist: no other file answers in the place of one that was named.
    """
    if file is None:
        return find_file(Path.cwd())
    if not str(file):
        raise UsageError("the name of the budget file is empty", "name it, or leave it out for the nearest kvcalc.yaml upwards")
    path = _existing(file, "`kvcalc init MODEL --output FILE` writes one")
    if not path.is_dir():
        return path
    found = file_in(path.resolve())
    if found is None:
        raise UsageError(f"{clean(file)}: the folder has no {FILE_NAMES[0]}", "`kvcalc init MODEL --output FILE` writes one")
    return found


def nearest_files(changed: Sequence[str | Path]) -> tuple[Path, ...]:
    """The budget files that files of a change belong to, each once: the nearest at or above each, as pre-commit names them.

    Raises UsageError for a file above which no budgets stand.
    """
    found: dict[Path, None] = {}
    for file in changed:
        path = Path(file).resolve()
        found[path if path.name in FILE_NAMES else find_file(path.parent)] = None
    return tuple(found)


def _existing(file: str | Path, hint: str) -> Path:
    try:
        path = Path(file).expanduser()
    except RuntimeError:
        raise UsageError(f"{clean(file)}: no such home folder", "write the whole path") from None
    if not os.path.lexists(path):
        raise UsageError(f"{clean(path)}: no such file", hint)
    return path
