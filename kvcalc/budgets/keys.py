"""The keys of a `kvcalc.yaml`, as an editor is told of them: `kvcalc/schemas/budgets.json` is written from these classes.

What is read, and what is refused, is file.py's word, which knows more: engines, models, limits that exclude each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Required, TypedDict

from kvcalc.questions.documents.kinds import Above, AtLeast, AtMost, Count, Matching, Most, Positive

_SIZE = Matching(r"^[0-9][0-9_,.]*\s*([KMGT]i?B|kB|B)?$")
_TOKENS = Matching(r"^[0-9][0-9_,.]*[kKmM]?$")
Size = Annotated[Positive | Annotated[str, _SIZE], "24GiB, 80GB or bytes"]
Tokens = Annotated[Positive | Annotated[str, _TOKENS], "32k = 32,768"]


class Limits(TypedDict, total=False):
    """What a budget must hold; equal to a limit passes."""

    total: Size
    per_device: Size
    per_sequence: Size
    per_token: Size
    min_context: Tokens
    min_sequences: Tokens
    min_tokens: Tokens
    max_growth: Annotated[str, Matching(r"^[0-9]+(\.[0-9]+)?\s*%$")]


class Defaults(TypedDict, total=False):
    """Any key of a budget but its name."""

    command: Annotated[
        Annotated[str, AtLeast(1)] | Annotated[list[str | float], AtLeast(1)],
        "an engine's own launch command, instead of engine, context and what else it says",
    ]
    model: Annotated[str, "any MODEL; a relative path is relative to this file"]
    context: Tokens
    sequences: Positive
    engine: Annotated[str, "`kvcalc explain` knows their names"]
    engine_args: Annotated[Mapping[str, Any], "the engine's own settings"]
    kv_dtype: str
    tensor_parallel: Positive
    pipeline_parallel: Positive
    decode_context_parallel: Positive
    gpu: str
    kv_memory: Size
    shared_prefix: Count | str
    weights: Size
    weight_dtype: str
    overhead: Size
    utilization: Annotated[float, Above(0), Most(1)]
    limits: Annotated[Limits, AtLeast(1)]
    message: Annotated[str, "said where the budget is not met"]


class BudgetEntry(Defaults):
    """One budget."""

    name: Required[Annotated[str, AtLeast(1), AtMost(100)]]


class BudgetFile(TypedDict, total=False):
    """kvcalc.yaml: budgets for the KV cache."""

    defaults: Defaults
    budgets: Required[Annotated[list[BudgetEntry], AtLeast(1)]]
