"""JSON Lines in, JSON Lines out: every line answered, none stops the others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.questions.batch import LONGEST_LINE, answer, answers

MODEL = {
    "architecture": {
        "id": "tiny",
        "family": "llama",
        "dtype": "bfloat16",
        "max_context": 4096,
        "layers": {"pattern": ["all"], "count": 2, "states": {"all": {"kind": "full", "kv_heads": 2, "head_dim": 8}}},
    }
}


def ask(**request: Any) -> dict[str, Any]:
    return answer(json.dumps({"command": "estimate", "model": MODEL} | request))


def test_an_answer_is_the_document_under_its_id() -> None:
    found = ask(id="a", context=10)
    assert found["ok"] is True
    assert found["id"] == "a"
    assert found["result"]["schema"] == "kvcalc.estimate/1"
    assert found["result"]["bytes"]["total"] == 2 * 2 * (8 + 8) * 2 * 10
    assert sum(line["bytes"] for line in found["result"]["lines"]) == found["result"]["bytes"]["total"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("{", "usage"),
        ("[]", "usage"),
        ("null", "usage"),
        ("[" * 100_000, "usage"),
        ('{"command": "guess", "model": "m"}', "usage"),
        ('{"command": "estimate"}', "usage"),
        ('{"command": "estimate", "model": {"hf": {}}}', "usage"),
        ('{"command": "estimate", "model": {"architecture": 3}}', "usage"),
        ('{"command": "estimate", "model": {"architecture": {}}}', "invalid_config"),
        ('{"command": "estimate", "model": {"hf_config": {}}}', "invalid_config"),
        ('{"command": "estimate", "model": {"hf_config": {"model_type": "nonesuch"}}}', "unsupported_architecture"),
        ('{"command": "estimate", "model": {"gguf_metadata": {}}}', "invalid_config"),
        ('{"command": "estimate", "model": "no-such-model"}', "unknown_model"),
        ('{"command": "estimate", "model": {"architecture": {}}, "engine": "vlm"}', "invalid_config"),
    ],
)
def test_bad_lines_are_answered(line: str, kind: str) -> None:
    found = answer(line)
    assert found["ok"] is False
    assert found["error"]["type"] == kind
    assert found["error"]["message"].isprintable()


def test_a_line_that_is_too_long_is_not_parsed() -> None:
    assert answer('"' + "x" * LONGEST_LINE + '"')["error"]["type"] == "usage"


def test_order_is_kept_and_blank_lines_are_skipped() -> None:
    lines = [json.dumps({"id": n, "command": "estimate", "model": MODEL, "context": n + 1}) for n in range(2)]
    lines.insert(1, "   ")
    lines.insert(2, "nonsense")
    assert [(ok, json.loads(text)["id"]) for ok, text in answers(lines)] == [(True, 0), (False, None), (True, 1)]


def test_no_line_may_eat_the_others() -> None:
    found = answer('{"id": 1, "command": "estimate", "model": "-"}')
    assert (found["ok"], found["error"]["type"]) == (False, "usage")


def test_the_largest_that_fits_is_no_question_of_estimate() -> None:
    assert ask(context=-1)["error"]["type"] == "usage"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["model", "context", "sequences", "engine", "kv_dtype", "engine_args", "tensor_parallel"]), JSON))
def test_no_request_is_a_bug(request: dict[str, Any]) -> None:
    found = answer(json.dumps({"command": "estimate", "model": MODEL} | request))
    assert found["ok"] or found["error"]["type"] != "internal"


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", '[1, {"a": NaN}]'])
def test_an_answer_is_json_whatever_the_id(number: str) -> None:
    found = answer(f'{{"id": {number}, "command": "estimate", "model": "gpt2"}}')
    assert (found["id"], found["ok"]) == (None, False)
    assert "'id' holds a number that JSON does not have" in found["error"]["message"]


def test_any_id_that_is_json_comes_back() -> None:
    for number in (0, -1, 10**300, 1.5, "", "\ud800", "\0", None, True, [], {"a": [1]}, "x" * 1000):
        line = json.dumps({"id": number, "command": "estimate", "model": "gpt2"})
        assert json.loads(json.dumps(answer(line), allow_nan=False))["id"] == number


def test_a_key_that_says_two_things() -> None:
    line = '{"id": 1, "command": "estimate", "model": "gpt2", "context": 5, "context": %d}'
    assert answer(line % 5)["ok"]
    found = answer(line % 6)
    assert "key 'context' stands twice with different values" in found["error"]["message"]
    inner = '{"command": "estimate", "model": {"hf_config": {"model_type": "llama", "hidden_size": 1, "hidden_size": 2}}}'
    assert "'hidden_size' stands twice" in answer(inner)["error"]["message"]


def test_a_mark_before_the_first_line() -> None:
    assert answer('\ufeff{"command": "estimate", "model": "gpt2"}')["ok"]
