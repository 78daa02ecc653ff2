"""`kvcalc compare` and `kvcalc explain`, from the command line to the text."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

#: 32 layers x 32 heads x (128 + 128) x 2 B x 32,768 tokens.
MHA = 17_179_869_184


def totals(document: Any) -> dict[str, int]:
    return {row["name"]: row["bytes"]["total"] for row in document["rows"]}


def test_the_introductions_geometry(ask: Callable[..., Answer]) -> None:
    answer = ask("compare", "--techniques", "gqa+swa:window=1024:ratio=5-1,mqa")
    assert answer.code == EXIT_OK
    assert answer.out.startswith("17,179,869,184 B (16 GiB) for 1 sequence of 32,768 (32k) tokens: mha; smallest: mqa, 536,870,912 B")
    for figure in ("784,334,848", "536,870,912", "27 x 1,024 + 5 x 32,768", "gqa kv_heads=8, swa window=1024 ratio=5-1", "0.0313 x"):
        assert figure in answer.out
    assert "32 layers, 32 heads x 128, 2 bytes an element" in answer.err


def test_json_and_csv_hold_the_same_figures(ask: Callable[..., Answer]) -> None:
    document = ask("compare", "-t", "gqa,mla,swa", "-f", "json").document
    assert totals(document) == {"mha": MHA, "gqa": MHA // 4, "mla": 1_207_959_552, "swa": 16_384 * (27 * 1024 + 5 * 32_768)}
    rows = list(csv.DictReader(io.StringIO(ask("compare", "-t", "gqa,mla,swa", "-f", "csv").out)))
    assert {row["name"]: int(row["total"]) for row in rows} == totals(document)
    assert int(rows[0]["projections_with_cache"]) == document["rows"][0]["work"]["with_cache"]["projections"]


def test_a_models_what_ifs_and_models_side_by_side(ask: Callable[..., Answer]) -> None:
    document = ask("compare", "llama-3.1-8b", "-t", "mha,q8_0", "-c", "8k", "-f", "json").document
    assert document["baseline"] == "llama-3.1-8b"
    assert totals(document)["mha"] == 4 * totals(document)["llama-3.1-8b"]
    beside = ask("compare", "llama-2-7b", "llama-3.1-8b", "-f", "json").document
    assert beside["workload"]["context"] == 4096
    assert "context defaulted to the smallest maximum of these models, 4,096 tokens" in beside["notes"]


def test_a_row_that_cannot_be_is_named_with_its_reason(ask: Callable[..., Answer]) -> None:
    answer = ask("compare", "llama-3.1-8b", "-t", "gqa:kv_heads=5,mqa", "-c", "4k")
    assert answer.code == EXIT_OK
    assert "Not computed\n  gqa:kv_heads=5: gqa: query_heads 32 must be a multiple of kv_heads 5" in answer.out


def test_engines(ask: Callable[..., Answer]) -> None:
    answer = ask("compare", "gemma-3-27b", "--engines", "llama.cpp", "-c", "32k", "--kv-memory", "40GiB", "-f", "json")
    ideal, llama = answer.document["rows"]
    assert ideal["capacity"]["max_sequences"] > llama["capacity"]["max_sequences"] > 0
    assert any("1,536 slots, not 1,024" in reason for reason in llama["why"])


def test_engines_that_refuse_say_why(ask: Callable[..., Answer]) -> None:
    answer = ask("compare", "llama-3.1-8b", "--engines", "vllm,llama.cpp", "--kv-dtype", "q8_0", "-c", "4k")
    assert answer.code == EXIT_OK
    (line,) = [line for line in answer.out.splitlines() if line.startswith("vllm ")]
    assert "q8_0" in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-t", "gqq"], "unknown technique 'gqq'; did you mean 'gqa'"),
        (["-t", "gqa:heads=3"], "gqa has no parameter 'heads'; did you mean 'kv_heads'"),
        (["-t", "mqa:kv_heads=3"], "mqa has no parameter 'kv_heads'; mqa has no parameters"),
        (["-t", "gqa:kv_heads=5"], "gqa: query_heads 32 must be a multiple of kv_heads 5"),
        (["-t", "swa:ratio=5"], "ratio: '5' is not a ratio; write it like 5-1"),
        (["-t", "swa:ratio=0-0"], "ratio: '0-0' is not a ratio"),
        (["-t", "swa:window=x"], "window: 'x' is not a size"),
        (["-t", "gqa+gqa"], "two of one kind: gqa"),
        (["-t", "fp8+int4"], "two of one kind: int4"),
        (["-t", ","], "--techniques: the list is empty"),
        (["-t", "+"], "'+' is not a technique"),
        (["-t", "mla", "--set", "window=9"], "no technique here has the parameter 'window'"),
        (["--set", "layers=0", "-t", "mla"], "--set layers: 0 is too small"),
        (["--set", "layers=99999", "-t", "mla"], "--set layers: 99,999 is out of range"),
        (["--engines", "all"], "--engines compares one MODEL"),
        (["llama-2-7b", "--engines", "vlm"], "unknown engine 'vlm'"),
        (["llama-2-7b", "--engines", "vllm,sglang", "-E", "blok_size=1"], "none of ideal, vllm, sglang has the setting 'blok_size'"),
        (["llama-2-7b", "--engines", "vllm", "-e", "sglang"], "--engines names the engines already"),
        (["--kv-memory", "1GiB"], "a memory to fit into is compared over engines"),
        (["llama-2-7b", "nonesuch"], "unknown model 'nonesuch'"),
        (["llama-2-7b", "-t", "paged", "-e", "vllm"], "compare paged under the ideal engine"),
    ],
)
def test_bad_questions(refused: Callable[..., str], arguments: list[str], said: str) -> None:
    assert said in refused(EXIT_USAGE, "compare", *arguments)


def test_explain_a_technique_with_numbers(ask: Callable[..., Answer]) -> None:
    answer = ask("explain", "mla")
    assert answer.out.startswith("1,207,959,552 B (1.13 GiB) for 1 sequence of 32,768 (32k) tokens: mla (technique)\n")
    assert "arXiv:2405.04434" in answer.out
    assert "= latent: 32 layers x 32,768 tokens x 1,152 B = 1,207,959,552 B" in answer.out
    assert "latent_dim = 512: elements of the latent" in answer.out


def test_explain_on_a_model_a_format_an_engine(ask: Callable[..., Answer]) -> None:
    on_model = ask("explain", "mqa", "--model", "llama-2-7b", "-c", "4k", "-f", "json").document
    assert on_model["bytes"]["total"] == 2 * 32 * 128 * 2 * 4096
    assert "34 B per 32 elements" in ask("explain", "q8_0").out
    assert "block_size" in ask("explain", "vllm").out
    model = ask("explain", "gemma-3-27b", "-c", "32k").out
    assert "sliding, 52 layers" in model
    assert "source: " in model


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mlaa"], "unknown model 'mlaa': no catalogue id and no such file, nor a technique, a format or an engine; did you mean 'mla'"),
        (["fp8", "-c", "4k"], "fp8 is explained by itself"),
        (["llama-2-7b", "--model", "llama-2-7b"], "--model: only a technique is worked on a model"),
        (["gqa", "--model", "mamba-2.8b", "-c", "4k"], "gqa: mamba-2.8b has no attention layers to change"),
    ],
)
def test_bad_subjects(refused: Callable[..., str], arguments: list[str], said: str) -> None:
    assert said in refused(EXIT_USAGE, "explain", *arguments)


def test_an_engine_that_holds_not_one_sequence_says_none(ask: Callable[..., Answer]) -> None:
    arguments = ("compare", "llama-3.1-8b", "--engines", "vllm,sglang", "-c", "128k")
    short = {line.split()[0]: line.split() for line in ask(*arguments, "--kv-memory", "10GiB").out.splitlines()[2:] if line}
    assert {name: "none" in cells for name, cells in short.items() if name != "engine"} == {"ideal": True, "vllm": True, "sglang": True}
    rows = list(csv.DictReader(io.StringIO(ask(*arguments, "--kv-memory", "10GiB", "-f", "csv").out)))
    assert {row["max_sequences"] for row in rows} == {""}
    assert "none" not in ask(*arguments, "--kv-memory", "20GiB").out
