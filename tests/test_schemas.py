"""Every document of a question, held to its JSON Schema: estimate, compare, explain, fit, models, batch, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing

import kvcalc
from kvcalc.core.errors import EngineRejectsError, UnknownModelError, UnsupportedArchitectureError
from kvcalc.core.workload import Workload
from kvcalc.engines import ENGINES
from kvcalc.questions.batch import answer
from kvcalc.questions.compare import Comparing, compare
from kvcalc.questions.documents.kinds import plain
from kvcalc.questions.explain import derivation, explain

FOLDER = Path(kvcalc.__file__).parent / "schemas"
SCHEMAS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.json")}
REGISTRY: Any = referencing.Registry().with_resources(
    (f"{name}.json", referencing.Resource.from_contents(found)) for name, found in SCHEMAS.items()
)


def hold(name: str, document: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMAS[name], registry=REGISTRY).validate(json.loads(json.dumps(document)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["title"]


@pytest.mark.parametrize("model", ["llama-2-7b", "gemma-3-27b", "deepseek-v3.2", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("engine", ENGINES)
def test_estimates_and_their_sums(model: str, engine: str) -> None:
    try:
        found = kvcalc.estimate(model, context=4096, sequences=2, engine=engine)
    except (UnsupportedArchitectureError, EngineRejectsError) as refused:
        pytest.skip(refused.message)
    document = found.to_dict()
    hold("estimate", document)
    assert sum(line["bytes"] for line in document["lines"]) == document["bytes"]["total"]
    hold("estimate", {**document, "derivation": [plain(section) for section in derivation(found.plan)]})


def test_fits() -> None:
    for engine in ENGINES:
        hold("fit", kvcalc.fit("llama-3.1-8b", context=4096, engine=engine, kv_memory=2**34).to_dict())


def test_comparisons() -> None:
    hold("compare", kvcalc.compare().to_dict())
    hold("compare", kvcalc.compare("mamba-2.8b", techniques=["gqa", "fp8"], context=1024).to_dict())
    hold("compare", kvcalc.compare(["llama-2-7b", "deepseek-v4-flash"], context=1024).to_dict())
    workload = Workload(context=4096, kv_dtype="q8_0", kv_memory=2**34)
    hold("compare", compare(Comparing(workload, models=["llama-3.1-8b"], engines=["vllm", "llama.cpp"])).to_dict())


@pytest.mark.parametrize("subject", ["gqa+swa", "fp8_ds_mla", "vllm", "gemma-3-27b"])
def test_explanations(subject: str) -> None:
    hold("explain", explain(subject, Workload()).to_dict())


def test_batch_answers_and_errors() -> None:
    for line in (
        '{"id": {"any": 1}, "command": "estimate", "model": "llama-2-7b"}',
        "nonsense",
        '{"command": "estimate", "model": "nonesuch"}',
    ):
        hold("batch", answer(line))
    hold("batch", answer('{"command": "fit", "model": "llama-2-7b", "kv_memory": 1073741824}'))
    hold("error", {"schema": "kvcalc.error/1", "error": UnknownModelError("no such model", "look").to_dict()})


def test_a_schema_refuses_a_float_of_bytes() -> None:
    document = kvcalc.estimate("llama-2-7b").to_dict()
    document["bytes"]["total"] = 2147483648.5
    with pytest.raises(jsonschema.ValidationError):
        hold("estimate", document)
