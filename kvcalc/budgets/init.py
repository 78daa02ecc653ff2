"""`init`: a commented `kvcalc.yaml` for the models given, with limits a little above what they take today."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.units import GIB, KIB, MIB, clean
from kvcalc.engines import get_engine
from kvcalc.questions.estimate import estimate
from kvcalc.questions.request import parse_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.questions.estimate import Estimate

#: Room above today's figure, so that a first run passes and a doubling does not.
_ROOM_PERCENT = 10
_CONTEXT = 32 * KIB

_HEAD = """\
# Budgets for the KV cache, checked by `kvcalc check`: exit 0 all met, 1 one exceeded, 2 or 3 not evaluated.
# Sizes: GiB, MiB, KiB (binary) or GB, MB, kB (decimal); tokens: 32k = 32,768. Equal to a limit passes.

defaults:                        # any key of a budget but its name
  engine: {engine}
  # tensor_parallel: 1
  # kv_dtype: auto

budgets:
"""

_BUDGET = """\
  - name: {name}
    model: {model}{comment}
    context: {context}
    sequences: {sequences}
    # gpu: h100-80gb              # with a gpu (or kv_memory: 40GiB): min_context, min_sequences, min_tokens
    limits:
      total: {total}              # today: {today:,} B
      per_token: {per_token}
      # max_growth: 5%            # over `--baseline FILE`
    message: who to ask before raising this
"""


def starter(models: Sequence[str], engine: str = "ideal", sequences: int = 1) -> str:
    """The text of a starter file. Raises what loading and planning the models raise."""
    get_engine(engine)
    names: set[str] = set()
    parts = [_HEAD.format(engine=engine)]
    for model in models:
        context = _context_of(model)
        found = estimate(parse_request({"model": model, "engine": engine, "context": context, "sequences": sequences}))
        parts.append(_budget(model, found, _unused(model, names), sequences))
    return "".join(parts)


def _context_of(model: str) -> int:
    from kvcalc.sources import load

    return min(load(model).max_context or _CONTEXT, _CONTEXT)


def _budget(model: str, found: Estimate, name: str, sequences: int) -> str:
    plan = found.plan
    return _BUDGET.format(
        name=name,
        model=_quoted(model),
        comment=f"    # {clean(found.architecture.name)}" if found.architecture.name else "",
        context=plan.context,
        sequences=sequences,
        total=_rounded_up(plan.total * (100 + _ROOM_PERCENT) // 100),
        today=plan.total,
        per_token=f"{max(plan.per_token, 1)}B",
    )


def _quoted(text: str) -> str:
    import json

    plain = text.replace("/", "").replace(".", "").replace("-", "").replace("_", "").isalnum() and not text.isdigit()
    return text if plain else json.dumps(text)


def _unused(model: str, names: set[str]) -> str:
    """A name from the model's, told apart by a number where it is taken."""
    stem = "".join(ch if ch.isalnum() or ch in "-._" else "-" for ch in model.rsplit("/", 1)[-1]).strip("-.")[:60] or "model"
    name, number = stem, 2
    while name in names:
        name, number = f"{stem}-{number}", number + 1
    names.add(name)
    return name


def _rounded_up(count: int) -> str:
    """The next whole MiB, or whole GiB above 64 of them: `144MiB`, `71GiB`."""
    return f"{-(-count // GIB)}GiB" if count > 64 * GIB else f"{max(1, -(-count // MIB))}MiB"
