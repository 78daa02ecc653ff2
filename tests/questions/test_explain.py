"""`explain`: pages come from the docstrings, numbers from the plan."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import UnknownModelError, UsageError
from kvcalc.core.formats import FORMATS
from kvcalc.core.states import KINDS
from kvcalc.core.workload import Workload
from kvcalc.engines import ENGINES, get_engine
from kvcalc.questions.estimate import estimate
from kvcalc.questions.explain import derivation, explain, page, state_page
from kvcalc.questions.request import parse_request
from kvcalc.questions.techniques import TECHNIQUES
from kvcalc.sources import load

DOCSTRING = """A title (source).

        width = a x b        in words
              + c

    A worked example = 5 B.
    Another line.
    """


def test_a_docstring_is_title_formula_and_prose() -> None:
    found = page(DOCSTRING, title="thing")
    assert found.title == "thing: A title (source)."
    assert found.formula == ("width = a x b        in words", "      + c")
    assert found.text == ("A worked example = 5 B.", "Another line.")
    assert page(None).title == ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_state_has_a_page(kind: str) -> None:
    found = state_page(kind, 2)
    assert found.title.startswith(f"{kind}, 2 layers: ")
    assert found.formula or found.text


def test_a_line_that_is_no_state_has_only_its_name() -> None:
    assert state_page("padding", 0).title == "padding"
    assert state_page("padding", 1).title == "padding, 1 layer"


@pytest.mark.parametrize("name", TECHNIQUES)
def test_every_technique_is_worked_on_the_introductions_geometry(name: str) -> None:
    document = explain(name, Workload(context=32_768)).to_dict()
    assert document["kind"] == "technique"
    assert document["sections"][0]["formula"]
    assert (document["bytes"]["total"] > 0) == (name != "no-cache")
    assert any(section["numbers"] for section in document["sections"])


@pytest.mark.parametrize("name", [*FORMATS, "float16", "q8_0/q4_0"])
def test_every_format_has_its_row(name: str) -> None:
    document = explain(name, Workload()).to_dict()
    assert document["kind"] == "format"
    assert document["model"] is document["workload"] is document["engine"] is None
    for section in document["sections"]:
        assert section["formula"]
        assert section["numbers"]


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_its_rules_and_settings(name: str) -> None:
    engine = get_engine(name)
    sections = explain(name, Workload()).sections
    assert bool(engine.rules) == sections[0].title.endswith("the rules in short")
    assert sections[1 if engine.rules else 0].title.startswith(f"{name} {engine.version}: ")
    assert any(section.text for section in sections)
    if engine.settings:
        assert [line.partition(" ")[0] for line in sections[-1].text] == [item.name for item in engine.settings]


def test_a_model_is_derived_state_by_state() -> None:
    found = explain("gemma-3-27b", Workload(context=32_768))
    titles = [section.title.partition(":")[0] for section in found.sections]
    assert titles == ["Gemma 3 27B", "sliding, 52 layers", "full, 10 layers", "total"]
    # 52 x 1,024 x 16 x 128 x 2 B, and 10 x 32,768 x 16 x 128 x 2 B, K and V each
    assert found.sections[-1].numbers == ("218,103,808 + 218,103,808 + 1,342,177,280 + 1,342,177,280 = 3,120,562,176 B",)


def test_a_technique_on_a_model_with_its_remarks() -> None:
    found = explain("paged+prefix", Workload(context=1000), model="llama-3.1-8b")
    assert found.to_dict()["model"]["id"] == "llama-3.1-8b"
    assert any(note.startswith("prefix: one sequence") for note in found.to_dict()["notes"])


def test_the_sum_of_one_line_is_not_written_twice() -> None:
    plan = get_engine("ideal").plan(load("deepseek-v3"), Workload(context=10))
    assert [section.title.partition(",")[0] for section in derivation(plan)] == ["latent"]


def test_settings_of_a_model() -> None:
    found = explain("llama-2-7b", Workload(context=10), settings={"kv_heads": "1"})
    assert found.estimate is not None
    assert found.estimate.plan.per_token == 32 * 256 * 2


def test_what_is_no_subject_names_the_nearest() -> None:
    with pytest.raises(UnknownModelError) as caught:
        explain("sgland", Workload())
    assert "'sglang'" in caught.value.hint
    with pytest.raises(UsageError, match="explained by itself"):
        explain("vllm", Workload(context=3))
    with pytest.raises(UsageError, match="explained by itself"):
        explain("fp8", Workload(), settings={"kv_heads": "1"})
    with pytest.raises(UsageError, match="only a technique"):
        explain("fp8", Workload(), model="llama-2-7b")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_state_is_explained_by_its_kind_and_its_technique(kind: str) -> None:
    for name in {kind, KINDS[kind].technique}:
        found = explain(name, Workload())
        assert found.kind in ("state", "technique")
        assert found.sections[0].title


def test_a_packed_row_has_every_size_that_lines_of_its_name_have() -> None:
    """An MLA row of 512 + 64, and DeepSeek-V4's row of 512 in all: 448 + 64 x 2 + 8."""
    (section,) = explain("fp8_ds_mla", Workload()).sections
    said = " ".join(section.numbers)
    for size in ("656 B", "584 B"):
        assert size in said
    lines = estimate(parse_request({"model": "deepseek-v4-flash", "engine": "vllm", "context": 32_768})).plan.lines
    rows = next(line for line in lines if (line.state, line.buffer, line.layers) == ("compressed", "latent", 21))
    assert (rows.format, rows.bytes) == ("fp8_ds_mla", 21 * 8192 * 584)
