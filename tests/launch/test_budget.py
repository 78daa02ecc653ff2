"""`command:` in kvcalc.yaml: a launch command in the place of the keys that it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from kvcalc.budgets.file import read_budgets
from kvcalc.core.errors import EXIT_OK, EXIT_OVER_BUDGET, EXIT_USAGE, InvalidConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    from kvcalc.budgets.file import Budget


@pytest.fixture
def budget(tmp_path: Path) -> Callable[..., Budget]:
    """The budget of a file with one; `defaults` are those of the file."""

    def read(defaults: dict[str, Any] | None = None, **keys: Any) -> Budget:
        entry = {"name": "one", "model": "llama-3.1-8b", "limits": {"total": "1GiB"}, **keys}
        path = tmp_path / "kvcalc.yaml"
        path.write_text(yaml.safe_dump({"defaults": defaults or {}, "budgets": [{k: v for k, v in entry.items() if v is not None}]}))
        return read_budgets(path)[0]

    return read


def test_a_command_is_the_keys_that_it_says(budget: Callable[..., Budget]) -> None:
    by_command = budget(
        command="vllm serve org/name --max-model-len 8192 -tp 2 --kv-cache-dtype fp8 --max-num-seqs 8 --port 1", sequences=3
    )
    by_words = budget(command=["vllm", "serve", "org/name", "--max-model-len", 8192, "-tp", 2, "--kv-cache-dtype", "fp8", "--max-num-seqs", 8],
                      sequences=3)  # fmt: skip
    by_keys = budget(
        engine="vllm", context=8192, tensor_parallel=2, kv_dtype="fp8", engine_args={"max_num_seqs": 8}, sequences=3,
    )  # fmt: skip
    assert by_command.request == by_words.request == by_keys.request
    assert by_command.notes == ("read from the command: context 8,192, tensor parallel 2, kv dtype fp8, max_num_seqs 8",)


def test_the_model_is_the_commands_unless_the_budget_says_which(budget: Callable[..., Budget]) -> None:
    command = "vllm serve llama-2-7b --max-model-len 4096"
    assert budget(command=command, model=None).request.model == "llama-2-7b"
    assert budget(command=command).request.model == "llama-3.1-8b"
    assert budget({"model": "gpt2"}, command=command, model=None).request.model == "llama-2-7b"
    assert budget({"model": "gpt2", "command": command}, model=None).request.model == "gpt2"
    assert budget(command="vllm serve org/name --revision v2", model=None).request.model == "org/name@v2"


def test_defaults_of_what_a_command_says_do_not_hold_beside_it(budget: Callable[..., Budget]) -> None:
    defaults = {"engine": "vllm", "tensor_parallel": 4, "context": "32k", "engine_args": {"block_size": 32}, "sequences": 5}
    found = budget(defaults, command="llama-server -m x.gguf -c 8192 -np 2").request
    workload = found.workload
    assert (found.engine, workload.tensor_parallel, workload.context, workload.sequences) == ("llama.cpp", 1, 4096, 2)
    assert workload.engine_args == {}


def test_weights_of_the_command_on_a_card(budget: Callable[..., Budget]) -> None:
    limits = {"min_sequences": 1}
    command = "llama-server -hf org/name:Q4_K_M -c 4096 -np 1"
    assert budget(command=command, gpu="l4-24gb", limits=limits).memory == {"weight_dtype": "q4_k_m"}
    assert budget(command=command, gpu="l4-24gb", weights="5GiB", limits=limits).memory == {"weights": 5 * 2**30}
    assert budget(command=command).memory == {}


REFUSED = {
    "vllm serve x/y --max-model-len 4096": ({"context": 4096}, "'context' is what the command says already; keep one of them"),
    "vllm serve x/y": ({"engine": "vllm"}, "'engine' is what the command says already"),
    "vllm serve x/y --block-size 32": ({"engine_args": {"block_size": 32}}, "'engine_args' is what the command says already"),
    "python train.py": ({}, "no engine's launcher is among the 2 words"),
    "vllm serve x/y --made-up secret": ({}, "--made-up is not a flag that kvcalc knows of this engine: it was not read"),
    "vllm serve x/y --hf-overrides secret": ({}, "--hf-overrides makes another model of this one"),
    "vllm serve x/y --dtype half": ({}, "the command runs the model in another type than its own"),
    "vllm serve x/y --max-model-len auto": ({}, "is -1, the largest that fits"),
    "vllm serve": ({"model": None}, "'model' is missing"),
}


@pytest.mark.parametrize("command", REFUSED)
def test_a_problem_has_its_line(budget: Callable[..., Budget], command: str) -> None:
    keys, said = REFUSED[command]
    with pytest.raises(InvalidConfigError) as error:
        budget(command=command, **keys)
    message = error.value.message
    assert said in message
    assert Path(message.partition(":")[0]).name == "kvcalc.yaml"
    assert message.partition("kvcalc.yaml:")[2].partition(":")[0].isdigit()
    assert "secret" not in message


@pytest.mark.parametrize("command", [5, True, {}, [], [["x"]], [True], ""])
def test_what_is_no_command(budget: Callable[..., Budget], command: Any) -> None:
    with pytest.raises(InvalidConfigError):
        budget(command=command)


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("vllm serve x/y --max-model-len 131072 -tp 1", "1GiB"),
        ("llama-server -m x.gguf -c 131072 -np 4", "1GiB"),
        ("python -m sglang.launch_server --model x/y --context-length 65536", "5GiB"),
    ],
)
def test_remedies_are_words_of_the_command_and_hold(ask: Callable[..., Answer], tmp_path: Path, command: str, limit: str) -> None:
    def check(text: str) -> Answer:
        path = tmp_path / "kvcalc.yaml"
        entry = {"name": "one", "model": "llama-3.1-8b", "command": text, "limits": {"per_device": limit}}
        path.write_text(yaml.safe_dump({"budgets": [entry]}))
        return ask("check", str(path), "--format", "json")

    answer = check(command)
    assert answer.code == EXIT_OVER_BUDGET
    verdict = json.loads(answer.out)["budgets"][0]
    assert any(note.startswith("read from the command: ") for note in verdict["notes"])
    remedies = [remedy["text"] for remedy in verdict["remedies"]]
    assert remedies
    for remedy in remedies:
        assert remedy.startswith("--")
        assert check(f"{command} {remedy}").code == EXIT_OK, remedy


def test_a_command_that_cannot_be_read_is_no_pass(ask: Callable[..., Answer], tmp_path: Path) -> None:
    path = tmp_path / "kvcalc.yaml"
    path.write_text("budgets:\n  - {name: one, model: gpt2, command: vllm serve x --hf-config-path y, limits: {total: 1TiB}}\n")
    answer = ask("check", str(path))
    assert answer.code == EXIT_USAGE
    assert "kvcalc.yaml:2: budgets[0].command: --hf-config-path makes another model of this one" in answer.err
