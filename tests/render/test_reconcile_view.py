"""A log beside kvcalc: the reason is read first and at any width, and every figure has its unit."""

from __future__ import annotations

from typing import Any

from typed import of_plain

from kvcalc.questions.documents.reconcile import ReconcileDocument
from kvcalc.render import delimited, plain, reconcile_view

view = of_plain(reconcile_view.view, ReconcileDocument)


def row(figure: str, unit: str, logged: float, low: float, high: float, reason: str = "") -> dict[str, Any]:
    return {
        "figure": figure,
        "unit": unit,
        "line": 3,
        "logged": logged,
        "expected": low,
        "expected_high": high,
        "difference": logged - high if reason else 0,
        "within": not reason,
        "reason": reason,
    }


FP8 = "the cache was kept in fp8"
DOCUMENT: dict[str, Any] = {
    "model": {"id": "llama-3.1-8b"},
    "engine": {"name": "vllm", "version": "0.33.0", "args": {"context": 131_072, "enable_prefix_caching": True}},
    "log": "server.log",
    "rows": [
        row("tokens", "tokens", 983_040, 491_472, 491_552, FP8),
        row("concurrency", "sequences", 7.5, 3.74963, 3.75024, FP8),
        row("blocks", "blocks", 30_720, 30_720, 30_720),
        row("memory needed", "bytes", 2**34, 2**34, 2**34, "none of the usual reasons"),
    ],
    "trouble": None,
    "notes": [],
    "warnings": [],
}


def test_a_reason_stands_once_for_all_that_it_explains_before_the_table() -> None:
    for width in (None, 80, 60, 30):
        text = plain.render(view(DOCUMENT), width)
        head = " ".join(text.partition("figure ")[0].split())
        assert head.startswith(
            "1 of 4 figures agree: vllm 0.33.0, llama-3.1-8b Likely reason tokens, concurrency the cache was kept in fp8 memory needed"
        )
    assert plain.render(view(DOCUMENT)).count(FP8) == 1
    assert delimited.render(view(DOCUMENT)).count(FP8) == 2


def test_every_figure_has_its_unit() -> None:
    text = plain.render(view(DOCUMENT))
    for figure in (
        "983,040 tokens  491,472 to 491,552 tokens",
        "7.5 sequences",
        "3.74963 to 3.75024 sequences",
        "30,720 blocks",
        "17,179,869,184 B (16 GiB)",
        "context                131,072",
        "enable_prefix_caching  True",
    ):
        assert " ".join(figure.split()) in " ".join(text.split()), figure


def test_a_complaint_comes_first_with_its_ways_out() -> None:
    trouble = {"kind": "refused", "text": "vLLM did not start: x", "ways": [{"flag": "--max-model-len 4096", "text": "shorter"}]}
    text = plain.render(view(DOCUMENT | {"trouble": trouble}))
    lines = text.splitlines()
    assert lines[0] == "vLLM did not start: x: vllm 0.33.0, llama-3.1-8b"
    assert lines[2:4] == ["It would start with one of", "--max-model-len 4096  shorter"]
    assert "\n1 of 4 figures agree\n" in text
    alone = plain.render(view(DOCUMENT | {"trouble": trouble, "rows": []}))
    assert "agree" not in alone
