"""`kvcalc estimate`, from the command line to the text."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
import yaml

from kvcalc.core.errors import EXIT_NOT_EVALUATED, EXIT_OK, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

#: Llama-2-7B: 32 layers x 32 heads x (128 + 128) x 2 B.
PER_TOKEN = 32 * 32 * (128 + 128) * 2
TOTAL = PER_TOKEN * 131_072


def test_the_first_line_is_the_figure_that_was_asked_for(ask: Callable[..., Answer]) -> None:
    answer = ask("estimate", "llama-2-7b", "--ctx", "128k")
    assert answer.code == EXIT_OK
    assert answer.out.startswith("68,719,476,736 B (64 GiB) for 1 sequence of 131,072 (128k) tokens: llama-2-7b, fp16, ideal\n")
    assert "per token  524,288 B (512 KiB)" in answer.out
    assert answer.err == "warning: context 131,072 is beyond the 4,096 tokens that the model was trained for\n"


def test_json_carries_notes_and_warnings_and_stderr_does_not_repeat_them(ask: Callable[..., Answer]) -> None:
    answer = ask("estimate", "llama-2-7b", "--ctx", "128k", "-f", "json")
    assert answer.err == ""
    assert answer.document["bytes"]["per_token"] == PER_TOKEN
    assert answer.document["bytes"]["total"] == TOTAL
    assert answer.document["warnings"] == ["context 131,072 is beyond the 4,096 tokens that the model was trained for"]
    assert yaml.safe_load(ask("estimate", "llama-2-7b", "--ctx", "128k", "-f", "yaml").out) == answer.document


def test_a_defaulted_context_is_said(ask: Callable[..., Answer]) -> None:
    assert "note: context defaulted to the model's maximum, 4,096 tokens" in ask("estimate", "llama-2-7b").err


def test_csv_holds_plain_integers(ask: Callable[..., Answer]) -> None:
    rows = list(csv.DictReader(io.StringIO(ask("estimate", "llama-2-7b", "-c", "128k", "-f", "csv").out)))
    assert sum(int(row["bytes"]) for row in rows) == TOTAL
    assert [row["buffer"] for row in rows] == ["key", "value"]


def test_markdown_and_html_carry_the_warning_themselves(ask: Callable[..., Answer]) -> None:
    for name in ("markdown", "html"):
        answer = ask("estimate", "llama-2-7b", "-c", "128k", "-f", name)
        assert "68,719,476,736" in answer.out
        assert "beyond the 4,096 tokens" in answer.out
        assert answer.err == ""


def test_explain_derives_the_total(ask: Callable[..., Answer]) -> None:
    answer = ask("estimate", "llama-2-7b", "-c", "128k", "--explain")
    assert "elements per token per layer = kv_heads x (head_dim + value_head_dim)" in answer.out
    assert "= key: 32 layers x 131,072 tokens x 8,192 B = 34,359,738,368 B" in answer.out
    assert "34,359,738,368 + 34,359,738,368 = 68,719,476,736 B" in answer.out
    assert ask("estimate", "llama-2-7b", "--explain", "-f", "json").document["derivation"][0]["formula"]


def test_what_ifs(ask: Callable[..., Answer]) -> None:
    document = ask("estimate", "llama-2-7b", "-c", "4k", "--set", "kv_heads=8", "-f", "json").document
    assert document["bytes"]["per_token"] == PER_TOKEN // 4
    assert "what-if: kv_heads=8" in document["notes"]


def test_sequences_prefix_formats_and_devices(ask: Callable[..., Answer]) -> None:
    whole = ask("estimate", "llama-2-7b", "-c", "4096", "-n", "16", "--shared-prefix", "1k", "-f", "json").document
    assert whole["bytes"]["total"] == PER_TOKEN * (1024 + 16 * 3072)
    halves = ask("estimate", "llama-2-7b", "-c", "4096", "--kv-dtype", "q8_0/q4_0", "-f", "json").document
    assert halves["bytes"]["total"] == 4096 * 32 * 32 * (128 // 32) * (34 + 18)
    split = ask("estimate", "llama-2-7b", "-c", "4096", "--tp", "4", "--pp", "2")
    assert f"per device  {PER_TOKEN * 4096 // 8:,} B" in split.out
    assert "(tp 4, pp 2)" in split.out


def test_a_gpu_with_a_count_is_a_tensor_parallel_group(ask: Callable[..., Answer]) -> None:
    workload = ask("estimate", "llama-2-7b", "--gpu", "h100-80gb:4", "--pp", "2", "-f", "json").document["workload"]
    assert (workload["tensor_parallel"], workload["pipeline_parallel"]) == (2, 2)
    answer = ask("estimate", "llama-2-7b", "--gpu", "h100-80gb:4", "--tp", "8")
    assert answer.code == EXIT_USAGE
    assert "4 devices are not --tp 8 x --pp 1" in answer.err


def test_several_engines_make_one_table(ask: Callable[..., Answer]) -> None:
    document = ask("estimate", "gemma-3-27b", "-c", "32k", "-e", "vllm", "-e", "llama.cpp", "-f", "json").document
    assert document["schema"] == "kvcalc.compare/1"
    assert [row["name"] for row in document["rows"]] == ["ideal", "vllm", "llama.cpp"]


def test_an_engine_setting_goes_to_the_engine(ask: Callable[..., Answer]) -> None:
    args = ask("estimate", "llama-3.1-8b", "-e", "vllm", "-E", "block-size=32", "-f", "json").document["engine"]["args"]
    assert args["block_size"] == 32


def test_a_config_on_standard_input(ask: Callable[..., Answer]) -> None:
    config = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
    document = ask("estimate", "-", "-c", "10", "--set", "dtype=bf16", "-f", "json", stdin=json.dumps(config)).document
    assert document["bytes"]["total"] == 2 * 2 * (16 + 16) * 2 * 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ctx", "12q"], "--ctx: '12q' is not a size"),
        (["--ctx", "0"], "--ctx: 0 is too small; at least 1"),
        (["--ctx", "-5"], "--ctx: '-5' is not a size"),
        (["--ctx", str(10**30)], "--ctx"),
        (["-n", "0"], "--sequences: 0 is out of range"),
        (["-n", "-3"], "--sequences: -3 is out of range"),
        (["-n", "x"], "--sequences: 'x' is not a whole number"),
        (["-n", str(10**30)], "--sequences"),
        (["--tp", "²"], "--tp: '²' is not a whole number"),
        (["--tp", "3"], "tensor parallel size 3 cannot split the 32 query heads"),
        (["--shared-prefix", "8k", "-c", "4k"], "shared prefix: 8192 tokens are more than the context of 4096"),
        (["--kv-dtype", "fp9"], "unknown format 'fp9'; did you mean 'fp8'"),
        (["--engine", "vlm"], "unknown engine 'vlm'; did you mean 'vllm'?"),
        (["-e", "vllm", "-E", "block_sise=1"], "vllm has no setting 'block_sise'; did you mean 'block_size'?"),
        (["-E", "block_size"], "--engine-arg: 'block_size' is not KEY=VALUE"),
        (["-E", "a=1", "-E", "a=2"], "--engine-arg: 'a' is given twice"),
        (["--gpu", "h100"], "unknown accelerator 'h100'; did you mean 'h100-80gb'"),
        (["--gpu", "h100-80gb:x"], "'x' is not a number of devices"),
        (["--set", "kv_head=8"], "no layer of this model has the field 'kv_head'; did you mean 'kv_heads'"),
        (["--set", "kv_heads=5"], "query_heads 32 must be a multiple of kv_heads 5"),
        (["--format", "jsn"], "unknown format 'jsn'; did you mean 'json'?"),
        (["-e", "vllm", "-e", "sglang", "--explain"], "one engine's figures at a time"),
    ],
)
def test_bad_options(refused: Callable[..., str], arguments: list[str], said: str) -> None:
    assert said in refused(EXIT_USAGE, "estimate", "llama-2-7b", *arguments)


def test_bad_models(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "'llama-2-7b'" in refused(EXIT_USAGE, "estimate", "llama2-7b")
    assert "config.json" in refused(EXIT_USAGE, "estimate", str(tmp_path))
    misspelt = tmp_path / "foo.yaml"
    misspelt.write_text(
        "id: foo\nfamily: llama\nlayers:\n  pattern: [a]\n  count: 2\n  states:\n    a: {kind: full, kv_head: 8, head_dim: 128}\n"
    )
    said = refused(EXIT_USAGE, "estimate", str(misspelt), "-c", "1k")
    assert "foo.yaml:7" in said
    assert "'kv_heads'" in said
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n")
    refused(EXIT_USAGE, "estimate", str(bomb))
    broken = tmp_path / "config.json"
    broken.write_text('{"model_type": "llama",')
    refused(EXIT_USAGE, "estimate", str(broken))
    unknown = tmp_path / "unknown.json"
    unknown.write_text('{"model_type": "perceiver_zeta", "num_hidden_layers": 4}')
    assert "perceiver_zeta" in refused(EXIT_NOT_EVALUATED, "estimate", str(unknown), "-c", "1k")


def test_a_large_file_is_refused_without_being_read(refused: Callable[..., str], tmp_path: Path) -> None:
    large = tmp_path / "config.json"
    with large.open("wb") as file:
        file.truncate(200 * 1000**2)
    refused(EXIT_USAGE, "estimate", str(large))


def test_output_is_written_whole(ask: Callable[..., Answer], tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    answer = ask("estimate", "llama-2-7b", "-f", "json", "-o", str(target))
    assert (answer.code, answer.out) == (EXIT_OK, "")
    assert json.loads(target.read_text())["bytes"]["total"] == PER_TOKEN * 4096
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]
    failed = ask("estimate", "nonesuch", "-f", "json", "-o", str(target))
    assert failed.code == EXIT_USAGE
    assert json.loads(target.read_text())["bytes"]["total"] == PER_TOKEN * 4096
