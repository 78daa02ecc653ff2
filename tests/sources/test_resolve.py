"""What MODEL means: ids, paths, standard input, repositories, addresses, and what is none of them."""

from __future__ import annotations

import io
import json
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import (
    GatedError,
    HubUnavailableError,
    InvalidConfigError,
    KvcalcError,
    NotFoundError,
    UnknownModelError,
    UsageError,
)
from kvcalc.sources import load, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
    "max_position_embeddings": 1024,
    "torch_dtype": "bfloat16",
}
YAML = "id: tiny\nfamily: llama\nlayers: {pattern: [a], count: 3, states: {a: {kind: full, kv_heads: 1, head_dim: 8}}}\n"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """No answer of another test."""
    caches = (resolve._from_hub, resolve._from_stdin, resolve._load_file)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_config(folder: Path, name: str = "config.json", **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(CONFIG | changes))
    return path


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))


def hub(monkeypatch: pytest.MonkeyPatch, answer: Architecture | KvcalcError) -> list[tuple[str, str | None]]:
    """A Hub that answers the same to everything; the questions it was asked."""
    asked: list[tuple[str, str | None]] = []

    def load_repo(repo: str, revision: str | None) -> Architecture:
        asked.append((repo, revision))
        if isinstance(answer, KvcalcError):
            raise answer
        return answer

    monkeypatch.setattr("kvcalc.sources.hf.hub.load_repo", load_repo)
    return asked


def test_a_config_file_and_its_folder_are_the_same_model(here: Path) -> None:
    path = write_config(here / "my-model")
    found = load(str(path))
    assert (found.id, found.family, found.layers.count) == ("my-model", "llama", 2)
    assert found.source is not None
    assert found.source.file == str(path)
    assert load(str(path.parent)).layers == found.layers
    assert load("./my-model").id == "my-model"
    assert load("my-model/config.json").id == "my-model"
    assert load(str(write_config(here, "other.json"))).id == "other"


def test_a_home_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    write_config(here / "m")
    assert load("~/m").id == "m"
    with pytest.raises(UnknownModelError):
        load("~no-such-user-here/m")


def test_a_yaml_and_a_file_without_suffix(here: Path) -> None:
    (here / "tiny.yaml").write_text(YAML)
    (here / "tiny").write_text(YAML)
    assert load("tiny.yaml") == load("./tiny")
    (here / "same.json").write_text(
        '{"id": "tiny", "family": "llama", "layers": {"pattern": ["a"], "count": 3, "states": {"a": {"kind": "full", "kv_heads": 1, "head_dim": 8}}}}'
    )
    assert load("same.json") == load("tiny.yaml")


def test_a_changed_file_is_read_again(here: Path) -> None:
    path = write_config(here, "c.json")
    assert load("c.json").layers.count == 2
    write_config(here, "c.json", num_hidden_layers=33)
    os.utime(path, ns=(1, 1))
    assert load("c.json").layers.count == 33


def test_the_same_words_in_another_folder_are_another_model(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_config(here / "a", num_hidden_layers=2)
    write_config(here / "b", num_hidden_layers=3)
    monkeypatch.chdir(here / "a")
    assert load("config.json").layers.count == 2
    monkeypatch.chdir(here / "b")
    assert load("config.json").layers.count == 3


@pytest.mark.parametrize("data", [json.dumps(CONFIG).encode(), json.dumps(CONFIG).encode("utf-16"), b"\n  " + json.dumps(CONFIG).encode()])
def test_a_config_on_standard_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, data)
    assert load("-").layers.count == 2
    assert load("-").layers.count == 2  # read once


def test_a_yaml_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, YAML.encode())
    assert load("-").id == "tiny"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "standard input: is empty"),
        (b" \n", "standard input: is empty"),
        (b"{" + b" " * (8 * 1024**2), "standard input: is more than 8,388,608 bytes"),
        (b'{"model_type": "llama",}', "standard input:1:24: is not JSON"),
        (b"id: x\n  y: z\n", "standard input:2: is not YAML"),
    ],
)
def test_bad_standard_input(data: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, data)
    with pytest.raises(InvalidConfigError) as caught:
        load("-")
    assert caught.value.message.startswith(message)


def test_an_id_wins_over_a_folder_of_that_name_and_a_folder_over_the_hub(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch, load("gpt2"))
    write_config(here / "gpt2")
    assert load("gpt2").hub == "openai-community/gpt2"
    assert load("./gpt2").family == "llama"
    write_config(here / "org" / "name")
    assert load("org/name").family == "llama"
    assert asked == []


@pytest.mark.usefixtures("here")
def test_a_repository_and_its_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = hub(monkeypatch, load("gpt2"))
    load("org/name")
    load("org/name@refs/pr/1")
    load("org/name")
    assert asked == [("org/name", None), ("org/name", "refs/pr/1")]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("error", [HubUnavailableError("no network"), GatedError("licence"), NotFoundError("no such revision")])
def test_what_the_hub_refuses_the_catalogue_may_have(error: KvcalcError, monkeypatch: pytest.MonkeyPatch) -> None:
    hub(monkeypatch, error)
    with pytest.raises(type(error)) as caught:
        load("meta-llama/Llama-2-7b-hf")
    assert caught.value.message == error.message
    assert caught.value.hint == "the catalogue has this model as 'llama-2-7b', which needs no network"
    with pytest.raises(type(error)) as caught:
        load("org/name")
    assert caught.value is error


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        ("no-such-model", UnknownModelError, "unknown model 'no-such-model'"),
        ("", UnknownModelError, "the model has no name"),
        ("a\0b", UnknownModelError, "the model has no name"),
        ("a/b/c", UnknownModelError, "unknown model 'a/b/c'"),
        ("x" * 5000, UnknownModelError, "unknown model 'xxx"),
        ("esc\x1b[31m", UnknownModelError, "unknown model 'esc\N{REPLACEMENT CHARACTER}[31m'"),
        ("./none.json", UnknownModelError, "./none.json: no such file or folder"),
        ("/none/llama-2-7b", UnknownModelError, "/none/llama-2-7b: no such file or folder"),
        ("/dev/zero", InvalidConfigError, "/dev/zero: is not a regular file"),
        ("http://x/y.gguf", UsageError, "model: only https:// addresses are read"),
        ("https://x/y.safetensors", UsageError, "model: 'https://x/y.safetensors' is no address of a .gguf file"),
    ],
)
def test_what_is_no_model(model: str, kind: type[KvcalcError], message: str) -> None:
    with pytest.raises(kind) as caught:
        load(model)
    assert caught.value.message.startswith(message)
    assert caught.value.exit_code == 2


def test_a_folder_without_config_says_what_it_holds(here: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"^\.: holds no config\.json$"):
        load(".")
    for number in range(7):
        (here / f"part-{number}.gguf").touch()
    with pytest.raises(InvalidConfigError) as caught:
        load(".")
    assert (
        caught.value.message
        == ".: holds no config.json, but GGUF files: part-0.gguf, part-1.gguf, part-2.gguf, part-3.gguf, part-4.gguf, …"
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "./c.json:1:2: is not JSON"),
        (b"[]", "./c.json: is a JSON list, and an object is expected"),
        (b"\xff\xfe\x00", "./c.json: is not UTF-16 text"),
        (b'{"a": ' * 100_000, "./c.json: is nested too deeply"),
        (b"{}", "config.json has no 'model_type'"),
    ],
)
def test_a_file_that_is_no_config(data: bytes, message: str, here: Path) -> None:
    (here / "c.json").write_bytes(data)
    with pytest.raises(InvalidConfigError) as caught:
        load("./c.json")
    assert caught.value.message.startswith(message.removeprefix("./"))


def test_a_file_of_200_mb_is_refused_without_reading(here: Path) -> None:
    with (here / "config.json").open("wb") as file:
        file.truncate(200 * 10**6)
    with pytest.raises(InvalidConfigError, match="is 200,000,000 bytes"):
        load("config.json")


def test_a_gguf_by_suffix_and_by_its_first_bytes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = load("gpt2")
    read: list[Path] = []

    def read_gguf(path: Path) -> Architecture:
        read.append(path)
        return answer

    monkeypatch.setitem(sys.modules, "kvcalc.sources.gguf.reader", types.SimpleNamespace(read_gguf=read_gguf))
    (here / "a.gguf").write_bytes(b"anything")
    (here / "blob").write_bytes(b"GGUF\x03\0\0\0")
    assert load("a.gguf") is answer
    assert load("./blob") is answer
    assert read == [Path("a.gguf"), Path("blob")]


def test_a_gguf_address(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = load("gpt2")
    monkeypatch.setitem(sys.modules, "kvcalc.sources.gguf.remote", types.SimpleNamespace(load_url=lambda _url: answer))
    assert load("https://host/x.gguf") is answer
    assert load("https://host/X.GGUF?download=true") is answer


def test_unreadable_folders_and_pipes(here: Path) -> None:
    os.mkfifo(here / "config.json")
    with pytest.raises(InvalidConfigError, match="is not a regular file"):
        load(".")
    os.mkfifo(here / "pipe")
    with pytest.raises(InvalidConfigError, match="is not a regular file"):
        load("./pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_permissions(here: Path) -> None:
    (here / "shut").mkdir(mode=0)
    with pytest.raises(InvalidConfigError, match="cannot be read"):
        load("./shut")
