"""Writes the JSON Schemas of `kvcalc/schemas/` from the classes that they describe.

    documents (kvcalc/questions/documents/)     what kvcalc answers: a field is a key, its type and what its annotation says the rules
    budgets (kvcalc/budgets/keys.py)            what a kvcalc.yaml may hold, for editors

    python tools/schemas.py            write them; `python tools/schemas.py --check` says which are not as they should be, and exits 1

Parts that several documents share (documents/common.py) stand in common.json; others in the file that uses them.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

from kvcalc.questions.documents import kinds
from kvcalc.questions.documents.kinds import Document, key_of

FOLDER = Path(__file__).parents[1] / "kvcalc" / "schemas"
_DOCUMENTS = "kvcalc.questions.documents."
_BUDGETS = "kvcalc.budgets.keys"
_COMMON = f"{_DOCUMENTS}common"
#: Schema → the classes of which one describes a document, in the module of that name.
SCHEMAS: dict[str, tuple[str, ...]] = {
    "batch": ("batch.Answered", "batch.Failed"),
    "chat": ("chat.ChatDocument",),
    "check": ("check.CheckDocument",),
    "compare": ("compare.CompareDocument",),
    "error": ("batch.ErrorDocument",),
    "estimate": ("estimate.EstimateDocument",),
    "explain": ("explain.ExplainDocument",),
    "fit": ("fit.GivenFitDocument", "fit.CardFitDocument"),
    "fit_table": ("fit.FitTableDocument",),
    "gpus": ("models.GpusDocument",),
    "growth": ("reconcile.GrowthDocument",),
    "lab": ("lab.LabDocument",),
    "lengths": ("fit.LengthsDocument",),
    "models": ("models.ModelListDocument", "models.ModelDocument", "models.ValidationDocument"),
    "plot": ("plot.PlotDocument",),
    "reconcile": ("reconcile.ReconcileDocument",),
    "sizing": ("fit.SizingDocument",),
    "verify": ("verify.VerifyDocument",),
}
_TITLES = {"batch": "an answer line of kvcalc batch", "fit": "kvcalc fit", "models": "kvcalc models list, show and validate"}
#: Documents that stand in others.
_WHOLE = {f"{_DOCUMENTS}estimate.EstimateDocument": "estimate.json", f"{_DOCUMENTS}fit.FitDocument": "fit.json"}
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}

_SIZES = {"array": "minItems", "object": "minProperties", "string": "minLength"}


class Writer:
    """One file: what its classes need besides them gathers in `parts`."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.parts: dict[str, Any] = {}

    def of(self, hint: Any) -> dict[str, Any]:
        """The schema of a type. Raises TypeError for one that no document holds."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Required, NotRequired):
            return self.of(arguments[0])
        if origin is Annotated:
            return self._annotated(arguments[0], arguments[1:])
        if origin is None:
            return self._single(hint)
        if origin is Literal:
            return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(argument) for argument in arguments]}
        if origin is Mapping:
            values = self.of(arguments[1])
            return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
        return self._list(arguments)

    def _single(self, hint: Any) -> dict[str, Any]:
        """The schema of a class, of text or of a number."""
        if hint is Any:
            return {}
        return {"type": _SCALARS[hint]} if hint in _SCALARS else self._reference(hint)

    def _list(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if len(arguments) == 1 or arguments[1:] == (...,):
            return {"type": "array", "items": self.of(arguments[0])}
        if any(argument != arguments[0] for argument in arguments):
            raise TypeError(arguments)
        return {"type": "array", "items": self.of(arguments[0]), "minItems": len(arguments), "maxItems": len(arguments)}

    def _annotated(self, hint: Any, said: tuple[Any, ...]) -> dict[str, Any]:
        """A type with what is said of it; of a choice, what is said of numbers belongs to the numbers."""
        found = self.of(hint)
        for word in said:
            match word:
                case str():
                    found = {**found, "description": word}
                case kinds.Least(value):
                    found = {**found, "minimum": value}
                case kinds.Most(value):
                    found = _on_numbers(found, "maximum", value)
                case kinds.Above(value):
                    found = {**found, "exclusiveMinimum": value}
                case kinds.AtLeast(number):
                    found = {**found, _SIZES[found.get("type", "object")]: number}
                case kinds.AtMost(number):
                    found = {**found, "maxLength": number}
                case kinds.Matching(pattern):
                    found = {**found, "pattern": pattern}
                case kinds.Having(keys):
                    found = {**found, "required": list(keys)}
                case kinds.Known(keys):
                    found = {**found, "properties": {key: self.of(known) for key, known in keys.items()}}
                case _:
                    raise TypeError(word)
        return found

    def _reference(self, kind: type) -> dict[str, Any]:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in _WHOLE:
            return {"$ref": _WHOLE[name]}
        key = _snake(kind.__name__)
        if kind.__module__ == _COMMON and self.file != "common":
            return {"$ref": f"common.json#/$defs/{key}"}
        if key not in self.parts:
            self.parts[key] = {}
            self.parts[key] = self.object(kind)
        return {"$ref": f"#/$defs/{key}"}

    def object(self, kind: type) -> dict[str, Any]:
        """The schema of a class: its fields, and those that are always there."""
        hints = get_type_hints(kind, include_extras=True)
        about = (kind.__doc__ or "").split("\n")[0]
        if is_typeddict(kind):
            properties = {name: self.of(hints[name]) for name in hints}
            required = [name for name in hints if name in kind.__required_keys__]
            closed = kind.__module__ == _BUDGETS
        else:
            known = {field.name: field.default for field in fields(kind)}
            optional = {name for name, default in known.items() if default is None}
            properties = {key_of(name): self.of(_present(hints[name]) if name in optional else hints[name]) for name in known}
            required = [key_of(name) for name in known if name not in optional]
            closed = getattr(kind, "closed", False)
            if issubclass(kind, Document):
                properties = {"schema": {"const": kind.schema}, **properties}
                required.insert(0, "schema")
        found: dict[str, Any] = {"type": "object", "description": about, "properties": properties}
        if required:
            found["required"] = required
        return found | ({"additionalProperties": False} if closed else {})


def _on_numbers(found: dict[str, Any], word: str, value: int) -> dict[str, Any]:
    """A bound on the numbers of a choice."""
    if "anyOf" not in found:
        return {**found, word: value}
    return {**found, "anyOf": [{**each, word: value} if each.get("type") in ("number", "integer") else each for each in found["anyOf"]]}


def _present(hint: Any) -> Any:
    """The type of a key that is left out where it would be null."""
    if get_origin(hint) is Annotated:
        inner, *said = get_args(hint)
        return Annotated[(_present(inner), *said)]
    kept = tuple(argument for argument in get_args(hint) if argument is not type(None))
    return kept[0] if len(kept) == 1 else Union[kept]  # noqa: UP007  made at run time


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() and place else letter.lower() for place, letter in enumerate(name))


def _class(name: str) -> type:
    module, _, kind = name.rpartition(".")
    found: type = getattr(import_module(module), kind)
    return found


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of that name."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"{name}.json"}
    writer = Writer(name)
    if name == "common":
        module = import_module(_COMMON)
        for kind in vars(module).values():
            if is_dataclass(kind) and kind.__module__ == _COMMON:
                writer.of(kind)
        about = "Bytes are integers. Within /1, keys are only ever added."
        return {**head, "title": "Parts that several kvcalc documents share", "description": about, "$defs": writer.parts}
    if name == "budgets":
        body = writer.object(_class(f"{_BUDGETS}.BudgetFile"))
        return {**head, "title": body.pop("description").rstrip("."), **body, "$defs": writer.parts}
    classes = [_class(_DOCUMENTS + each) for each in SCHEMAS[name]]
    bodies = [writer.object(each) for each in classes]
    if len(bodies) == 1:
        title = bodies[0].pop("description").rstrip(".")
        found = {**head, "title": title, **bodies[0]}
    else:
        found = {**head, "title": _TITLES[name], "type": "object", "anyOf": bodies}
    return found | ({"$defs": dict(sorted(writer.parts.items()))} if writer.parts else {})


def names() -> list[str]:
    """Every schema."""
    return sorted([*SCHEMAS, "common", "budgets"])


def text(name: str) -> str:
    """The file as it stands in the repository."""
    return json.dumps(schema(name), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    """Write, or check, every schema."""
    changed = 0
    for name in names():
        path = FOLDER / f"{name}.json"
        wanted = text(name)
        if path.is_file() and path.read_text(encoding="utf-8") == wanted:
            continue
        changed += 1
        if "--check" in arguments:
            print(f"{path} is not what its classes say: make docs")
        else:
            path.write_text(wanted, encoding="utf-8")
    return 1 if changed and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
