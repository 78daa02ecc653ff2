"""`compare`: rows, baselines, pages, engines and why they differ."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.plan import Line, Plan
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.questions.compare import USUAL, Comparing, Comparison, compare, introduction, reasons
from kvcalc.sources import load

#: One layer of 32 heads x (128 + 128) x 2 B.
ROW = 16_384
CONTEXT = 32_768
MHA = 32 * ROW * CONTEXT


def asked(*techniques: str, context: int | None = CONTEXT, sequences: int = 1, **more: Any) -> Comparison:
    return compare(Comparing(Workload(context=context, sequences=sequences), techniques=techniques, **more))


def totals(found: Comparison) -> dict[str, int]:
    return {row.name: row.plan.total for row in found.rows if row.plan is not None}


def test_without_a_model_the_baseline_is_mha_on_the_introductions_geometry() -> None:
    found = asked("gqa", "mha", context=None)
    assert totals(found) == {"mha": MHA, "gqa": MHA // 4}
    assert found.context == CONTEXT
    assert "context defaulted to the usual example's, 32,768 tokens" in found.notes
    row = found.to_dict()["rows"][1]
    assert (row["ratio"], row["saving"]) == (0.25, 0.75)
    assert row["techniques"] == [{"name": "gqa", "parameters": {"kv_heads": 8}}]
    assert row["attended"] == [{"layers": 32, "positions": CONTEXT}]


def test_the_usual_techniques_all_work_on_the_introductions_geometry() -> None:
    found = asked()
    assert [row.name for row in found.rows] == ["mha", *USUAL]
    assert all(row.error is None for row in found.rows)


def test_settings_are_fields_of_the_geometry_or_parameters_of_the_techniques() -> None:
    geometry = {"layers": "48", "query_heads": "24", "head_dim": "86", "latent_dim": "1024", "rope_dim": "0"}
    found = asked("mla", context=8192, settings=geometry)
    assert totals(found) == {"mha": 2 * 48 * 24 * 86 * 8192 * 2, "mla": 48 * 1024 * 8192 * 2}
    halved = asked("gqa", settings={"kv_heads": "16", "dtype": "fp8"})
    assert totals(halved) == {"mha": MHA // 2, "gqa": MHA // 4}


def test_settings_of_a_model_change_the_baseline_or_the_technique() -> None:
    found = asked("swa", context=8192, models=["llama-2-7b"], settings={"kv_heads": "8", "window": "100", "ratio": "1-0"})
    assert totals(found) == {"llama-2-7b": 32 * ROW // 4 * 8192, "swa": 32 * ROW // 4 * 100}


def test_without_a_cache_both_ways_are_the_same_work() -> None:
    rows = compare(Comparing(Workload(context=1024), techniques=("no-cache", "window:tokens=100"))).to_dict()["rows"]
    mha, nothing, window = rows
    assert nothing["bytes"]["total"] == 0
    assert nothing["work"]["with_cache"] == nothing["work"]["without_cache"] == mha["work"]["without_cache"]
    assert mha["work"]["without_cache"]["projections"] == mha["work"]["with_cache"]["projections"] * 1025 // 2
    assert nothing["attended"] == mha["attended"] == [{"layers": 32, "positions": 1024}]
    # What a policy recomputes depends on the turns, which are not known here.
    assert (window["attended"], window["work"]) == ([{"layers": 32, "positions": 100}], None)


def test_pages_are_whole_blocks_and_a_table() -> None:
    found = asked("paged:block=16", context=1000, sequences=3)
    plan = found.rows[1].plan
    assert plan is not None
    assert plan.total == 3 * (32 * ROW * 1008 + 63 * 4)
    assert sum(line.bytes for line in plan.lines) == plan.total == plan.per_sequence * 3
    assert plan.growth_per_token == 0
    assert totals(asked("paged:block=16", context=1008))["paged:block=16"] == 32 * ROW * 1008 + 63 * 4
    assert totals(asked("no-cache+paged"))["no-cache+paged"] == 0
    full = asked("paged:block=16", context=1008).rows[1].plan
    assert full is not None
    assert full.growth_per_token == 16 * 32 * ROW + 4


def test_pages_share_whole_blocks_only() -> None:
    found = asked("paged:block=16+prefix:tokens=100", context=1008, sequences=10)
    assert totals(found)["paged:block=16+prefix:tokens=100"] == 32 * ROW * (96 + 10 * 912) + 10 * 63 * 4


def test_a_shared_prefix_of_the_question_holds_for_every_row() -> None:
    found = compare(Comparing(Workload(context=4096, sequences=100, shared_prefix=1024), techniques=["gqa"]))
    assert totals(found) == {"mha": 32 * ROW * 308_224, "gqa": 32 * ROW // 4 * 308_224}


def test_models_side_by_side_with_techniques() -> None:
    found = asked("fp8", context=4096, models=["llama-2-7b", "llama-3.1-8b"])
    assert totals(found) == {
        "llama-2-7b": 32 * ROW * 4096,
        "llama-2-7b fp8": 16 * ROW * 4096,
        "llama-3.1-8b": 8 * ROW * 4096,
        "llama-3.1-8b fp8": 4 * ROW * 4096,
    }
    assert found.to_dict()["baseline"] == "llama-2-7b"


def test_a_row_that_cannot_be_carries_its_error_and_nothing_but_the_baseline_is_an_error() -> None:
    found = asked("gqa", "fp8", models=["mamba-2.8b"], context=1024)
    failed = found.to_dict()["rows"][1]
    assert failed["error"]["message"] == "gqa: mamba-2.8b has no attention layers to change"
    assert failed["bytes"] is failed["ratio"] is failed["work"] is None
    with pytest.raises(UsageError, match=r"gqa: mamba-2\.8b"):
        asked("gqa", models=["mamba-2.8b"], context=1024)


def test_engines_answer_the_same_question() -> None:
    found = compare(Comparing(Workload(context=CONTEXT, kv_memory=40 * 1024**3), models=["gemma-3-27b"], engines=["llama.cpp", "vllm"]))
    ideal, llama, vllm = found.rows
    assert [row.name for row in found.rows] == ["ideal", "llama.cpp", "vllm"]
    assert ideal.why == ()
    assert llama.why == ("+208 MiB sliding key, value: 1,536 slots, not 1,024; fp16, not bf16",)
    assert vllm.plan is not None
    assert vllm.capacity is not None
    # 32,768 blocks of 1,310,720 B: 8,582 for the first sequence, 2,438 for each other, one is the null block.
    assert vllm.capacity.max_sequences == 1 + (32_768 - 1 - 8_582) // 2_438 == 10


def test_each_engine_gets_the_settings_that_it_has() -> None:
    workload = Workload(context=4096, engine_args={"block_size": "32"})
    found = compare(Comparing(workload, models=["llama-3.1-8b"], engines=["vllm", "llama.cpp"]))
    engines = {row["name"]: row["engine"]["args"] for row in found.to_dict()["rows"]}
    assert engines["vllm"]["block_size"] == 32
    assert "block_size" not in engines["llama.cpp"]


def test_an_engine_that_refuses_is_a_row_with_a_reason() -> None:
    found = compare(Comparing(Workload(context=4096, kv_dtype="q8_0"), models=["llama-3.1-8b"], engines=["vllm", "llama.cpp"]))
    rows = {row.name: row for row in found.rows}
    assert rows["vllm"].error is not None
    assert rows["vllm"].error.exit_code == EngineRejectsError.exit_code
    assert rows["llama.cpp"].plan is not None


def line(state: str, buffer: str, size: int, *, slots: int = 8, name: str = "bf16", layers: int = 2) -> Line:
    return Line(state, layers, buffer, 4, name, slots, size, "")


def plan(*lines: Line) -> Plan:
    return Plan("e", "1", {}, "bf16", 8, lines, 0, 0, 0, 0, 0)


def test_reasons_name_what_differs_the_largest_first() -> None:
    ideal = plan(line("full", "key", 2048), line("full", "value", 2048), line("sliding", "key", 100), line("shared", "key", 5000))
    engine = plan(
        line("full", "key", 4096, slots=16),
        line("full", "value", 4096, slots=16),
        line("sliding", "key", 50, name="fp8"),
        line("padding", "block_table", 3000),
    )
    assert reasons(engine, ideal) == [
        "-4.88 KiB shared key: not kept",
        "+4 KiB full key, value: 16 slots, not 8",
        "+2.93 KiB padding block table",
        "-50 B sliding key: fp8, not bf16",
    ]
    assert reasons(ideal, ideal) == []


def test_the_geometry_takes_any_size_and_refuses_nonsense() -> None:
    found = introduction({"layers": "2", "query_heads": "3", "head_dim": "5", "hidden_dim": "7"})
    assert (found.layers.count, found.hidden_dim) == (2, 7)
    for fields in ({"layers": "0"}, {"layers": "99999"}, {"head_dim": "x"}, {"nonsense": "1"}):
        with pytest.raises(UsageError):
            introduction(fields)


def test_a_what_if_under_another_engine() -> None:
    found = compare(Comparing(Workload(context=4096), models=["llama-3.1-8b"], techniques=["mqa"], engine="llama.cpp"))
    mine = get_engine("llama.cpp").plan(load("llama-3.1-8b"), Workload(context=4096)).total
    assert Fraction(totals(found)["mqa"], totals(found)["llama-3.1-8b"]) == Fraction(1, 8)
    assert totals(found)["llama-3.1-8b"] == mine


def test_copies_that_another_engine_draws_apart_are_no_difference() -> None:
    found = compare(Comparing(Workload(context=1024, tensor_parallel=8), models=("deepseek-v3.2",), engines=("ideal", "vllm"))).to_dict()
    ideal, vllm = found["rows"]
    assert ideal["bytes"]["total"] == vllm["bytes"]["total"] == 8 * 61 * 1024 * (1152 + 132)
    assert vllm["why"] == []
