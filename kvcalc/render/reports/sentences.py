"""What a verdict says, in sentences that every report shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import clean, show_bytes

if TYPE_CHECKING:
    from kvcalc.questions.documents.check import Check, CheckDocument, Verdict

_LONGEST = 2000


def amount(count: int, unit: str) -> str:
    """`68,719,476,736 B (64 GiB)`, `32,768 tokens`."""
    return show_bytes(count) if unit == "B" else f"{count:,} {unit}"


def check_sentence(check: Check) -> str:
    """`total exceeds its limit by 1,024 B (1 KiB), 5 %: 21,504 B, limit 20,480 B`."""
    unit = check.unit
    verb = "falls short of" if check.limit.startswith("min_") else "exceeds"
    return (
        f"{check.limit} {verb} its limit by {amount(check.over, unit)}, {check.over_percent:g} %: "
        f"{amount(check.actual, unit)}, limit {amount(check.allowed, unit)}"
    )


def missed(budget: Verdict) -> list[Check]:
    """The checks that are not met, those missed by the most first."""
    return [check for check in budget.checks if check.over]


def fits_with(budget: Verdict) -> str:
    """`context: 104848, or sequences: 2`: the budget's own keys, each change meeting every limit by itself."""
    return ", or ".join(remedy.text for remedy in budget.remedies) or "no change of one key; raise the limit, or change several"


def memory(budget: Verdict) -> str:
    """`3,478,364,848 B (3.24 GiB) for the cache on each l4-24gb`; an empty string where no limit is about memory."""
    size = budget.kv_bytes_per_device
    return "" if size is None else f"{show_bytes(size)} for the cache on each {clean(budget.gpu or 'device', 40)}"


def sentences(budget: Verdict) -> list[str]:
    """Everything there is to say about a budget that is not met: the overshoot first, then the owner's message, then remedies."""
    error = budget.error
    if error:
        found = [f"could not be evaluated: {error.message}", error.hint]
    else:
        found = [*(check_sentence(check) for check in missed(budget)), memory(budget), budget.message, f"fits with {fits_with(budget)}"]
    return [clean(text, _LONGEST) for text in found if text]


def warnings(document: CheckDocument) -> list[str]:
    """`chat-prod: context 131,072 is beyond …`, met or not."""
    return [clean(f"{budget.name}: {text}", _LONGEST) for budget in document.budgets for text in budget.warnings]


def first_line(budget: Verdict) -> int:
    """The line to edit: that of the limit missed by the most, else that of the budget; at least 1."""
    lines = [int(check.line) for check in missed(budget) if check.line]
    return max(1, lines[0] if lines else int(budget.line))


def name_of(budget: Verdict) -> str:
    """The budget's name, fit for any output."""
    return clean(budget.name, 200)


def question(budget: Verdict) -> str:
    """`llama-3.1-8b on vllm, 32,768 tokens x 16, fp8, 2 x l4-24gb`."""
    context = f"{budget.context:,} tokens" if budget.context else "the model's maximum"
    text = f"{budget.model} on {budget.engine}, {context} x {budget.sequences}, {budget.kv_dtype}"
    devices = budget.tensor_parallel * budget.pipeline_parallel
    if budget.gpu or devices > 1:
        text += f", {devices} x {budget.gpu or 'device'}"
    return clean(text, _LONGEST)
