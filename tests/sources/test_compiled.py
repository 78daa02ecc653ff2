"""The compiled catalogue says what the YAML files say, and is read only while it does."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.traits import Traits
from kvcalc.sources import catalogue, compiled

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the catalogue, compiled."""
    made = tmp_path_factory.mktemp("catalogue")
    for path in catalogue.folder().glob("*.yaml"):
        shutil.copy(path, made)
    catalogue.compile_folder(made)
    return made


def test_every_entry_is_that_of_its_file(folder: Path) -> None:
    found = compiled.read(folder, installed=False)
    assert found is not None
    assert found.ids == catalogue.ids()
    assert found.hubs == catalogue.hubs()
    assert len(found.ids) >= 150
    for model_id in found.ids:
        written = catalogue.load_file(folder / f"{model_id}.yaml")
        assert found.load(model_id) == written
        assert hash(found.load(model_id)) == hash(written)
        assert found.load(model_id).states == written.states
        assert found.load(model_id).traits.given() == written.traits.given()


def test_all_fields_go_there_and_back() -> None:
    model = catalogue.load_file(catalogue.folder() / "deepseek-v3.2.yaml")
    full = replace(
        model, draft=model.layers, assumptions=("a", "b"), traits=Traits(gguf_head_dims=(1, 2), kv_cache_scheme={"type": "float"})
    )
    assert compiled.decode(compiled.encode(full)) == full


@pytest.mark.parametrize("change", ["edited", "touched", "added", "removed"])
def test_an_edited_checkout_reads_yaml(folder: Path, tmp_path: Path, change: str) -> None:
    for name in ("llama-2-7b.yaml", "gpt2.yaml"):
        shutil.copy(folder / name, tmp_path)
    catalogue.compile_folder(tmp_path)
    assert compiled.read(tmp_path, installed=False) is not None
    path = tmp_path / "gpt2.yaml"
    if change == "edited":
        path.write_text(path.read_text(encoding="utf-8") + "# more\n", encoding="utf-8")
    elif change == "touched":
        os.utime(path, ns=(1, 1))
    elif change == "added":
        shutil.copy(path, tmp_path / "gpt3.yaml")
    else:
        path.unlink()
    assert compiled.read(tmp_path, installed=False) is None
    # An installation has both of one build; unpacking changes times.
    assert compiled.read(tmp_path, installed=True) is not None


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 64, b"\0" * 7 + b"\x05hello", b"\0" * 7 + b"\x05" + b"i\0\0\0\0"])
def test_a_file_that_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / compiled.FILE).write_bytes(data)
    assert compiled.read(tmp_path, installed=True) is None


def test_no_file_and_a_file_of_another_kvcalc(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled.read(tmp_path, installed=True) is None
    monkeypatch.setattr(compiled, "_FORMAT", -1)
    assert compiled.read(folder, installed=True) is None


def test_a_wrong_file_is_not_compiled(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("id: bad\n", encoding="utf-8")
    with pytest.raises(InvalidConfigError, match=r"bad\.yaml"):
        catalogue.compile_folder(tmp_path)
    assert not (tmp_path / compiled.FILE).exists()


def test_a_question_about_one_model_is_answered_from_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = compiled.read(folder, installed=False)
    monkeypatch.setattr(catalogue, "_compiled", lambda: found)
    monkeypatch.setattr(catalogue, "load_file", None)
    catalogue.load_id.cache_clear()
    catalogue.hubs.cache_clear()
    try:
        assert catalogue.load_id("llama-2-7b").parameters == 6_738_417_664
        assert catalogue.has("gpt2")
        assert not catalogue.has("../gpt2")
        assert catalogue.by_hub("OpenAI-Community/GPT2") == "gpt2"
    finally:
        catalogue.load_id.cache_clear()
        catalogue.hubs.cache_clear()
