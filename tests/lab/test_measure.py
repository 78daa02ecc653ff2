"""What is counted, and that a row which is wrong says so."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import jsonschema
import pytest
import referencing

torch = pytest.importorskip("torch")

from kvcalc.cli.app import run as command_line
from kvcalc.core.errors import UsageError
from kvcalc.lab import kv, measure
from kvcalc.lab.attention import Append
from kvcalc.lab.lesson import Figure
from kvcalc.lab.measure import Bench, allocated_by, bytes_of, largest_error
from kvcalc.lab.report import run
from kvcalc.lab.sizes import Sizes, make_sizes
from kvcalc.lab.trial import Outcome

SMALL = Sizes(layers=2, heads=2, dim=16, tokens=4, prompt=3, vocabulary=31)
FLAGS = ["--layers", "2", "--heads", "2", "--dim", "16", "--tokens", "4"]


def test_a_tensor_that_two_hold_counts_once() -> None:
    one = torch.zeros(3, 4)
    assert bytes_of([one, one, torch.zeros(2, dtype=torch.uint8)]) == 48 + 2
    assert bytes_of([one[:1], one[1:]]) == 48


def test_a_slice_keeps_its_whole_alive() -> None:
    whole = torch.zeros(100, 4)
    assert (bytes_of([whole[:1]]), allocated_by([whole[:1]])) == (16, 1600)


def test_error_is_relative_and_never_hides_a_nan() -> None:
    plain = Outcome(logits={(0, 1): torch.tensor([1.0, -4.0]), (0, 2): torch.tensor([2.0, 0.0])})
    assert largest_error(Outcome(logits={(0, 1): torch.tensor([1.0, -3.0])}), plain) == 0.25
    broken = Outcome(logits={(0, 1): torch.tensor([1.0, -4.0]), (0, 2): torch.tensor([nan, 0.0])})
    assert largest_error(broken, plain) == inf


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    Bench(SMALL).run("kv")
    assert torch.get_num_threads() == before


def test_the_same_seed_gives_the_same_answers() -> None:
    first, second = (measure.lesson_of("kv").decoder(SMALL) for _ in range(2))
    tokens = torch.arange(5)
    assert torch.equal(first(tokens), second(tokens))
    assert first.parameters == SMALL.parameters


def test_lessons_of_one_decoder_share_its_recomputed_answers() -> None:
    bench = Bench(SMALL)
    assert bench.run("kv").uncached_seconds == bench.run("kv-preallocated").uncached_seconds
    assert bench.run("kv").uncached_seconds != bench.run("mqa").uncached_seconds


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_device_is_refused() -> None:
    with pytest.raises(UsageError, match="no cuda device"):
        Bench(make_sizes(device="cuda", tokens=1)).run("kv")


def test_exhausted_memory_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(measure, "recompute", hungry)
    with pytest.raises(UsageError, match="does not fit"):
        Bench(SMALL).run("kv")


def validator() -> jsonschema.Draft202012Validator:
    folder = Path(sys.modules["kvcalc"].__file__).parent / "schemas"
    documents = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")}
    registry = referencing.Registry().with_contents(documents.items())
    return jsonschema.Draft202012Validator(documents["lab.json"], registry=registry)


def test_the_document_holds_to_its_schema() -> None:
    document = run(["no-cache", "kv", "int4"], SMALL).to_dict()
    validator().validate(json.loads(json.dumps(document, allow_nan=False)))
    assert document["passed"]
    assert [row["name"] for row in document["rows"]] == ["no-cache", "kv", "int4"]
    assert document["rows"][1]["bytes"]["formula"] == "key: 2 layers x 7 tokens x 64 B; value: 2 layers x 7 tokens x 64 B"


@pytest.fixture
def wrong_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    lesson = replace(kv.LESSONS["kv"], figure=lambda *_: Figure(1, "wrong"))
    monkeypatch.setitem(kv.LESSONS, "kv", lesson)


@pytest.mark.usefixtures("wrong_figure")
def test_unequal_bytes_fail(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["lab", "kv", *FLAGS]) == 1
    said = capsys.readouterr()
    assert "bytes equal in 0 of 1" in said.out.splitlines()[0]
    assert "DIFFERENT" in said.out
    assert "warning: kv: the tensors hold 5,120 B where kvcalc says 1 B" in said.err


def test_unequal_output_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Append):
        """Loses the first token."""

        def extend(self, keys: torch.Tensor, values: torch.Tensor, at: torch.Tensor) -> object:
            found = super().extend(keys, values, at)
            return found._replace(at=found.at.masked_fill(found.at == 0, -1))

    monkeypatch.setitem(kv.LESSONS, "kv", replace(kv.LESSONS["kv"], open=lambda decoder, _: lambda _: decoder.start(Forgetful)))
    document = run(["kv"], SMALL).to_dict()
    assert not document["passed"]
    assert document["rows"][0]["bytes"]["equal"]
    assert document["rows"][0]["output"]["equal"] is False
    assert "the cached output differs by" in document["warnings"][0]


def test_a_nan_fails_even_where_a_loss_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "largest_error", lambda *_: inf)
    document = run(["int8"], SMALL).to_dict()
    assert document["rows"][0]["output"]["equal"] is False
    assert document["rows"][0]["output"]["error"] is None
    assert document["warnings"] == ["int8: the cached output is not finite"]
    validator().validate(json.loads(json.dumps(document, allow_nan=False)))


@pytest.mark.parametrize("format_", ["plain", "table", "json", "yaml", "csv", "markdown", "html"])
def test_every_format(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["lab", "kv", "int4", "--format", format_, *FLAGS]) == 0
    said = capsys.readouterr().out
    assert "int4" in said
    assert "3200" in said.replace(",", "")  # int4: 2 layers x 20 tokens x (16 waiting channels x 4 B + 2 heads x (8 / 2 + 4) B)
    assert "DIFFERENT" not in said


def test_help_shows_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["lab", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    sizes = Sizes()
    for text, value in (("Layers of the decoder", sizes.layers), ("Attention heads", sizes.heads), ("Width of the decoder", sizes.dim)):
        assert f"{text}. [{value}]" in said
    assert f"after the prompt. [{sizes.tokens}]" in said


def test_the_first_line_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["lab", *FLAGS]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("1 technique: bytes equal in 1 of 1, output equal in 1 of 1, a token ")
    assert "--all runs every technique: no-cache, kv," in said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["lab", "gqaa"], "unknown technique 'gqaa'"),
        (["lab", "--format", "jsn"], "unknown format 'jsn'"),
        (["lab", "--layers", "many"], "--layers: 'many' is not a whole number"),
        (["lab", "--tokens", "0"], "--tokens: 0 is too small"),
        (["lab", "--preset", "gpt3"], "unknown preset 'gpt3'"),
        (["lab", "--heads", "5"], "5 heads do not divide"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_runs(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_without_pytorch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert command_line(["lab", "--all", "--format", "json"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["hint"] == "pip install 'kvcalc[lab]'"
    assert len(said.err.splitlines()) == 1
