"""Options that change what counts: --baseline, --update-baseline, --only, --exit-zero, --config."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Repository

GROWING = {"context": 1000, "limits": {"max_growth": "5%"}}
OVER = {"context": 16_384, "limits": {"total": "1GiB"}}
MET = {"context": 4096, "limits": {"total": "1GiB"}}


def growth(out: str) -> list[float | None]:
    return [budget["growth_percent"] for budget in json.loads(out)["budgets"]]


def test_a_branch_against_its_main(repository: Repository) -> None:
    repository.budgets(GROWING, MET)
    assert repository.kvcalc("check", "--baseline", "main.json", "--update-baseline")[0] == 0
    # One layer of 32 more is 3.125 %, two are 6.25 %.
    for layers, code, percent in ((32, 0, 0.0), (33, 0, 3.125), (34, 1, 6.25), (16, 0, -50.0)):
        repository.config(num_hidden_layers=layers)
        found, out, _ = repository.kvcalc("check", "--baseline", "main.json", "--format", "json")
        assert found == code, layers
        assert growth(out) == [percent, percent]
    assert repository.kvcalc("check", "--baseline", "main.json", "--update-baseline")[0] == 0
    repository.config(num_hidden_layers=17)
    code, out, _ = repository.kvcalc("check", "--baseline", "main.json", "--format", "json")
    assert (code, growth(out)) == (1, [6.25, 6.25])


def test_without_an_earlier_figure_growth_is_unknown_and_no_pass(repository: Repository) -> None:
    repository.budgets(GROWING)
    code, out, _ = repository.kvcalc("check")
    assert code == 2
    assert "there is no earlier figure to compare with" in out
    code, _, err = repository.kvcalc("check", "--baseline", "main.json")
    assert code == 2
    assert "main.json: no such file; write it once with --update-baseline" in err
    repository.kvcalc("check", "--baseline", "main.json", "--update-baseline")
    repository.budgets(GROWING, GROWING)
    code, out, _ = repository.kvcalc("check", "--baseline", "main.json", "--format", "json")
    assert code == 2
    assert [budget["status"] for budget in json.loads(out)["budgets"]] == ["pass", "error"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "kvcalc.check/1"}', "<html>", '{"schema": "kvcalc.fit/1", "budgets": []}'])
def test_a_baseline_that_is_none(repository: Repository, text: str) -> None:
    repository.budgets(GROWING)
    repository.write(text, "main.json")
    code, out, err = repository.kvcalc("check", "--baseline", "main.json")
    assert (code, out) == (2, "")
    assert "main.json" in err


@pytest.mark.parametrize("total", [0, -5, True, "12", 1.5, None, 10**4000, float("inf"), [1], {"total": 1}])
def test_a_figure_that_is_none(repository: Repository, total: Any) -> None:
    """Edited baselines: what is no number of bytes is no earlier figure."""
    repository.budgets(GROWING)
    entries = [{"name": "b0", "bytes": {"total": total}}, {"name": 3, "bytes": {"total": 1}}, {"bytes": 4}, 5]
    repository.write(json.dumps({"schema": "kvcalc.check/1", "budgets": entries}), "main.json")
    assert repository.kvcalc("check", "--baseline", "main.json")[0] == 2


def test_two_figures_of_one_budget_are_no_baseline(repository: Repository) -> None:
    """Which of them is compared with must not depend on their order."""
    repository.budgets(GROWING)
    for totals, code in (((1000 * 131_072, 1000 * 131_072), 0), ((1000 * 131_072, 10**12), 2), ((10**12, 1), 2)):
        entries = [{"name": "b0", "bytes": {"total": total}} for total in totals]
        repository.write(json.dumps({"schema": "kvcalc.check/1", "budgets": entries}), "main.json")
        found, out, err = repository.kvcalc("check", "--baseline", "main.json")
        assert found == code, out
        assert code == 0 or "main.json: a budget named 'b0' stands twice with different figures" in err


def test_a_baseline_with_more_than_the_budgets_is_one(repository: Repository) -> None:
    """Figures of budgets that are gone, keys of a later kvcalc."""
    repository.budgets(GROWING)
    entries = [{"name": "gone", "bytes": {"total": 5}}, {"name": "b0", "bytes": {"total": 1000 * 131_072, "more": 1}, "later": []}]
    repository.write(json.dumps({"schema": "kvcalc.check/1", "budgets": entries, "later": 1}), "main.json")
    assert repository.kvcalc("check", "--baseline", "main.json")[0] == 0


def test_updating_keeps_the_code_of_what_is_wrong_today(repository: Repository) -> None:
    """The figures are written, and other limits still hold."""
    repository.budgets(GROWING, OVER)
    assert repository.kvcalc("check", "--baseline", "main.json", "--update-baseline")[0] == 1
    assert [entry["bytes"]["total"] for entry in json.loads((repository.folder / "main.json").read_text())["budgets"]] == [
        1000 * 131_072,
        16_384 * 131_072,
    ]


def test_update_without_a_file_or_with_some_budgets(repository: Repository) -> None:
    repository.budgets(GROWING, MET)
    code, _, err = repository.kvcalc("check", "--update-baseline")
    assert code == 2
    assert "--baseline FILE" in err
    repository.kvcalc("check", "--baseline", "main.json", "--update-baseline")
    before = (repository.folder / "main.json").read_text()
    assert repository.kvcalc("check", "--baseline", "main.json", "--update-baseline", "--only", "b0")[0] == 2
    assert (repository.folder / "main.json").read_text() == before


def test_only_the_budgets_named(repository: Repository) -> None:
    repository.budgets(MET, OVER, MET)
    assert repository.kvcalc("check")[0] == 1
    code, out, _ = repository.kvcalc("check", "--only", "b0", "--only", "b2", "--format", "json")
    assert (code, [budget["name"] for budget in json.loads(out)["budgets"]]) == (0, ["b0", "b2"])
    assert repository.kvcalc("check", "--only", "b1")[0] == 1
    code, _, err = repository.kvcalc("check", "--only", "b9")
    assert code == 2
    assert "no budget is named 'b9'" in err


def test_exit_zero_forgives_an_excess_and_nothing_else(repository: Repository) -> None:
    repository.budgets(OVER)
    code, out, _ = repository.kvcalc("check", "--exit-zero", "--format", "json")
    assert (code, json.loads(out)["summary"]["exit_code"]) == (0, 1)
    repository.budgets(OVER, {"engine": "vlm", "limits": {"total": "1GiB"}})
    assert repository.kvcalc("check", "--exit-zero")[0] == 2
    repository.write("")
    assert repository.kvcalc("check", "--exit-zero")[0] == 2


def test_the_file_is_named_found_upwards_or_found_in_a_folder(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative models are relative to the file, not to where the command is typed."""
    repository.budgets(MET)
    inner = repository.folder / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "config.json").write_text('{"model_type": "nonesuch"}')
    monkeypatch.chdir(inner)
    for arguments in ((), ("../../kvcalc.yaml",), ("--config", "../../kvcalc.yaml"), ("../..",)):
        assert repository.kvcalc("check", *arguments)[0] == 0, arguments
    code, _, err = repository.kvcalc("check", "../../kvcalc.yaml", "--config", "../../kvcalc.yaml")
    assert code == 2
    assert "twice" in err


def test_a_model_is_never_one_of_the_working_folder(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """`config.json` and `org/name` mean what lies beside the file; a catalogue id means the catalogue."""
    inner = repository.folder / "deploy"
    for folder in (inner, inner / "org" / "name", inner / "gpt2"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text((repository.folder / "config.json").read_text())
    monkeypatch.chdir(inner)
    (repository.folder / "config.json").unlink()
    limits = {"limits": {"total": "1TiB"}}
    repository.budgets(
        {"model": "config.json"} | limits, {"model": "org/name"} | limits, {"model": "gpt2"} | limits, {"model": "deploy"} | limits
    )
    code, out, _ = repository.kvcalc("check", "../kvcalc.yaml", "--format", "json")
    assert code == 2
    budgets = json.loads(out)["budgets"]
    assert [budget["status"] for budget in budgets] == ["error", "error", "pass", "pass"]
    # gpt2 of the catalogue: 12 layers x 2 x 768 x 1,024 tokens in fp32 or bf16, not the folder's 131,072 tokens.
    assert budgets[2]["context"] == 1024
    assert budgets[3]["context"] == 131_072
