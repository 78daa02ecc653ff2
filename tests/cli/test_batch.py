"""`kvcalc batch`: files and pipes, long lines, bytes that are no text."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EXIT_NOT_EVALUATED, EXIT_OK, EXIT_USAGE
from kvcalc.questions.batch import LONGEST_LINE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

LINE = json.dumps({"id": 1, "command": "estimate", "model": "llama-2-7b", "context": 4096})


def answers(answer: Answer) -> list[Any]:
    return [json.loads(line) for line in answer.out.splitlines()]


def test_answers_in_order_and_one_bad_line_stops_nothing(ask: Callable[..., Answer]) -> None:
    answer = ask("batch", stdin=f"{LINE}\nnonsense\n\n{LINE.replace('1,', '2,')}\n")
    assert answer.code == EXIT_NOT_EVALUATED
    assert [(item["id"], item["ok"]) for item in answers(answer)] == [(1, True), (None, False), (2, True)]


def test_a_file_a_dash_and_no_last_newline(ask: Callable[..., Answer], tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(LINE)
    from_file, from_pipe = ask("batch", str(file)), ask("batch", "-", stdin=LINE)
    assert from_file.code == from_pipe.code == EXIT_OK
    assert answers(from_file) == answers(from_pipe)
    assert answers(from_file)[0]["result"]["bytes"]["total"] == 2 * 1024**3


def test_nothing_asked_is_nothing_answered(ask: Callable[..., Answer]) -> None:
    assert ask("batch", stdin="\n\n") == (EXIT_OK, "", "")


def test_a_missing_file(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "cannot read" in refused(EXIT_USAGE, "batch", str(tmp_path / "none.jsonl"))
    assert "cannot read" in refused(EXIT_USAGE, "batch", str(tmp_path))


def test_a_line_that_is_too_long_is_answered_and_the_next_ones_too(ask: Callable[..., Answer]) -> None:
    long = '{"id": 9, "model": "' + "x" * (2 * LONGEST_LINE) + '"}'
    found = answers(ask("batch", stdin=f"{LINE}\n{long}\n{LINE}\n"))
    assert [item["ok"] for item in found] == [True, False, True]
    assert "too long" in found[1]["error"]["message"]


def test_bytes_that_are_no_text_are_one_bad_line(ask: Callable[..., Answer], tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_bytes(b"\xff\xfe\x00\n" + LINE.encode() + b"\n")
    assert [item["ok"] for item in answers(ask("batch", str(file)))] == [False, True]


def test_an_answer_comes_before_the_next_question() -> None:
    command = [sys.executable, "-m", "kvcalc", "batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(LINE + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["ok"]
        process.stdin.close()
        assert process.wait(30) == EXIT_OK
