"""`kvcalc launch` from end to end: what is asked, what is said, what is never said, and the exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import EXIT_NOT_EVALUATED, EXIT_OK, EXIT_OVER_BUDGET, EXIT_USAGE, UsageError
from kvcalc.launch.ask import read_command
from kvcalc.launch.words import LONGEST_TEXT, MOST_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

LLAMA = ("--model", "llama-3.1-8b")
SERVE = ("vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct")


# ── the question ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_memory_it_is_an_estimate(ask: Callable[..., Answer]) -> None:
    """2 x 8 heads x 128 in fp8 for 32 layers and 32,768 tokens."""
    answer = ask("launch", *LLAMA, "-f", "json", *SERVE, "--max-model-len", "32K", "-tp", "2", "--kv-cache-dtype", "fp8", "--port", "8000")
    document = answer.document
    assert (answer.code, document["schema"]) == (EXIT_OK, "kvcalc.estimate/1")
    assert document["bytes"]["total"] == 2 * 8 * 128 * 32 * 32_768
    assert document["workload"]["tensor_parallel"] == 2
    assert document["notes"][0] == "read from the command: context 32,768, tensor parallel 2, kv dtype fp8"


def test_it_is_what_the_question_itself_answers(ask: Callable[..., Answer]) -> None:
    launched = ask("launch", *LLAMA, "--gpu", "h100-80gb:2", "-n", "4", "-f", "json", *SERVE, "--max-model-len", "32768", "-tp", "2")
    asked = ask("fit", "llama-3.1-8b", "-e", "vllm", "--gpu", "h100-80gb:2", "-n", "4", "--ctx", "32k", "-f", "json")
    first, second = launched.document, asked.document
    assert first["notes"][1:] == second["notes"]
    assert {**first, "notes": []} == {**second, "notes": []}


def test_the_memory_of_the_command_makes_it_a_fit(ask: Callable[..., Answer]) -> None:
    words = (*SERVE, "--max-model-len", "8192", "--kv-cache-memory-bytes", "10G")
    document = ask("launch", *LLAMA, "-f", "json", *words).document
    assert (document["schema"], document["budget"]["kv_bytes_per_device"]) == ("kvcalc.fit/1", 10 * 2**30)
    refused = ask("launch", *LLAMA, "--kv-memory", "20GiB", *words)
    assert refused.code == EXIT_USAGE
    assert "--kv-memory says something else than --kv-cache-memory-bytes of the command" in refused.err


def test_the_largest_context_that_fits(ask: Callable[..., Answer]) -> None:
    """10 GiB in blocks of 16 x 131,072 B: 5,120, one of which is held back."""
    words = (*SERVE, "--max-model-len", "auto")
    document = ask("launch", *LLAMA, "--kv-memory", "10GiB", "-f", "json", *words).document
    assert document["max_context"] == 5119 * 16
    refused = ask("launch", *LLAMA, *words)
    assert refused.code == EXIT_USAGE
    assert "--max-model-len asks for the largest context that fits, and no memory is named" in refused.err


def test_require_is_the_exit_code(ask: Callable[..., Answer]) -> None:
    words = (*LLAMA, "--kv-memory", "10GiB", *SERVE, "--max-model-len", "131072")
    assert ask("launch", *words).code == EXIT_OK
    assert ask("launch", "--require", *words).code == EXIT_OVER_BUDGET
    refused = ask("launch", "--require", *LLAMA, *SERVE)
    assert refused.code == EXIT_USAGE
    assert "there is no memory to fit into" in refused.err


@pytest.mark.parametrize(
    "question",
    [
        "--gpu h100-80gb -n 20 vllm serve x/y --max-model-len 131072",
        "--kv-memory 5GiB vllm serve x/y --max-model-len 131072",
        "--gpu l4-24gb sglang serve x/y --context-length 131072",
        "--gpu rtx4090-24gb llama-server -c 131072 -np 4",
        "--gpu h100-80gb -n 9 trtllm-serve x/y --max_seq_len 131072",
    ],
)
def test_what_would_fit_is_said_in_the_words_of_the_command_and_fits(ask: Callable[..., Answer], question: str) -> None:
    words = ["launch", "--require", *LLAMA, *shlex.split(question)]
    answer = ask(*words)
    assert answer.code == EXIT_OVER_BUDGET
    remedies = [shlex.split(line.partition("  ")[0]) for line in answer.out.partition("It would fit with one of\n")[2].splitlines()]
    own = [remedy for remedy in remedies if remedy[0] not in ("--gpu", "--weight-dtype", "--sequences")]
    assert own
    for remedy in own:
        assert ask(*words, *remedy).code == EXIT_OK, remedy


def test_all_cards_of_all_replicas_may_be_named(ask: Callable[..., Answer]) -> None:
    for gpu in ("h100-80gb", "h100-80gb:2", "h100-80gb:8"):
        answer = ask("launch", *LLAMA, "--gpu", gpu, "-f", "json", *SERVE, "-tp", "2", "-dp", "4")
        assert "4 replicas, each with a cache of its own: the figures are those of one, on 2 of 8 GPUs" in answer.document["notes"]
    assert ask("launch", *LLAMA, "--gpu", "h100-80gb:3", *SERVE, "-tp", "2", "-dp", "4").code == EXIT_USAGE


def test_a_type_of_the_model_that_is_not_the_checkpoints(ask: Callable[..., Answer]) -> None:
    document = ask("launch", *LLAMA, "-f", "json", *SERVE, "--dtype", "half").document
    assert (document["kv_dtype"], document["model"]["dtype"]) == ("fp16", "fp16")
    assert "the command runs the model in fp16" in document["notes"]


def test_the_type_of_the_weights_divides_a_card(ask: Callable[..., Answer]) -> None:
    def weights(*words: str) -> int:
        return int(ask("launch", *LLAMA, "--gpu", "h100-80gb", "-f", "json", *words).document["budget"]["from"]["weights"])

    full = weights(*SERVE)
    assert weights(*SERVE, "-q", "fp8") * 2 == full
    own = ask("launch", *LLAMA, "--gpu", "h100-80gb", "--weights", "5GiB", "-f", "json", *SERVE, "-q", "fp8").document
    assert own["budget"]["from"]["weights"] == 5 * 2**30


def test_options_that_would_do_nothing_are_refused(ask: Callable[..., Answer]) -> None:
    for options in (("--weights", "1GiB"), ("--kv-memory", "1GiB", "--weights", "1GiB"), ("--kv-memory", "1GiB", "--explain")):
        assert ask("launch", *LLAMA, *options, *SERVE).code == EXIT_USAGE
    assert ask("launch", *LLAMA, "-n", "2", "llama-server", "-np", "4", "-c", "4096").code == EXIT_USAGE


def test_a_revision_is_that_of_a_repository(ask: Callable[..., Answer], tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert ask("launch", "vllm", "serve", str(tmp_path), "--revision", "v2").code == EXIT_OK
    for options in (("--revision", "v1"), ("--model", "llama-3.1-8b", "--revision", "v1")):
        assert ask("launch", *options, *SERVE, "--revision", "v2").code == EXIT_USAGE


def test_explain_derives_the_estimate(ask: Callable[..., Answer]) -> None:
    assert ask("launch", *LLAMA, "--explain", "-f", "json", *SERVE).document["derivation"]


# ── the forms of a command ──────────────────────────────────────────────────────────────────────────────────────────────

SCRIPT = b"""# start the server; don't stop it
export HF_TOKEN=hf_secret
vllm serve meta-llama/Llama-3.1-8B-Instruct \\
  --max-model-len 8192 \\
  --served-model-name "a b # c" \\
  --api-key sk-secret  # the key isn't for everyone
"""


def test_words_one_text_and_standard_input_are_the_same(ask: Callable[..., Answer]) -> None:
    words = [*SERVE, "--max-model-len", "8192"]
    expected = ask("launch", *LLAMA, *words)
    assert ask("launch", *LLAMA, "--", *words) == expected
    assert ask("launch", *LLAMA, " ".join(words)) == expected
    assert ask("launch", *LLAMA, "-", stdin=SCRIPT) == expected
    assert ask("launch", *LLAMA, f"{' '.join(words)} > log.txt 2>&1 & echo done") == expected
    assert ask("launch", *LLAMA, "-", stdin=b"bash -c '" + " ".join(words).encode() + b"'") == expected


def test_options_of_kvcalc_stand_before_the_command(ask: Callable[..., Answer]) -> None:
    """The same words behind it are the engine's: -n is vLLM's --nnodes."""
    answer = ask("launch", *LLAMA, *SERVE, "-n", "2")
    assert "1 sequence of" in answer.out
    assert ask("launch", *LLAMA, *SERVE, "--gpu", "h100-80gb").err.count("--gpu is not a flag that kvcalc knows of this engine") == 1


# ── what it says ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["python", "train.py"], EXIT_USAGE, "no engine's launcher is among the 2 words of the command; kvcalc reads vllm serve, "),
        (["vllm", "bench", "serve"], EXIT_USAGE, "no engine's launcher is among"),
        (["vllm", "serve"], EXIT_USAGE, "the command does not name a model that kvcalc can read"),
        (["vllm", "serve", "/models/of/another/machine"], EXIT_USAGE, "--model says which model it is"),
        ([*SERVE], EXIT_NOT_EVALUATED, "--model says which model it is"),
        (["ollama", "run", "llama3.1:8b"], EXIT_USAGE, "--model says which model it is"),
        ([""], EXIT_USAGE, "no engine's launcher is among"),
        ([" "], EXIT_USAGE, "the launch command is empty"),
        (["vllm serve 'x"], EXIT_USAGE, "the command has a quote that is not closed"),
        (["-"], EXIT_USAGE, "standard input is empty"),
    ],
)
def test_an_error_is_one_sentence(ask: Callable[..., Answer], words: list[str], code: int, said: str) -> None:
    answer = ask("launch", "--offline", *words)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err


def test_an_error_is_a_document_whatever_follows(ask: Callable[..., Answer]) -> None:
    answer = ask("launch", "-f", "json", "llama-server", "-fa", "maybe", "-f", "file")
    assert json.loads(answer.out)["error"]["exit_code"] == EXIT_USAGE


# ── hostile input ───────────────────────────────────────────────────────────────────────────────────────────────────────

HIDDEN = "hunter2-0123456789"
HOSTILE = (
    f"vllm serve x/y --api-key {HIDDEN}",
    f"HF_TOKEN={HIDDEN} vllm serve x/y --hf-token {HIDDEN} --made-up {HIDDEN} --made-up={HIDDEN}",
    f"vllm serve x/y --max-model-len {HIDDEN}",
    f"vllm serve x/y --max-model-len={HIDDEN}",
    f"vllm serve x/y --gpu-memory-utilization {HIDDEN}",
    f"vllm serve x/y --block-size {HIDDEN} -tp {HIDDEN}",
    f"vllm serve x/y --kv-cache-dtype '{HIDDEN} {HIDDEN}'",
    f'vllm serve x/y --speculative-config \'{{"{HIDDEN}": "{HIDDEN}"}}\'',
    f"vllm serve x/y --speculative-config {HIDDEN}",
    f"vllm serve x/y --hf-overrides {HIDDEN}",
    f"vllm serve x/y --port 1 {HIDDEN}",
    f"vllm serve x/y --port 1 -{HIDDEN}",
    f"vllm serve x/y --api-key --{HIDDEN}={HIDDEN}",
    f"vllm serve https://user:{HIDDEN}@example.org/x/y",
    f"llama-server -m https://example.org/x.gguf?token={HIDDEN}",
    f"llama-server --model-url https://user:{HIDDEN}@example.org/x.gguf",
    f"llama-server -hf https://{HIDDEN}@x:Q4_K_M --api-key {HIDDEN} -c {HIDDEN}",
    f"LLAMA_ARG_CTX_SIZE={HIDDEN} llama-server",
    f"OLLAMA_KV_CACHE_TYPE='{HIDDEN} x' ollama serve",
    f"OLLAMA_CONTEXT_LENGTH={HIDDEN} ollama serve",
    f"sglang serve x/y --quantization '{HIDDEN} x' --page-size {HIDDEN}",
    f"sglang serve x/y --mamba-ssm-dtype {HIDDEN}",
    f"trtllm-serve x/y --max_seq_len {HIDDEN}",
    f"docker run -e HF_TOKEN={HIDDEN} example.org/{HIDDEN}:1 {HIDDEN}",
    f"curl -H 'Authorization: {HIDDEN}' https://example.org",
)


@pytest.mark.parametrize("command", HOSTILE)
def test_a_secret_is_never_repeated(ask: Callable[..., Answer], command: str) -> None:
    for question in ((*LLAMA, command), (*LLAMA, *shlex.split(command)), (*LLAMA, "-f", "json", command), (command,)):
        answer = ask("launch", *question)
        assert HIDDEN not in answer.out + answer.err
        assert answer.code in (EXIT_OK, EXIT_USAGE, EXIT_NOT_EVALUATED)
        assert "Traceback" not in answer.err
        assert "bug in kvcalc" not in answer.err


@pytest.mark.parametrize(
    "command",
    [
        ["vllm", "serve", "x/y", *["--port", "1"] * 50_000],
        ["vllm serve " + "x " * 50_000],
        ["vllm serve x/y " + "a" * LONGEST_TEXT],
        ["vllm", "serve", "x/y", "--chat-template", "a" * 100_000],
        ["vllm", "serve", "x/y", "--max-model-len", "9" * 10_000],
        ["vllm", "serve", "x/y", "--max-model-len", "1.5t"],
        ["vllm", "serve", "x/y", "-tp", "999999999999999999"],
        ["vllm", "serve", "x/y", "-dp", "999999999999999999", "-tp", "1000000000"],
        ["vllm", "serve", "x/y", "--speculative-config", "[" * 50_000],
        ["vllm", "serve", "x/y", "--speculative-config.a.b.c", "{"],
        ["vllm", "serve", "\x1b[31mx\x07/y"],
        ["vllm", "serve", "x/y", "--\x1b[31m", "x"],
        ["vllm", "serve", "x/y", "--kv-cache-dtype", "fp8\x1b[0m"],
        ["vllm", "serve", "x\0y"],
        ["vllm", "serve", "x/y", "--"],
        ["vllm", "serve", "x/y", "-"],
        ["vllm", "serve", "x/y", ""],
        ["vllm", "serve", "-tp"],
        ["llama-server", "-c", "-1"],
        ["llama-server", "-c", "999999999999999999", "-np", "256"],
        ["llama-server", "-np", "100000"],
        ["llama-server", "-ts", "0,0"],
        ["llama-server", "-ts", ".,."],
        ["bash", "-c", "bash -c 'bash -c vllm'"],
        ["bash", "-c", "vllm serve 'x"],
        ["docker", "run", "vllm/vllm-openai:" + "x" * 1000],
    ],
    ids=range(26),
)
def test_hostile_words_end_in_a_sentence(ask: Callable[..., Answer], command: list[str]) -> None:
    answer = ask("launch", *LLAMA, *command)
    assert answer.code in (EXIT_OK, EXIT_USAGE, EXIT_NOT_EVALUATED)
    assert "\x1b" not in answer.err + answer.out
    assert "Traceback" not in answer.err
    assert "bug in kvcalc" not in answer.err
    if answer.code:
        assert answer.err.startswith("error: ")
        assert len(answer.err) < 1000


def test_bytes_that_are_no_text(ask: Callable[..., Answer]) -> None:
    answer = ask("launch", *LLAMA, "-", stdin=b"vllm serve x/y --port \xff\xfe\x00")
    assert (answer.code, answer.err.count("\x00")) == (EXIT_OK, 0)
    assert MOST_WORDS < LONGEST_TEXT


def test_an_estimate_does_not_load_it() -> None:
    code = "import sys\nfrom kvcalc.cli.app import run\nrun(['estimate', 'llama-2-7b'])\nprint([n for n in sys.modules if 'launch' in n])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("joint", [" & ", " && ", "; ", " | ", " || ", "\n", ";"])
def test_a_second_server_is_never_dropped(joint: str) -> None:
    first, second = "vllm serve org/a --max-model-len 1024", "vllm serve org/b --max-model-len 131072"
    with pytest.raises(UsageError):
        read_command([f"{first}{joint}{second}"])
    with pytest.raises(UsageError):
        read_command(["bash", "-c", f"{first}{joint}{second}"])
    assert read_command([f"cd /srv && {first} && echo done"]).keys["context"] == 1024
    assert read_command([f"{first} > server.log 2>&1 &"]).keys["context"] == 1024
