"""A document becomes plain data: its fields in order, Python's own words without their underscore, what is not there left out."""

from __future__ import annotations

import json
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import ClassVar

import pytest

import kvcalc
from kvcalc.engines import ENGINES
from kvcalc.questions.documents.kinds import Document, plain, record

TOOLS = Path(kvcalc.__file__).parents[1] / "tools"


@record
class Inner:
    class_: str
    sizes: tuple[int, ...]
    why: str | None = None


@record
class Outer(Document):
    schema: ClassVar = "kvcalc.outer/1"
    from_: int | None
    inner: Inner
    settings: dict[str, list[int]]


def test_fields_are_keys_in_order() -> None:
    found = plain(Outer(None, Inner("x", (1, 2)), {"a": [3]}))
    assert json.dumps(found) == (
        '{"schema": "kvcalc.outer/1", "from": null, "inner": {"class": "x", "sizes": [1, 2]}, "settings": {"a": [3]}}'
    )
    assert plain(Inner("x", (), "because")) == {"class": "x", "sizes": [], "why": "because"}


def test_nothing_of_a_document_changes_or_is_unknown() -> None:
    found = Inner("x", ())
    with pytest.raises(FrozenInstanceError):
        found.class_ = "y"  # type: ignore[misc]
    with pytest.raises(TypeError):
        plain(Inner("x", ({1},)))  # type: ignore[arg-type]


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.syspath_prepend(str(TOOLS))
    sys.modules.pop("schemas", None)
    import schemas

    return schemas


def test_the_schemas_in_the_package_are_what_the_classes_say(schemas: object) -> None:
    """After a change of a document: `make docs`."""
    names = schemas.names()  # type: ignore[attr-defined]
    folder = schemas.FOLDER  # type: ignore[attr-defined]
    assert sorted(path.stem for path in folder.glob("*.json")) == names
    for name in names:
        assert (folder / f"{name}.json").read_text(encoding="utf-8") == schemas.text(name), name  # type: ignore[attr-defined]


def test_an_editor_is_told_no_engines_by_name(schemas: object) -> None:
    text = schemas.text("budgets")  # type: ignore[attr-defined]
    assert [engine for engine in ENGINES if f'"{engine}"' in text] == []
