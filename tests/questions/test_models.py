"""`models`: the table, its filters, the check of a file, and a config turned into YAML."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.questions.documents.kinds import plain
from kvcalc.questions.models import import_model, list_models, show_model, validate_files
from kvcalc.sources import load
from kvcalc.sources.catalogue import folder, ids

if TYPE_CHECKING:
    from pathlib import Path


def copy_of(model_id: str, place: Path, old: str = "", new: str = "") -> Path:
    """A catalogue file with one text replaced, under its own name."""
    text = (folder() / f"{model_id}.yaml").read_text()
    assert old in text
    path = place / f"{model_id}.yaml"
    path.write_text(text.replace(old, new, 1) if old else text)
    return path


def test_the_table_has_every_model() -> None:
    rows = list_models()
    assert [row.id for row in rows] == list(ids())
    row = next(row for row in rows if row.id == "llama-2-7b")
    # Llama-2-7B is multi-head: 2 x 32 layers x 32 heads x 128 x 2 B (config.json of meta-llama/Llama-2-7b-hf).
    assert plain(row) == {
        "id": "llama-2-7b",
        "name": "Llama 2 7B",
        "hub": "meta-llama/Llama-2-7b-hf",
        "family": "llama",
        "layers": 32,
        "techniques": ["mha"],
        "dtype": "float16",
        "bytes_per_token": 2 * 32 * 32 * 128 * 2,
        "fixed_bytes": 0,
        "max_context": 4096,
    }


def test_fixed_bytes_and_bytes_per_token_of_a_hybrid() -> None:
    row = next(row for row in list_models("qwen3-next-80b"))
    # 12 full layers of 2 x 256; 36 gated DeltaNet layers: fp32 matrices 32 x 128 x 128, 3 bf16 columns of 8192.
    assert row.bytes_per_token == 12 * 2 * 2 * 256 * 2
    assert row.fixed_bytes == 36 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert row.techniques == ("deltanet", "gqa")


def test_the_table_is_quick() -> None:
    started = time.process_time()
    list_models()
    assert time.process_time() - started < 10  # 0.3 s alone on one core; the bound only catches a slow loader


def test_filters() -> None:
    assert {row.id for row in list_models(technique="mla")} >= {"deepseek-v2", "deepseek-v3", "kimi-k2", "kimi-linear-48b-a3b", "glm-5"}
    assert {row.id for row in list_models(family="gemma3")} == {
        "gemma-3-270m",
        "gemma-3-1b",
        "gemma-3-4b",
        "gemma-3-12b",
        "gemma-3-27b",
        "gemma-3n-e2b",
        "gemma-3n-e4b",
    }
    assert [row.id for row in list_models("Llama 2")] == ["llama-2-7b", "llama-2-13b", "llama-2-70b"]
    assert [row.id for row in list_models("META-LLAMA/Llama-2", technique="gqa")] == ["llama-2-70b"]
    assert list_models("no such text") == []


def test_unknown_filters_are_told_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        list_models(technique="mlaa")
    assert caught.value.message == "--technique: no model has technique 'mlaa'"
    assert caught.value.hint.startswith("did you mean 'mla'")
    with pytest.raises(UsageError) as caught:
        list_models(family="gema2")
    assert caught.value.hint.startswith("did you mean 'gemma2'")
    with pytest.raises(UsageError, match="no model has technique ''"):
        list_models(technique="")


def test_show_is_the_whole_architecture() -> None:
    found = show_model(load("gpt2"))
    assert found.architecture["id"] == found.model.id == "gpt2"
    assert [(state.kind, state.layers) for state in found.states] == [("full", 12)]


def test_a_right_file_has_no_problems(tmp_path: Path) -> None:
    assert validate_files([copy_of("gemma-3-27b", tmp_path), tmp_path]) == []


def test_a_figure_that_is_off_by_one_byte(tmp_path: Path) -> None:
    # 22 layers x 4 heads x 2 x 64 x 2 B x 2048 tokens
    right = 22 * 4 * 2 * 64 * 2 * 2048
    path = copy_of("tinyllama-1.1b", tmp_path, f"bytes: {right}", f"bytes: {right + 1}")
    line = 1 + path.read_text().splitlines().index(f"  - {{context: 2048, bytes: {right + 1}}}")
    assert [str(problem) for problem in validate_files([path])] == [
        f"{path}:{line}: expect[1]: says 46,137,345 B, and ideal gives 46,137,344 B (-1 B)"
    ]


def test_a_figure_under_another_workload(tmp_path: Path) -> None:
    path = copy_of("tinyllama-1.1b", tmp_path)
    with path.open("a") as file:
        # One K and one V vector of 64 in q8_0: 2 x 68 B a head and token, 3 sequences of 100 tokens.
        file.write(f"  - {{context: 100, sequences: 3, kv_dtype: q8_0, bytes: {22 * 4 * 2 * 68 * 100 * 3}}}\n")
    assert validate_files([path]) == []
    with path.open("a") as file:
        file.write("  - {context: 100, kv_dtype: q9_0, bytes: 1}\n  - {context: 100, engine: vlm, bytes: 1}\n")
    messages = [problem.message for problem in validate_files([path])]
    assert messages == ["--kv-dtype: unknown format 'q9_0'", "--engine: unknown engine 'vlm'"]


def test_in_a_catalogue_the_stem_is_the_id(tmp_path: Path) -> None:
    place = tmp_path / "model_configs"
    place.mkdir()
    copy_of("gpt2", place).rename(place / "gpt3.yaml")
    assert [str(problem) for problem in validate_files([place])] == [
        f"{place}/gpt3.yaml:1: id: is 'gpt2', and must be the file's stem, 'gpt3'"
    ]
    (place / "gpt3.yaml").rename(tmp_path / "gpt3.yaml")
    assert validate_files([tmp_path / "gpt3.yaml"]) == []


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("id: x\na: &a [1]\nb: *a\n")
    bad = copy_of("gpt2", tmp_path, "kind: full", "kind: ful")
    line = 1 + next(number for number, text in enumerate(bad.read_text().splitlines()) if "kind: ful," in text)
    found = [str(problem) for problem in validate_files([bomb, tmp_path / "none.yaml", bad])]
    assert found == [
        f"{bomb}:2: '&a': anchors and aliases are not read",
        f"{tmp_path}/none.yaml: no such file",
        f"{bad}:{line}: layers.states.full: unknown kind 'ful'; did you mean 'full'?",
    ]


def test_import_prints_a_valid_file(tmp_path: Path) -> None:
    config = tmp_path / "My-Model-Instruct" / "config.json"
    config.parent.mkdir()
    config.write_text(
        json.dumps({"model_type": "qwen2", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64})
    )
    text = import_model(str(config))
    path = tmp_path / "my-model.yaml"
    path.write_text(text)
    assert validate_files([path]) == []
    imported, read = load(str(path)), load(str(config))
    assert imported.id == "my-model"
    assert replace(imported, id=read.id) == read
    assert import_model(str(config), "mine").startswith("id: mine\n")
    with pytest.raises(UsageError, match="--id: 'My Model' is no catalogue id"):
        import_model(str(config), "My Model")


@pytest.mark.parametrize("model", ["no-such-model", "./none.json"])
def test_import_refuses_what_load_refuses(model: str) -> None:
    with pytest.raises(KvcalcError) as caught:
        import_model(model)
    assert caught.value.exit_code == 2
