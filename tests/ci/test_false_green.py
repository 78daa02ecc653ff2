"""No green that nothing earned: which file answers, what is overwritten, and what an earlier run left behind."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Repository

MET = {"context": 1000, "limits": {"total": "1GiB"}}
OVER = {"context": 1000, "limits": {"total": "1MiB"}}
REPORTS = {"junit": "out.xml", "sarif": "out.sarif", "gitlab": "gl.json", "json": "out.json", "yaml": "out.yaml"}


def _folder(path: Path) -> None:
    path.mkdir()


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere.yaml")


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [_folder, _dangling, _loop, _pipe])
@pytest.mark.parametrize("name", ["kvcalc.yaml", "kvcalc.yml", ".kvcalc.yaml"])
def test_no_parent_answers_for_a_file_that_cannot_be_read(repository: Repository, name: str, make: object) -> None:
    repository.budgets(MET)
    inner = repository.folder / "deploy"
    inner.mkdir()
    make(inner / name)  # type: ignore[operator]
    found = repository.process("check", folder=inner)
    assert found.returncode == 2
    assert name in found.stderr
    assert not found.stdout


def test_no_parent_answers_for_a_folder_that_was_named(repository: Repository) -> None:
    repository.budgets(MET)
    (repository.folder / "deploy").mkdir()
    code, out, err = repository.kvcalc("check", "deploy")
    assert (code, out) == (2, "")
    assert "deploy: the folder has no kvcalc.yaml" in err
    assert repository.kvcalc("check", "")[0] == 2
    assert repository.kvcalc("check", ".")[0] == 0


def test_two_budget_files_in_a_folder_are_one_too_many(repository: Repository) -> None:
    path = repository.budgets(MET)
    (repository.folder / "kvcalc.yml").write_text(path.read_text())
    code, out, err = repository.kvcalc("check")
    assert (code, out) == (2, "")
    assert "kvcalc.yaml and kvcalc.yml both hold budgets" in err


@pytest.mark.parametrize("arguments", [("-o", "kvcalc.yaml"), ("--report", "json=kvcalc.yaml"), ("-f", "json", "-o", "link.yaml")])
def test_budgets_are_never_overwritten(repository: Repository, arguments: tuple[str, ...]) -> None:
    path = repository.budgets(MET)
    (repository.folder / "link.yaml").symlink_to(path)
    before = path.read_text()
    assert repository.kvcalc("check", *arguments)[0] == 2
    assert path.read_text() == before


def test_a_baseline_is_no_output(repository: Repository) -> None:
    repository.budgets({"context": 1000, "limits": {"max_growth": "0%"}})
    assert repository.kvcalc("check", "--baseline", "b.json", "--update-baseline")[0] == 0
    before = (repository.folder / "b.json").read_text()
    repository.budgets({"context": 2000, "limits": {"max_growth": "0%"}})
    assert repository.kvcalc("check", "--baseline", "b.json", "-f", "json", "-o", "b.json")[0] == 2
    assert (repository.folder / "b.json").read_text() == before
    assert repository.kvcalc("check", "--baseline", "b.json")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("estimate", "./config.json", "-f", "json", "-o", "config.json"),
        ("fit", "./config.json", "--kv-memory", "1GiB", "-o", "config.json"),
        ("models", "import", "./config.json", "-o", "config.json"),
        ("compare", "./config.json", "-o", "config.json"),
        ("plot", "./config.json", "-f", "svg", "-o", "config.json"),
    ],
)
def test_no_command_overwrites_its_model(repository: Repository, arguments: tuple[str, ...]) -> None:
    before = (repository.folder / "config.json").read_text()
    code, _, err = repository.kvcalc(*arguments)
    assert code == 2
    assert "an output never replaces an input" in err
    assert (repository.folder / "config.json").read_text() == before


def test_a_file_is_written_once(repository: Repository) -> None:
    repository.budgets(MET)
    assert repository.kvcalc("check", "--report", "json=a.json", "--report", "gitlab=./a.json")[0] == 2
    assert not (repository.folder / "a.json").exists()


@pytest.mark.parametrize("broken", ["budgets: [", "budgets: 3", "{}"])
def test_no_report_outlives_the_run_that_replaces_it(repository: Repository, broken: str) -> None:
    arguments = [word for name, file in REPORTS.items() for word in ("--report", f"{name}={file}")]
    repository.budgets(MET)
    assert repository.kvcalc("check", *arguments)[0] == 0
    assert all((repository.folder / file).exists() for file in REPORTS.values())
    repository.write(broken)
    assert repository.kvcalc("check", *arguments)[0] == 2
    assert [file for file in REPORTS.values() if (repository.folder / file).exists()] == []


def test_only_reports_are_removed(repository: Repository) -> None:
    repository.write("budgets: [")
    (repository.folder / "mine.json").write_text('{"note": "keep me"}')
    assert repository.kvcalc("check", "-f", "json", "-o", "mine.json")[0] == 2
    assert (repository.folder / "mine.json").exists()


def test_what_changed_leads_to_its_own_budgets(repository: Repository) -> None:
    repository.budgets(MET)
    deploy = repository.folder / "deploy"
    deploy.mkdir()
    (deploy / "kvcalc.yaml").write_text(json.dumps({"budgets": [{"name": "d", "model": "../config.json", **OVER}]}))
    (deploy / "config.json").write_text("{}")
    assert repository.process("check", "--changed", "config.json").returncode == 0
    for changed in ("deploy/kvcalc.yaml", "deploy/config.json"):
        assert repository.process("check", "--changed", changed).returncode == 1, changed
    both = repository.process("check", "--changed", "config.json", "deploy/kvcalc.yaml", "-f", "json")
    assert both.returncode == 1
    assert [(entry["file"], entry["status"]) for entry in json.loads(both.stdout)["budgets"]] == [
        ("kvcalc.yaml", "pass"),
        ("deploy/kvcalc.yaml", "over"),
    ]
