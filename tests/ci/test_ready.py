"""What other repositories take from this one: action.yml, .pre-commit-hooks.yaml, the snippets of docs/ci.md, `kvcalc init`."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml
from hub_server import Repo, serve

from kvcalc.core.errors import KvcalcError
from kvcalc.engines import ENGINES
from kvcalc.questions.estimate import estimate
from kvcalc.questions.request import parse_request

if TYPE_CHECKING:
    from conftest import Repository

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
BLOCKS = re.findall(r"^```(\w+)[^\n]*\n(.*?)^```", (ROOT / "docs" / "ci.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
BASH = shutil.which("bash") or pytest.skip("no bash, in which the action's steps are written", allow_module_level=True)

MET = {"context": 4096, "limits": {"total": "1GiB"}}
OVER = {"context": 16_384, "limits": {"total": "1GiB"}}
#: A python3 whose virtual environments hold this kvcalc, and whose pip writes down what it is asked for.
STUB = """#!/bin/sh
[ "$1 $2" = "-m venv" ] || exit 9
mkdir -p "$3/bin"
printf '#!/bin/sh\\nexec {python} -m kvcalc "$@"\\n' > "$3/bin/kvcalc"
printf '#!/bin/sh\\nprintf "%%s\\\\n" "$@" > "$RUNNER_TEMP/pip.txt"\\n' > "$3/bin/pip"
chmod +x "$3/bin/kvcalc" "$3/bin/pip"
"""


def schema(name: str) -> Any:
    return json.loads(files("kvcalc.schemas").joinpath(f"{name}.json").read_text(encoding="utf-8"))


# ── the composite action ────────────────────────────────────────────────────────────────────────────────────────────────


def expression(text: str, inputs: dict[str, str]) -> str:
    """`${{ inputs.a || github.action_path }}` as the runner reads it."""
    known = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(ROOT)}
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: next(filter(None, (known[part.strip()] for part in found[1].split("||"))), ""), text)


class Runner:
    """A job that uses the action: its steps run in order in the workspace until one fails."""

    def __init__(self, repository: Repository, folder: Path) -> None:
        self.repository = repository
        self.temp = folder
        stub = folder / "bin" / "python3"
        stub.parent.mkdir()
        stub.write_text(STUB.replace("{python}", sys.executable))
        stub.chmod(0o755)
        self.summary = folder / "summary.md"
        self.environment = {
            **os.environ,
            "PATH": f"{stub.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RUNNER_TEMP": str(folder),
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(repository.folder),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def use(self, environment: dict[str, str] | None = None, **given: str) -> subprocess.CompletedProcess[str]:
        inputs = {name: given.pop(name.replace("-", "_"), entry["default"]) for name, entry in ACTION["inputs"].items()}
        assert not given
        for step in ACTION["runs"]["steps"]:
            assert step["shell"] == "bash"
            own = {key: expression(value, inputs) for key, value in step["env"].items()}
            found = subprocess.run(
                [BASH, "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self.repository.folder,
                env=self.environment | own | (environment or {}),
                capture_output=True,
                text=True,
                check=False,
            )
            if found.returncode:
                break
        return found


@pytest.fixture
def runner(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(repository, tmp_path_factory.mktemp("runner"))


def test_the_action_annotates_and_fails_the_job(repository: Repository, runner: Runner) -> None:
    repository.budgets(MET)
    found = runner.use()
    assert (found.returncode, found.stdout) == (0, "kvcalc: 1 met, 0 exceeded, 0 not evaluated\n")
    assert (runner.temp / "pip.txt").read_text().splitlines()[-1] == str(ROOT)
    repository.budgets(MET, OVER)
    assert runner.use(sarif="missing/kvcalc.sarif").returncode == 2
    found = runner.use(sarif="kvcalc.sarif", version="kvcalc==0.1.0")
    assert found.returncode == 1
    assert (runner.temp / "pip.txt").read_text().splitlines()[-1] == "kvcalc==0.1.0"
    assert found.stdout.startswith("::error file=kvcalc.yaml,line=")
    assert len(json.loads((repository.folder / "kvcalc.sarif").read_text())["runs"][0]["results"]) == 1
    assert "### KV-cache budgets: 1 met, 1 exceeded, 0 not evaluated" in runner.summary.read_text()


def test_the_action_takes_a_file_and_a_baseline(repository: Repository, runner: Runner) -> None:
    growing = {"context": 1000, "limits": {"max_growth": "5%"}}
    path = repository.budgets(growing)
    repository.kvcalc("check", "--baseline", "main.json", "--update-baseline")
    path.rename(repository.folder / "my budgets.yaml")
    assert runner.use(file="my budgets.yaml", baseline="main.json").returncode == 0
    repository.config(num_key_value_heads=32)
    assert runner.use(file="my budgets.yaml", baseline="main.json").returncode == 1
    assert runner.use(file="my budgets.yaml").returncode == 2


def test_no_input_is_ever_run(repository: Repository, runner: Runner) -> None:
    repository.budgets(MET)
    for hostile in ('"; touch pwned; "', "$(touch pwned)", "`touch pwned`", "; touch pwned"):
        runner.use(file=hostile, baseline=hostile, sarif=hostile, version=hostile)
    assert not (repository.folder / "pwned").exists()
    assert all("${{" not in step["run"] for step in ACTION["runs"]["steps"]), "expressions belong into env, where nothing runs them"


def test_the_actions_token_reaches_the_hub_and_an_empty_one_does_not(repository: Repository, runner: Runner) -> None:
    repository.budgets({"model": "org/good", "limits": {"total": "1TiB"}})
    with serve({"org/good": Repo({"config.json": (repository.folder / "config.json").read_bytes()})}) as server:
        assert runner.use({"HF_ENDPOINT": server.url}).returncode == 0
        assert set(server.tokens) == {""}
        assert runner.use({"HF_ENDPOINT": server.url}, hf_token="hf_secret").returncode == 0  # noqa: S106
        assert server.tokens[-1] == "Bearer hf_secret"


# ── pre-commit ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def hook(name: str, *given: str) -> list[str]:
    """The hook's entry as pre-commit starts it, in this environment."""
    found = next(entry for entry in HOOKS if entry["id"] == name)
    program, *arguments = shlex.split(found["entry"])
    assert program == "kvcalc"
    wanted = [file for file in given if re.search(found["files"], file)]
    return [*arguments, *(wanted if found.get("pass_filenames", True) else [])]


def test_the_hook_checks_budgets(repository: Repository) -> None:
    repository.budgets(MET)
    assert repository.process(*hook("kvcalc-check", "config.json")).returncode == 0
    repository.budgets(OVER)
    assert repository.process(*hook("kvcalc-check", "config.json")).returncode == 1
    pattern = next(entry["files"] for entry in HOOKS if entry["id"] == "kvcalc-check")
    for name in ("kvcalc.yaml", ".kvcalc.yaml", "kvcalc.yml", "models/a/config.json", "config.json"):
        assert re.search(pattern, name), name
    for name in ("my-config.json", "kvcalc.yaml.bak", "notkvcalc.yaml"):
        assert not re.search(pattern, name), name


def test_the_hook_validates_models(repository: Repository) -> None:
    folder = repository.folder / "model_configs"
    folder.mkdir()
    text = (ROOT / "model_configs" / "llama-2-7b.yaml").read_text(encoding="utf-8")
    (folder / "llama-2-7b.yaml").write_text(text, encoding="utf-8")
    given = ("model_configs/llama-2-7b.yaml", "README.md")
    assert repository.process(*hook("kvcalc-models", *given)).returncode == 0
    (folder / "llama-2-7b.yaml").write_text(text.replace("head_dim", "head_dimm"), encoding="utf-8")
    assert repository.process(*hook("kvcalc-models", *given)).returncode == 2


# ── docs/ci.md ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def block(word: str) -> Any:
    found = [yaml.safe_load(text) for language, text in BLOCKS if language == "yaml" and word in text]
    assert len(found) == 1
    return found[0]


def test_the_budgets_in_the_page_are_read_and_met(repository: Repository) -> None:
    budgets = block("budgets:")
    jsonschema.Draft202012Validator(schema("budgets")).validate(budgets)
    repository.write(next(text for _, text in BLOCKS if "budgets:" in text))
    code, out, err = repository.kvcalc("check")
    assert code == 0, out + err


def test_the_workflow_gives_inputs_that_the_action_has() -> None:
    (job,) = block("runs-on")["jobs"].values()
    given = next(step["with"] for step in job["steps"] if "kvcalc" in step.get("uses", ""))
    assert set(given) <= set(ACTION["inputs"])
    upload = next(step["with"] for step in job["steps"] if "upload-sarif" in step.get("uses", ""))
    assert upload["sarif_file"] == given["sarif"]


def test_the_gitlab_job_writes_what_it_collects(repository: Repository) -> None:
    repository.budgets(OVER)
    (job,) = block("artifacts").values()
    install, gate = job["script"]
    assert install.startswith("pip install")
    program, *arguments = shlex.split(gate)
    assert (program, repository.process(*arguments).returncode) == ("kvcalc", 1)
    for file in job["artifacts"]["reports"].values():
        assert (repository.folder / file).stat().st_size
    assert job["artifacts"]["when"] == "always"


def test_the_hooks_in_the_page_exist() -> None:
    for repo in block("hooks:")["repos"]:
        assert {entry["id"] for entry in repo["hooks"]} <= {entry["id"] for entry in HOOKS}


def test_the_commands_in_the_page_run(repository: Repository) -> None:
    repository.budgets(MET | {"name": "chat-prod"})
    commands = [
        shlex.split(line[2:], comments=True)
        for language, text in BLOCKS
        if language == "console"
        for line in text.splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) >= 2
    for program, *arguments in commands:
        assert (program, repository.kvcalc(*arguments)[0]) == ("kvcalc", 0)


# ── init ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

MODELS = ("llama-2-7b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b")


def runs(model: str, engine: str) -> bool:
    try:
        estimate(parse_request({"model": model, "engine": engine, "context": 4096}))
    except (KvcalcError, ImportError):
        return False
    return True


@pytest.mark.parametrize("engine", ENGINES)
def test_a_starter_file_is_met_today_and_not_when_the_cache_doubles(repository: Repository, engine: str) -> None:
    models = [model for model in MODELS if runs(model, engine)]
    if not models:
        pytest.skip(f"{engine} runs none of these models")
    assert repository.kvcalc("init", *models, "--engine", engine, "--sequences", "4")[0] == 0
    path = repository.folder / "kvcalc.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema("budgets")).validate(document)
    code, out, err = repository.kvcalc("check")
    assert code == 0, out + err
    for budget in document["budgets"]:
        budget["sequences"] *= 2
    path.write_text(yaml.safe_dump(document))
    assert repository.kvcalc("check")[0] == 1


def test_a_starter_file_for_the_config_beside_it(repository: Repository) -> None:
    assert repository.kvcalc("init", "./config.json", "config.json", "llama-2-7b", "llama-2-7b")[0] == 0
    assert repository.kvcalc("check")[0] == 0
    names = [budget["name"] for budget in yaml.safe_load((repository.folder / "kvcalc.yaml").read_text())["budgets"]]
    assert names == ["config.json", "config.json-2", "llama-2-7b", "llama-2-7b-2"]
    repository.config(num_key_value_heads=32)
    assert repository.kvcalc("check")[0] == 1


def test_what_a_starter_file_comments_out_can_be_used(repository: Repository) -> None:
    """Every commented line but the prose, put into force."""
    repository.kvcalc("init", "llama-3.1-8b", "--engine", "vllm")
    path = repository.folder / "kvcalc.yaml"
    text = re.sub(r"^( +)# (?=[a-z_]+: )", r"\1", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert "\n    gpu: h100-80gb" in text
    path.write_text(text, encoding="utf-8")
    jsonschema.Draft202012Validator(schema("budgets")).validate(yaml.safe_load(text))
    assert repository.kvcalc("check", "--baseline", "main.json", "--update-baseline")[0] == 0
    assert repository.kvcalc("check", "--baseline", "main.json")[0] == 0


def test_a_starter_file_replaces_nothing_unasked(repository: Repository) -> None:
    path = repository.budgets(OVER)
    before = path.read_text()
    code, out, err = repository.kvcalc("init", "gpt2")
    assert (code, out, path.read_text()) == (2, "", before)
    assert "--force" in err
    assert repository.kvcalc("init", "gpt2", "--output", "-")[1].startswith("# Budgets for the KV cache")
    assert path.read_text() == before
    assert repository.kvcalc("init", "gpt2", "--force")[0] == 0
    assert path.read_text() != before


def test_no_starter_file_for_what_cannot_be_evaluated(repository: Repository) -> None:
    for arguments, code in ((("nonesuch",), 2), (("gpt2", "--engine", "vlm"), 2), (("gpt2", "--sequences", "0"), 2), ((), 2)):
        assert repository.kvcalc("init", *arguments)[0] == code
        assert not (repository.folder / "kvcalc.yaml").exists()
