"""What a verdict says, in sentences that every report shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcalc.units import clean, show_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 2000


def amount(count: int, unit: str) -> str:
    """`68,719,476,736 B (64 GiB)`, `32,768 tokens`."""
    return show_bytes(count) if unit == "B" else f"{count:,} {unit}"


def check_sentence(check: Mapping[str, Any]) -> str:
    """`total exceeds its limit by 1,024 B (1 KiB), 5 %: 21,504 B, limit 20,480 B`."""
    unit = check["unit"]
    verb = "falls short of" if check["limit"].startswith("min_") else "exceeds"
    return (
        f"{check['limit']} {verb} its limit by {amount(check['over'], unit)}, {check['over_percent']:g} %: "
        f"{amount(check['actual'], unit)}, limit {amount(check['allowed'], unit)}"
    )


def missed(budget: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The checks that are not met, those missed by the most first."""
    return [check for check in budget["checks"] if check["over"]]


def fits_with(budget: Mapping[str, Any]) -> str:
    """`fits with: context ≤ 104,848 · or sequences ≤ 2`, or an empty string."""
    texts = [remedy["text"] for remedy in budget["remedies"]]
    return "fits with: " + " · or ".join(texts) if texts else ""


def sentences(budget: Mapping[str, Any]) -> list[str]:
    """Everything there is to say about a budget that is not met: the overshoot first, then the owner's message, then remedies."""
    error = budget["error"]
    if error:
        found = [f"could not be evaluated: {error['message']}", error["hint"]]
    else:
        found = [*(check_sentence(check) for check in missed(budget)), budget["message"], fits_with(budget)]
    return [clean(text, _LONGEST) for text in found if text]


def first_line(budget: Mapping[str, Any]) -> int:
    """The line to edit: that of the limit missed by the most, else that of the budget; at least 1."""
    lines = [int(check["line"]) for check in missed(budget) if check["line"]]
    return max(1, lines[0] if lines else int(budget["line"]))


def name_of(budget: Mapping[str, Any]) -> str:
    """The budget's name, fit for any output."""
    return clean(budget["name"], 200)


def question(budget: Mapping[str, Any]) -> str:
    """`llama-3.1-8b on vllm, 32,768 tokens x 16, fp8`."""
    context = f"{budget['context']:,} tokens" if budget["context"] else "the model's maximum"
    return clean(f"{budget['model']} on {budget['engine']}, {context} x {budget['sequences']}, {budget['kv_dtype']}", _LONGEST)
