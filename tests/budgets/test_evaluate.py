"""Limits against figures, remedies that hold when they are applied, growth over a baseline."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.budgets.check import Gate, check
from kvcalc.budgets.evaluate import evaluate
from kvcalc.budgets.file import read_budgets
from kvcalc.budgets.question import BudgetQuestion
from kvcalc.core.errors import InternalError
from kvcalc.engines import ENGINES
from kvcalc.engines.base.search import last_between
from kvcalc.questions.documents.kinds import plain
from kvcalc.questions.fit_card import size
from kvcalc.questions.request import parse_request
from kvcalc.render.check_view import view
from kvcalc.render.plain import render

if TYPE_CHECKING:
    from pathlib import Path

#: 32 layers, 8 heads of 128, bf16: 131,072 B a token.
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "torch_dtype": "bfloat16",
}
PER_TOKEN = 131_072


def repository(folder: Path, *budgets: dict[str, Any], **config: Any) -> Path:
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    path = folder / "kvcalc.yaml"
    path.write_text(json.dumps({"budgets": [{"name": f"b{n}", "model": "./config.json"} | budget for n, budget in enumerate(budgets)]}))
    return path


def gate(folder: Path, *budgets: dict[str, Any], **config: Any) -> Gate:
    return check(repository(folder, *budgets, **config))


def test_equal_to_a_limit_passes_and_one_byte_more_does_not(tmp_path: Path) -> None:
    found = gate(
        tmp_path,
        {"context": 1024, "limits": {"total": 1024 * PER_TOKEN, "per_token": PER_TOKEN}},
        {"context": 1024, "limits": {"total": 1024 * PER_TOKEN - 1}},
    )
    assert [verdict.status for verdict in found.verdicts] == ["pass", "over"]
    assert found.exit_code == 1
    assert found.verdicts[1].checks[0].over == 1


def test_a_change_from_8_to_32_heads_fails_and_every_remedy_holds(tmp_path: Path) -> None:
    budget = {"context": 32_768, "sequences": 16, "limits": {"total": 16 * 32_768 * PER_TOKEN, "per_device": 16 * 32_768 * PER_TOKEN}}
    assert gate(tmp_path, budget).exit_code == 0
    path = repository(tmp_path, budget, num_key_value_heads=32)

    found = check(path)
    assert found.exit_code == 1
    verdict = found.verdicts[0]
    assert verdict.checks[0].over == 3 * 16 * 32_768 * PER_TOKEN
    assert verdict.checks[0].percent == 300.0
    # 4 x 131,072 B a token: a quarter of the context or of the sequences; 18 of 64 B is more than a quarter, so no format helps.
    assert [remedy.change for remedy in verdict.remedies] == [{"context": 8192}, {"sequences": 4}]
    for remedy in verdict.remedies:
        applied = replace(
            verdict.budget, request=replace(verdict.budget.request, workload=replace(verdict.budget.request.workload, **remedy.change))
        )
        assert evaluate([applied])[0].status == "pass", remedy


def test_three_remedies_for_a_smaller_overshoot(tmp_path: Path) -> None:
    found = gate(tmp_path, {"context": 32_768, "sequences": 16, "limits": {"total": 10 * 32_768 * PER_TOKEN}})
    verdict = found.verdicts[0]
    assert [remedy.change for remedy in verdict.remedies] == [{"context": 20_480}, {"sequences": 10}, {"kv_dtype": "fp8"}]


def test_a_context_is_a_remedy_from_the_least_that_the_budget_asks_for(tmp_path: Path) -> None:
    """10 of 16 sequences, or 20,480 of 32,768 tokens: no remedy where the budget itself asks for a token more."""
    asked = {"context": 32_768, "sequences": 16, "kv_memory": "1TiB"}
    for least, remedy in ((20_480, [{"context": 20_480}]), (20_481, [])):
        found = gate(tmp_path, asked | {"limits": {"total": 10 * 32_768 * PER_TOKEN, "min_context": least}})
        assert [remedy.change for remedy in found.verdicts[0].remedies] == [*remedy, {"sequences": 10}, {"kv_dtype": "fp8"}]


def test_one_token_is_a_remedy_too(tmp_path: Path) -> None:
    found = gate(tmp_path, {"context": 16, "limits": {"total": PER_TOKEN}})
    assert [remedy.change for remedy in found.verdicts[0].remedies] == [{"context": 1}]


def test_a_shared_prefix_does_not_hide_the_remedy(tmp_path: Path) -> None:
    """No context under the prefix is asked about: 1,024 + 16 x 19,456 tokens is what 20,480 tokens take."""
    limit = (1024 + 16 * 19_456) * PER_TOKEN
    found = gate(tmp_path, {"context": 32_768, "sequences": 16, "shared_prefix": 1024, "limits": {"total": limit}})
    assert [remedy.change for remedy in found.verdicts[0].remedies] == [{"context": 20_480}, {"sequences": 9}, {"kv_dtype": "fp8"}]


@pytest.mark.parametrize(
    ("budget", "code", "kind"),
    [
        ({"model": "no-such-model", "limits": {"total": "1GiB"}}, 2, "unknown_model"),
        ({"model": "./missing.json", "limits": {"total": "1GiB"}}, 2, "unknown_model"),
        ({"engine": "vlm", "limits": {"total": "1GiB"}}, 2, "usage"),
        ({"tensor_parallel": 3, "limits": {"total": "1GiB"}}, 2, "engine_rejects"),
        ({"kv_dtype": "q9", "limits": {"total": "1GiB"}}, 2, "usage"),
        ({"limits": {"max_growth": "5%"}}, 2, "usage"),
    ],
)
def test_unknown_is_never_a_pass(tmp_path: Path, budget: dict[str, Any], code: int, kind: str) -> None:
    found = gate(tmp_path, {"limits": {"total": "1TiB"}}, budget)
    assert found.exit_code == code
    assert found.verdicts[0].status == "pass"
    error = found.verdicts[1].error
    assert error is not None
    assert error.type == kind


def test_an_unsupported_model_is_3_and_a_usage_error_beside_it_2(tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text('{"model_type": "nonesuch"}')
    unsupported, over = {"model": "./new.json", "limits": {"total": "1GiB"}}, {"context": 1024, "limits": {"total": 1}}
    assert gate(tmp_path, unsupported, over).exit_code == 3
    assert gate(tmp_path, unsupported, over, {"engine": "vlm", "limits": {"total": 1}}).exit_code == 2


def test_growth_over_a_baseline(tmp_path: Path) -> None:
    budget = {"context": 1000, "limits": {"max_growth": "5%"}}
    path = repository(tmp_path, budget)
    baseline = tmp_path / "baseline.json"
    baseline.write_text(json.dumps(check(path, replacing_baseline=True).to_dict()))
    assert check(path, baseline=baseline).exit_code == 0
    path = repository(tmp_path, budget | {"context": 1050})
    assert check(path, baseline=baseline).exit_code == 0
    path = repository(tmp_path, budget | {"context": 1051})
    found = check(path, baseline=baseline)
    assert found.exit_code == 1
    assert found.verdicts[0].checks[0].over == PER_TOKEN
    assert found.to_dict()["budgets"][0]["growth_percent"] == 5.1


def test_a_broken_baseline_is_an_error(tmp_path: Path) -> None:
    path = repository(tmp_path, {"context": 1000, "limits": {"max_growth": "5%"}})
    for text in ("", "[]", "{}", '{"schema": "kvcalc.check/1", "budgets": 3}'):
        (tmp_path / "baseline.json").write_text(text)
        with pytest.raises(Exception, match=r"baseline"):
            check(path, baseline=tmp_path / "baseline.json")


def test_only_some_budgets(tmp_path: Path) -> None:
    path = repository(tmp_path, {"limits": {"total": 1}}, {"limits": {"total": "1TiB"}})
    assert check(path, only=["b1"]).exit_code == 0
    assert read_budgets(path)[0].name == "b0"
    with pytest.raises(Exception, match="no budget is named"):
        check(path, only=["b2"])


def test_limits_on_a_memory(tmp_path: Path) -> None:
    memory = {"kv_memory": 40 * 1000 * PER_TOKEN, "context": 4000}
    found = gate(tmp_path, memory | {"limits": {"min_sequences": 10, "min_context": 4000}}, memory | {"limits": {"min_sequences": 11}})
    assert [verdict.status for verdict in found.verdicts] == ["pass", "over"]
    check_of = found.verdicts[1].checks[0]
    assert (check_of.allowed, check_of.actual, check_of.over, check_of.unit) == (11, 10, 1, "sequences")
    assert found.verdicts[1].remedies[0].change == {"context": 40_000 // 11}


def test_a_gpu_needs_weights_that_are_known(tmp_path: Path) -> None:
    card = {"gpu": "h100-80gb", "context": 4000, "limits": {"min_sequences": 10}}
    found = gate(tmp_path, card, card | {"weights": "16GiB"})
    assert [verdict.status for verdict in found.verdicts] == ["error", "pass"]
    assert found.exit_code == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_card_gives_what_fit_says_that_it_gives(tmp_path: Path, engine: str) -> None:
    """The same division of the card's memory, and the same search."""
    asked = {"model": "llama-3.1-8b", "engine": engine, "context": 8192, "gpu": "h100-80gb"}
    sized = size(parse_request(asked), weights=15 * 1024**3)
    budget = asked | {"weights": "15GiB", "limits": {"min_sequences": 1, "min_context": 8192}}
    (verdict,) = gate(tmp_path, budget).verdicts
    assert {check.limit: check.actual for check in verdict.checks} == {
        "min_sequences": sized.fit.max_sequences,
        "min_context": sized.fit.max_context,
    }


def test_a_bug_is_70_whatever_else_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise InternalError("a line of the plan has negative bytes")

    monkeypatch.setattr(BudgetQuestion, "ask", broken)
    assert gate(tmp_path, {"limits": {"total": 1}}, {"model": "nonesuch", "limits": {"total": 1}}).exit_code == 70


@pytest.mark.parametrize("most", [1, 2, 3, 17, 1000])
@pytest.mark.parametrize("guess", [-5, 0, 1, 2, 16, 500, 10**9])
def test_the_last_that_holds_wherever_the_search_begins(most: int, guess: int) -> None:
    for last in (0, 1, 2, 16, 17, 999, 1000):
        asked: list[int] = []

        def holds(value: int, last: int = last, asked: list[int] = asked) -> bool:
            asked.append(value)
            return value <= last

        assert last_between(1, most, guess, holds) == (min(last, most) or None)
        assert all(1 <= value <= most for value in asked)
        assert len(asked) <= 3 + 2 * most.bit_length()
    assert last_between(5, 4, guess, lambda _: True) is None


def test_a_share_of_a_card_does_nothing_where_the_memory_is_given(tmp_path: Path) -> None:
    asked = {"context": 1024, "engine": "vllm", "engine_args": {"gpu_memory_utilization": 0.8}, "limits": {"min_tokens": 1024}}
    given, card = gate(tmp_path, asked | {"kv_memory": "1GiB"}, asked | {"gpu": "h100-80gb", "weights": "15GiB"}).verdicts
    assert [note for note in given.document().notes if "gpu_memory_utilization changes nothing here" in note]
    assert not [note for note in card.document().notes if "changes nothing" in note]
    twice = gate(tmp_path, asked | {"gpu": "h100-80gb", "weights": "15GiB", "utilization": 0.7}).verdicts[0]
    assert twice.error is not None
    assert twice.error.message == "the share of the card is set twice, by utilization and by gpu_memory_utilization"


def test_no_limit_is_not_nothing(tmp_path: Path) -> None:
    """A model without rows holds any context, and one sequence of it takes 16 MiB or more: in 1 KiB it holds none."""
    wide, narrow = (
        {"model": "falcon-mamba-7b", "context": 4096, "kv_memory": memory, "limits": {"min_context": 4096}} for memory in ("1GiB", "1KiB")
    )
    found = gate(tmp_path, wide, narrow)
    assert [verdict.status for verdict in found.verdicts] == ["pass", "over"]
    met, missed = (plain(verdict.checks[0].document()) for verdict in found.verdicts)
    assert (met["unbounded"], met["over"]) == (True, 0)
    assert (missed["unbounded"], missed["actual"], missed["over"]) == (False, 0, 4096)
    assert "no limit" in render(view(found.document()))
