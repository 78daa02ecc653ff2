"""`kvcalc.yaml` read strictly: every mistake with its line, none ever a pass."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import pytest

from kvcalc.budgets.file import find_file, read_budgets
from kvcalc.core.errors import InvalidConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
defaults: {engine: ideal, limits: {per_token: 1MiB}}
budgets:
  - name: chat
    model: llama-3.1-8b
    context: 32k
    sequences: 16
    kv_dtype: fp8
    limits: {total: 24GiB, max_growth: 2.5%}
    message: ask the serving team
  - name: long
    model: ./model/config.json
    kv_memory: 40GiB
    limits:
      min_context: 32k
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "kvcalc.yaml"
    path.write_text(text)
    return path


def test_budgets_with_defaults_and_places(tmp_path: Path) -> None:
    chat, long = read_budgets(write(tmp_path, GOOD))
    assert chat.limits == {"per_token": 1024**2, "total": 24 * 1024**3, "max_growth": Fraction(1, 40)}
    assert chat.limit_lines == {"per_token": 1, "total": 8, "max_growth": 8}
    assert (chat.line, chat.message) == (3, "ask the serving team")
    assert (chat.request.workload.context, chat.request.workload.kv_dtype, chat.request.engine) == (32_768, "fp8", "ideal")
    assert long.request.model == str(tmp_path / "model/config.json")
    assert long.limits["min_context"] == 32_768
    assert long.limit_lines["min_context"] == 14


def test_a_message_over_several_lines_is_one_sentence(tmp_path: Path) -> None:
    text = "budgets:\n  - name: a\n    model: gpt2\n    limits: {total: 1GiB}\n    message: "
    for written in (">\n      ask the team\n      first\n", "|\n      ask the team\n      first\n", "ask the team first\n"):
        assert read_budgets(write(tmp_path, text + written))[0].message == "ask the team first"
    assert read_budgets(write(tmp_path, text + "\n"))[0].message == ""


def test_the_file_is_found_upwards(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert find_file(inner) == path


def test_no_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no kvcalc\.yaml"):
        find_file(tmp_path)


ONE = "budgets:\n  - name: a\n    model: llama-2-7b\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("[]", "is not a mapping"),
        ("budgets: []\n", "is not a list of 1"),
        ("budgets: {a: 1}\n", "is not a list"),
        ("budgets: [3]\n", r":1: budgets\[0\]: is not a mapping"),
        ("budget:\n  - name: a\n", "did you mean 'budgets'"),
        (ONE, "has no limits"),
        (ONE + "    limits: {}\n", "has no limits"),
        (ONE + "    limits: {totl: 1GiB}\n", ":4: budgets.0..limits: unknown key 'totl'; did you mean 'total'"),
        (ONE + "    limit: {total: 1GiB}\n", ":4: .*did you mean 'limits'"),
        (ONE + "    limits: {total: 0}\n", "is 0, which no cache can meet"),
        (ONE + "    limits: {total: 0GiB}\n", "is 0, which no cache can meet"),
        (ONE + "    limits: {total: 24}\n    contxt: 3\n", ":5: .*did you mean 'context'"),
        (ONE + "    limits: {total: 24 giraffes}\n", "not a size"),
        (ONE + "    limits: {total: 1.5}\n", "not a size"),
        (ONE + "    limits: {total: true}\n", "not a size"),
        (ONE + "    limits: {max_growth: 5}\n", "not a percentage"),
        (ONE + "    limits: {min_context: 8k}\n", "add gpu or kv_memory"),
        (ONE + "    kv_memory: 1GiB\n    gpu: h100-80gb\n    limits: {min_context: 8k}\n", "keep one of them"),
        (ONE + "    kv_memory: 1GiB\n    context: 4k\n    limits: {min_context: 8k}\n", "more than the context"),
        (ONE + "    limits: {total: 1GiB, per_device: 2GiB}\n", "can never be reached"),
        (ONE + "    limits: {per_sequence: 1KiB, per_token: 2KiB}\n", "can never be reached"),
        (ONE + "    weights: 1GiB\n    limits: {total: 1GiB}\n", "only mean something together with a gpu"),
        (ONE + "    context: 12q\n    limits: {total: 1GiB}\n", ":4: .*not a size"),
        (ONE + "    sequences: 0\n    limits: {total: 1GiB}\n", "out of range"),
        (
            ONE + "    limits: {total: 1GiB}\n  - name: a\n    model: gpt2\n    limits: {total: 1GiB}\n",
            ":5: .*'a' already stands on line 2",
        ),
        ("budgets:\n  - model: gpt2\n    limits: {total: 1GiB}\n", "has no name"),
        ("budgets:\n  - name: a\n    limits: {total: 1GiB}\n", "'model' is missing"),
        ("budgets:\n  - name: a\n    name: b\n", "stands twice"),
        ("defaults: 3\n" + ONE + "    limits: {total: 1}\n", "defaults: is not a mapping"),
        ("defaults: {name: a}\n" + ONE + "    limits: {total: 1}\n", "unknown key 'name'"),
        ("a: &a [x]\nb: *a\n", "anchors and aliases"),
        ("budgets: [\n", "is not YAML"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidConfigError, match=words) as caught:
        read_budgets(write(tmp_path, text))
    assert "kvcalc.yaml" in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("context", "least"), [(1, 2), (4096, 4097)])
def test_the_least_context_may_be_the_budgets_own_and_no_more(tmp_path: Path, context: int, least: int) -> None:
    budget = ONE + f"    context: {context}\n    kv_memory: 8GiB\n"
    (found,) = read_budgets(write(tmp_path, f"{budget}    limits: {{min_context: {context}}}\n"))
    assert found.limits["min_context"] == context
    with pytest.raises(InvalidConfigError, match=f"is more than the context of {context:,}"):
        read_budgets(write(tmp_path, f"{budget}    limits: {{min_context: {least}}}\n"))
