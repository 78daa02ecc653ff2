"""What would fit is written as the command writes it: put into the command, it fits."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET
from kvcalc.engines.vllm.settings import SERVER_FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

SERVE = "vllm serve /models/llama --max-model-len 32768 --gpu-memory-utilization 0.9"


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ("--gpu l4-24gb", SERVE),
        ("--kv-memory 3GiB", SERVE),
        ("--gpu h100-80gb", "vllm serve /models/llama --max-model-len 131072 -tp 1 --max-num-seqs 8"),
    ],
)
def test_what_would_fit_can_be_put_into_the_command(ask: Callable[..., Answer], options: str, command: str) -> None:
    asked = ["launch", "--require", "--model", "llama-3.1-8b", *shlex.split(options)]
    sequences = ["-n", "8"] if "max-num-seqs" in command else []
    answer = ask(*asked, *sequences, "--", *shlex.split(command))
    assert answer.code == EXIT_OVER_BUDGET, answer
    lines = answer.out.partition("It would fit with one of\n")[2].splitlines()
    flags = {line.split()[0] for line in lines}
    assert "--max-model-len" in flags
    assert not flags & {"--ctx", "--kv-dtype", "--tp", "--pp", "--utilization"}
    for line in lines:
        flag, value = line.split()[:2]
        words = shlex.split(command)
        if flag in words:
            place = words.index(flag)
            del words[place : place + 2]
        own = flag in SERVER_FLAGS.values()
        told = [flag, value] if not own else []
        kept = sequences if flag != "--sequences" else []
        changed = ask(*asked, *kept, *told, "--", *words, *([flag, value] if own else []))
        assert changed.code == EXIT_OK, (line, changed.err)
