"""`kvcalc models`, from the command line to the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from kvcalc.core.errors import EXIT_OK, EXIT_USAGE
from kvcalc.sources.catalogue import folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer


def test_list_counts_and_filters(ask: Callable[..., Answer]) -> None:
    models = ask("models", "list", "-f", "json").document["models"]
    assert len(models) >= 150
    assert next(row for row in models if row["id"] == "llama-2-7b")["bytes_per_token"] == 524_288
    mla = ask("models", "list", "--technique", "mla", "-f", "json").document["models"]
    assert {"deepseek-v3", "deepseek-r1"} <= {row["id"] for row in mla}
    assert all("mla" in row["techniques"] for row in mla)
    assert ask("models", "list", "gemma").out.splitlines()[0].endswith(" models")
    assert ask("models", "list", "no such text").out == "0 models\n\n(none)\n"


def test_a_model_without_a_growing_cache_takes_0_bytes_a_token(ask: Callable[..., Answer]) -> None:
    (row,) = ask("models", "list", "mamba-2.8b", "-f", "json").document["models"]
    assert row["bytes_per_token"] == 0
    assert "mamba1 0 22,937,600 4,096" in " ".join(ask("models", "list", "mamba-2.8b").out.split())


def test_an_unknown_technique_names_the_nearest(refused: Callable[..., str]) -> None:
    assert "did you mean 'mla'" in refused(EXIT_USAGE, "models", "list", "--technique", "mlaa")


def test_show(ask: Callable[..., Answer]) -> None:
    answer = ask("models", "show", "gemma-3-27b")
    assert answer.out.startswith("gemma-3-27b: Gemma 3 27B, 62 layers, swa, gqa\n")
    assert "window=1024" in answer.out
    assert "source" in answer.out
    document = ask("models", "show", "gemma-3-27b", "-f", "json").document
    assert [(state["kind"], state["layers"]) for state in document["states"]] == [("sliding", 52), ("full", 10)]
    assert document["architecture"]["layers"]["count"] == 62


def test_the_catalogue_is_valid_and_a_byte_more_is_not(ask: Callable[..., Answer], tmp_path: Path) -> None:
    assert ask("models", "validate", str(folder())) == (EXIT_OK, "every file is valid\n", "")
    text = (folder() / "llama-2-7b.yaml").read_text()
    document = yaml.safe_load(text)
    figure = document["expect"][0]["bytes"]
    changed = tmp_path / "llama-2-7b.yaml"
    changed.write_text(text.replace(str(figure), str(figure + 1), 1))
    answer = ask("models", "validate", str(changed))
    assert answer.code == EXIT_USAGE
    assert answer.out.startswith("1 problem\n")
    assert "llama-2-7b.yaml:" in answer.out
    assert "(-1 B)" in answer.out
    assert ask("models", "validate", str(changed), "-f", "json").document["problems"][0]["line"] > 0


def test_import_prints_a_valid_file(ask: Callable[..., Answer], tmp_path: Path) -> None:
    target = tmp_path / "mine.yaml"
    assert ask("models", "import", "gemma-3-27b", "--id", "mine", "-o", str(target)).code == EXIT_OK
    assert ask("models", "validate", str(target)).code == EXIT_OK
    mine, theirs = (ask("estimate", model, "-c", "32k", "-f", "json").document["bytes"] for model in (str(target), "gemma-3-27b"))
    assert mine == theirs


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("models", "list", "lamma-2-7b"), "note: nothing here has 'lamma-2-7b' in it; did you mean 'llama-2-7b'"),
        (("gpus", "list", "h1000"), "note: nothing here has 'h1000' in it; did you mean 'h100-80gb'"),
        (("gpus", "list", "qqqqqqqqqqqq"), "note: nothing here has 'qqqqqqqqqqqq' in it; leave it out to see all"),
    ],
)
def test_an_empty_list_names_the_nearest(ask: Callable[..., Answer], arguments: tuple[str, ...], said: str) -> None:
    answer = ask(*arguments)
    assert answer.code == EXIT_OK
    assert answer.err.startswith(said)
    assert answer.out.startswith("0 ")


def test_one_accelerator_is_not_several(ask: Callable[..., Answer]) -> None:
    assert ask("gpus", "list", "l4-24gb").out.startswith("1 accelerator\n")
