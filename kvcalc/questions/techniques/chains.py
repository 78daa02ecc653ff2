"""A chain of techniques: read from text, applied from left to right.

parse("gqa+swa:window=1024:ratio=5-1") → (Step(gqa), Step(swa)) ── apply(case, steps) ──▶ Case, and the parameters in force
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import UsageError, nearest
from kvcalc.core.formats import ALIASES, FORMATS
from kvcalc.core.units import clean
from kvcalc.questions.techniques.base import TECHNIQUES, Case, Ratio, Step, Technique, Used
from kvcalc.questions.techniques.layers import HEADED
from kvcalc.questions.techniques.storage import stored_as

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Longer chains than this are no question.
_MOST_STEPS = 8


def names() -> tuple[str, ...]:
    """Every technique and every storage format."""
    return (*TECHNIQUES, *FORMATS)


def get_technique(name: str) -> Technique:
    """The technique of that name, formats included. Raises UsageError naming the nearest ones."""
    key = name.strip().lower()
    if key in TECHNIQUES:
        return TECHNIQUES[key]
    if all(part in FORMATS or part in ALIASES for part in key.split("/", 1)):
        return stored_as(key)
    raise UsageError(f"unknown technique '{clean(name, 40)}'", nearest(key, names()) or "techniques: " + ", ".join(TECHNIQUES))


def parse(text: str) -> tuple[Step, ...]:
    """`gqa+swa:window=1024:ratio=5-1` → its steps. Raises UsageError."""
    parts = text.split("+")
    if not all(part.strip() for part in parts) or len(parts) > _MOST_STEPS:
        raise UsageError(f"'{clean(text, 60)}' is not a technique", "join techniques with +, such as gqa+swa")
    steps: list[Step] = []
    for part in parts:
        name, *settings = part.split(":")
        technique = get_technique(name)
        if any(
            step.technique.name == technique.name or not (step.technique.name in TECHNIQUES or technique.name in TECHNIQUES)
            for step in steps
        ):
            raise UsageError(f"'{clean(text, 60)}' has two of one kind: {technique.name}", "each technique once, and one format")
        known = {parameter.name: parameter for parameter in technique.parameters}
        given: dict[str, int | Ratio] = {}
        for setting in settings:
            key, equals, value = setting.partition("=")
            key = key.strip().replace("-", "_")
            if not equals or key not in known:
                hint = nearest(key, known) or ("parameters: " + ", ".join(known) if known else f"{technique.name} has no parameters")
                raise UsageError(f"{technique.name} has no parameter '{clean(key, 40)}'", hint)
            if key in given:
                raise UsageError(f"{technique.name}: '{key}' is given twice", "give each parameter once")
            given[key] = known[key].read(value)
        steps.append(Step(technique, given))
    return tuple(steps)


def apply(case: Case, steps: tuple[Step, ...], settings: Mapping[str, str] | None = None) -> tuple[Case, list[Used]]:
    """`case` after all steps, and each step's parameters in force: given, else among `settings`, else the default.

    Raises UsageError naming the technique.
    """
    used: list[Used] = []
    for step in steps:
        if _wants_base(case, step.technique):
            case, below = apply(case, (Step(TECHNIQUES[step.technique.base]),), settings)
            used.extend(below)
        try:
            wanted = _in_force(case, step, settings or {})
            case = step.technique.change(case, **wanted)
        except UsageError as error:
            name = step.technique.name
            sentence = error.message if error.message.startswith(f"{name}:") else f"{name}: {error.message}"
            raise UsageError(sentence, error.hint) from None
        case = replace(case, applied=(*case.applied, step.technique.name))
        used.append(Used(step.technique.name, wanted))
    return case, used


def _wants_base(case: Case, technique: Technique) -> bool:
    said = {"mha", "gqa", "mqa", "mla"} & set(case.applied)
    return bool(technique.base) and not said and any(state.kind in HEADED for state in case.architecture.states)


def _in_force(case: Case, step: Step, settings: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in step.technique.parameters:
        if item.name in step.given:
            found[item.name] = step.given[item.name]
        elif item.name in settings:
            found[item.name] = item.read(settings[item.name])
        else:
            found[item.name] = item.default(case) if callable(item.default) else item.default
    return found
