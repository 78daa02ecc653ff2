"""A pull request that quadruples the cache: the gate closes, says by how much, and every remedy that it names opens it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kvcalc.budgets.check import check

if TYPE_CHECKING:
    from conftest import Repository

ROOT = Path(__file__).parents[2]
GIB = 1024**3
#: Today: 16 sequences x 32,768 tokens x 131,072 B = 64 GiB. With 32 heads four times as much, 256 GiB: 126 GiB over, 96.9 %.
LIMIT = 130 * GIB
BUDGET: dict[str, Any] = {
    "name": "chat-prod",
    "context": "32k",
    "sequences": 16,
    "limits": {"total": "130GiB", "per_token": "512KiB"},
    "message": "ask the serving team before raising this",
}


def applied(repository: Repository, change: dict[str, Any]) -> None:
    """Writes a remedy into the budget, as its owner would."""
    path = repository.folder / "kvcalc.yaml"
    document = yaml.safe_load(path.read_text())
    document["budgets"][0] |= change
    path.write_text(yaml.safe_dump(document, sort_keys=False))


def test_from_8_to_32_heads(repository: Repository) -> None:
    path = repository.budgets(BUDGET)
    before = repository.process("check")
    assert before.returncode == 0
    assert before.stdout.startswith("1 of 1 budgets met: kvcalc.yaml\n")

    repository.config(num_key_value_heads=32)
    after = repository.process("check")
    assert after.returncode == 1
    line = path.read_text().splitlines().index("    total: 130GiB") + 1
    assert after.stdout.splitlines()[:10] == [
        "0 of 1 budgets met: kvcalc.yaml; 1 exceeded",
        "",
        "EXCEEDED chat-prod",
        "over       135,291,469,824 B (126 GiB), 96.9 %",
        "limit      139,586,437,120 B (130 GiB) total",
        "value      274,877,906,944 B (256 GiB)",
        "asked      ./config.json on ideal, 32,768 tokens x 16, bf16",
        f"edit       kvcalc.yaml:{line}",
        "message    ask the serving team before raising this",
        "fits with  context: 16640, or sequences: 8, or kv_dtype: fp8",
    ]


@pytest.mark.parametrize(
    ("engine", "limits", "changes"),
    [
        # 130 GiB / 16 sequences / 524,288 B = 16,640 tokens; 130 GiB / (32,768 x 524,288 B) = 8.1 sequences; fp8: 128 GiB.
        ("ideal", {"total": LIMIT}, [{"context": 16_640}, {"sequences": 8}, {"kv_dtype": "fp8"}]),
        # 16,640 tokens are 1,040 whole blocks of 16.
        ("vllm", {"total": LIMIT}, [{"context": 16_640}, {"sequences": 8}, {"kv_dtype": "fp8"}]),
        ("vllm", {"per_device": LIMIT}, [{"context": 16_640}, {"sequences": 8}, {"kv_dtype": "fp8"}, {"tensor_parallel": 2}]),
        # q8_0 takes 34 of 64 B, 136 GiB; q5_1 24 of 64 B, 96 GiB.
        ("llama.cpp", {"total": LIMIT}, [{"context": 16_640}, {"sequences": 8}, {"kv_dtype": "q5_1"}]),
    ],
)
def test_every_remedy_passes_when_it_is_applied(
    repository: Repository, engine: str, limits: dict[str, int], changes: list[dict[str, Any]]
) -> None:
    budget = BUDGET | {"engine": engine, "limits": limits}
    repository.budgets(budget)
    assert repository.kvcalc("check")[0] == 0
    repository.config(num_key_value_heads=32)
    code, out, _ = repository.kvcalc("check", "--format", "json")
    assert code == 1
    remedies = json.loads(out)["budgets"][0]["remedies"]
    assert [remedy["change"] for remedy in remedies] == changes
    for remedy in remedies:
        repository.budgets(budget)
        applied(repository, remedy["change"])
        assert repository.kvcalc("check")[0] == 0, remedy
        largest = remedy["change"].get("context") or remedy["change"].get("sequences")
        if largest:
            applied(repository, dict.fromkeys(remedy["change"], largest + 16))
            assert repository.kvcalc("check")[0] == 1, f"{remedy} is not the largest"


def test_remedies_keep_what_the_budget_itself_demands(repository: Repository) -> None:
    """A context under the budget's own min_context, or under its shared prefix, would be refused when the file is read."""
    repository.budgets(
        {"context": "32k", "kv_memory": "40GiB", "limits": {"min_context": "24k", "total": "3GiB"}},
        {"context": "32k", "kv_memory": "40GiB", "limits": {"min_context": "32k", "total": "3GiB"}},
        {"context": 4000, "sequences": 4, "shared_prefix": 1000, "limits": {"total": 5000 * 131_072}},
    )
    code, out, _ = repository.kvcalc("check", "--format", "json")
    assert code == 1
    first, second, third = ([remedy["change"] for remedy in budget["remedies"]] for budget in json.loads(out)["budgets"])
    # 24,576 tokens of 131,072 B are the whole 3 GiB.
    assert first == [{"context": 24_576}, {"kv_dtype": "fp8"}]
    assert second == [{"kv_dtype": "fp8"}]
    # 1,000 shared tokens and 4 x 1,000 of their own.
    assert third[0] == {"context": 2000}


def test_a_memory_that_is_too_small_names_its_remedies_too(repository: Repository) -> None:
    """40 GiB hold 327,680 tokens of 128 KiB: ten sequences of 32k."""
    repository.budgets({"context": "32k", "sequences": 16, "kv_memory": "40GiB", "limits": {"min_sequences": 16}})
    code, out, _ = repository.kvcalc("check", "--format", "json")
    verdict = json.loads(out)["budgets"][0]
    assert code == 1
    assert verdict["checks"][0] | {"line": 0} == {
        "limit": "min_sequences",
        "allowed": 16,
        "actual": 10,
        "unit": "sequences",
        "over": 6,
        "over_percent": 37.5,
        "line": 0,
        "unbounded": False,
    }
    assert [remedy["change"] for remedy in verdict["remedies"]] == [{"context": 20_480}, {"kv_dtype": "fp8"}, {"tensor_parallel": 2}]
    assert [yaml.safe_load(remedy["text"]) for remedy in verdict["remedies"]] == [remedy["change"] for remedy in verdict["remedies"]]
    for remedy in verdict["remedies"]:
        repository.budgets({"context": "32k", "sequences": 16, "kv_memory": "40GiB", "limits": {"min_sequences": 16}} | remedy["change"])
        assert repository.kvcalc("check")[0] == 0


def test_the_card_and_what_it_leaves_for_the_cache_stand_beside_the_limits_on_it(repository: Repository) -> None:
    """an L4's 22.04 GiB as engines print them (23,660,068,864 B), 0.92 of it, without 15 GiB of weights and an overhead of 2 GiB."""
    card = {"context": "32k", "engine": "vllm", "gpu": "l4-24gb", "weights": "15GiB", "overhead": "2GiB", "limits": {"min_sequences": 8}}
    left = -(-23_660_068_864 * 92 // 100) - 17 * GIB
    repository.budgets(card, card | {"tensor_parallel": 2}, {"context": "8k", "limits": {"total": "1GiB"}})
    code, out, _ = repository.kvcalc("check")
    assert code == 1
    assert f"memory     {left:,} B (3.27 GiB) for the cache on each l4-24gb" in out
    assert "asked      ./config.json on vllm, 32,768 tokens x 1, bf16, 1 x l4-24gb" in out
    assert "./config.json on vllm, 32,768 tokens x 1, bf16, 2 x l4-24gb" in out
    budgets = json.loads(repository.kvcalc("check", "--format", "json")[1])["budgets"]
    assert [(budget["gpu"], budget["tensor_parallel"]) for budget in budgets] == [("l4-24gb", 1), ("l4-24gb", 2), (None, 1)]
    assert budgets[0]["kv_bytes_per_device"] == left
    assert budgets[2]["kv_bytes_per_device"] is None
    for name in ("github", "markdown", "junit", "sarif", "gitlab"):
        assert f"{left:,} B (3.27 GiB) for the cache on each l4-24gb" in repository.kvcalc("check", "--format", name)[1]


def test_where_no_single_change_is_enough_it_says_so(repository: Repository) -> None:
    """One byte a token can be reached by no context, no number of sequences, no format and no device."""
    repository.budgets({"context": "4k", "limits": {"per_token": 1}})
    out = repository.kvcalc("check")[1]
    assert "fits with  no change of one key; raise the limit, or change several" in out


def test_this_repository_gates_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs")
    gate = check()
    assert gate.file == "../kvcalc.yaml"
    assert gate.exit_code == 0
    assert len(gate.verdicts) >= 3
