"""What of a conversation stays in the prompt: the last tokens, the first and the last, a summary of the rest.

The policies of `kvcalc chat` as what-ifs: the text has T tokens, the cache holds fewer, in every layer alike. (A window of the
model's own, which only some layers have, is `swa`.) A common system prompt is `prefix`. How much is computed again depends on
the turns: `kvcalc chat` counts it.
"""

from __future__ import annotations

from dataclasses import replace

from kvcalc.questions.techniques.base import Case, Parameter, technique


@technique(Parameter("tokens", 4096, "last tokens of the text that stay"))
def window(case: Case, tokens: int) -> Case:
    """The last tokens only: the prompt is cut at its beginning.

        rows = min(T, tokens) in every layer

    32,768 tokens of 32 layers of 32 heads x 128: 524,288 B x 4,096 = 2,147,483,648 B. The system prompt is the first to be
    forgotten; and with every turn the text begins elsewhere, so that no prefix matches and all that is held is computed again.
    """
    return _cut(case, "window", 0, tokens)


@technique(Parameter("tokens", 4, "first tokens that stay: attention sinks"), Parameter("window", 4096, "last tokens that stay"))
def sinks(case: Case, tokens: int, window: int) -> Case:
    """Attention sinks (StreamingLLM, arXiv:2309.17453): the first few tokens and the last ones.

        rows = min(T, tokens + window) in every layer

    32,768 tokens of 32 layers of 32 heads x 128: 524,288 B x (4 + 4,096) = 2,149,580,800 B. What lies between is out of sight.
    """
    return _cut(case, "sinks", tokens, window)


@technique(Parameter("tokens", 512, "first tokens that stay: instructions"), Parameter("window", 2048, "last tokens that stay"))
def keep(case: Case, tokens: int, window: int) -> Case:
    """Instructions and the latest turns: the first tokens, a system prompt say, and the last ones.

        rows = min(T, tokens + window) in every layer

    32,768 tokens of 32 layers of 32 heads x 128: 524,288 B x (512 + 2,048) = 1,342,177,280 B. A prefix cache serves the first
    part from turn to turn; everything behind the gap is computed again.
    """
    return _cut(case, "keep", tokens, window)


@technique(
    Parameter("tokens", 300, "tokens of the summary"),
    Parameter("system", 1024, "tokens of the system prompt", least=0),
    Parameter("turn", 700, "tokens of the latest turn"),
)
def summary(case: Case, tokens: int, system: int, turn: int) -> Case:
    """A summary in place of all older turns, behind the system prompt and before the latest turn.

        rows = min(T, system + tokens + turn) in every layer

    32,768 tokens of 32 layers of 32 heads x 128: 524,288 B x (1,024 + 300 + 700) = 1,061,158,912 B. Writing the summary decodes
    `tokens` tokens a turn, with the older turns in the prompt; what it leaves out is gone.
    """
    total = case.workload.context or 0
    held = min(total, system + tokens + turn)
    if held == total:
        return case
    said = (
        f"summary: {held:,} of {total:,} tokens are held; the tokens between the system prompt and the latest turn are in the summary alone"
    )
    return _holding(case, held, system, said)


def _cut(case: Case, name: str, first: int, last: int) -> Case:
    total = case.workload.context or 0
    if total <= first + last:
        return case
    said = (
        f"{name}: {first + last:,} of {total:,} tokens are held; tokens {first + 1:,} to {total - last:,} are out of sight in every layer"
    )
    return _holding(case, first + last, first, said)


def _holding(case: Case, held: int, unchanged: int, remark: str) -> Case:
    """`held` tokens, of which sequences with a common prefix still share the first `unchanged`."""
    workload = replace(case.workload, context=held, shared_prefix=min(case.workload.shared_prefix, unchanged))
    return replace(case, workload=workload, remarks=(*case.remarks, remark))
