"""`fit --table`: each cell is what `fit` says of that length and format."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.engines import ENGINES, get_engine
from kvcalc.questions.documents.fit import CardShares, Sure
from kvcalc.questions.fit import Budget, fit
from kvcalc.questions.fit_table import FitTable, fit_table, lengths_to
from kvcalc.questions.request import parse_request
from kvcalc.render.fit_table_view import view
from kvcalc.sources import load

GIB = 1024**3


def asked(formats: tuple[str, ...] = ("auto",), **question: Any) -> FitTable:
    return fit_table(parse_request({"model": "llama-3.1-8b", "kv_memory": "10GiB"} | question), formats)


@pytest.mark.parametrize(
    ("longest", "lengths"),
    [(1, [1]), (1024, [1024]), (1025, [1024, 1025]), (8192, [1024, 2048, 4096, 8192]), (10_000, [1024, 2048, 4096, 8192, 10_000])],
)
def test_lengths_double_and_end_with_the_longest(longest: int, lengths: list[int]) -> None:
    assert lengths_to(longest) == lengths


def test_worked_by_hand() -> None:
    """131,072 B a token in bf16, 65,536 in fp8: 10 GiB are 81,920 or 163,840 tokens."""
    found = asked(("auto", "fp8")).to_dict()
    assert found["kv_dtype"] == "bf16"
    assert found["workload"]["context"] == 131_072
    rows = {row["context"]: row["cells"] for row in found["rows"]}
    assert list(rows) == [1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072]
    for context, (bf16, fp8) in rows.items():
        assert bf16 == {"kv_dtype": "bf16", "per_sequence": 131_072 * context, "max_sequences": 81_920 // context}
        assert fp8 == {"kv_dtype": "fp8", "per_sequence": 65_536 * context, "max_sequences": 163_840 // context}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["llama-3.1-8b", "gemma-3-27b", "nemotron-nano-9b-v2"])
def test_every_cell_is_what_fit_says(engine: str, model: str) -> None:
    architecture = load(model)
    if not get_engine(engine).knows(architecture.family, architecture.class_name):
        pytest.skip(f"{engine} does not serve {model}")
    for row in asked(model=model, engine=engine, context=10_000, sequences=7).to_dict()["rows"]:
        question = {"model": model, "engine": engine, "kv_memory": "10GiB", "context": row["context"]}
        (cell,) = row["cells"]
        found = fit(parse_request(question))
        assert (cell["max_sequences"], cell["per_sequence"]) == (found.max_sequences if found.fits else 0, found.plan.per_sequence)


def test_a_card_and_a_prefix() -> None:
    request = parse_request({"model": "llama-3.1-8b", "context": 4096, "shared_prefix": 2048})
    card = CardShares("h100-80gb", 80 * GIB, 0.92, 0, 0, GIB, GIB, GIB, Sure("", "", "", ""))
    found = fit_table(request, ("auto",), budget=Budget(GIB, card))
    # 1 GiB are 8,192 tokens: 2,048 once, and n x 2,048 more; where the prefix is the whole length, any number share it.
    assert [row.cells[0].max_sequences for row in found.rows] == [None, None, 3]
    assert found.to_dict()["budget"]["from"]["gpu"] == "h100-80gb"


def test_refusals() -> None:
    with pytest.raises(EngineRejectsError):
        asked(("auto", "q8_0"), engine="vllm")
    with pytest.raises(UsageError, match="no memory to fit into"):
        fit_table(parse_request({"model": "llama-3.1-8b"}), ("auto",))


def test_the_view() -> None:
    found = view(asked(("auto", "fp8"), engine="vllm", context=200_000).document())
    assert (
        found.headline == "none in bf16, none in fp8 of 200,000 tokens in 10,737,418,240 B (10 GiB) per device: llama-3.1-8b, vllm 0.33.0"
    )
    table: Any = found.blocks[0]
    assert [column.title for column in table.columns] == [
        "context",
        "one in bf16",
        "fit in bf16",
        "one in fp8",
        "fit in fp8",
    ]
    assert table.rows[0] == (1024, 134_217_728, 79, 67_108_864, 159)
    assert found.data is not None
    assert found.data.rows[1] == (1024, "fp8", 67_108_864, 159)
