"""`kvcalc reconcile` at the command line: files, standard input, and a paste in the wrong place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import EXIT_NOT_EVALUATED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

REFUSED = "(16.0 GiB KV cache is needed, which is larger than the available KV cache memory (10.5 GiB)"
ERROR = f"ValueError: To serve at least one request with the model's max seq len (131072), {REFUSED}"


def test_an_error_from_standard_input(ask: Callable[..., Answer]) -> None:
    answer = ask("reconcile", "-", "--model", "llama-3.1-8b", stdin=ERROR)
    assert answer.code == EXIT_OK
    assert answer.out.startswith("vLLM did not start: one sequence of 131,072 (128k) tokens needs")
    assert "\n--max-model-len 85952     a context of 85,952 tokens" in answer.out


@pytest.mark.parametrize("log", [ERROR, "two\nlines"])
def test_an_error_in_the_place_of_a_file(refused: Callable[..., str], log: str) -> None:
    assert "paste the lines into standard input: kvcalc reconcile - --model MODEL" in refused(EXIT_USAGE, "reconcile", log)


def test_a_file_that_is_not_there(refused: Callable[..., str]) -> None:
    assert "name a log file, or - for standard input" in refused(EXIT_USAGE, "reconcile", "nonesuch.log")


def test_a_log_of_something_else_says_which_log_is_meant(ask: Callable[..., Answer]) -> None:
    answer = ask("reconcile", "-", stdin="GET /v1/models 200\n")
    assert answer.code == EXIT_NOT_EVALUATED
    assert "give the log from the engine's start on (" in answer.err
    assert all(name in answer.err for name in ("vLLM", "SGLang", "TensorRT-LLM", "Ollama", "llama.cpp"))
