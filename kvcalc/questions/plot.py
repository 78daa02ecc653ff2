"""`plot`: memory against context, as points: every model (or what-if), under every engine, in every format.

    series   one of each combination; it ends at the model's own maximum, unless a context was asked for
    points   at whole contexts, four a doubling (1,024, 1,280, 1,536, 1,792, 2,048, …), or evenly apart with `linear`
    figure   bytes of all devices together; with a memory to hold them against, bytes of the fullest device

Every point is the engine's own plan: nothing is drawn through a formula. Without a model, the what-ifs stand on the geometry of
the introductions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kvcalc.core.errors import UsageError
from kvcalc.core.units import clean
from kvcalc.engines import canonical, get_engine
from kvcalc.engines.base.search import largest_context
from kvcalc.questions.compare import INTRODUCTION_CONTEXT, introduction
from kvcalc.questions.documents.kinds import Answer, plain
from kvcalc.questions.documents.parts import asked_of, engine_of, model_of
from kvcalc.questions.documents.plot import PlotDocument, Point
from kvcalc.questions.documents.plot import Series as DrawnSeries
from kvcalc.questions.set_fields import override
from kvcalc.questions.techniques import Case, apply, parse
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload

#: What-ifs of a chart that names neither a model nor a technique.
USUAL = ("gqa", "mla", "gqa+swa", "deltanet")
#: More lines than these cannot be told apart.
MOST_SERIES = 12
#: Where a chart begins, unless it is short.
FIRST_CONTEXT = 1024
_LINEAR_STEPS = 32


@dataclass(frozen=True, slots=True)
class Plotting:
    """The question: `start` is where the chart begins; the workload's context is where it ends, None = the largest maximum."""

    workload: Workload
    models: Sequence[Any] = ()
    techniques: Sequence[str] = ()
    engines: Sequence[str] = ("ideal",)
    formats: Sequence[str] = ("auto",)
    settings: Mapping[str, str] = field(default_factory=dict)
    start: int | None = None
    linear: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its points, the plan of the last one, and the largest context that fits the memory, if there is one."""

    name: str
    architecture: Architecture
    plan: Plan
    points: tuple[Point, ...]
    max_context: int | None = None
    remarks: tuple[str, ...] = ()

    def document(self) -> DrawnSeries:
        """One of the `series` of a document."""
        return DrawnSeries(self.name, model_of(self.architecture), engine_of(self.plan), self.plan.kv_dtype, self.points, self.max_context)


@dataclass(frozen=True, slots=True)
class Chart(Answer):
    """All lines, over the same contexts."""

    series: tuple[Series, ...]
    workload: Workload
    start: int
    end: int
    linear: bool
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def figure(self) -> Literal["total", "per_device"]:
        """What is drawn: "total", or "per_device" where a memory stands beside it."""
        return "total" if self.workload.kv_memory is None else "per_device"

    def document(self) -> PlotDocument:
        """`kvcalc.plot/1`; what all series have in common stands at the top, else None."""
        series = tuple(entry.document() for entry in self.series)
        models, engines = [plain(entry.model) for entry in series], [plain(entry.engine) for entry in series]
        return PlotDocument(
            model=series[0].model if all(model == models[0] for model in models) else None,
            workload=asked_of(self.workload, self.end),
            engine=series[0].engine if all(engine == engines[0] for engine in engines) else None,
            kv_dtype=series[0].kv_dtype if len({entry.kv_dtype for entry in series}) == 1 else None,
            figure=self.figure,
            scale="linear" if self.linear else "log",
            from_=self.start,
            kv_memory=self.workload.kv_memory,
            series=series,
            notes=self.notes,
            warnings=self.warnings,
        )


def plot(asked: Plotting) -> Chart:
    """Every line. Raises UsageError, and what loading and planning raise: a line that cannot be drawn is not left out."""
    bases = _bases(asked)
    end = _end(asked, [architecture for _, architecture in bases])
    start = asked.start or min(FIRST_CONTEXT, max(1, end // 16))
    if start >= end:
        raise UsageError(f"a chart from {start:,} to {end:,} tokens has no width", "give --from fewer tokens than --ctx")
    cases = list(_cases(asked, bases, end))
    if len(cases) > MOST_SERIES:
        raise UsageError(f"{len(cases)} lines are more than a chart can show", f"at most {MOST_SERIES}")
    series = tuple(_series(asked, case, start, end) for case in cases)
    return Chart(
        series,
        replace(asked.workload, context=end),
        start,
        end,
        asked.linear,
        _said(series, [(*entry.plan.notes, *entry.remarks) for entry in series]),
        _said(series, [entry.plan.warnings for entry in series]),
    )


def contexts(start: int, end: int, *, linear: bool = False) -> list[int]:
    """The whole contexts from `start` to `end` at which a line has points."""
    if linear:
        return sorted({start + (end - start) * step // _LINEAR_STEPS for step in range(_LINEAR_STEPS + 1)})
    quarters = (quarter << doubling >> 2 for doubling in range(end.bit_length()) for quarter in (4, 5, 6, 7))
    return sorted({start, end, *(context for context in quarters if start < context < end)})


class _Line(NamedTuple):
    """A line before it is planned."""

    name: str
    case: Case
    engine: str


def _bases(asked: Plotting) -> list[tuple[str, Architecture]]:
    """The models, or the geometry of the introductions."""
    if not asked.models:
        return [("mha", introduction(asked.settings))]
    found = [load(model) for model in asked.models]
    return [(item.id, override(item, asked.settings) if asked.settings else item) for item in found]


def _end(asked: Plotting, architectures: list[Architecture]) -> int:
    if asked.workload.context is not None:
        return asked.workload.context
    if not asked.models:
        return INTRODUCTION_CONTEXT
    known = [item.max_context for item in architectures if item.max_context is not None]
    if not known:
        raise UsageError("none of these models says its maximum context, and none was given", "give one with --ctx, such as --ctx 32k")
    return max(known)


def _cases(asked: Plotting, bases: list[tuple[str, Architecture]], end: int) -> Iterator[_Line]:
    """Each model and what-if under each engine in each format, named by what is not the same for all."""
    chains = ["", *(asked.techniques or (() if asked.models else USUAL))]
    for (model, architecture), chain, engine, kv_dtype in product(
        bases, chains, dict.fromkeys(map(canonical, asked.engines)), asked.formats
    ):
        case = Case(architecture, replace(asked.workload, context=end, kv_dtype=kv_dtype))
        if chain:
            case, _ = apply(case, parse(chain))
        if case.block:
            raise UsageError(f"'{clean(chain, 40)}' is no line of its own", "`kvcalc compare --techniques paged` shows it")
        parts = (
            model if len(bases) > 1 or not chain else "",
            chain,
            engine if len(asked.engines) > 1 else "",
            kv_dtype if len(asked.formats) > 1 else "",
        )
        yield _Line(" ".join(filter(None, parts)), case, engine)


def _series(asked: Plotting, line: _Line, start: int, end: int) -> Series:
    architecture, workload = line.case.architecture, line.case.workload
    known = architecture.max_context
    last = end if asked.workload.context is not None or known is None else min(end, known)
    if last < start:
        raise UsageError(f"{line.name} ends at {last:,} tokens, before the chart begins at {start:,}", "give --from fewer tokens")
    engine = get_engine(line.engine)
    fitting = engine.fitting(architecture, replace(workload, context=last), workload.kv_memory or 0)
    points: list[Point] = []
    for context in contexts(start, last, linear=asked.linear) if start < last else [last]:
        plan = fitting.plan(replace(workload, context=context, shared_prefix=min(context, workload.shared_prefix)))
        points.append(Point(context, plan.total, plan.per_device))
    longest = None
    if workload.kv_memory is not None:
        longest = largest_context(architecture, replace(workload, context=asked.workload.context), fitting, beyond=False)
    remarks = [*line.case.remarks, *([f"ends at its own maximum, {last:,} tokens"] if last < end else [])]
    return Series(line.name, architecture, plan, tuple(points), longest, tuple(remarks))


def _said(series: tuple[Series, ...], said: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Each sentence once; one that is not about every line behind the names of those that it is about."""
    about: dict[str, list[str]] = {}
    for entry, texts in zip(series, said, strict=True):
        for text in dict.fromkeys(texts):
            about.setdefault(text, []).append(entry.name)
    return tuple(text if len(names) == len(series) else f"{', '.join(names)}: {text}" for text, names in about.items())
