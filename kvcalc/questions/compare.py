"""`compare`: techniques on one geometry, models side by side, or one model on every engine.

    no model       the introductions' geometry: 32 layers, 32 heads x 128, 2 bytes, 32,768 tokens; MHA is the baseline
    one model      the model is the baseline, the techniques are what-ifs on its geometry
    more models    the first is the baseline
    engines        one model; `ideal` is the baseline, and each row says why it differs

A row that cannot be computed carries the error instead of figures; if nothing but the baseline can, the first error is raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import EngineRejectsError, KvcalcError, UnsupportedArchitectureError, UsageError, nearest
from kvcalc.core.fields import field_names
from kvcalc.core.plan import Line
from kvcalc.core.units import clean, human, parse_tokens
from kvcalc.engines import canonical, get_engine
from kvcalc.engines import names as engine_names
from kvcalc.questions.documents.common import Engine as EngineInForce
from kvcalc.questions.documents.compare import Attended, CompareDocument, Held, Kind, Row, UsedTechnique
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, fault_of, figures_of, model_of
from kvcalc.questions.set_fields import override
from kvcalc.questions.techniques import Case, Step, Technique, Used, apply, build, parse
from kvcalc.questions.work import attended, work
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.core.plan import Plan
    from kvcalc.core.workload import Workload
    from kvcalc.questions.documents.compare import Work

#: What introductions compare: these numbers give the 17.18 and 4.29 GB that they quote.
INTRODUCTION = {"layers": 32, "query_heads": 32, "head_dim": 128}
INTRODUCTION_CONTEXT = 32_768
#: The techniques of a comparison that names none.
USUAL = ("gqa", "mqa", "mla", "swa", "gqa+swa", "share", "dsa", "deltanet", "mamba2", "fp8", "int8", "int4")
#: Bytes of one entry of a block table (vLLM: int32).
_BLOCK_ENTRY = 4
_GEOMETRY_FIELDS = (*INTRODUCTION, "value_head_dim", "hidden_dim", "dtype", "max_context")
#: More rows than anybody reads.
_MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of what is compared: figures, or the error that stands in their place.

    capacity   what fits into the memory asked about; None without --kv-memory
    why        what makes this engine's figure differ from the ideal one
    """

    name: str
    architecture: Architecture | None
    engine: str
    techniques: tuple[Used, ...] = ()
    plan: Plan | None = None
    attended: dict[int, int] | None = None
    work: Work | None = None
    capacity: Held | None = None
    why: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    error: KvcalcError | None = None

    def document(self, baseline: int | None) -> Row:
        """One of the `rows` of a document; `baseline` is the total that the ratios are against."""
        plan = self.plan
        total = None if plan is None else plan.total
        ratio = total / baseline if total is not None and baseline else None
        return Row(
            name=self.name,
            model=None if self.architecture is None else self.architecture.id,
            techniques=tuple(
                UsedTechnique(used.name, {key: _plain(value) for key, value in used.parameters.items()}) for used in self.techniques
            ),
            engine=EngineInForce(self.engine, "", {}) if plan is None else engine_of(plan),
            kv_dtype=None if plan is None else plan.kv_dtype,
            bytes=None if plan is None else figures_of(plan),
            ratio=ratio,
            saving=None if ratio is None else 1 - ratio,
            attended=None if self.attended is None else tuple(Attended(count, positions) for positions, count in self.attended.items()),
            work=self.work,
            capacity=self.capacity,
            why=self.why,
            remarks=self.remarks,
            error=None if self.error is None else fault_of(self.error),
        )


def _plain(value: Any) -> int | str:
    return value if isinstance(value, int) else str(value)


@dataclass(frozen=True, slots=True)
class Comparison(Answer):
    """Rows against the first that has figures."""

    kind: Kind
    rows: tuple[Alternative, ...]
    workload: Workload
    context: int
    engine: EngineInForce
    kv_memory: int | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def document(self) -> CompareDocument:
        """`kvcalc.compare/1`."""
        baseline = next((row for row in self.rows if row.plan is not None), None)
        plan = None if baseline is None else baseline.plan
        return CompareDocument(
            kind=self.kind,
            model=model_of(baseline.architecture) if baseline is not None and baseline.architecture is not None else None,
            workload=asked_of(self.workload, self.context),
            engine=self.engine,
            kv_dtype=None if plan is None else plan.kv_dtype,
            kv_memory=self.kv_memory,
            baseline=None if baseline is None else baseline.name,
            rows=tuple(row.document(None if plan is None else plan.total) for row in self.rows),
            notes=self.notes,
            warnings=self.warnings,
        )


@dataclass(frozen=True, slots=True)
class Comparing:
    """The question: models (texts, inline documents or architectures), techniques or engines, what-ifs, the workload."""

    workload: Workload
    models: Sequence[Any] = ()
    techniques: Sequence[str] = ()
    engines: Sequence[str] = ()
    engine: str = "ideal"
    settings: Mapping[str, str] = field(default_factory=dict)


def compare(asked: Comparing) -> Comparison:
    """Every row, the baseline first. Raises UsageError, and what loading the models raises."""
    if asked.engines:
        return _engines(asked)
    if asked.workload.kv_memory is not None:
        raise UsageError("compare: a memory to fit into is compared over engines", "add --engines all, or ask `kvcalc fit`")
    if len(asked.models) > 1:
        return _models(asked)
    return _techniques(asked)


# ── techniques ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _techniques(asked: Comparing) -> Comparison:
    chains = [(text, parse(text)) for text in asked.techniques or USUAL]
    architecture, settings = _geometry(asked, [step.technique for _, steps in chains for step in steps])
    workload = asked.workload
    notes: list[str] = []
    if workload.context is None:
        context = get_engine("ideal").context_of(architecture, workload) if asked.models else INTRODUCTION_CONTEXT
        whose = "the model's maximum" if asked.models else "the usual example's"
        notes.append(f"context defaulted to {whose}, {context:,} tokens")
        workload = replace(workload, context=context)
    case = Case(architecture, workload)
    name = "mha" if not asked.models else architecture.id
    chains = [("", ()), *((text, steps) for text, steps in chains if asked.models or text != "mha")]
    rows = [_technique_row(text or name, case, steps, asked.engine, settings) for text, steps in chains]
    return _comparison("techniques", rows, workload, notes)


def _technique_row(name: str, case: Case, steps: tuple[Step, ...], engine: str, settings: Mapping[str, str]) -> Alternative:
    try:
        changed, used = apply(case, steps, settings)
        plan = _plan(changed, engine)
    except (UsageError, EngineRejectsError, UnsupportedArchitectureError) as error:
        return Alternative(name, None, engine, error=error)
    seen = attended(changed.recomputed or changed.architecture, plan.context)
    done = _work(changed) if changed.workload.context == case.workload.context else None
    return Alternative(name, changed.architecture, engine, tuple(used), plan, attended=seen, work=done, remarks=changed.remarks)


def _work(case: Case) -> Work | None:
    """For the case's tokens; without a cache both ways are the same."""
    done = work(case.recomputed or case.architecture, case.workload.context or 0)
    return done if done is None or case.recomputed is None else replace(done, with_cache=done.without_cache)


def _geometry(asked: Comparing, techniques: list[Technique]) -> tuple[Architecture, dict[str, str]]:
    """The baseline, and those of the `--set` fields that are parameters of a technique rather than fields of the baseline."""
    parameters = {item.name for technique in techniques for item in technique.parameters}
    if asked.models:
        architecture = load(asked.models[0])
        fields = {key for state in architecture.states for key in field_names(state)}
        own = {key: value for key, value in asked.settings.items() if key in fields or key not in parameters}
        rest = {key: value for key, value in asked.settings.items() if key in parameters}
        return (override(architecture, own) if own else architecture), rest
    own = {key: value for key, value in asked.settings.items() if key in _GEOMETRY_FIELDS}
    rest = {key: value for key, value in asked.settings.items() if key not in own}
    for key in rest:
        if key not in parameters:
            known = [*_GEOMETRY_FIELDS, *sorted(parameters)]
            raise UsageError(
                f"--set: no technique here has the parameter '{clean(key, 40)}'", nearest(key, known) or "fields: " + ", ".join(known)
            )
    return introduction(own), rest


def introduction(fields: Mapping[str, str]) -> Architecture:
    """The introductions' geometry, with `fields` set: every query head keeps its own K and V. Raises UsageError."""
    from kvcalc.sources.schema import read

    sizes = {key: parse_tokens(fields[key], f"--set {key}") if key in fields else value for key, value in INTRODUCTION.items()}
    heads, width = sizes["query_heads"], sizes["head_dim"]
    state = build("full", {"query_heads": heads, "kv_heads": heads, "head_dim": width})
    try:
        layout = read(Layout, {"pattern": ("full",), "count": sizes["layers"], "states": {"full": (state,)}})
    except ValueError:
        raise UsageError(f"--set layers: {sizes['layers']:,} is out of range", "no model has so many layers") from None
    base = Architecture(id="introduction", family="llama", dtype="bf16", hidden_dim=heads * width, layers=layout)
    rest = {key: value for key, value in fields.items() if key not in INTRODUCTION}
    changed = override(base, rest) if rest else base
    said = (f"geometry: {sizes['layers']} layers, {heads} heads x {width}, 2 bytes an element",)
    return changed if rest else replace(changed, assumptions=said)


def _plan(case: Case, engine: str) -> Plan:
    """The engine's plan; with a page size, that of whole blocks and of the table that names them."""
    plan = get_engine(engine).plan(case.architecture, case.workload)
    if not case.block or not plan.per_token:  # what does not grow has no pages
        return plan
    if canonical(engine) != "ideal":
        raise UsageError(f"paged: {engine} allocates as it does", "compare paged under the ideal engine")
    blocks = -(-plan.context // case.block)
    shared = case.workload.shared_prefix // case.block * case.block
    whole = get_engine(engine).plan(case.architecture, replace(case.workload, context=blocks * case.block, shared_prefix=shared))
    entries = blocks * case.workload.sequences
    table = Line(
        state="paged",
        layers=1,
        buffer="block_table",
        width=1,
        format="int32",
        slots=blocks,
        bytes=entries * _BLOCK_ENTRY,
        formula=f"{entries:,} entries x {_BLOCK_ENTRY} B",
    )
    next_block = whole.growth_per_token * case.block + _BLOCK_ENTRY if plan.context % case.block == 0 else 0
    return replace(
        whole,
        context=plan.context,
        lines=(*whole.lines, table),
        per_device=whole.per_device + table.bytes,
        per_sequence=whole.per_sequence + blocks * _BLOCK_ENTRY,
        growth_per_token=next_block,
        notes=plan.notes,
        warnings=plan.warnings,
    )


# ── models ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _models(asked: Comparing) -> Comparison:
    loaded = [load(model) for model in asked.models]
    if asked.settings:
        loaded = [override(architecture, asked.settings) for architecture in loaded]
    chains = [("", ()), *((text, parse(text)) for text in asked.techniques)]
    workload = asked.workload
    notes: list[str] = []
    if workload.context is None:
        known = [architecture.max_context for architecture in loaded if architecture.max_context is not None]
        if not known:
            raise UsageError("none of these models says its maximum context, and none was given", "give one with --ctx, such as --ctx 32k")
        workload = replace(workload, context=min(known))
        notes.append(f"context defaulted to the smallest maximum of these models, {min(known):,} tokens")
    rows = [
        _technique_row(f"{architecture.id} {text}".strip(), Case(architecture, workload), steps, asked.engine, {})
        for architecture in loaded
        for text, steps in chains
    ]
    return _comparison("models", rows, workload, notes)


# ── engines ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _engines(asked: Comparing) -> Comparison:
    if len(asked.models) != 1 or asked.techniques:
        raise UsageError("--engines compares one MODEL as it is on several engines", "give one MODEL and no --techniques")
    if canonical(asked.engine) != "ideal":
        raise UsageError("--engines names the engines already", "leave out --engine")
    every = list(asked.engines) == ["all"]
    names = list(engine_names()) if every else list(dict.fromkeys(["ideal", *map(canonical, asked.engines)]))
    architecture = load(asked.models[0])
    if asked.settings:
        architecture = override(architecture, asked.settings)
    args = _args_of(names, asked.workload.engine_args)
    ideal = get_engine("ideal").plan(architecture, replace(asked.workload, engine_args={}))
    rows = [_engine_row(name, architecture, replace(asked.workload, engine_args=args[name]), ideal) for name in names]
    return _comparison("engines", rows, asked.workload, [])


def _args_of(names: list[str], given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each engine gets those settings that it has. Raises UsageError for one that none of them has."""
    known = {name: {setting.name for setting in get_engine(name).settings} for name in names}
    every = set().union(*known.values())
    for key in given:
        if key not in every:
            hint = nearest(key, every) or "none of these engines has it"
            raise UsageError(f"none of {', '.join(names)} has the setting '{clean(key, 40)}'", hint)
    return {name: {key: value for key, value in given.items() if key in known[name]} for name in names}


def _engine_row(name: str, architecture: Architecture, workload: Workload, ideal: Plan) -> Alternative:
    try:
        plan = get_engine(name).plan(architecture, workload)
        capacity = _capacity(name, architecture, workload)
    except KvcalcError as error:
        return Alternative(name, architecture, name, error=error)
    return Alternative(name, architecture, name, (), plan, capacity=capacity, why=tuple(reasons(plan, ideal)))


def _capacity(engine: str, architecture: Architecture, workload: Workload) -> Held | None:
    """What fits into `workload.kv_memory` on this engine."""
    if workload.kv_memory is None:
        return None
    from kvcalc.questions.fit import fit
    from kvcalc.questions.request import Request

    found = fit(Request(architecture, engine, workload))
    return Held(found.capacity.tokens, found.max_sequences, found.max_context, found.unbounded)


def reasons(plan: Plan, ideal: Plan) -> list[str]:
    """Why `plan` takes other bytes than `ideal`, the largest difference first: `+12.6 GiB sliding key, value: 32,768 slots, not 1,024`."""
    ours, theirs = _by_buffer(plan), _by_buffer(ideal)
    sizes: dict[tuple[str, str], int] = {}
    buffers: dict[tuple[str, str], list[str]] = {}
    for state, buffer in dict.fromkeys([*theirs, *ours]):
        new, old = ours.get((state, buffer), []), theirs.get((state, buffer), [])
        difference = sum(line.bytes for line in new) - sum(line.bytes for line in old)
        if difference:
            key = (state, _change(new, old))
            sizes[key] = sizes.get(key, 0) + difference
            buffers.setdefault(key, []).append(buffer.replace("_", " "))
    # Engines draw copies on other ranks as lines of their own; what adds up to nothing is no difference.
    ordered = sorted((key for key, size in sizes.items() if size), key=lambda key: -abs(sizes[key]))
    return [
        f"{'+' if sizes[key] > 0 else '-'}{human(abs(sizes[key]))} {key[0]} {', '.join(buffers[key])}" + (f": {key[1]}" if key[1] else "")
        for key in ordered
    ]


def _change(new: list[Line], old: list[Line]) -> str:
    """What differs between the lines of one buffer."""
    if not new:
        return "not kept"
    said = []
    for what, unit in (("slots", " slots"), ("format", ""), ("layers", " layers")):
        now, before = ({getattr(line, what) for line in lines} for lines in (new, old))
        if old and now != before:
            said.append(f"{_words(now)}{unit}, not {_words(before)}")
    return "; ".join(said)


def _words(values: set[Any]) -> str:
    return "/".join(f"{value:,}" if isinstance(value, int) else str(value) for value in sorted(values, key=str))


def _by_buffer(plan: Plan) -> dict[tuple[str, str], list[Line]]:
    found: dict[tuple[str, str], list[Line]] = {}
    for line in plan.lines:
        found.setdefault((line.state, line.buffer), []).append(line)
    return found


def _comparison(kind: Kind, rows: list[Alternative], workload: Workload, notes: list[str]) -> Comparison:
    planned = [row.plan for row in rows if row.plan is not None]
    failed = [row.error for row in rows if row.error is not None]
    if failed and len(planned) <= 1:
        raise failed[0]
    if len(rows) > _MOST_ROWS:
        raise UsageError(f"{len(rows):,} rows are more than kvcalc compares at once", f"at most {_MOST_ROWS}")
    said = [*notes, *(note for plan in planned for note in plan.notes), *(remark for row in rows for remark in row.remarks)]
    first = planned[0]
    return Comparison(
        kind=kind,
        rows=tuple(rows),
        workload=workload,
        context=first.context,
        engine=engine_of(first),
        kv_memory=workload.kv_memory,
        notes=tuple(dict.fromkeys(said)),
        warnings=tuple(dict.fromkeys(warning for plan in planned for warning in plan.warnings)),
    )
