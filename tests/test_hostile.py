"""Bad input from the command line to the exit code: one sentence on stderr, nothing on stdout, nothing half-written, no bug.

The promise: exit 2 for what is wrong with the question, 3 for what cannot be evaluated; never 70, never a traceback,
never a library's own words, never a control character.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from command_line import INTERRUPTIBLE, Answer, asking

from kvcalc.core.errors import EXIT_INTERRUPTED, EXIT_NOT_EVALUATED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-m", "kvcalc"]
#: Words of libraries, not of ours.
FOREIGN = ("Traceback", "nput should", "validation error", "pydantic", "Errno", "Expecting", "Could not determine", "BadParameter")

CONFIG = '{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64, "dtype": "bfloat16"'
YAML = """id: foo
family: llama
dtype: bfloat16
max_context: 4096
layers:
  pattern: [a]
  count: 2
  states:
    a: {kind: full, kv_heads: 8, head_dim: 128}
"""


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return Ask(capsys, monkeypatch)


class Ask:
    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer = asking(capsys, monkeypatch)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Answer:
        return self.answer(*arguments, stdin=stdin)

    def refused(self, code: int, *arguments: str, stdin: bytes = b"") -> str:
        """The sentence of a refusal, which is all there is; the same as a document with `--format json`."""
        answer = self(*arguments, stdin=stdin)
        assert answer.code == code, answer
        assert answer.out == ""
        sentence = answer.err.removesuffix("\n")
        assert sentence.startswith("error: ")
        assert sentence.isprintable()
        assert not any(word in sentence for word in FOREIGN), sentence
        return sentence


#: Name → bytes of a config.json, code, words of the sentence.
CONFIGS: dict[str, tuple[bytes | str, int, str]] = {
    "empty": ("", 2, "is empty"),
    "white space": (" \n", 2, "is empty"),
    "null": ("null", 2, "is a JSON null"),
    "a list": ("[]", 2, "is a JSON list"),
    "cut": (CONFIG, 2, "config.json:1:"),
    "text behind": (CONFIG + "} x", 2, "something stands behind its end"),
    "two values of one key": (CONFIG + ', "hidden_size": 65}', 2, "'hidden_size' stands twice"),
    "NaN": (CONFIG + ', "head_dim": NaN}', 2, "'head_dim' is nan"),
    "infinity": (CONFIG + ', "head_dim": Infinity}', 2, "'head_dim' is inf"),
    "negative": (CONFIG + ', "head_dim": -64}', 2, "'head_dim' is -64"),
    "no layers": (CONFIG.replace('layers": 2', 'layers": 0') + "}", 2, "'num_hidden_layers' is 0"),
    "10^9 layers": (CONFIG.replace('layers": 2', 'layers": 1000000000') + "}", 2, "at most 4096"),
    "5,000 digits": (CONFIG.replace('layers": 2', 'layers": ' + "9" * 5000) + "}", 2, "thousands of digits"),
    "a fraction": (CONFIG.replace('layers": 2', 'layers": 2.5') + "}", 2, "'num_hidden_layers' is 2.5"),
    "a text for a number": (CONFIG.replace('layers": 2', 'layers": "2"') + "}", 2, "'num_hidden_layers' is '2'"),
    "a truth value for a number": (CONFIG.replace('layers": 2', 'layers": true') + "}", 2, "'num_hidden_layers' is True"),
    "heads that do not divide": (CONFIG.replace('heads": 2', 'heads": 3') + "}", 2, "not a multiple of 3 KV heads"),
    "deep lists": ("[" * 100_000 + "]" * 100_000, 2, "nested too deeply"),
    "deep objects": ('{"a":' * 100_000 + "1" + "}" * 100_000, 2, "nested too deeply"),
    "a type that is none": ('{"model_type": "zeta"}', 3, "no rule for model_type 'zeta'"),
    "an escape sequence for a type": ('{"model_type": "\\u001b[31m"}', 3, "no rule for model_type"),
    "a number for a type": ('{"model_type": 5}', 2, "'model_type' is 5"),
    "no type": ("{}", 2, "has no 'model_type'"),
    "a wrapped part that is none": ('{"model_type": "gemma3", "text_config": 5}', 2, "'text_config' is 5"),
    "wrapped without end": ('{"model_type": "gemma3", "text_config": ' * 40 + "{}" + "}" * 40, 2, "more than 4 times"),
    "too few layer types": (CONFIG.replace("llama", "gemma3_text") + ', "layer_types": ["full_attention"]}', 2, "1 entries for 2 layers"),
    "numbers for layer types": (CONFIG.replace("llama", "gemma3_text") + ', "layer_types": [1, 2]}', 2, "'layer_types' holds 1"),
    "a dtype that is none": (CONFIG.replace("bfloat16", "int3") + "}", 2, "'dtype' is 'int3'"),
    "not UTF-8": (b'{"model_type": "\xff"}', 2, "is not UTF-8 text"),
    "binary junk": (bytes(range(256)) * 8, 2, "is not"),
    "zeros": (bytes(1000), 2, "config.json:1:1"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_json(ask: Ask, tmp_path: Path, name: str) -> None:
    data, code, words = CONFIGS[name]
    data = data.encode() if isinstance(data, str) else data
    (tmp_path / "config.json").write_bytes(data)
    assert words in ask.refused(code, "estimate", "./config.json", "-c", "1k")
    assert ask("models", "import", "./config.json", "-o", "made.yaml").code == code
    assert not (tmp_path / "made.yaml").exists()


#: Name → a kvcalc YAML, words of the sentence; the code is 2.
YAMLS: dict[str, tuple[bytes | str, str]] = {
    "empty": ("", "is not a mapping"),
    "a key misspelt": (YAML.replace("kv_heads", "kv_head"), "foo.yaml:9: layers.states.a: unknown key 'kv_head'; did you mean 'kv_heads'?"),
    "a kind misspelt": (YAML.replace("kind: full", "kind: ful"), "unknown kind 'ful'; did you mean 'full'?"),
    "a bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "anchors and aliases are not read"),
    "a tag that runs code": ("!!python/object/apply:os.system ['id']", "is not read"),
    "two documents": (YAML + "---\n" + YAML, "a second document begins here"),
    "a key twice": (YAML + "id: bar\n", "key 'id' stands twice"),
    "deep lists": ("a: " + "[" * 100_000, "is not YAML"),
    "deep mappings": ("".join(" " * i + "a:\n" for i in range(200)), "nested deeper than 32"),
    "values without end": ("a: [" + "1," * 400_000 + "1]", "more than 150,000 values"),
    "too large": (b"a: " + b"x" * (2 * 1024**2), "at most 1,048,576"),
    "a text for a number": (YAML.replace("kv_heads: 8", "kv_heads: '8'"), "kv_heads: must be a whole number, not '8'"),
    "NaN": (YAML.replace("head_dim: 128", "head_dim: .nan"), "head_dim: must be a whole number"),
    "10^30": (YAML.replace("head_dim: 128", f"head_dim: {10**30}"), "head_dim"),
    "a pattern of nobody": (YAML.replace("[a]", "[b]"), "pattern names 'b', which has no entry under states; `kvcalc models import"),
    "heads that do not divide": (YAML.replace("kv_heads: 8", "kv_heads: 8, query_heads: 12"), "must be a multiple of kv_heads 8"),
    "control characters": (YAML.replace("foo", "\x1b[31m"), "is not YAML"),
    "UTF-16": (YAML.encode("utf-16"), "is not UTF-8 text"),
}


@pytest.mark.parametrize("name", YAMLS)
def test_a_kvcalc_yaml(ask: Ask, tmp_path: Path, name: str) -> None:
    data, words = YAMLS[name]
    (tmp_path / "foo.yaml").write_bytes(data.encode() if isinstance(data, str) else data)
    assert words in ask.refused(EXIT_USAGE, "estimate", "./foo.yaml")
    validated = ask("models", "validate", "foo.yaml")
    assert (validated.code, validated.err) == (EXIT_USAGE, "")
    assert validated.out.startswith(("1 problem\n", "2 problems\n", "3 problems\n", "4 problems\n"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["estimate", "llama-2-7c"], 2, "did you mean 'llama-2-7b'"),
        (["estimate", ""], 2, "'model' is missing"),
        (["estimate", "x" * 5000], 2, "unknown model"),
        (["estimate", "/"], 2, "holds no config.json"),
        (["estimate", "."], 2, "holds no config.json"),
        (["estimate", "~nobody-of-that-name/x"], 2, "no such home folder"),
        (["estimate", "no/such"], 3, "the Hub is switched off"),
        (["estimate", "http://x/y.gguf"], 2, "only https://"),
        (["estimate", "file:///etc/passwd"], 2, "unknown model"),
        (["estimate", "org/name@../../etc"], 2, "is not a Hub revision"),
        (["estimate", "gpt2", "--shared-prefix", "4k"], 2, "4096 tokens are more than the context of 1024"),
        (["estimate", "gpt2", "--tp", "5"], 2, "cannot split the 12 query heads"),
        (["estimate", "gpt2", "--gpu", "tpuv5e-16gb", "-e", "llama.cpp"], 2, "llama.cpp does not run on Google TPU v5e"),
        (["estimate", "gpt2", "--gpu", "h100-80gb:0"], 2, "is not a number of devices"),
        (["estimate", "gpt2", "-e", "vllm", "-E", "gpu_memory_utilization=\u0663"], 2, "is not a number"),
        (["estimate", "gpt2", "--set", "family="], 2, "the name is empty"),
        (["estimate", "gpt2", "--set", "kv_heads=x"], 2, "kv_heads: must be a whole number"),
        (["estimate", "gpt2", "-o", ""], 2, "cannot write"),
        (["compare", "-t", "no-such"], 2, "unknown technique 'no-such'"),
        (["compare", "-t", "gqa+"], 2, "is not a technique"),
        (["compare", "-t", "gqa:kv_heads=8:kv_heads=4"], 2, "given twice"),
        (["fit", "gpt2"], 2, "no memory to fit into"),
        (["fit", "gpt2", "--gpu", "h100-80gb", "-e", "vlm"], 2, "did you mean 'vllm'?"),
        (["fit", "gpt2", "--memory", "1GiB", "-e", "vlm"], 2, "did you mean 'vllm'?"),
        (["fit", "gpt2", "--gpu", "h100-80gb", "--utilization", "nan"], 2, "is not a fraction"),
        (["fit", "gpt2", "--gpu", "h100-80gb", "--weights", "1GiB", "--weight-dtype", "fp8"], 2, "--weight-dtype means nothing"),
        (["fit", "gpt2", "--gpus", "all", "--dcp", "2"], 2, "decode context parallel size 2"),
        (["fit", "gpt2", "--kv-memory", "1GiB", "--lengths", ""], 2, "the list is empty"),
        (["fit", "gpt2", "--kv-memory", "1GiB", "--lengths", "5", "--shared-prefix", "3"], 2, "--shared-prefix means nothing"),
        (["chat", "gpt2", "--change-at", "5"], 2, "--change-at needs the turn"),
        (["chat", "gpt2", "--turns-file", "talk.jsonl", "--turns", "5"], 2, "--turns means nothing"),
        (["models", "validate", "."], 2, "holds no .yaml file"),
        (["plot", "gpt2", "-e", "vlm"], 2, "did you mean 'vllm'?"),
    ],
)
def test_a_question(ask: Ask, arguments: list[str], code: int, words: str) -> None:
    assert words in ask.refused(code, *arguments)


@pytest.mark.parametrize("path", ["x" * 5000, "./" + "y" * 300, "z/" * 3000, "~nobody-of-that-name/x"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["estimate"],
        ["models", "import"],
        ["reconcile"],
        ["batch"],
        ["check"],
        ["estimate", "gpt2", "-o"],
        ["init", "gpt2", "-o"],
        ["chat", "gpt2", "--turns-file"],
        ["fit", "gpt2", "--kv-memory", "1GiB", "--lengths"],
    ],
)
def test_a_name_that_no_file_can_have(ask: Ask, arguments: list[str], path: str) -> None:
    ask.refused(EXIT_USAGE, *arguments, path)


def test_no_option_is_silently_ignored(ask: Ask, tmp_path: Path) -> None:
    """A refusal says which; the answer with it would be the answer without it."""
    (tmp_path / "talk.jsonl").write_text('{"user": 5, "reply": 6}\n')
    (tmp_path / "v.log").write_text("GPU KV cache size: 491,520 tokens\n")
    for arguments in (
        ["compare", "gpt2", "--kv-memory", "4GiB"],
        ["compare", "gpt2", "--engines", "all", "-e", "vllm"],
        ["explain", "fp8", "-n", "5"],
        ["explain", "gpt2", "--model", "llama-2-7b"],
        ["fit", "gpt2", "--gpus", "all", "--beyond"],
        ["fit", "gpt2", "--kv-memory", "1GiB", "--overhead", "1GiB"],
        ["fit", "gpt2", "--kv-memory", "1GiB", "--lengths", "5", "-e", "vllm"],
        ["reconcile", "v.log", "--tokens", "5"],
        ["estimate", "gpt2", "--revision", "main"],
        ["estimate", "gpt2", "-e", "vllm", "-e", "sglang", "--explain"],
    ):
        ask.refused(EXIT_USAGE, *arguments)


def test_a_large_file_and_an_endless_pipe(ask: Ask, tmp_path: Path) -> None:
    for name in ("config.json", "large.yaml"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(200 * 1000**2)
        assert "at most" in ask.refused(EXIT_USAGE, "estimate", f"./{name}")
    assert "is more than" in ask.refused(EXIT_USAGE, "estimate", "-", stdin=bytes(10 * 1000**2))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with a name")
def test_what_is_no_regular_file_does_not_hang(ask: Ask, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert "is not a regular file" in ask.refused(EXIT_USAGE, "estimate", "./pipe.json")
    assert "is not a regular file" in ask.refused(EXIT_USAGE, "estimate", "/dev/zero")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(CONFIG + "}")
    path.chmod(0)
    assert "cannot be opened" in ask.refused(EXIT_USAGE, "estimate", "./config.json")


def test_nothing_is_half_written(ask: Ask, tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    target.write_text("before")
    assert ask("estimate", "no-such-model", "-f", "json", "-o", "answer.json").code == EXIT_USAGE
    assert ask("estimate", "gpt2", "-f", "json", "-o", "none/answer.json").code == EXIT_USAGE
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]


def test_with_json_every_refusal_is_a_document(ask: Ask) -> None:
    for arguments, kind, code in (
        (["estimate", "no-such-model"], "unknown_model", EXIT_USAGE),
        (["estimate", "gpt2", "--ctx", "12q"], "usage", EXIT_USAGE),
        (["estimate", "gpt2", "--tp", "5"], "engine_rejects", EXIT_USAGE),
        (["estimate", "no/such"], "hub_unavailable", EXIT_NOT_EVALUATED),
        (["models", "validate"], "usage", EXIT_USAGE),
    ):
        answer = ask(*arguments, "-f", "json")
        document = json.loads(answer.out)
        assert document["schema"] == "kvcalc.error/1"
        assert (answer.code, document["error"]["exit_code"], document["error"]["type"]) == (code, code, kind)
        assert document["error"]["message"] in answer.err


def evil(tmp_path: Path) -> str:
    path = tmp_path / "evil.yaml"
    hostile = '"\\x1b[31m\\x07\\x9b2J\\u202e<b>[red]|`"'
    fields = "".join(f"{key}: {hostile}\n" for key in ("name", "hub", "license"))
    path.write_text(
        YAML.replace("id: foo\n", f"id: {hostile}\n{fields}assumptions: [{hostile}]\nsource: {{file: {hostile}, where: {hostile}}}\n")
    )
    return str(path)


@pytest.mark.parametrize("format_name", ["table", "plain", "json", "yaml", "csv", "markdown", "html"])
def test_what_a_file_says_cannot_drive_the_terminal(ask: Ask, tmp_path: Path, format_name: str) -> None:
    for command in (["estimate"], ["models", "show"], ["explain"], ["compare"], ["fit", "--kv-memory", "1GiB"], ["chat"]):
        answer = ask(*command, evil(tmp_path), "-f", format_name)
        assert answer.code == EXIT_OK or (format_name, command) == ("csv", ["explain"])  # which is no table
        assert all(line.isprintable() for line in f"{answer.out}{answer.err}".split("\n")), command
        assert format_name != "html" or "<b>" not in answer.out


def process(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PROGRAM, *arguments], input=stdin, capture_output=True, env=os.environ | (env or {}), check=False, timeout=60)


def test_a_token_is_never_repeated() -> None:
    token = "hf_" + "s3cr3t" * 6
    environment = {"HF_TOKEN": token, "HUGGING_FACE_HUB_TOKEN": token, "HF_HUB_OFFLINE": "1", "KVCALC_DEBUG": "1"}
    for arguments in (("estimate", "no/such"), ("estimate", "no-such", "-f", "json"), ("estimate", "https://127.0.0.1:1/x.gguf")):
        found = process(*arguments, env=environment)
        assert found.returncode in (EXIT_USAGE, EXIT_NOT_EVALUATED)
        assert token.encode() not in found.stdout + found.stderr


BATCH = "".join(json.dumps({"id": n, "command": "estimate", "model": "gpt2", "context": 1 + n}) + "\n" for n in range(3000))


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
def test_ctrl_c_in_the_middle_of_a_batch_leaves_whole_lines(tmp_path: Path) -> None:
    questions, answers = tmp_path / "q.jsonl", tmp_path / "a.jsonl"
    questions.write_text(BATCH * 20)
    with (
        answers.open("wb") as out,
        subprocess.Popen([*INTERRUPTIBLE, "batch", str(questions)], stdout=out, stderr=subprocess.PIPE) as running,
    ):
        assert running.stderr is not None
        while answers.stat().st_size < 10_000:
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == EXIT_INTERRUPTED
        assert running.stderr.read() == b""
    for line in answers.read_bytes().splitlines():
        assert json.loads(line)["ok"]


@pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX")
def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    questions = tmp_path / "q.jsonl"
    questions.write_text(BATCH)
    with subprocess.Popen([*PROGRAM, "batch", str(questions)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert json.loads(running.stdout.readline())["ok"]
        running.stdout.close()
        assert running.wait(60) == EXIT_OK
        assert running.stderr.read() == b""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory from /proc")
def test_a_batch_takes_no_more_memory_with_more_lines() -> None:
    def resident(process_id: int) -> int:
        with open(f"/proc/{process_id}/statm") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with subprocess.Popen([*PROGRAM, "batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        sizes = []
        for part in (500, 3000):
            for n in range(part):
                config = {"model_type": "llama", "num_hidden_layers": 1 + n % 60, "num_attention_heads": 4, "hidden_size": 4 * (1 + n)}
                question = {"id": n, "command": "estimate", "model": {"hf_config": config}, "context": 1 + n, "gpu": "h100-80gb"}
                running.stdin.write(json.dumps(question).encode() + b"\n")
                running.stdin.flush()
                assert json.loads(running.stdout.readline())["ok"]
            sizes.append(resident(running.pid))
        running.stdin.close()
        assert running.wait(30) == EXIT_OK
    assert sizes[1] - sizes[0] < 2 * 1024**2


def test_every_bad_line_of_a_batch_is_answered() -> None:
    bad: list[str] = [
        "nonsense",
        "[]",
        "null",
        '"x"',
        "{}",
        '{"id": 1}',
        '{"id": 1, "command": "destroy", "model": "gpt2"}',
        '{"id": 1, "command": "estimate"}',
        '{"id": 1, "command": "estimate", "model": "-"}',
        '{"id": 1, "command": "estimate", "model": "gpt2", "contxt": 5}',
        '{"id": 1, "command": "estimate", "model": "gpt2", "context": -1}',
        '{"id": 1, "command": "estimate", "model": "gpt2", "context": 1e400}',
        '{"id": 1, "command": "estimate", "model": "gpt2", "context": NaN}',
        '{"id": 1, "command": "estimate", "model": "gpt2", "gpu": "no-such-card"}',
        '{"id": 1, "command": "estimate", "model": "gpt2", "gpu": "h100-80gb:3", "tensor_parallel": 2}',
        '{"id": 1, "command": "estimate", "model": "gpt2", "engine_args": [1]}',
        '{"id": 1, "command": "estimate", "model": "a\\u0000b"}',
        '{"id": 1, "command": "estimate", "model": {"hf_config": 5}}',
        '{"id": 1, "command": "estimate", "model": {"nonsense": {}}}',
        '{"id": 1, "command": "fit", "model": "gpt2"}',
        '{"id": 1, "command": "fit", "model": "gpt2", "kv_memory": -1}',
        '{"id": 1, "command": "estimate", "model": ' + '{"hf_config": ' * 5000 + "1" + "}" * 5001,
        '{"id": 1, "command": "estimate", "model": "gpt2", "sequences": ' + "9" * 6000 + "}",
    ]
    found = process("batch", stdin="\n".join(bad).encode() + b"\n\xff\xfe\n", env={"HF_HUB_OFFLINE": "1"})
    answers = [json.loads(line) for line in found.stdout.splitlines()]
    assert found.returncode == EXIT_NOT_EVALUATED
    assert found.stderr == b""
    assert len(answers) == len(bad) + 1
    for answer in answers:
        assert answer["ok"] is False
        assert answer["error"]["exit_code"] == EXIT_USAGE, answer
        assert answer["error"]["message"].isprintable()
