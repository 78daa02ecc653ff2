"""The Hub through its real client, against a local server: what is fetched, what is cached, what is refused.

Each question is a process of its own, as for users: the client reads its environment once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hub_server import COMMIT, Hub, Repo, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "hf_averysecrettoken"  # noqa: S105  not a real one
CONFIG = json.dumps(
    {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
).encode()
REPOS = {
    "org/good": Repo({"config.json": CONFIG}),
    "org/old-name": Repo(moved_to="org/good"),
    "org/gated": Repo(status=403, error_code="GatedRepo"),
    "meta-llama/Llama-2-7b-hf": Repo(status=403, error_code="GatedRepo"),
    "org/limited": Repo(status=429),
    "org/broken": Repo(status=500),
    "org/cut": Repo({"config.json": CONFIG + b" " * 5000}, cut=True),
    "org/only-gguf": Repo({"model-Q4_K_M.gguf": b"", "mmproj.gguf": b"", "README.md": b""}),
    "org/nothing": Repo({"README.md": b""}),
    "org/adapter": Repo({"adapter_config.json": b'{"base_model_name_or_path": "org/good"}'}),
    "org/huge": Repo({"config.json": b" " * 9_000_000}),
    "org/not-json": Repo({"config.json": b"<html>"}),
}


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with serve(REPOS) as server:
        yield server


class Asker:
    """Runs `kvcalc … -f json`, mostly `estimate`, against the server with a cache of its own."""

    def __init__(self, endpoint: str, home: Path) -> None:
        self.environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_TOKEN": TOKEN}
        self.output = ""

    def __call__(self, *arguments: str, code: int = 0, **environment: str) -> dict[str, Any]:
        return self.run("estimate", *arguments, code=code, **environment)

    def run(self, *arguments: str, code: int = 0, **environment: str) -> dict[str, Any]:
        """Any command, its document."""
        command = [sys.executable, "-m", "kvcalc", *arguments, "-f", "json"]
        run = subprocess.run(command, env=self.environment | environment, capture_output=True, text=True, check=False)
        self.output = run.stdout + run.stderr
        assert run.returncode == code, self.output
        assert TOKEN not in self.output
        assert "Traceback" not in self.output
        found: dict[str, Any] = json.loads(run.stdout)
        return found


@pytest.fixture
def ask(hub: Hub, tmp_path: Path) -> Asker:
    hub.requests.clear()
    return Asker(hub.url, tmp_path)


def test_first_fetched_then_offline(hub: Hub, ask: Asker) -> None:
    first = ask("org/good", "--ctx", "8k")
    assert first["bytes"]["total"] == 32 * 2 * 8 * 128 * 2 * 8192
    assert first["model"]["source"] == f"org/good/config.json@{COMMIT}"
    assert {path.split("?")[0] for path in hub.requests} == {
        "HEAD /org/good/resolve/main/config.json",
        "GET /org/good/resolve/main/config.json",
    }
    assert all(token in ("", f"Bearer {TOKEN}") for token in hub.tokens)

    hub.requests.clear()
    assert ask("org/good", "--ctx", "8k")["bytes"] == first["bytes"]
    assert not [path for path in hub.requests if path.startswith("GET")]

    hub.requests.clear()
    assert ask("org/good", "--ctx", "8k", HF_HUB_OFFLINE="1")["bytes"] == first["bytes"]
    assert ask("org/good", "--ctx", "8k", "--offline")["bytes"] == first["bytes"]
    assert hub.requests == []

    stale = ask("org/good", "--ctx", "8k", HF_ENDPOINT="http://127.0.0.1:9")
    assert stale["bytes"] == first["bytes"]
    assert any("cached copy" in note for note in stale["notes"])


def test_a_revision_is_named_and_a_renamed_repository_is_followed(ask: Asker) -> None:
    assert ask(f"org/good@{COMMIT}")["model"]["source"].endswith(COMMIT)
    assert ask("org/good", "--revision", COMMIT)["model"]["source"].endswith(COMMIT)
    assert ask("org/old-name")["bytes"]["per_token"] == 131_072


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", "org/good", "-t", "mqa"),
        ("plot", "org/good"),
        ("chat", "org/good"),
        ("explain", "org/good"),
        ("models", "show", "org/good"),
    ],
)
def test_every_command_asks_the_hub_for_a_revision_and_then_needs_it_no_more(hub: Hub, ask: Asker, arguments: tuple[str, ...]) -> None:
    found = ask.run(*arguments, "--revision", COMMIT)
    assert hub.requests
    hub.requests.clear()
    assert ask.run(*arguments, "--revision", COMMIT, "--offline") == found
    assert hub.requests == []
    assert COMMIT in json.dumps(found)
    other = (*arguments[:-1], "org/other") if arguments[-1] == "org/good" else (arguments[0], "org/other", *arguments[2:])
    assert ask.run(*other, "--offline", code=3)["error"]["type"] == "hub_unavailable"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["org/missing"], "not_found", "org/missing"),
        (["mistralai/Mistral-7B-v0.1"], "not_found", "mistral-7b-v0.1"),
        (["org/good@nonesuch"], "not_found", "no revision 'nonesuch'"),
        (["org/gated"], "gated", "HF_TOKEN"),
        (["meta-llama/Llama-2-7b-hf"], "gated", "llama-2-7b"),
        (["org/limited"], "hub_unavailable", "429"),
        (["org/broken"], "hub_unavailable", "500"),
        (["org/cut"], "hub_unavailable", "broke off"),
        (["org/only-gguf"], "not_found", "org/only-gguf/resolve/main/model-Q4_K_M.gguf"),
        (["org/nothing"], "not_found", "no config.json"),
        (["org/adapter"], "not_found", "base model: org/good"),
    ],
)
def test_what_the_hub_refuses_is_exit_3(ask: Asker, arguments: list[str], kind: str, words: str) -> None:
    error = ask(*arguments, code=3)["error"]
    assert error["type"] == kind
    assert words in error["message"] + error["hint"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["org/huge"], "9,000,000 bytes"), (["org/not-json"], "not JSON"), (["org/good@../x"], "revision"), (["a/b/c"], "a/b/c")],
)
def test_what_cannot_be_read_is_exit_2(ask: Asker, arguments: list[str], words: str) -> None:
    error = ask(*arguments, code=2)["error"]
    assert words in error["message"] + error["hint"]


def test_out_of_reach_says_what_is_cached(ask: Asker) -> None:
    ask("org/good")
    for environment in ({"HF_ENDPOINT": "http://127.0.0.1:9"}, {"HF_HUB_OFFLINE": "1"}):
        error = ask("org/other", code=3, **environment)["error"]
        assert error["type"] == "hub_unavailable"
        assert "org/good" in error["hint"]
