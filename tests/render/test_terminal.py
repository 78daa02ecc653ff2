"""At a real terminal: a table with weight, in the order in which people read; no escapes where they are not wanted."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys

import pytest

pty = pytest.importorskip("pty")
fcntl = pytest.importorskip("fcntl")
termios = pytest.importorskip("termios")

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
ESTIMATE = ("estimate", "llama-2-7b", "--ctx", "128k")
COMPARE = ("compare", "--techniques", "gqa,gqa+swa,dsa,deltanet")


def at_terminal(*arguments: str, columns: int = 100, **environment: str) -> str:
    """What the command writes to a terminal of so many columns, stdout and stderr as they come."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "kvcalc", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env={**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment},
    )
    os.close(slave)
    found = b""
    try:
        while part := os.read(master, 65536):
            found += part
    except OSError:  # Linux says so when the other end has closed
        pass
    finally:
        os.close(master)
    assert process.wait(60) == 0
    return found.decode().replace("\r\n", "\n")


def test_figure_then_assumptions_then_lines() -> None:
    lines = ESCAPES.sub("", at_terminal(*ESTIMATE)).splitlines()
    assert lines[0].startswith("68,719,476,736 B (64 GiB) for 1 sequence")
    assert lines[1].startswith("warning: context 131,072 is beyond")
    assert any("───" in line for line in lines)


def test_the_figure_is_bold_and_colours_can_be_refused() -> None:
    assert at_terminal(*ESTIMATE).startswith("\x1b[1m68,719,476,736 B (64 GiB)\x1b[0m")
    for refusal in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in at_terminal(*ESTIMATE, **refusal)
    assert "\x1b" not in at_terminal(*ESTIMATE, "-f", "plain")


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 140, 200])
@pytest.mark.parametrize("arguments", [ESTIMATE, COMPARE], ids=["estimate", "compare"])
def test_no_number_is_cut_at_any_width(arguments: tuple[str, ...], columns: int) -> None:
    text = ESCAPES.sub("", at_terminal(*arguments, columns=columns))
    numbers = ("34,359,738,368",) if arguments is ESTIMATE else ("17,179,869,184", "4,294,967,296", "784,334,848", "4,347,068,416")
    for number in numbers:
        assert number in text
    assert "…" not in text


FIT = ("fit", "llama-3.3-70b", "-e", "vllm", "--gpu", "h100-80gb:2", "-c", "128k", "-n", "4")
TABLE = ("fit", "gemma-3-27b", "-e", "vllm", "--kv-memory", "19GiB", "--table", "--kv-dtype", "auto,fp8")
ENGINES = ("compare", "gemma-3-27b", "--engines", "all", "-c", "32k", "--kv-memory", "40GiB")


@pytest.mark.parametrize("columns", [60, 80, 140])
@pytest.mark.parametrize(
    "arguments",
    [
        ESTIMATE,
        COMPARE,
        FIT,
        ENGINES,
        ("plot",),
        ("models", "list", "llama-3"),
        ("gpus", "list"),
        ("explain", "mla"),
        ("explain", "vllm"),
        TABLE,
    ],
    ids=lambda found: found[0],
)
def test_every_line_stays_within_the_width(arguments: tuple[str, ...], columns: int) -> None:
    """Headline and notes break between words, tables make room: nothing is left to the terminal, which breaks inside of numbers."""
    lines = ESCAPES.sub("", at_terminal(*arguments, columns=columns)).splitlines()
    assert max(map(len, lines)) <= columns, max(lines, key=len)


def test_the_lines_of_a_chart_all_have_their_column() -> None:
    """Lines of a chart are alike: what does not fit goes on in a table below."""
    text = ESCAPES.sub("", at_terminal("plot", columns=60))
    assert "not shown" not in text
    table = text[text.index("\ntokens ") :]
    assert [line.split() for line in table.splitlines() if line.startswith("tokens ")] == [
        ["tokens", "mha", "gqa", "mla"],
        ["tokens", "gqa+swa", "deltanet"],
    ]
    assert "4,347,068,416" in table


def test_a_terminal_that_has_only_ascii() -> None:
    text = at_terminal(*COMPARE, columns=100, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert "\\u" not in text
    assert "----" in text
    assert "####" in ESCAPES.sub("", at_terminal(*COMPARE, columns=220, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C"))


def test_what_is_left_out_is_said() -> None:
    text = " ".join(ESCAPES.sub("", at_terminal(*COMPARE, columns=80)).split())
    assert "not shown at this width: " in text
    assert "(-f plain shows all)" in text
    assert "not shown" not in ESCAPES.sub("", at_terminal(*COMPARE, columns=220))


def test_a_table_in_a_pipe_has_no_escapes_and_all_columns() -> None:
    command = [sys.executable, "-m", "kvcalc", *COMPARE, "-f", "table"]
    found = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "COLUMNS": "40", "PYTHONUTF8": "1"})
    text = found.stdout.decode()
    assert "\x1b" not in text
    assert "parameters" in text
    assert "27 x 1,024 + 5 x 32,768" in text
