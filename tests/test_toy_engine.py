"""Engines from another package, in every question: one that says all there is to say of itself, and one that says nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import referencing
from command_line import Answer, asking

import kvcalc
from kvcalc.core.units import GIB
from kvcalc.engines import ENGINES, names, registry
from kvcalc.questions.card import memory_budget
from kvcalc.questions.request import parse_request
from kvcalc.sources import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKAGE = Path(__file__).parent / "toy_engine"
FOLDER = Path(kvcalc.__file__).parent / "schemas"
SCHEMAS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
REGISTRY: Any = referencing.Registry().with_resources(
    (f"{name}.json", referencing.Resource.from_contents(found)) for name, found in SCHEMAS.items()
)
#: Bytes of a token of Llama-3.1-8B in bf16, and of a page of 16.
TOKEN = 2 * 32 * 8 * 128 * 2
PAGE = 16 * TOKEN
BOTH = pytest.mark.parametrize("engine", ["toy", "bare"])


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.syspath_prepend(str(PACKAGE))
    registry.forget()
    yield
    registry.forget()


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    return asking(capsys, monkeypatch)


def held(answer: Answer, *, code: int = 0) -> Any:
    """The document of an answer, held to its schema."""
    assert answer.code == code, answer
    document = answer.document
    name = document["schema"].removeprefix("kvcalc.").removesuffix("/1")
    jsonschema.Draft202012Validator(SCHEMAS[name], registry=REGISTRY).validate(document)
    return document


def test_both_are_listed_and_read_in_any_case() -> None:
    assert names() == (*ENGINES, "bare", "toy")
    assert {registry.canonical(name) for name in ("toy", "Toy", "TOY-ENGINE")} == {"toy"}


def test_a_package_cannot_take_the_name_of_an_own_engine() -> None:
    assert not set(registry.installed()) & set(ENGINES)


@BOTH
def test_estimate(ask: Callable[..., Answer], engine: str) -> None:
    document = held(ask("estimate", "llama-3.1-8b", "-e", engine, "-c", "1001", "-n", "2", "-f", "json"))
    assert document["engine"]["name"] == engine
    assert document["bytes"]["total"] == 2 * (63 * PAGE if engine == "toy" else 1001 * TOKEN)
    assert engine in ask("estimate", "llama-3.1-8b", "-e", engine, "-c", "1001", "--explain").out
    assert ask("estimate", "llama-3.1-8b", "-e", engine, "--gpu", "h100-80gb").code == 0


def test_settings_are_read(ask: Callable[..., Answer]) -> None:
    document = held(ask("estimate", "llama-3.1-8b", "-e", "toy", "-c", "1001", "-E", "page=64", "-f", "json"))
    assert document["bytes"]["total"] == 16 * 64 * TOKEN
    assert "page" in ask("estimate", "llama-3.1-8b", "-e", "toy", "-E", "pag=3").err


@BOTH
def test_fit_in_a_memory(ask: Callable[..., Answer], engine: str) -> None:
    document = held(ask("fit", "llama-3.1-8b", "-e", engine, "--kv-memory", "1GiB", "-c", "4k", "-f", "json"))
    assert document["max_context"] == GIB // TOKEN
    assert document["max_sequences"] == 2
    document = held(ask("fit", "llama-3.1-8b", "-e", engine, "--kv-memory", "1GiB", "-c", "16k", "--require", "-f", "json"), code=1)
    assert {remedy["setting"] for remedy in document["remedies"]} == {"context", "kv_dtype", "tensor_parallel"}


@BOTH
def test_fit_on_a_card(ask: Callable[..., Answer], engine: str) -> None:
    document = held(ask("fit", "llama-3.1-8b", "-e", engine, "--gpu", "h100-80gb:2", "-c", "8k", "-n", "16", "-f", "json"))
    assert document["workload"]["tensor_parallel"] == 2
    held(ask("fit", "llama-3.1-8b", "-e", engine, "--gpu", "l4-24gb", "-c", "128k", "-n", "4", "-f", "json"))
    assert ask("fit", "llama-3.1-8b", "-e", engine, "--gpu", "l4-24gb", "-c", "128k", "-n", "4").code == 0
    assert held(ask("fit", "llama-3.1-8b", "-e", engine, "--gpus", "all", "-c", "8k", "-f", "json"))["gpus"]


def test_the_share_of_a_card() -> None:
    request = parse_request({"model": "llama-3.1-8b", "engine": "toy", "gpu": "h100-80gb"})
    found = memory_budget(load("llama-3.1-8b"), request, weights=16 * GIB)
    assert found.kv_likely == -(-found.memory * 4 // 5) - 16 * GIB - 2 * GIB
    assert found.gpu.low is not None
    assert found.kv_low == -(-found.gpu.low * 4 // 5) - 16 * GIB - 3 * GIB
    given = parse_request({"model": "llama-3.1-8b", "engine": "toy", "gpu": "h100-80gb", "engine_args": {"memory_share": 0.5}})
    assert memory_budget(load("llama-3.1-8b"), given, weights=0, overhead=0).kv_likely == -(-found.memory // 2)
    bare = parse_request({"model": "llama-3.1-8b", "engine": "bare", "gpu": "h100-80gb"})
    assert memory_budget(load("llama-3.1-8b"), bare, weights=0, overhead=0).kv_likely == found.memory


def test_a_card_of_another_vendor_is_refused(ask: Callable[..., Answer]) -> None:
    answer = ask("fit", "llama-3.1-8b", "-e", "toy", "--gpu", "mi300x-192gb")
    assert answer.code == 2
    assert "toy does not run on" in answer.err


@BOTH
def test_table(ask: Callable[..., Answer], engine: str) -> None:
    found = ask("fit", "llama-3.1-8b", "-e", engine, "--kv-memory", "8GiB", "--table", "--kv-dtype", "auto,fp8", "-f", "json")
    assert held(found)["engine"]["name"] == engine
    held(ask("fit", "llama-3.1-8b", "-e", engine, "--gpu", "h100-80gb", "--table", "-f", "json"))


def test_compare_all_engines(ask: Callable[..., Answer]) -> None:
    document = held(ask("compare", "llama-3.1-8b", "--engines", "all", "-c", "1001", "--kv-memory", "8GiB", "-f", "json"))
    assert {row["name"] for row in document["rows"]} >= {*ENGINES, "bare", "toy"}


@BOTH
def test_plot(ask: Callable[..., Answer], engine: str) -> None:
    held(ask("plot", "llama-3.1-8b", "-e", "ideal", "-e", engine, "--kv-memory", "8GiB", "-f", "json"))


@BOTH
def test_chat(ask: Callable[..., Answer], engine: str) -> None:
    held(ask("chat", "llama-3.1-8b", "-e", engine, "--turns", "3", "-f", "json"))


@BOTH
def test_check_with_remedies(ask: Callable[..., Answer], engine: str, tmp_path: Path) -> None:
    budget = {"name": "chat", "model": "llama-3.1-8b", "engine": engine, "context": 8192, "limits": {"total": "512MiB"}}
    card = {"name": "card", "model": "llama-3.1-8b", "engine": engine, "gpu": "h100-80gb", "limits": {"min_context": 8192}}
    path = tmp_path / "kvcalc.yaml"
    path.write_text(json.dumps({"budgets": [budget, card]}))
    jsonschema.Draft202012Validator(SCHEMAS["budgets"], registry=REGISTRY).validate({"budgets": [budget, card]})
    document = held(ask("check", str(path), "-f", "json"), code=1)
    over, met = document["budgets"]
    assert [next(iter(remedy["change"].items())) for remedy in over["remedies"]] == [("context", 4096), ("kv_dtype", "fp8")]
    assert met["status"] == "pass"


@BOTH
def test_an_unknown_engine_in_a_budget_is_the_registrys_word(ask: Callable[..., Answer], engine: str, tmp_path: Path) -> None:
    path = tmp_path / "kvcalc.yaml"
    path.write_text(json.dumps({"budgets": [{"name": "a", "model": "gpt2", "engine": engine[:-1] + "x", "limits": {"total": "1GiB"}}]}))
    error = held(ask("check", str(path), "-f", "json"), code=2)["budgets"][0]["error"]
    assert error["message"].startswith("--engine: unknown engine")
    assert engine in error["hint"]


def test_launch_of_its_own_command(ask: Callable[..., Answer]) -> None:
    command = (
        "toy-serve",
        "meta-llama/Llama-3.1-8B",
        "--context",
        "16384",
        "--ranks",
        "2",
        "--page",
        "64",
        "--port",
        "1",
        "--memory-share",
        ".5",
    )
    document = held(ask("launch", "-f", "json", "--model", "llama-3.1-8b", "--gpu", "h100-80gb:2", *command))
    assert document["engine"]["args"] == {"page": 64, "memory_share": 0.5}
    assert document["workload"]["tensor_parallel"] == 2
    container = ask(
        "launch", "-f", "json", "--model", "llama-3.1-8b", "docker", "run", "-e", "TOY_FAST=1", "toy/server:1", "--context", "64"
    )
    assert held(container)["warnings"] == ["variables of the engine that kvcalc does not read: TOY_FAST"]
    assert "keeps two caches" in ask("launch", "--model", "llama-3.1-8b", "toy-serve", "--twice").err
    assert "toy-serve" in ask("launch", "what", "is", "this").err


def test_remedies_of_a_launch_in_its_own_words(ask: Callable[..., Answer]) -> None:
    found = ask("launch", "--model", "llama-3.1-8b", "--kv-memory", "1GiB", "toy-serve", "--context", "16384")
    assert all(word in found.out for word in ("--context 8192", "--cache-type fp8", "--ranks 2")), found.out


def test_a_command_in_a_budget(ask: Callable[..., Answer], tmp_path: Path) -> None:
    path = tmp_path / "kvcalc.yaml"
    path.write_text(
        json.dumps(
            {"budgets": [{"name": "a", "model": "llama-3.1-8b", "command": "toy-serve --context 1001", "limits": {"total": 63 * PAGE}}]}
        )
    )
    assert held(ask("check", str(path), "-f", "json"))["summary"]["passed"] == 1


def test_reconcile_of_its_own_log(ask: Callable[..., Answer]) -> None:
    log = "toy: model meta-llama/Llama-3.1-8B\ntoy: cache of 126.00 MiB for 1001 tokens\n"
    document = held(ask("reconcile", "-", "-f", "json", stdin=log))
    assert document["engine"]["name"] == "toy"
    assert document["rows"][0]["within"] is True
    other = held(ask("reconcile", "-", "-f", "json", stdin=log.replace("126", "128")), code=1)
    assert other["rows"][0]["reason"] == "pages of 64 tokens"


def test_reconcile_of_a_start_that_failed(ask: Callable[..., Answer]) -> None:
    log = "toy: model meta-llama/Llama-3.1-8B\ntoy: cache of 16.00 GiB needed for 131072 tokens, 10.00 GiB left\n"
    trouble = held(ask("reconcile", "-", "-f", "json", stdin=log))["trouble"]
    assert trouble["text"].startswith("Toy did not start")
    assert trouble["needed"] == 131_072 * TOKEN
    flags = [way["flag"].split()[0] for way in trouble["ways"]]
    assert flags == ["--memory-share", "--context", "--cache-type", "--ranks"]


@BOTH
def test_explain(ask: Callable[..., Answer], engine: str) -> None:
    document = held(ask("explain", engine, "-f", "json"))
    titles = [section["title"] for section in document["sections"]]
    if engine == "toy":
        assert titles[0] == "Toy: the rules in short"
        assert titles[-1] == "settings (-E NAME=VALUE)"
    assert any(title.startswith(f"{engine} 0.1") for title in titles)


@BOTH
def test_batch(ask: Callable[..., Answer], engine: str) -> None:
    lines = [
        {"id": 1, "command": "estimate", "model": "llama-3.1-8b", "engine": engine.upper(), "context": 1024},
        {"id": 2, "command": "fit", "model": "llama-3.1-8b", "engine": engine, "kv_memory": GIB},
        {"id": 3, "command": "fit", "model": "llama-3.1-8b", "engine": engine, "gpu": "h100-80gb"},
    ]
    answer = ask("batch", "-", stdin="\n".join(map(json.dumps, lines)))
    assert answer.code == 0, answer
    for line in answer.out.splitlines():
        jsonschema.Draft202012Validator(SCHEMAS["batch"], registry=REGISTRY).validate(json.loads(line))


def test_the_python_interface() -> None:
    assert kvcalc.estimate("llama-3.1-8b", engine="toy", context=1001).to_dict()["bytes"]["total"] == 63 * PAGE


def test_an_engine_that_cannot_be_loaded_is_one_sentence(
    ask: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "broken-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[kvcalc.engines]\nbroken = no_such_module:Engine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.forget()
    answer = ask("estimate", "llama-3.1-8b", "-e", "broken")
    assert answer.code == 2
    assert "no_such_module:Engine cannot be loaded" in answer.err
    assert ask("estimate", "llama-3.1-8b", "-e", "toy").code == 0
