"""What cannot be evaluated is never a pass: the right code for each mistake, whatever the format, also beside budgets that are met."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hub_server import Repo, serve

from kvcalc.render import FORMATS
from kvcalc.render.reports import REPORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Repository

MET = {"context": 4096, "limits": {"total": "1GiB"}}
EVERY_FORMAT = tuple(dict.fromkeys((*FORMATS, *REPORTS)))

#: What stands in the second budget beside one that is met → code, type, and words of the sentence.
ONE_BUDGET: dict[str, tuple[dict[str, Any], int, str, str]] = {
    "no such model": ({"model": "llama-3.1-8bb", "limits": {"total": "1GiB"}}, 2, "unknown_model", "did you mean 'llama-3.1-8b'"),
    "no such file": ({"model": "./other/config.json", "limits": {"total": "1GiB"}}, 2, "unknown_model", "no such file"),
    "no such engine": ({"engine": "vlm", "limits": {"total": "1GiB"}}, 2, "usage", "did you mean 'vllm'"),
    "no such setting": ({"engine": "vllm", "engine_args": {"blok_size": 32}, "limits": {"total": "1GiB"}}, 2, "usage", "'block_size'"),
    "no such format": ({"kv_dtype": "fp9", "limits": {"total": "1GiB"}}, 2, "usage", "fp9"),
    "settings that the engine refuses": ({"engine": "vllm", "tensor_parallel": 3, "limits": {"total": "1GiB"}}, 2, "engine_rejects", "3"),
    "a notion that the engine does not have": ({"kv_memory": "8GiB", "limits": {"min_tokens": 8192}}, 2, "usage", "min_tokens"),
    "growth without a baseline": ({"limits": {"max_growth": "5%"}}, 2, "usage", "--update-baseline"),
    "an architecture without a rule": ({"model": "./new.json", "limits": {"total": "1GiB"}}, 3, "unsupported_architecture", "nonesuch"),
    "a limit that is exceeded": ({"context": 16_384, "limits": {"total": "1GiB"}}, 1, "", "b1"),
}

BUDGETS = "budgets:\n  - name: a\n    model: ./config.json\n    context: 4k\n"
#: A file that cannot be read as budgets → words of the sentence; the code is 2.
WHOLE_FILE = {
    "empty": ("", "kvcalc.yaml: is empty"),
    "only comments": ("# later\n", "is empty"),
    "no YAML": ("budgets: [", "is not YAML"),
    "no budgets": ("budgets: []\n", "is not a list of 1"),
    "a key misspelt": (BUDGETS + "    limit: {total: 1GiB}\n", "kvcalc.yaml:5: budgets[0]: unknown key 'limit'; did you mean 'limits'?"),
    "a limit misspelt": (
        BUDGETS + "    limits: {totl: 1GiB}\n",
        "kvcalc.yaml:5: budgets[0].limits: unknown key 'totl'; did you mean 'total'?",
    ),
    "two of one name": (
        BUDGETS + "    limits: {total: 1GiB}\n  - {name: a, model: gpt2, limits: {total: 1GiB}}\n",
        "kvcalc.yaml:6: budgets[1]: a budget named 'a' already stands on line 2",
    ),
    "a limit of 0": (BUDGETS + "    limits: {total: 0}\n", "kvcalc.yaml:5: budgets[0].limits.total: is 0, which no cache can meet"),
    "a limit of 0 GiB": (BUDGETS + "    limits: {total: 0GiB}\n", "is 0, which no cache can meet"),
    "no limits": (BUDGETS, "has no limits, so that it can never fail"),
    "conflicting sizes": (BUDGETS + "    limits: {total: 1GiB, per_device: 2GiB}\n", "can never be reached under total 1 GiB"),
    "conflicting contexts": (BUDGETS + "    kv_memory: 8GiB\n    limits: {min_context: 8k}\n", "is more than the context of 4,096"),
    "conflicting memories": (BUDGETS + "    kv_memory: 8GiB\n    gpu: l4-24gb\n    limits: {min_context: 4k}\n", "keep one of them"),
    "a context that is none": (BUDGETS.replace("4k", "-1") + "    limits: {total: 1GiB}\n", "context: is -1"),
    "no such card": (
        BUDGETS + "    gpu: h100-80\n    limits: {total: 1GiB}\n",
        "kvcalc.yaml:5: budgets[0]: --gpu: unknown accelerator 'h100-80'; did you mean 'h100-80gb'",
    ),
    "a number of cards": (BUDGETS + "    gpu: h100-80gb:2\n    limits: {min_context: 4k}\n", "is the name of one card"),
}


def told(format_name: str, out: str, err: str) -> str:
    """What a format says about a budget: all of it, unescaped where the format escapes."""
    if format_name in ("json", "sarif", "gitlab"):
        return json.dumps(json.loads(out), ensure_ascii=False)
    return (out + err).replace("%25", "%").replace("\\", "").replace("&#x27;", "'")


@pytest.mark.parametrize("format_name", EVERY_FORMAT)
@pytest.mark.parametrize("case", ONE_BUDGET)
def test_one_budget(repository: Repository, case: str, format_name: str) -> None:
    budget, code, kind, words = ONE_BUDGET[case]
    repository.write('{"model_type": "nonesuch"}', "new.json")
    repository.budgets(MET, budget)
    found, out, err = repository.kvcalc("check", "--format", format_name)
    assert found == code
    if format_name == "csv":
        assert out.splitlines()[-1].startswith("b1,EXCEEDED" if code == 1 else "b1,NOT EVALUATED")
    else:
        assert words in told(format_name, out, err)
    if format_name == "json":
        document = json.loads(out)
        assert document["summary"]["exit_code"] == code
        assert [entry["status"] for entry in document["budgets"]] == ["pass", "over" if code == 1 else "error"]
        assert (document["budgets"][1]["error"] or {"type": ""})["type"] == kind


@pytest.mark.parametrize("format_name", ["plain", "json", "junit", "github"])
@pytest.mark.parametrize("case", WHOLE_FILE)
def test_whole_file(repository: Repository, case: str, format_name: str) -> None:
    text, words = WHOLE_FILE[case]
    repository.write(text)
    code, out, err = repository.kvcalc("check", "--format", format_name)
    assert code == 2
    assert words in err
    if format_name == "json":
        assert json.loads(out)["error"]["type"] == "invalid_config"
    elif format_name == "github":
        assert out.startswith("::error ")
    else:
        assert out == ""


def test_a_broken_file_is_annotated_on_its_line(repository: Repository) -> None:
    repository.write(BUDGETS + "    limits: {total: 0}\n")
    _, out, _ = repository.kvcalc("check", "--format", "github")
    assert out.startswith("::error file=kvcalc.yaml,line=5,title=KV-cache budgets::kvcalc.yaml:5: budgets[0].limits.total: is 0")


@pytest.mark.parametrize("format_name", EVERY_FORMAT)
def test_no_file_at_all(repository: Repository, format_name: str) -> None:
    code, out, err = repository.kvcalc("check", "--format", format_name)
    assert code == 2
    assert "no kvcalc.yaml in this folder or above it" in err
    assert "kvcalc init MODEL" in err
    assert out == "" or format_name in ("json", "github")


def test_of_several_reasons_the_gravest(repository: Repository) -> None:
    """2, then 3, then 1."""
    repository.write('{"model_type": "nonesuch"}', "new.json")
    over = {"context": 16_384, "limits": {"total": "1GiB"}}
    unsupported = {"model": "./new.json", "limits": {"total": "1GiB"}}
    unknown = {"model": "nonesuch", "limits": {"total": "1GiB"}}
    for budgets, code in (((MET,), 0), ((MET, over), 1), ((over, unsupported), 3), ((unsupported, unknown, over), 2)):
        repository.budgets(*budgets)
        assert repository.kvcalc("check")[0] == code
    assert repository.kvcalc("check", "--exit-zero")[0] == 2


# ── the Hub, asked by the real client: each question is a process, because the client reads its environment once ─────────────


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    with serve({"org/gated": Repo(status=403, error_code="GatedRepo"), "org/busy": Repo(status=429)}) as server:
        yield server.url


@pytest.mark.parametrize(
    ("model", "environment", "kind", "words"),
    [
        ("org/gated", {}, "gated", "org/gated"),
        ("org/missing", {}, "not_found", "org/missing"),
        ("org/busy", {}, "hub_unavailable", "org/busy"),
        ("org/name", {"HF_HUB_OFFLINE": "1"}, "hub_unavailable", "org/name"),
        ("org/name", {"HF_ENDPOINT": "http://127.0.0.1:9"}, "hub_unavailable", "org/name"),
    ],
)
def test_the_hub_refuses(repository: Repository, hub: str, model: str, environment: dict[str, str], kind: str, words: str) -> None:
    repository.budgets(MET, {"model": model, "limits": {"total": "1GiB"}})
    reports = [f"--report={name}={name}.txt" for name in REPORTS]
    found = repository.process("check", "--exit-zero", "--format", "json", *reports, **{"HF_ENDPOINT": hub, **environment})
    assert found.returncode == 3
    met, refused = json.loads(found.stdout)["budgets"]
    assert met["status"] == "pass"
    assert refused["status"] == "error"
    assert refused["error"]["type"] == kind
    for name in REPORTS:
        assert words in (repository.folder / f"{name}.txt").read_text()


def test_one_question_to_the_hub_for_all_budgets_of_a_model(repository: Repository) -> None:
    with serve({"org/gated": Repo(status=403, error_code="GatedRepo")}) as server:
        ask = {"model": "org/gated", "limits": {"total": "1GiB"}}
        repository.budgets(ask)
        repository.process("check", HF_ENDPOINT=server.url)
        alone = len(server.requests)
        repository.budgets(ask, MET, ask, MET, ask)
        repository.process("check", HF_ENDPOINT=server.url)
        assert len(server.requests) == 2 * alone
