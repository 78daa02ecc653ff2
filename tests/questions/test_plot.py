"""Points are the engines' own plans; lines are named by what tells them apart, and end where their model ends."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import referencing
from hypothesis import given
from hypothesis import strategies as st

import kvcalc
from kvcalc.cli.app import run
from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.core.workload import Workload
from kvcalc.questions.plot import MOST_SERIES, Plotting, contexts, plot

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1024**3


def schema(name: str) -> Any:
    return json.loads(files("kvcalc.schemas").joinpath(f"{name}.json").read_text(encoding="utf-8"))


def ask(*models: str, kv_memory: int | None = None, context: int | None = None, **more: Any) -> Any:
    return plot(Plotting(Workload(kv_memory=kv_memory, context=context), models=models, **more))


def test_contexts_are_four_a_doubling_or_evenly_apart() -> None:
    assert contexts(1000, 5000) == [1000, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5000]
    assert contexts(1, 9) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert contexts(0, 64, linear=True) == list(range(0, 65, 2))


@given(st.integers(1, 10**7), st.integers(1, 10**7), st.booleans())
def test_contexts_go_from_end_to_end(start: int, width: int, linear: bool) -> None:
    found = contexts(start, start + width, linear=linear)
    assert (found[0], found[-1]) == (start, start + width)
    assert found == sorted(set(found))
    assert len(found) <= 120


def test_full_attention_is_a_straight_line() -> None:
    """Llama-3.1-8B: 32 layers x 8 heads x (128 + 128) x 2 B = 131,072 B a token."""
    chart = ask("llama-3.1-8b")
    (series,) = chart.series
    assert all(point.total == 131_072 * point.context for point in series.points)
    assert (series.points[0].context, series.points[-1].context) == (1024, 131_072)


@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang", "llama.cpp", "transformers"])
@pytest.mark.parametrize("model", ["gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b"])
def test_every_point_is_the_engines_own_estimate(engine: str, model: str) -> None:
    try:
        chart = plot(Plotting(Workload(context=20_000, sequences=3, shared_prefix=2000), models=(model,), engines=(engine,), start=500))
    except KvcalcError as refused:
        with pytest.raises(type(refused)):
            kvcalc.estimate(model, context=20_000, sequences=3, shared_prefix=2000, engine=engine)
        return
    points = chart.series[0].points
    for point in (points[0], points[len(points) // 2], points[-1]):
        plan = kvcalc.estimate(model, context=point.context, sequences=3, shared_prefix=min(point.context, 2000), engine=engine).plan
        assert (point.total, point.per_device) == (plan.total, plan.per_device)


@pytest.mark.parametrize("engine", ["ideal", "vllm", "sglang", "llama.cpp"])
def test_what_fits_is_what_fit_says(engine: str) -> None:
    chart = ask("llama-3.1-8b", kv_memory=10 * GIB, engines=(engine,))
    assert chart.series[0].max_context == kvcalc.fit("llama-3.1-8b", kv_memory=10 * GIB, engine=engine).max_context
    assert chart.figure == "per_device"
    assert ask("llama-3.1-8b", kv_memory=1, engines=(engine,)).series[0].max_context is None


def test_lines_are_named_by_what_tells_them_apart() -> None:
    names = lambda chart: [series.name for series in chart.series]  # noqa: E731
    assert names(ask("llama-3.1-8b")) == ["llama-3.1-8b"]
    assert names(ask("llama-3.1-8b", "gpt2")) == ["llama-3.1-8b", "gpt2"]
    assert names(ask("gpt2", engines=("ideal", "vllm"))) == ["gpt2 ideal", "gpt2 vllm"]
    assert names(ask("gpt2", formats=("auto", "fp8"))) == ["gpt2 auto", "gpt2 fp8"]
    assert names(ask("llama-3.1-8b", techniques=("mla",))) == ["llama-3.1-8b", "mla"]
    assert names(ask("llama-3.1-8b", "qwen3-8b", techniques=("mla",))) == ["llama-3.1-8b", "llama-3.1-8b mla", "qwen3-8b", "qwen3-8b mla"]
    assert names(ask()) == ["mha", "gqa", "mla", "gqa+swa", "deltanet"]


def test_without_a_model_the_introductions_figures() -> None:
    """2 x 32 layers x 32 heads x 128 x 32,768 tokens x 2 B = 17,179,869,184 B, a quarter of it with 8 heads."""
    ends = {series.name: series.points[-1] for series in ask().series}
    assert ends["mha"].context == 32_768
    assert ends["mha"].total == 17_179_869_184
    assert ends["gqa"].total == 4_294_967_296


def test_a_line_ends_at_its_models_maximum_unless_a_context_is_asked_for() -> None:
    chart = ask("llama-2-7b", "llama-3.1-8b")
    assert [series.points[-1].context for series in chart.series] == [4096, 131_072]
    assert "llama-2-7b: ends at its own maximum, 4,096 tokens" in chart.notes
    chart = ask("llama-2-7b", "llama-3.1-8b", context=8192)
    assert [series.points[-1].context for series in chart.series] == [8192, 8192]
    assert any(text.startswith("llama-2-7b: context 8,192 is beyond") for text in chart.warnings)


def test_a_sentence_about_all_lines_stands_once_and_others_name_theirs() -> None:
    notes = ask("llama-3.1-8b", "qwen3-8b", engines=("ideal", "vllm"), context=8192).notes
    assert sum("no GPU given" in note for note in notes) == 1
    assert "llama-3.1-8b vllm, qwen3-8b vllm: no GPU given: vLLM's defaults for an API server on h100-80gb" in notes


def test_what_if_fields() -> None:
    """32 of 32 heads are four times 8."""
    few, many = (ask("llama-3.1-8b", settings=settings).series[0].points[-1].total for settings in ({}, {"kv_heads": "32"}))
    assert many == 4 * few


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"context": 1024, "start": 1024}, "has no width"),
        ({"context": 100, "start": 2000}, "has no width"),
        ({"start": 5000, "models": ("llama-2-7b", "llama-3.1-8b")}, "ends at 4,096 tokens, before the chart begins"),
        ({"techniques": ("paged",)}, "is no line of its own"),
        ({"techniques": ("gqaa",)}, "unknown technique"),
        ({"formats": tuple("abcdefgh"), "engines": ("ideal", "vllm")}, "16 lines are more than a chart can show"),
        ({"engines": ("vlm",)}, "unknown engine"),
        ({"formats": ("fp9",)}, "fp9"),
    ],
)
def test_what_cannot_be_drawn(question: dict[str, Any], words: str) -> None:
    given = {"models": ("llama-3.1-8b",), **question}
    workload = Workload(context=given.pop("context", None))
    with pytest.raises(UsageError, match=re.escape(words)):
        plot(Plotting(workload, **given))


def test_a_model_without_a_maximum_needs_a_context() -> None:
    config = {
        "architecture": {
            "id": "tiny",
            "family": "llama",
            "layers": {"pattern": ["a"], "count": 3, "states": {"a": {"kind": "full", "kv_heads": 1, "head_dim": 8}}},
        }
    }
    with pytest.raises(UsageError, match="none was given"):
        plot(Plotting(Workload(), models=(config,)))
    assert plot(Plotting(Workload(context=64), models=(config,))).series[0].points[-1].total == 3 * 2 * 8 * 2 * 64


@pytest.mark.parametrize(
    "chart",
    [
        ask(),
        ask("llama-3.1-8b", kv_memory=GIB, engines=("ideal", "vllm"), linear=True),
        ask("llama-2-7b", "deepseek-v3", formats=("auto", "fp8")),
    ],
    ids=["techniques", "engines", "models"],
)
def test_the_document_is_what_its_schema_says(chart: Any) -> None:
    registry = referencing.Registry().with_resource("common.json", referencing.Resource.from_contents(schema("common")))
    document = json.loads(json.dumps(chart.to_dict()))
    jsonschema.Draft202012Validator(schema("plot"), registry=registry).validate(document)
    assert len(document["series"]) <= MOST_SERIES


# ── the command ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["table", "plain", "json", "yaml", "csv", "markdown", "html", "svg"])
def test_every_format(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert run(["plot", "llama-2-7b", "--kv-dtype", "auto,fp8", "--format", name]) == 0
    out = capsys.readouterr().out
    assert ("2,147,483,648" in out) or ("2147483648" in out)


def test_csv_has_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plot", "llama-3.1-8b", "gpt2", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "name,model,engine,kv_dtype,context,total,per_device"
    assert "llama-3.1-8b,llama-3.1-8b,ideal,bf16,131072,17179869184,17179869184" in lines
    assert sum(line.startswith("llama-3.1-8b,") for line in lines) == len(contexts(1024, 131_072))


def test_pictures_by_the_files_ending(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    for name, begins in (("a.svg", b"<svg "), ("b.PNG", b"\x89PNG\r\n\x1a\n")):
        assert run(["plot", "gpt2", "--output", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(begins)
        assert capsysbinary.readouterr().out == b""
    assert run(["plot", "gpt2", "--format", "png"]) == 0
    assert capsysbinary.readouterr().out == (tmp_path / "b.PNG").read_bytes()
    assert run(["plot", "gpt2", "--format", "json", "--output", str(tmp_path / "a.svg")]) == 0
    assert json.loads((tmp_path / "a.svg").read_text())["schema"] == "kvcalc.plot/1"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--format", "svgg"], 2),
        (["gpt2", "--output", "chart.pdf"], 2),
        (["gpt2", "--output", "chart.JPG"], 2),
        (["nonesuch"], 2),
        (["gpt2", "--from", "0"], 2),
        (["gpt2", "--kv-dtype", ","], 2),
        (["gpt2", "--engine", "vllm", "--tp", "5"], 2),
        (["gpt2", "--output", "/nonexistent/a.svg"], 2),
        (["gpt2", "--output", "/nonexistent/a.png"], 2),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int) -> None:
    assert run(["plot", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
