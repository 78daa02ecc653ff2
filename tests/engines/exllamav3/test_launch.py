"""TabbyAPI's config.yml and flags, and text-generation-webui's ExLlamaV3 loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.launcher import Found
from kvcalc.engines.exllamav3 import launch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvcalc.engines.base.reading import Reading

#: Command → keys of the request and settings of the engine.
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "python main.py --model-name name": ({}, {"max_batch_size": 4}),
    "python3 start.py --model-name name --max-seq-len 32768 --host 0.0.0.0": ({"context": 32768}, {"max_batch_size": 4}),
    "python main.py --model-name name --max-seq-len -1 --max-batch-size 1": ({}, {"max_batch_size": 1}),
    "python main.py --model-name name --cache-size 65500 --cache-mode Q6 --disable-auth true": (
        {},
        {"max_num_tokens": 65536, "k_bits": 6, "v_bits": 6, "max_batch_size": 4},
    ),
    "python main.py --model-name name --cache-mode 6,5 --tensor-parallel false": ({}, {"k_bits": 6, "v_bits": 5, "max_batch_size": 4}),
    "python main.py --model-name name --max-seq-len 8192 --cache-size 4096": (
        {"context": 4096},
        {"max_num_tokens": 4096, "max_batch_size": 4},
    ),
    "docker run ghcr.io/theroyallab/tabbyapi:latest --model-name name --cache-mode FP16": ({}, {"max_batch_size": 4}),
    "python server.py --loader ExLlamav3 --model name --ctx-size 8192 --api": ({"context": 8192}, {}),
    "python server.py --loader ExLlamav3_HF --model name --cache-type q4": ({}, {"k_bits": 4, "v_bits": 4}),
    "python server.py --loader exllamav3 --model name --cache_type q8_q4": ({}, {"k_bits": 8, "v_bits": 4}),
}


@pytest.mark.parametrize("command", READ)
def test_commands_are_read(read: Callable[[str], Reading], command: str) -> None:
    found = read(command)
    assert (found.engine, found.model, found.keys, found.settings) == ("exllamav3", "name", *READ[command])
    assert found.warnings == []


REFUSED = {
    "python main.py --backend exllamav2": "--backend runs another engine",
    "python main.py --tensor-parallel true": "--tensor-parallel cuts heads",
    "python main.py --draft-model-name small": "--draft-model-name runs a second model",
    "python main.py --draft-mode mtp": "--draft-mode runs a second model",
    "python main.py --cache-mode FP8": "--cache-mode: its value is no cache of TabbyAPI's",
    "python main.py --max-seq-len long": "--max-seq-len: its value is not a whole number",
    "python server.py --model name": "server.py of text-generation-webui chooses its engine",
    "python server.py --loader llama.cpp": "--loader names another engine",
    "python server.py --loader ExLlamav3 --enable-tp": "--enable-tp cuts heads",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_has_no_rule_is_refused_by_name(read: Callable[[str], Reading], command: str) -> None:
    with pytest.raises(UsageError) as error:
        read(command)
    assert error.value.message.startswith(REFUSED[command])


_CONFIG = """\
network:
  host: 127.0.0.1
  disable_auth: true
  api_servers: ["OAI"]
model:
  model_dir: models
  model_name: name
  inline_model_loading: false
  max_seq_len: 16384
  cache_size: 32768
  cache_mode: 8,6
  tensor_parallel: false
  gpu_split: []
  vision: true
draft_model:
  draft_model_name:
lora:
developer:
  unsafe_launch: false
"""


@pytest.mark.parametrize(
    ("file", "words"), [("config.yml", []), ("other.yml", ["--config", "other.yml"]), ("other.yml", ["--config=other.yml"])]
)
def test_the_file_is_read_and_flags_win(tmp_path: Path, file: str, words: list[str]) -> None:
    (tmp_path / file).write_text(_CONFIG)
    found = launch.read(Found("exllamav3", "tabby", [*words, "--max-seq-len", "8192"], {}, tmp_path))
    assert (found.model, found.keys, found.warnings) == ("name", {"context": 8192}, [])
    assert found.settings == {"max_num_tokens": 32768, "k_bits": 8, "v_bits": 6, "max_batch_size": 4}
    assert any("--vision" in said for said in found.on_card)


def test_a_file_that_is_not_here_is_said(tmp_path: Path) -> None:
    assert any("config.yml" in said for said in launch.read(Found("exllamav3", "tabby", [], {}, tmp_path)).notes)
    with pytest.raises(UsageError, match="is not here"):
        launch.read(Found("exllamav3", "tabby", ["--config", "none.yml"], {}, tmp_path))
