"""Files of further flags: `--config` of vLLM, SGLang and trtllm-serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from kvcalc.budgets.file import read_budgets
from kvcalc.core.errors import UsageError
from kvcalc.launch.ask import read_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvcalc.engines.base.reading import Reading

VLLM = """
model: org/name
max-model-len: 8K
tensor_parallel_size: 4
enable-prefix-caching: false
async-scheduling: no
disable-log-stats: true
served-model-name: [a, b]
speculative-config: {method: ngram, num_speculative_tokens: 3}
kv-cache-dtype-skip-layers: [0, 31]
"""
TENSORRT_LLM = """
max_seq_len: 4096
enable_attention_dp: true
print_iter_log: true
cuda_graph_config: {enable_padding: true}
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.8
  enable_block_reuse: false
  max_attention_window: [128, 32768]
"""


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Reading]:
    """What is read from a command whose working folder holds `file.yaml`."""

    def read(command: str, text: str) -> Reading:
        (tmp_path / "file.yaml").write_text(text)
        monkeypatch.chdir(tmp_path)
        return read_command(command.split())

    return read


def test_flags_of_the_command_win_in_vllm(configured: Callable[[str, str], Reading]) -> None:
    found = configured("vllm serve --config file.yaml -tp 2", VLLM)
    assert (found.model, found.keys) == ("org/name", {"context": 8192, "tensor_parallel": 2})
    assert found.settings == {
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "speculative_method": "ngram",
        "num_speculative_tokens": 3,
        "kv_cache_dtype_skip_layers": ["0", "31"],
    }
    assert found.warnings == []
    assert configured("vllm serve own/name --config file.yaml", VLLM).model == "own/name"


def test_flags_of_the_command_win_in_sglang(configured: Callable[[str, str], Reading]) -> None:
    text = "model-path: org/name\ntp-size: 4\ncontext-length: 4096\ntrust-remote-code: false\ndisable-radix-cache: true\n"
    found = configured("python -m sglang.launch_server --tp 2 --config file.yaml", text)
    assert (found.model, found.keys) == ("org/name", {"context": 4096, "tensor_parallel": 2})
    assert found.settings == {"disable_radix_cache": True}


@pytest.mark.parametrize("flag", ["--config", "--extra_llm_api_options"])
def test_the_file_wins_in_tensorrt_llm(configured: Callable[[str, str], Reading], flag: str) -> None:
    found = configured(f"trtllm-serve org/name --max_seq_len 8192 {flag} file.yaml --tp_size 2", TENSORRT_LLM)
    assert found.keys == {"context": 4096, "tensor_parallel": 2, "kv_dtype": "fp8"}
    own = {name: value for name, value in found.settings.items() if name not in found.implied}
    assert own == {"enable_attention_dp": True, "free_gpu_memory_fraction": 0.8, "max_attention_window": ["128", "32768"]}
    assert found.warnings == []


def test_a_key_in_no_table_is_named_and_what_it_holds_is_not(configured: Callable[[str, str], Reading]) -> None:
    found = configured("trtllm-serve org/name --config file.yaml", "made_up: hunter2\nkv_cache_config: {made_up: hunter2}\n")
    assert found.warnings == [
        "--made_up is not a flag that kvcalc knows of this engine: it was not read",
        "--kv_cache_config.made_up is not a flag that kvcalc knows of this engine: it was not read",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speculative_config: {a: 1}\n", "--speculative_config speculates"),
        ("cp_config: {cp_type: helix}\n", "--cp_config splits attention over contexts"),
        ("config: file.yaml\n", "--config names more than one file"),
        ("[1, 2]\n", "--config: the file that it names holds no flags"),
        ("a: &b 1\n", "the file of --config:1: "),
        ("max_seq_len: [hunter2\n", "the file of --config"),
        ("max_seq_len: hunter2\n", "--max_seq_len: its value is not a whole number"),
        ("x" * 2_000_000, ""),
    ],
)
def test_a_file_that_cannot_be_read_is_a_sentence(configured: Callable[[str, str], Reading], text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        configured("trtllm-serve org/name --config file.yaml", text)
    assert error.value.message.startswith(said)
    assert "hunter2" not in error.value.message + error.value.hint


def test_files_that_are_none(configured: Callable[[str, str], Reading]) -> None:
    for words in (
        "--config",
        "--config . --port 1",
        "--config /dev/zero",
        "--config file.yaml --config file.yaml",
        "--config missing.yaml",
    ):
        with pytest.raises(UsageError):
            configured(f"vllm serve org/name {words}", VLLM)


def test_a_budget_looks_beside_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deploy"
    folder.mkdir()
    (folder / "serve.yaml").write_text(VLLM)
    entry = {"name": "one", "model": "gpt2", "command": "vllm serve --config serve.yaml", "limits": {"total": "1GiB"}}
    (folder / "kvcalc.yaml").write_text(yaml.safe_dump({"budgets": [entry]}))
    monkeypatch.chdir(tmp_path)
    assert read_budgets(folder / "kvcalc.yaml")[0].request.workload.tensor_parallel == 4
