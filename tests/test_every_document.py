"""Every document of every command, held to its JSON Schema with nothing left over; and a schema that means something.

Consumers may meet new keys within /1, so the schemas allow them; here each object is closed, so that no key goes undescribed. Then
every value of a document is damaged and every key dropped in turn: a schema that still accepts it describes nothing.
"""

from __future__ import annotations

import copy
import io
import json
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import referencing

import kvcalc
from kvcalc.cli.app import run
from kvcalc.engines import ENGINES
from kvcalc.sources.catalogue import ids

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(kvcalc.__file__).parent / "schemas"
CATALOGUE = Path(kvcalc.__file__).parents[1] / "model_configs"
SCHEMAS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}

LOG = """INFO Initializing a V1 LLM engine (v0.33.0) with config: model='meta-llama/Llama-3.1-8B', max_seq_len=131072
Available KV cache memory: 60.00 GiB
GPU KV cache size: 491,520 tokens
Maximum concurrency for 131,072 tokens per request: 3.75x
"""
GB_LOG = "KV Cache is allocated. #tokens: 440916, K size: 26.91 GB, V size: 13.01 GB\nmax_total_num_tokens=440916\n"
REFUSED_LOG = (
    "To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the "
    "available KV cache memory (10.0 GiB)\n"
)
CUT_LOG = 'source=runner.go:153 msg="truncating input prompt" limit=4096 prompt=10211 keep=4 new=4096\n'
BUDGETS = [
    {"name": "met", "model": "llama-2-7b", "context": 4096, "limits": {"total": "1TiB", "max_growth": "5%"}},
    {"name": "over", "model": "gpt2", "limits": {"total": "1MiB", "per_token": "1KiB"}, "message": "ask first"},
    {"name": "card", "model": "gpt2", "gpu": "h100-80gb", "engine": "vllm", "limits": {"min_tokens": 5, "min_context": 1}},
    {"name": "unknown", "model": "nonesuch", "limits": {"total": "1GiB"}},
]

#: One question of every kind of document, in every shape that the document takes.
QUESTIONS: tuple[tuple[str, ...], ...] = (
    ("estimate", "gemma-3-27b", "-c", "4k"),
    ("estimate", "gemma-3-27b", "-c", "4k", "-n", "3", "-e", "vllm", "--tp", "2", "--explain"),
    ("estimate", "nonesuch"),
    ("estimate", "gpt2", "-e", "vllm", "-e", "llama.cpp"),
    ("fit", "llama-3.1-8b", "-e", "vllm", "--kv-memory", "1GiB", "-c", "128k"),
    ("fit", "mamba-2.8b", "--kv-memory", "1GiB", "-n", "5000"),
    ("fit", "llama-3.1-8b", "-e", "vllm", "--gpu", "h100-80gb:2"),
    ("fit", "llama-3.1-8b", "-e", "sglang", "--gpu", "v100-32gb"),
    ("fit", "llama-3.3-70b", "-e", "vllm", "--gpu", "l4-24gb"),
    ("fit", "llama-3.1-8b", "--memory", "80GB", "--weights", "1GiB"),
    ("fit", "gemma-3-27b", "-e", "vllm", "--kv-memory", "19GiB", "--table", "--kv-dtype", "auto,fp8"),
    ("fit", "llama-3.1-8b", "-e", "vllm", "--gpu", "h100-80gb", "--table"),
    ("fit", "llama-3.1-8b", "-e", "sglang", "--gpus", "all", "-c", "8k"),
    ("fit", "llama-3.1-8b", "--kv-memory", "40GiB", "--lengths", "100,2k,16k"),
    ("fit", "llama-3.1-8b", "--kv-memory", "40GiB", "--lengths", "lognormal:mean=2k:p99=16k"),
    ("launch", "-f", "json", "--model", "gemma-3-27b", "--explain", "vllm", "serve", "org/name", "--max-model-len", "4k", "--made-up"),
    ("launch", "-f", "json", "--model", "llama-3.1-8b", "--gpu", "l4-24gb", "-n", "9", "llama-server", "-c", "32768", "-np", "9"),
    ("compare",),
    ("compare", "mamba-2.8b", "-t", "gqa+swa,fp8", "-c", "1k"),
    ("compare", "llama-3.1-8b", "deepseek-v4-flash", "-c", "1k"),
    ("compare", "llama-3.1-8b", "--engines", "all", "--kv-memory", "1GiB", "--kv-dtype", "q8_0"),
    ("plot", "gpt2", "gemma-3-27b", "-t", "mla", "--kv-memory", "1GiB"),
    ("plot", "gpt2", "-e", "ideal", "-e", "vllm", "--kv-dtype", "auto,fp8"),
    ("chat", "gpt2", "--turns", "3"),
    ("chat", "gemma-3-27b", "--turns", "4", "--kv-memory", "1MiB", "--change-turn", "2", "--policy", "keep:10+window:500"),
    ("explain", "mla"),
    ("explain", "q8_0"),
    ("explain", "vllm"),
    ("explain", "qwen3-next-80b-a3b"),
    ("models", "list"),
    ("models", "show", "gemma-3-27b"),
    ("models", "show", "nemotron-h-8b"),
    ("models", "validate", str(CATALOGUE / "gpt2.yaml"), "broken.yaml"),
    ("gpus", "list"),
    ("check",),
    ("check", "--baseline", "before.json"),
    ("reconcile", "vllm.log"),
    ("reconcile", "sglang.log", "-m", "llama-3.1-8b"),
    ("reconcile", "refused.log", "-m", "llama-3.1-8b"),
    ("reconcile", "cut.log", "-m", "llama-3.1-8b"),
    ("reconcile", "broken.yaml"),
    ("reconcile", "--growth", "1GiB", "--tokens", "100", "gpt2"),
)


def closed(node: Any) -> Any:
    """The same schema without room for keys that it does not name."""
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    found = {key: closed(value) for key, value in node.items()}
    return {"additionalProperties": False} | found if node.get("type") == "object" and "properties" in node else found


@cache
def validator(name: str, *, strict: bool) -> Any:
    schemas = {key: closed(value) for key, value in SCHEMAS.items()} if strict else SCHEMAS
    resources = [(f"{key}.json", referencing.Resource.from_contents(value)) for key, value in schemas.items()]
    registry: Any = referencing.Registry().with_resources(resources)
    return jsonschema.Draft202012Validator(schemas[name], registry=registry)


class Ask:
    """A command with `-f json`, in a folder that holds what the questions read."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.capsys = capsys
        (folder / "kvcalc.yaml").write_text(json.dumps({"budgets": BUDGETS}))
        (folder / "vllm.log").write_text(LOG)
        (folder / "sglang.log").write_text(GB_LOG)
        (folder / "refused.log").write_text(REFUSED_LOG)
        (folder / "cut.log").write_text(CUT_LOG)
        (folder / "broken.yaml").write_text("id: 5\n")
        self.document("check", "--baseline", "before.json", "--update-baseline")

    def document(self, *arguments: str) -> tuple[str, Any]:
        """The document's name and the document, strictly JSON."""
        self.capsys.readouterr()
        code = run((*arguments, "-f", "json"))
        found = json.loads(self.capsys.readouterr().out, parse_constant=pytest.fail)
        assert code in (0, 1, 2, 3)
        return found["schema"].removeprefix("kvcalc.").removesuffix("/1"), found


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    return Ask(capsys, tmp_path)


def test_every_document_and_every_way_to_damage_it(ask: Ask) -> None:
    seen: set[tuple[Any, ...]] = set()
    for question in QUESTIONS:
        name, document = ask.document(*question)
        validator(name, strict=True).validate(document)
        assert sorted(document) == ["error", "schema"] or {"model", "workload", "engine", "kv_dtype", "notes", "warnings"} <= set(document)
        fresh = [steps for steps in _places(document) if not _seen(seen, name, steps, _at(document, steps))]
        ways = (way for steps in fresh for way in damages(document, steps))
        accepted = [f"{name}: {place}" for place, damaged in ways if validator(name, strict=False).is_valid(damaged)]
        assert accepted == []
    # A lab and a verification need PyTorch, a batch holds estimates and fits; their tests hold those.
    assert {place[0] for place in seen} == set(SCHEMAS) - {"common", "budgets", "batch", "lab", "verify"}


def _seen(seen: set[tuple[Any, ...]], name: str, steps: tuple[str | int, ...], value: Any) -> bool:
    """A value of that kind was damaged at that place before, whatever its index in a list."""
    place = (name, type(value), *(step for step in steps if isinstance(step, str)))
    before = place in seen
    seen.add(place)
    return before


#: Keys that a document may do without, and objects whose keys are an engine's, a technique's or a config's own.
OPTIONAL = {"derivation"}
OPEN = {"args", "parameters", "traits", "architecture", "fields", "change"}


def damages(document: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[str, Any]]:
    """The document with that key dropped, its value of another kind, an integer as a fraction or below zero."""
    place = "/".join(map(str, steps))
    *way, last = steps
    value = _at(document, steps)
    if isinstance(last, str) and last not in OPTIONAL:
        yield f"{place} dropped", _changed(document, way, last, ...)
    yield f"{place} of another kind", _changed(document, way, last, _other(value))
    if isinstance(value, int) and not isinstance(value, bool) and last not in _REAL and value < 2**50:
        yield f"{place} as a fraction", _changed(document, way, last, value + 0.5)
        if value >= 0 and last not in _SIGNED:
            yield f"{place} below zero", _changed(document, way, last, -1 - value)


#: Figures that may be fractions, or below zero.
_REAL = {"concurrency", "over_percent", "growth_percent", "utilization", "utilisation", "ratio", "saving", "tokens_per_second"}
_REAL |= {"logged", "expected", "expected_high", "difference"}
_SIGNED = {"growth_per_token", "difference", "expected", "expected_high", "waste", "growth_percent"}


def _other(value: Any) -> Any:
    return 5 if isinstance(value, str) else False if value is None else "text" if isinstance(value, int | float) else 1.5


def _places(node: Any, steps: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place of a document, of lists the first two items."""
    items: list[tuple[Any, Any]] = (
        list(node.items()) if isinstance(node, dict) else list(enumerate(node))[:2] if isinstance(node, list) else []
    )
    for key, value in items:
        yield (*steps, key)
        if key not in OPEN:
            yield from _places(value, (*steps, key))


def _at(document: Any, steps: tuple[str | int, ...]) -> Any:
    for step in steps:
        document = document[step]
    return document


def _changed(document: Any, way: list[str | int], last: str | int, value: Any) -> Any:
    """A copy along the way, with the last step replaced, or dropped where the value is `...`."""
    top = copy.copy(document)
    node = top
    for step in way:
        node[step] = copy.copy(node[step])
        node = node[step]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return top


@pytest.mark.parametrize("engine", ENGINES)
def test_estimates_and_fits_over_the_catalogue(ask: Ask, engine: str) -> None:
    """A few models with each engine, and others with the next."""
    names = ids()
    for model in names[list(ENGINES).index(engine) :: 6 * len(ENGINES)]:
        for question in (("estimate", model, "-n", "3"), ("fit", model, "--kv-memory", "7GiB"), ("fit", model, "--gpu", "h200-141gb:8")):
            name, document = ask.document(*question, "-c", "4097", "-e", engine)
            validator(name, strict=True).validate(document)
