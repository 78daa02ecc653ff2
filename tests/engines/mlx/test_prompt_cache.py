"""Finished prompts beside the running requests, in a plan and in the server's log."""

from __future__ import annotations

from typing import Any

import pytest

import kvcalc
from kvcalc.engines.mlx.startlog import MlxLog
from kvcalc.sources import load

QWEN = 36 * 2 * 2048


def plan(model: str, context: int, sequences: int = 1, **args: Any) -> dict[str, Any]:
    found: dict[str, Any] = kvcalc.estimate(model, context=context, sequences=sequences, engine="mlx", engine_args=args).to_dict()
    return found


def test_an_entry_of_a_batch_has_no_spare_rows() -> None:
    """4,097 tokens run in 4,352 rows and are stored in 4,097."""
    found = plan("qwen3-8b", 4097, 2, prompt_cache_size=3)
    (line,) = [line for line in found["lines"] if line["state"] == "prompt_cache"]
    assert line["bytes"] == 3 * 4097 * QWEN
    assert found["bytes"]["per_sequence"] == 4352 * QWEN
    assert found["bytes"]["total"] == 2 * 4352 * QWEN + 3 * 4097 * QWEN


def test_what_is_not_batched_is_stored_as_it_was_allocated() -> None:
    found = plan("qwen3-8b", 4097, 1, prompt_cache_size=2, kv_bits=8)
    assert found["bytes"]["total"] == 3 * 4352 * QWEN
    assert found["bytes"]["total"] == 3 * found["bytes"]["per_sequence"]


def test_the_limit_of_bytes_is_looked_at_when_a_batched_request_comes_in() -> None:
    entry = 4096 * QWEN
    assert plan("qwen3-8b", 4096, 2, prompt_cache_size=10, prompt_cache_bytes=entry)["bytes"]["total"] == 2 * entry + 3 * entry
    notes = plan("qwen3-8b", 4096, 1, prompt_cache_size=10, prompt_cache_bytes=1, kv_bits=4)["notes"]
    assert any("prompt_cache_bytes does nothing here" in note for note in notes)


@pytest.mark.parametrize(("model", "what"), [("qwen3-8b", "a conversation is one entry"), ("gemma-3-27b", "a turn is one entry")])
def test_what_cannot_be_trimmed_keeps_an_entry_a_turn(model: str, what: str) -> None:
    assert any(what in note for note in plan(model, 9000, prompt_cache_size=10)["notes"])


def rows(*lines: str) -> list[Any]:
    log = MlxLog()
    for number, line in enumerate(lines, 1):
        log.feed(line, number)
    assert log.recognised
    return log.rows(load("qwen3-8b"))


def test_the_log_agrees_with_what_its_prompts_can_fill() -> None:
    """One entry of 4,097 tokens and an answer: 0.60 to 0.72 GB, in units of 10^9 B."""
    progress = "2026-11-30 10:00:00,000 - INFO - Prompt processing progress: 2048/4097"
    (row,) = rows(progress, "2026-11-30 10:00:05,000 - INFO - Prompt Cache: 1 sequences, 0.63 GB")
    assert row.within
    assert (row.low, row.high, row.logged) == (4097 * QWEN, 4864 * QWEN, 630_000_000)
    (row,) = rows(progress, "2026-11-30 10:00:05,000 - INFO - Prompt Cache: 1 sequences, 1.30 GB")
    assert not row.within
    assert "longer than the prompts" in row.reason
    (row,) = rows(progress, "INFO - Prompt Cache: 3 sequences, 0.63 GB")
    assert "shorter than any prompt" in row.reason


def test_an_empty_prompt_cache_holds_nothing() -> None:
    (row,) = rows("INFO - Prompt Cache: 0 sequences, 0.00 GB")
    assert row.within
    assert row.high == 0
