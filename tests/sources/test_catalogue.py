"""The catalogue: one file for one model, and the nearest ids for a name that is none."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import InvalidConfigError, UnknownModelError
from kvcalc.sources import catalogue, load

if TYPE_CHECKING:
    from pathlib import Path


def test_an_id_is_a_file() -> None:
    found = catalogue.load_id("llama-2-7b")
    assert (found.id, found.hub, found.layers.count) == ("llama-2-7b", "meta-llama/Llama-2-7b-hf", 32)
    assert load("llama-2-7b") is found


def test_ids_are_in_order_of_their_numbers() -> None:
    llamas = [model_id for model_id in catalogue.ids() if model_id.startswith("llama-2-")]
    assert llamas == ["llama-2-7b", "llama-2-13b", "llama-2-70b"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("llama-2-7", "'llama-2-7b'"),
        ("lama-2-7b", "'llama-2-7b'"),
        ("LLAMA-2-7B", "'llama-2-7b'"),
        ("Llama-2-7b-hf", "'llama-2-7b'"),
        ("someone/Llama-2-7b-hf@main", "'llama-2-7b'"),
        ("gemma-3-27b-it", "'gemma-3-27b'"),
        ("Qwen3-Next-80B-A3B-Instruct", "'qwen3-next-80b-a3b'"),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "'nemotron-3-nano-30b-a3b'"),
        ("kimi", "'kimi-k2'"),
    ],
)
def test_unknown_names_are_told_the_nearest_ids(name: str, meant: str) -> None:
    error = catalogue.unknown(name)
    assert error.exit_code == 2
    assert error.hint.startswith("did you mean " + meant)


def test_a_name_like_no_other_is_told_where_to_look() -> None:
    assert catalogue.unknown("§§§").hint == "`kvcalc models list` shows the catalogue"


@pytest.mark.parametrize("name", ["../llama-2-7b", "llama-2-7b.yaml", "LLAMA-2-7B", "", "a" * 300, "a\0b", "x/y"])
def test_only_ids_reach_the_disk(name: str) -> None:
    assert not catalogue.has(name)
    with pytest.raises(UnknownModelError):
        catalogue.load_id(name)


def test_the_hub_name_of_an_entry() -> None:
    assert catalogue.by_hub("meta-llama/Llama-2-7b-hf") == "llama-2-7b"
    assert catalogue.by_hub("META-LLAMA/llama-2-7b-hf@main") == "llama-2-7b"
    assert catalogue.by_hub("nobody/nothing") is None


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("google/gemma-3-27b-it@main", "gemma-3-27b"),
        ("My Model (v2)", "my-model-v2"),
        ("/", "model"),
        ("-instruct", "instruct"),
    ],
)
def test_an_id_made_of_a_name(name: str, model_id: str) -> None:
    assert catalogue.id_from(name) == model_id
    assert catalogue.is_id(model_id)


def test_an_entry_under_a_wrong_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (catalogue.folder() / "gpt2.yaml").read_text()
    (tmp_path / "other.yaml").write_text(text)
    monkeypatch.setattr(catalogue, "folder", lambda: tmp_path)
    monkeypatch.setattr(catalogue, "_compiled", lambda: None)
    with pytest.raises(InvalidConfigError, match=r"^other\.yaml: id is 'gpt2', and must be the file's stem$"):
        catalogue.load_id("other")
    assert catalogue.load_file(tmp_path / "other.yaml").id == "gpt2"


def test_one_model_reads_one_file() -> None:
    """In a process of its own: every file that is opened, seen by an audit hook."""
    code = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == 'open' else None)\n"
        "from kvcalc.sources import load\n"
        "load('llama-2-7b')\n"
        "print(sorted({name.rsplit('/', 1)[1] for name in opened if name.endswith('.yaml')}))\n"
        "print(sorted(name for name in ('huggingface_hub', 'httpx', 'rich', 'typer', 'kvcalc.sources.hf.reader') if name in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    read = [] if catalogue._compiled() is not None else ["llama-2-7b.yaml"]
    assert done.stdout == f"{read}\n[]\n"
