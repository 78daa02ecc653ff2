"""The two-measurement check: memory growth observed over some tokens, against what a model's cache grows by.

ratio = observed bytes per token / expected bytes per token        1 = as expected; the usual ratios have usual reasons
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET, UsageError
from kvcalc.engines import get_engine
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, model_of
from kvcalc.questions.documents.reconcile import GrowthDocument
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.questions.request import Request

#: Measurements of memory carry a few per cent of everything else that moves.
TOLERANCE = Fraction(5, 100)


@dataclass(frozen=True, slots=True)
class Growth(Answer):
    """Observed against expected growth.

    expected   bytes that the plan grows by over the tokens, from the context where the measurement began
    reason     what a ratio of this size usually means; empty where it is as expected
    """

    architecture: Architecture
    request: Request
    plan: Plan
    observed: int
    expected: int
    tokens: int
    start: int
    reason: str

    @property
    def ratio(self) -> Fraction:
        """Observed / expected."""
        return Fraction(self.observed, self.expected)

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 not."""
        return EXIT_OK if abs(self.ratio - 1) <= TOLERANCE else EXIT_OVER_BUDGET

    def document(self) -> GrowthDocument:
        """`kvcalc.growth/1`."""
        return GrowthDocument(
            model=model_of(self.architecture),
            workload=asked_of(self.request.workload, self.plan.context),
            engine=engine_of(self.plan),
            kv_dtype=self.plan.kv_dtype,
            start=self.start,
            tokens=self.tokens,
            observed=self.observed,
            expected=self.expected,
            ratio=round(float(self.ratio), 6),
            within=self.exit_code == EXIT_OK,
            reason=self.reason,
            notes=self.plan.notes,
            warnings=self.plan.warnings,
        )


def growth(request: Request, observed: int, tokens: int, start: int = 0) -> Growth:
    """`observed` bytes of growth while `tokens` tokens joined a sequence of `start`. Raises UsageError if nothing should grow."""
    architecture = load(request.model)
    engine = get_engine(request.engine)
    plan = engine.plan(architecture, replace(request.workload, context=start + tokens))
    before = (
        engine.plan(architecture, replace(request.workload, context=start)).total
        if start
        else sum(line.bytes for line in plan.lines if line.fixed)
    )
    expected = plan.total - before
    if expected <= 0:
        raise UsageError(
            f"the cache of {architecture.id} does not grow between {start:,} and {start + tokens:,} tokens under {request.engine}",
            "measure over more tokens, or under another engine",
        )
    found = Growth(architecture, request, plan, observed, expected, tokens, start, "")
    return found if found.exit_code == EXIT_OK else replace(found, reason=_reason(architecture, found.ratio))


def _reason(architecture: Architecture, ratio: Fraction) -> str:
    for text, usual in _usual(architecture):
        if abs(ratio / usual - 1) <= TOLERANCE:
            return text
    if ratio > 1:
        return f"{float(ratio):.2f} times as much as expected, which is none of the usual ratios: something else grows too"
    return f"{float(ratio):.2f} times as much as expected, which is none of the usual ratios: memory may have been reserved before"


def _usual(architecture: Architecture) -> Iterator[tuple[str, Fraction]]:
    """Ratios with a usual reason, the likelier first."""
    heads = ((getattr(state, "query_heads", None), getattr(state, "kv_heads", None)) for state in architecture.states)
    groups = {Fraction(query, kv) for query, kv in heads if query and kv}
    for group in sorted(groups):
        if group > 1:
            yield f"{group} x: every query head keeps its own K and V (the {group} : 1 grouping is not used)", group
    yield "2 x: the cache is copied, or K and V are kept in twice the width (not quantised)", Fraction(2)
    yield "4 x: kept in fp32 where 8 bits were expected, or copied twice", Fraction(4)
    yield "1/2: kept in half the width (fp8 or int8), or only one of K and V was measured", Fraction(1, 2)
    yield "1/4: kept in a quarter of the width (4 bits)", Fraction(1, 4)
    for ranks in (2, 4, 8, 16):
        yield f"1/{ranks}: one of {ranks} tensor parallel ranks was measured", Fraction(1, ranks)
