"""`kvcalc fit` at the command line: what it prints can be typed, and what would do nothing is said."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

QUESTIONS = (
    "llama-3.1-8b -e vllm --gpu l4-24gb --ctx 32k -n 8",
    "llama-3.1-8b -e vllm --gpu l4-24gb --ctx 30k",
    "llama-3.3-70b -e vllm --gpu h100-80gb --ctx 32k",
    "llama-3.3-70b -e vllm --gpu h100-80gb:2 --ctx 128k -n 4",
    "llama-3.1-8b -e vllm --kv-memory 10GiB",
    "gemma-3-27b -e sglang --kv-memory 10GiB --ctx 64k -n 3",
    "llama-3.1-8b -e sglang --gpu h100-80gb --ctx 64k -n 8",
    "llama-3.1-8b -e tensorrt-llm --gpu h100-80gb --ctx 128k -n 5",
    "llama-3.1-8b -e llama.cpp --gpu rtx4060-8gb --weight-dtype q4_k_m --ctx 32k",
    "llama-3.1-8b -e ollama --gpu rtx4060-8gb --weight-dtype q4_k_m --ctx 32k",
    "llama-3.1-8b --memory 20GiB --ctx 64k",
    "qwen3-next-80b-a3b -e vllm --kv-memory 1GiB --ctx 128k -n 4",
)


def answered(question: list[str], remedy: list[str]) -> list[str]:
    """The question with a remedy in the place of what it replaces."""
    option = {"--sequences": "-n"}.get(remedy[0], remedy[0])
    if option in question:
        place = question.index(option)
        return [*question[:place], *question[place + 2 :], *remedy]
    return [*question, *remedy]


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_would_fit_can_be_typed_and_fits(ask: Callable[..., Answer], question: str) -> None:
    asked = ["fit", *shlex.split(question)]
    answer = ask(*asked, "--require")
    assert answer.code == EXIT_OVER_BUDGET
    lines = answer.out.partition("It would fit with one of\n")[2].splitlines()
    assert lines
    for line in lines:
        remedy = shlex.split(line.partition("  ")[0])
        assert len(remedy) == 2, line
        assert ask(*answered(asked, remedy), "--require").code == EXIT_OK, line


def test_figures_of_the_engine_itself_have_their_units(ask: Callable[..., Answer]) -> None:
    out = ask("fit", "llama-3.1-8b", "-e", "vllm", "--kv-memory", "60GiB").out
    assert "vllm itself      491,520 tokens, concurrency 3.75, 30,720 blocks of 16 tokens and 2,097,152 B (2 MiB)\n" in out
    assert "blocks of 1 token\n" in ask("fit", "llama-3.1-8b", "-e", "sglang", "--kv-memory", "60GiB").out


@pytest.mark.parametrize(
    ("engine", "setting", "memory", "said"),
    [
        ("vllm", "gpu_memory_utilization=0.8", "--kv-memory 10GiB", "gpu_memory_utilization changes nothing here: it divides a card"),
        ("vllm", "--gpu-memory-utilization=0.8", "--kv-memory 10GiB", "gpu_memory_utilization changes nothing here"),
        ("sglang", "mem_fraction_static=0.8", "--kv-memory 10GiB", "mem_fraction_static decides how much memory there is for the pools"),
        ("tensorrt-llm", "free_gpu_memory_fraction=0.8", "--kv-memory 10GiB", "the cache takes 0.8 of the free memory"),
    ],
)
def test_a_share_of_a_card_where_none_is_divided(ask: Callable[..., Answer], engine: str, setting: str, memory: str, said: str) -> None:
    answer = ask("fit", "llama-3.1-8b", "-e", engine, "-E", setting, *memory.split())
    assert answer.code == EXIT_OK
    assert answer.err.count(said) == 1
    assert "changes nothing" not in ask("fit", "llama-3.1-8b", "-e", engine, "-E", setting, "--gpu", "h100-80gb").err


@pytest.mark.parametrize(
    ("engine", "setting", "said"),
    [
        ("vllm", "gpu_memory_utilization", "changes nothing here: it divides a card, and an estimate divides none"),
        ("sglang", "mem_fraction_static", "decides how much memory there is for the pools, not what they hold"),
        ("tensorrt-llm", "free_gpu_memory_fraction", "changes nothing here: it divides a card, and an estimate divides none"),
    ],
)
def test_a_share_of_a_card_in_an_estimate(ask: Callable[..., Answer], engine: str, setting: str, said: str) -> None:
    assert ask("estimate", "llama-3.1-8b", "-e", engine, "-E", f"{setting}=0.8").err.count(f"{setting} {said}") == 1
    assert said not in ask("estimate", "llama-3.1-8b", "-e", engine).err


@pytest.mark.parametrize(
    ("engine", "setting"),
    [("vllm", "gpu_memory_utilization"), ("sglang", "mem_fraction_static"), ("tensorrt-llm", "free_gpu_memory_fraction")],
)
def test_a_share_that_is_set_twice(refused: Callable[..., str], engine: str, setting: str) -> None:
    said = refused(EXIT_USAGE, "fit", "llama-3.1-8b", "-e", engine, "--gpu", "h100-80gb", "-E", f"{setting}=0.8", "--utilization", "0.7")
    assert said == f"error: the share of the card is set twice, by utilization and by {setting}; give one of them\n"


def test_a_size_without_a_unit_is_bytes_and_hardly_meant(ask: Callable[..., Answer]) -> None:
    assert ask("fit", "llama-3.1-8b", "--kv-memory", "60").err.startswith(
        "note: --kv-memory 60 is 60 bytes; write 60GiB or 60GB if that is meant\n"
    )
    assert "--overhead 2 is 2 bytes" in ask("fit", "llama-3.1-8b", "-e", "vllm", "--gpu", "h100-80gb", "--overhead", "2").err
    for size in ("0", "1048576", "60GiB"):
        assert "if that is meant" not in ask("fit", "llama-3.1-8b", "--kv-memory", size).err
