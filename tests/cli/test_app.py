"""What every command shares: help, version, errors as one sentence, exit codes, closed pipes, Ctrl-C, bugs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pytest
import typer
from command_line import INTERRUPTIBLE

import kvcalc
from kvcalc.cli.app import COMMANDS
from kvcalc.core.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

PROGRAM = [sys.executable, "-m", "kvcalc"]


def test_version(ask: Callable[..., Answer]) -> None:
    assert ask("--version") == (EXIT_OK, f"kvcalc {kvcalc.__version__}\n", "")


def test_help_lists_every_command_with_a_whole_sentence(ask: Callable[..., Answer]) -> None:
    answer = ask("--help")
    assert answer.code == EXIT_OK
    assert "..." not in answer.out.partition("Commands:")[2]
    for name in COMMANDS:
        assert f"\n  {name} " in answer.out


def test_every_command_has_help(ask: Callable[..., Answer]) -> None:
    for name in COMMANDS:
        answer = ask(name, "--help")
        assert answer.code == EXIT_OK
        assert answer.out.startswith(f"Usage: kvcalc {name}")


def test_help_has_no_colour_even_where_a_ci_forces_it(ask: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in ask("estimate", "--help").out
    assert "\x1b" not in ask("estimate", "llama-2-7b", "-f", "table").out


def test_a_command_by_itself_prints_its_help_to_stderr(ask: Callable[..., Answer]) -> None:
    for arguments in ((), ("models",)):
        answer = ask(*arguments)
        assert answer.code == EXIT_USAGE
        assert answer.out == ""
        assert "Commands:" in answer.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["estimat", "x"], "unknown command 'estimat'; did you mean 'estimate'"),
        (["models", "lst"], "unknown command 'lst'; did you mean 'list'?"),
        (["nonsense"], "unknown command 'nonsense'; commands: estimate"),
        (["estimate", "llama-2-7b", "--sequence", "3"], "unknown option '--sequence'; did you mean '--sequences'"),
        (["--verbose"], "unknown option '--verbose'; did you mean '--version'"),
        (["estimate"], "missing argument 'MODEL'; see `kvcalc estimate --help`"),
        (["estimate", "a", "b"], "unexpected extra argument"),
        (["estimate", "llama-2-7b", "--ctx"], "option '--ctx' requires an argument"),
    ],
)
def test_a_bad_command_line_is_one_sentence(refused: Callable[..., str], arguments: list[str], said: str) -> None:
    assert said in refused(EXIT_USAGE, *arguments)


def test_with_json_the_error_is_a_document_and_a_sentence(ask: Callable[..., Answer]) -> None:
    for flags in (["-f", "json"], ["--format", "json"], ["--format=json"], ["-fjson"]):
        answer = ask("estimate", "llama-2-7c", *flags)
        assert answer.code == EXIT_USAGE
        assert answer.document["schema"] == "kvcalc.error/1"
        assert answer.document["error"]["type"] == "unknown_model"
        assert answer.document["error"]["exit_code"] == EXIT_USAGE
        assert "'llama-2-7b'" in answer.err
    assert ask("estimate", "llama-2-7c", "-f", "json", "-f", "plain").out == ""


def test_control_characters_never_reach_the_terminal(refused: Callable[..., str]) -> None:
    for hostile in ("\x1b[31mred", "a\rb", "bell\x07", "line\nbreak", "\x9b31m", "\u202eevil"):
        for arguments in (
            ("estimate", hostile),
            ("estimate", "llama-2-7b", "--ctx", hostile),
            ("estimate", "llama-2-7b", "--set", hostile),
            ("estimate", "llama-2-7b", "--engine", hostile),
            ("estimate", "llama-2-7b", "-E", f"{hostile}=1"),
            ("compare", "-t", hostile),
            (hostile,),
            ("estimate", "llama-2-7b", f"--{hostile}"),
        ):
            said = refused(EXIT_USAGE, *arguments).removesuffix("\n")
            assert said.isprintable(), arguments


def test_a_bug_is_one_sentence_and_exit_70(ask: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("secret\x1b[31m")

    monkeypatch.setattr(import_module("kvcalc.questions.estimate"), "estimate", broken)
    answer = ask("estimate", "llama-2-7b", "-f", "json")
    assert answer.code == EXIT_INTERNAL
    assert answer.document["error"]["type"] == "internal"
    assert "ZeroDivisionError" in answer.err
    assert answer.err.count("\n") == 1
    assert "\x1b" not in answer.err
    monkeypatch.setenv("KVCALC_DEBUG", "1")
    assert "Traceback" in ask("estimate", "llama-2-7b").err


def test_ctrl_c_is_exit_130_and_silent(ask: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module("kvcalc.questions.estimate"), "estimate", interrupted)
    assert ask("estimate", "llama-2-7b") == (EXIT_INTERRUPTED, "", "")


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
def test_ctrl_c_while_waiting_for_standard_input() -> None:
    with subprocess.Popen([*INTERRUPTIBLE, "batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"\n{}\n")
        process.stdin.flush()
        process.stdout.readline()  # the answer shows that it has started
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == EXIT_INTERRUPTED
        assert process.stderr.read() == b""


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
@pytest.mark.parametrize("arguments", [["models", "list", "-f", "json"], ["compare"], ["--help"]])
def test_a_closed_pipe_is_silent(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        found = subprocess.run([*PROGRAM, *arguments], stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert found.returncode == EXIT_OK
    assert b"Traceback" not in found.stderr
    assert b"Broken" not in found.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")  # noqa: PTH110
def test_a_full_disk_is_one_sentence() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        found = subprocess.run([*PROGRAM, "estimate", "llama-2-7b"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert found.returncode == EXIT_USAGE
    assert found.stderr.startswith(b"error: cannot write the answer")


def test_standard_output_that_cannot_hold_a_sign_of_ours_gets_it_in_ascii(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    (tmp_path / "kvcalc.yaml").write_text(
        "budgets:\n  - {name: d\u00e9p\u00f4t, model: llama-2-7b, context: 8k, limits: {total: 1GiB}}\n", encoding="utf-8"
    )
    said = {}
    for arguments in (("explain", "ideal"), ("explain", "vllm"), ("check",), ("estimate", "--help"), ("plot", "--help")):
        found = subprocess.run([*PROGRAM, *arguments], env=environment, cwd=tmp_path, capture_output=True, check=False)
        assert b"Traceback" not in found.stderr
        said[arguments] = (found.stdout + found.stderr).decode("ascii")
    assert "bytes = sum over states" in said["explain", "ideal"]
    assert "block = a x ceil(page / (a x t))" in said["explain", "vllm"]
    assert "fits with  context: 2048" in said["check",]
    # What is not ours is escaped, so that it can still be told apart.
    assert "d\\xe9p\\xf4t" in said["check",]
    assert all("\\u" not in text for text in said.values())


def test_commands_are_declared_in_one_place() -> None:
    for module in COMMANDS.values():
        assert isinstance(import_module(module).app, typer.Typer)


def test_python_m_runs_from_anywhere(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("elsewhere")
    found = subprocess.run([*PROGRAM, "estimate", "llama-2-7b", "-f", "json"], cwd=folder, capture_output=True, check=True)
    assert json.loads(found.stdout)["bytes"]["total"] == 2 * 1024**3
