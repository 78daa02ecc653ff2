"""Every document that a question gives is what its JSON Schema in the package says."""

from __future__ import annotations

import io
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
import yaml

from kvcalc.budgets.check import check
from kvcalc.budgets.file import KEYS, LIMITS
from kvcalc.questions.chat import Conversation, chat, parse_policy
from kvcalc.questions.growth import growth
from kvcalc.questions.request import parse_request
from kvcalc.reconcile import reconcile

ROOT = Path(__file__).parent.parent


def schema(name: str) -> Any:
    return json.loads(files("kvcalc.schemas").joinpath(f"{name}.json").read_text(encoding="utf-8"))


def hold(name: str, document: Any) -> None:
    common = referencing.Resource.from_contents(schema("common"))
    registry = referencing.Registry().with_resource("common.json", common)
    jsonschema.Draft202012Validator(schema(name), registry=registry).validate(json.loads(json.dumps(document)))


def test_check(tmp_path: Path) -> None:
    path = tmp_path / "kvcalc.yaml"
    budgets = [
        {"name": "met", "model": "llama-2-7b", "context": 4096, "limits": {"total": "1TiB"}},
        {"name": "over", "model": "llama-2-7b", "context": 4096, "limits": {"total": "1GiB"}},
        {"name": "unknown", "model": "nonesuch", "limits": {"total": "1GiB"}},
    ]
    path.write_text(json.dumps({"budgets": budgets}))
    hold("check", check(path).to_dict())


def test_chat_and_growth() -> None:
    request = parse_request({"model": "llama-3.1-8b", "kv_memory": "1GiB"})
    hold("chat", chat(request, Conversation(100, ((10, 20),) * 3, parse_policy("summary:5"), changed_turn=2)).to_dict())
    hold("growth", growth(request, 10**9, 4096).to_dict())


def test_reconcile() -> None:
    log = b"Available KV cache memory: 60.00 GiB\nGPU KV cache size: 491,520 tokens\nMaximum concurrency for 131,072 tokens per request: 3.00x\n"
    hold("reconcile", reconcile(io.BytesIO(log), "log", "llama-3.1-8b").to_dict())
    hold("reconcile", reconcile(io.BytesIO(b""), "log").to_dict())


def test_the_budget_files_schema_names_the_keys_that_are_read() -> None:
    found = schema("budgets")
    parts = found["$defs"]
    assert set(parts["budget_entry"]["properties"]) == set(KEYS)
    assert set(parts["limits"]["properties"]) == set(LIMITS)
    assert set(parts["defaults"]["properties"]) == set(KEYS) - {"name"}
    own = yaml.safe_load((ROOT / "kvcalc.yaml").read_text())
    jsonschema.Draft202012Validator(found).validate(own)


@pytest.mark.parametrize("entry", sorted(files("kvcalc.schemas").iterdir(), key=str), ids=lambda entry: entry.name)
def test_schemas_are_schemas(entry: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(entry.read_text(encoding="utf-8")))
