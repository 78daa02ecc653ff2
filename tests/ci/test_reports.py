"""Reports written beside the answer, held to the schemas of those who read them; the job summary; places as the CI system sees them."""

from __future__ import annotations

import json
import os
import re
import stat
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import referencing
import xmlschema

from kvcalc.render import FORMATS
from kvcalc.render.reports import REPORTS

if TYPE_CHECKING:
    from conftest import Repository

DATA = Path(__file__).parents[1] / "data"
OVER = {"name": "chat|prod", "context": "32k", "sequences": 16, "limits": {"total": "40GiB"}, "message": "ask <serving> & wait"}
BUDGETS = (
    {"context": 4096, "limits": {"total": "1GiB"}},
    OVER,
    {"model": "nonesuch", "limits": {"total": "1GiB"}},
)
COMMAND = re.compile(r"::error file=[^,:\r\n]+,line=[1-9]\d*,title=[^,:\r\n]+::[^\r\n]+")


def schema(name: str) -> Any:
    return json.loads(files("kvcalc.schemas").joinpath(f"{name}.json").read_text(encoding="utf-8"))


def test_every_report_of_one_run(repository: Repository) -> None:
    repository.budgets(*BUDGETS)
    wanted = {name: f"out.{name}" for name in ("json", *REPORTS)}
    found = repository.process("check", *(f"--report={name}={file}" for name, file in wanted.items()))
    assert found.returncode == 2
    assert found.stdout.startswith("1 of 3 budgets met: kvcalc.yaml; 1 exceeded; 1 not evaluated\n")
    text = {name: (repository.folder / file).read_text(encoding="utf-8") for name, file in wanted.items()}

    registry = referencing.Registry().with_resource("common.json", referencing.Resource.from_contents(schema("common")))
    document = json.loads(text["json"])
    jsonschema.Draft202012Validator(schema("check"), registry=registry).validate(document)
    assert [entry["status"] for entry in document["budgets"]] == ["pass", "over", "error"]

    xmlschema.XMLSchema(str(DATA / "jenkins-junit.xsd")).validate(text["junit"].split("\n", 1)[1])
    assert 'tests="3" failures="1" errors="1"' in text["junit"]

    log = json.loads(text["sarif"])
    jsonschema.Draft4Validator(json.loads((DATA / "sarif-2.1.0-rtm.5.json").read_text())).validate(log)
    assert [result["ruleId"] for result in log["runs"][0]["results"]] == ["budget-exceeded", "budget-not-evaluated"]

    commands = text["github"].splitlines()
    assert all(COMMAND.fullmatch(line) for line in commands[:-1])
    assert len(commands) == 3

    issues = json.loads(text["gitlab"])
    assert [issue["severity"] for issue in issues] == ["major", "critical"]
    assert text["markdown"].startswith("### KV-cache budgets: 1 met, 1 exceeded, 1 not evaluated\n")
    # 64 GiB are asked for, 40 allowed.
    for name in ("junit", "sarif", "github", "gitlab", "markdown"):
        assert "25,769,803,776 B (24 GiB), 60 %" in text[name].replace("%25", "%"), name


def test_the_line_is_that_of_the_limit_that_is_missed(repository: Repository) -> None:
    path = repository.write(
        "budgets:\n  - name: a\n    model: ./config.json\n    context: 32k\n    limits:\n      per_token: 1MiB\n      total: 1GiB\n"
    )
    _, out, _ = repository.kvcalc("check", "--format", "github")
    assert "line=7," in out
    assert path.read_text().splitlines()[6].strip() == "total: 1GiB"


def test_the_format_on_stdout_is_the_report_in_the_file(repository: Repository) -> None:
    repository.budgets(*BUDGETS)
    for name in dict.fromkeys((*FORMATS, *REPORTS)):
        _, out, _ = repository.kvcalc("check", "--format", name, "--report", f"{name}=out")
        written = (repository.folder / "out").read_text(encoding="utf-8")
        assert out == written
        _, out, _ = repository.kvcalc("check", "--format", name, "--output", "out")
        assert out == ""
        assert (repository.folder / "out").read_text(encoding="utf-8") == written


def test_a_job_summary(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    summary = repository.write("# what another step said\n", "summary.md")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    repository.budgets(*BUDGETS)
    assert repository.kvcalc("check")[0] == 2
    assert summary.read_text() == "# what another step said\n"
    assert repository.kvcalc("check", "--format", "github")[0] == 2
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("# what another step said\n### KV-cache budgets: 1 met, 1 exceeded, 1 not evaluated\n")
    assert r"chat\|prod" in text
    assert r"ask \<serving\> & wait" in text

    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(repository.folder))
    code, _, err = repository.kvcalc("check", "--format", "github")
    assert code == 2
    assert "cannot write the job summary" in err


@pytest.mark.parametrize("variable", ["GITHUB_WORKSPACE", "CI_PROJECT_DIR"])
def test_a_step_in_a_subfolder_names_places_from_the_root(repository: Repository, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    repository.budgets(OVER)
    inner = repository.folder / "deploy" / "eu"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert "file=../../kvcalc.yaml," in repository.kvcalc("check", "--format", "github")[1]
    monkeypatch.setenv(variable, str(repository.folder))
    assert "file=kvcalc.yaml," in repository.kvcalc("check", "--format", "github")[1]
    _, out, _ = repository.kvcalc("check", "--format", "sarif")
    place = json.loads(out)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "kvcalc.yaml"}
    monkeypatch.setenv(variable, str(inner))
    assert "file=../../kvcalc.yaml," in repository.kvcalc("check", "--format", "github")[1]


def test_reports_say_the_same_on_every_machine(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No absolute path, no time, no host."""
    texts = []
    for folder in (repository.folder, tmp_path_factory.mktemp("elsewhere")):
        (folder / "config.json").write_text((repository.folder / "config.json").read_text())
        (folder / "kvcalc.yaml").write_text(repository.budgets(*BUDGETS).read_text())
        os.chdir(folder)
        texts.append([repository.kvcalc("check", "--format", name)[1] for name in ("json", *REPORTS)])
    assert texts[0] == texts[1]


@pytest.mark.parametrize("text", ["junit", "=out.xml", "junit=", "junt=out.xml", "svg=out.svg"])
def test_a_report_that_is_none(repository: Repository, text: str) -> None:
    repository.budgets(*BUDGETS)
    code, out, err = repository.kvcalc("check", "--report", text)
    assert (code, out) == (2, "")
    assert "is not FORMAT=FILE" in err


def test_a_report_that_cannot_be_written_is_no_pass(repository: Repository) -> None:
    repository.budgets(BUDGETS[0])
    code, _, err = repository.kvcalc("check", "--report", "junit=missing/folder/out.xml")
    assert code == 2
    assert "cannot write 'missing/folder/out.xml'" in err


def test_a_report_replaces_its_file_whole(repository: Repository) -> None:
    repository.budgets(*BUDGETS)
    path = repository.write("old " * 10_000, "out.xml")
    path.chmod(0o640)
    repository.kvcalc("check", "--report", "junit=out.xml")
    assert path.read_text().endswith("</testsuites>\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert {entry.name for entry in repository.folder.iterdir()} == {"config.json", "kvcalc.yaml", "out.xml"}


def test_the_ending_of_the_file_means_the_report(repository: Repository) -> None:
    repository.budgets(*BUDGETS)
    for file, name in (
        ("out.sarif", "sarif"),
        ("out.xml", "junit"),
        ("out.md", "markdown"),
        ("out.json", "json"),
        ("out.html", "html"),
        ("out.txt", "plain"),
    ):
        assert repository.kvcalc("check", "--output", file)[0] == 2
        assert (repository.folder / file).read_text(encoding="utf-8") == repository.kvcalc("check", "--format", name)[1]
