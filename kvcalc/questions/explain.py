"""`explain`: the formula, with the numbers put in, and its source, from the docstrings that stand beside the code.

    a docstring      first line: what it is, and its source · indented lines: the formula · the rest: numbers worked out
    TECHNIQUE        what it changes, its parameters, and the lines of its plan on a geometry
    FORMAT           bytes of a row, worked for common widths
    ENGINE           its rules in short, then module by module, and every setting that changes a byte
    MODEL            each of its states with the numbers put in

Errors: `UsageError` and `UnknownModelError`, naming the nearest subjects.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UnknownModelError, UsageError, nearest
from kvcalc.core.formats import ALIASES, FORMATS, PackedLatent, get_format
from kvcalc.core.states import KINDS
from kvcalc.core.workload import Workload
from kvcalc.engines import canonical, get_engine, is_engine
from kvcalc.engines import names as engine_names
from kvcalc.engines.base.folder import folder_of
from kvcalc.questions.documents.common import Section
from kvcalc.questions.documents.explain import ExplainDocument, Kind
from kvcalc.questions.documents.kinds import Answer
from kvcalc.questions.documents.parts import asked_of, engine_of, figures_of, model_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.plan import Plan
    from kvcalc.questions.estimate import Estimate

#: Head widths in use, for the examples of a format; a latent is 512 + 64 (DeepSeek).
_WIDTHS = (64, 128, 256)
_LATENT = (512, 64)


@dataclass(frozen=True, slots=True)
class Explanation(Answer):
    """A subject and its pages; with the plan that the numbers come from, where there is one."""

    subject: str
    kind: Kind
    sections: tuple[Section, ...]
    estimate: Estimate | None = None
    notes: tuple[str, ...] = ()

    def document(self) -> ExplainDocument:
        """`kvcalc.explain/1`."""
        found = self.estimate
        plan = None if found is None else found.plan
        return ExplainDocument(
            subject=self.subject,
            kind=self.kind,
            model=None if found is None else model_of(found.architecture),
            workload=None if found is None else asked_of(found.workload, found.plan.context),
            engine=None if plan is None else engine_of(plan),
            kv_dtype=None if plan is None else plan.kv_dtype,
            bytes=None if plan is None else figures_of(plan),
            sections=self.sections,
            notes=(*(() if plan is None else plan.notes), *self.notes),
            warnings=() if plan is None else plan.warnings,
        )


def section(title: str, formula: tuple[str, ...] = (), text: tuple[str, ...] = (), numbers: tuple[str, ...] = ()) -> Section:
    """A page with what there is of it."""
    return Section(title, formula, text, numbers)


def explain(
    subject: str, workload: Workload, *, engine: str = "ideal", model: Any = None, settings: Mapping[str, str] | None = None
) -> Explanation:
    """The pages of `subject`: a technique, a state, a format, an engine, else a MODEL. Techniques are worked on `model`, if given."""
    from kvcalc.questions.techniques import TECHNIQUES

    name = subject.strip()
    first = name.partition("+")[0].partition(":")[0].lower()
    if first not in TECHNIQUES and model is not None:
        raise UsageError("--model: only a technique is worked on a model", "leave it out")
    is_format = all(part in FORMATS or part in ALIASES for part in name.lower().split("/", 1))
    if (is_engine(name) or is_format) and (settings or workload != Workload()):
        raise UsageError(f"{name} is explained by itself, without a context, a device or a setting", "leave the options out")
    if is_engine(name):
        return Explanation(canonical(name), "engine", tuple(_engine(canonical(name))))
    if first in TECHNIQUES:
        return _technique(name, workload, engine, model, settings or {})
    kinds = [kind for kind, state in KINDS.items() if name.lower() in (kind, state.technique)]
    if kinds:
        if settings or workload != Workload():
            raise UsageError(f"{name} is explained by itself, without a context, a device or a setting", "leave the options out")
        return Explanation(name, "state", tuple(page(KINDS[kind].__doc__, title=kind) for kind in kinds))
    if is_format:
        return Explanation(name, "format", tuple(_format(get_format(part)) for part in dict.fromkeys(name.lower().split("/", 1))))
    return _model(name, workload, engine, settings or {})


def page(docstring: str | None, *, title: str = "") -> Section:
    """A docstring as a section: the indented lines are the formula."""
    from inspect import cleandoc

    lines = cleandoc(docstring or "").split("\n")
    formula = tuple(line[4:].rstrip() for line in lines[1:] if line.startswith("    "))
    text = [line for line in lines[1:] if not line.startswith("    ")]
    while text and not text[0]:
        text.pop(0)
    paragraphs = tuple(line for index, line in enumerate(text) if line or (index + 1 < len(text) and text[index + 1]))
    return section(f"{title}: {lines[0]}" if title else lines[0], formula, paragraphs)


def state_page(kind: str, layers: int) -> Section:
    """The page of a state, as a model has it in so many layers; a line that is no state has only its name."""
    title = f"{kind}, {layers:,} layer{'s' if layers != 1 else ''}" if layers else kind
    return page(KINDS[kind].__doc__, title=title) if kind in KINDS else section(title)


def derivation(plan: Plan) -> list[Section]:
    """`--explain`: each state's formula, the same with the numbers put in, and at the end the sum."""
    found: list[Section] = []
    for state in dict.fromkeys(line.state for line in plan.lines):
        lines = [line for line in plan.lines if line.state == state]
        about = state_page(state, max(line.layers for line in lines))
        numbers = tuple(f"{line.buffer}: {line.formula} = {line.bytes:,} B" for line in lines)
        found.append(replace(about, text=(), numbers=numbers))
    if len(plan.lines) == 1:
        return found
    terms = " + ".join(f"{line.bytes:,}" for line in plan.lines) or "nothing is kept"
    return [*found, section("total", numbers=(f"{terms} = {plan.total:,} B",))]


# ── subjects ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _technique(name: str, workload: Workload, engine: str, model: Any, settings: Mapping[str, str]) -> Explanation:
    from kvcalc.questions.compare import Comparing, compare
    from kvcalc.questions.estimate import Estimate
    from kvcalc.questions.techniques import parse

    models = () if model is None else (model,)
    found = compare(Comparing(workload, models=models, techniques=(name,), engine=engine, settings=settings))
    row = found.rows[-1]
    if row.error is not None:
        raise row.error
    assert row.plan is not None  # noqa: S101  a row has a plan or an error
    assert row.architecture is not None  # noqa: S101
    sections: list[Section] = []
    for step in parse(name):
        about = page(step.technique.change.__doc__, title=step.technique.name)
        used = next((item.parameters for item in row.techniques if item.name == step.technique.name), {})
        parameters = tuple(f"{item.name} = {used.get(item.name, '')}: {item.about}" for item in step.technique.parameters)
        sections.append(replace(about, text=(*about.text, *parameters)))
    sections.extend(derivation(row.plan))
    estimate = Estimate(row.architecture, replace(workload, context=row.plan.context), row.plan)
    return Explanation(name, "technique", tuple(sections), estimate, row.remarks)


def _format(found: Format) -> Section:
    numbers: list[str] = []
    for width in _WIDTHS:
        try:
            pair = found.key_bytes(width, 1) + found.value_bytes(width, 1)
        except UsageError:
            continue
        numbers.append(f"K and V of one head of {width}: {pair:,} B; bf16: {4 * width:,} B")
    try:
        latent, rope = _LATENT
        numbers.append(f"an MLA row of {latent} + {rope}: {found.latent_bytes(latent, rope):,} B; bf16: {2 * (latent + rope):,} B")
    except UsageError:
        pass
    if found.name == "fp8_ds_mla":
        numbers.append("a DeepSeek-V4 row of 512, the rotary 64 among them: 448 + 64 x 2 + 8 = 584 B; bf16: 1,024 B")
    aliases = [alias for alias, name in ALIASES.items() if name == found.name]
    text = (f"also written: {', '.join(aliases)}",) if aliases else ()
    kind = page(type(found).__doc__).formula if isinstance(found, PackedLatent) else ()
    return section(f"{found.name}: {found.about}", (found.formula, *kind), text, tuple(numbers))


def _engine(name: str) -> Iterator[Section]:
    """What the engine is, the rules of its modules one by one, and its settings."""
    engine = get_engine(name)
    if engine.rules:
        yield section(f"{engine.title or name}: the rules in short", text=engine.rules)
    home = import_module(folder_of(type(engine).__module__))
    yield _rules(f"{name} {engine.version}", max(type(engine).__doc__ or "", home.__doc__ or "", key=len))
    for entry in iter_modules(getattr(home, "__path__", ())):
        module = import_module(f"{home.__name__}.{entry.name}")
        rules = _rules(entry.name, module.__doc__ or "")
        if any(rules.text):
            yield rules
    if engine.settings:
        yield section(
            "settings (-E NAME=VALUE)",
            text=tuple(
                f"{item.name} = {item.default}: {item.about}" + (f" ({', '.join(item.choices)})" if item.choices else "")
                for item in engine.settings
            ),
        )


def _rules(name: str, docstring: str) -> Section:
    """A module's docstring as it stands, its first line as the title."""
    from inspect import cleandoc

    title, *lines = cleandoc(docstring).split("\n")
    return section(f"{name}: {title}", text=tuple(lines[1:]))


def _model(name: str, workload: Workload, engine: str, settings: Mapping[str, str]) -> Explanation:
    from kvcalc.questions.estimate import Estimate
    from kvcalc.questions.set_fields import override
    from kvcalc.questions.techniques import names
    from kvcalc.sources import load

    try:
        architecture = load(name)
    except UnknownModelError as error:
        hint = nearest(name, [*names(), *engine_names()])
        raise UnknownModelError(f"{error.message}, nor a technique, a format or an engine", hint or error.hint) from None
    if settings:
        architecture = override(architecture, settings)
    plan = get_engine(engine).plan(architecture, workload)
    sections = [_identity(architecture), *derivation(plan)]
    return Explanation(architecture.id, "model", tuple(sections), Estimate(architecture, workload, plan))


def _identity(architecture: Architecture) -> Section:
    """Who the model is, and where its numbers come from."""
    text = [
        f"family {architecture.family}, {architecture.layers.count:,} layers, techniques: {', '.join(architecture.techniques) or 'none'}"
    ]
    source = architecture.source
    if source is not None:
        parts = [
            source.file,
            f"revision {source.revision}" if source.revision else "",
            f"read {source.read}" if source.read else "",
            source.where,
        ]
        text.append("source: " + ", ".join(part for part in parts if part))
        text.extend(f"assumed: {field} ({how})" for field, how in source.assumed.items())
    if architecture.hub:
        text.append(f"hub: {architecture.hub}")
    return section(architecture.name or architecture.id, text=tuple(text))
