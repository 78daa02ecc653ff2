"""Each format by itself: what reads it, reads it right."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest
import yaml
from test_schemas import REGISTRY, SCHEMAS
from typed import of_plain

from kvcalc.core.errors import UsageError
from kvcalc.questions.documents.verify import VerifyDocument
from kvcalc.render import FORMATS, chosen_format, delimited, html_page, markdown
from kvcalc.render import verify_view as of_verify
from kvcalc.render.documents import as_json, as_yaml
from kvcalc.render.view import Column, Facts, Table, Text, View

verify_view = of_plain(of_verify.view, VerifyDocument)

HOSTILE = "=cmd|' /C calc'!A0 <script>alert(1)</script> [x](y) a|b *c*"
TABLE = Table(
    (Column("name", "name"), Column("bytes", "bytes", "bytes"), Column("size", "size", "size")),
    ((HOSTILE, 2**36, 2**36), ("b", None, None)),
)
VIEW = View(f"figure for {HOSTILE}", (Facts((("label", HOSTILE),)), TABLE, Text((HOSTILE,), "title")), (HOSTILE,), ("careful",))


def test_csv_is_raw_and_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(delimited.render(VIEW))))
    assert rows[0] == ["name", "bytes"]
    assert rows[1] == ["'" + HOSTILE, str(2**36)]
    assert rows[2] == ["b", ""]
    with pytest.raises(UsageError, match="this answer is no table"):
        delimited.render(View("h"))


def test_markdown_escapes_and_carries_notes() -> None:
    text = markdown.render(VIEW)
    assert text.startswith("**figure for ")
    assert "<script>" not in text.replace("\\<", "").partition("```")[0]
    assert "| --- | ---: | ---: |" in text
    row = next(line for line in text.splitlines() if line.startswith("| =cmd"))
    assert row.replace("\\|", "").count("|") == 4
    assert "- **warning:** careful" in text


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:  # noqa: ARG002  the signature of HTMLParser
        self.tags.append(tag)


def test_html_has_no_script_and_nothing_fetched() -> None:
    text = html_page.render(VIEW)
    reader = _Reader()
    reader.feed(text)
    assert "script" not in reader.tags
    assert not {"img", "link", "iframe"} & set(reader.tags)
    assert "68,719,476,736" in text
    assert "warning: careful" in text


def test_json_and_yaml_are_the_document() -> None:
    document = {"schema": "x/1", "bytes": {"total": 2**60}, "notes": [HOSTILE, "2026-11-29", "yes"], "model": None}
    assert json.loads(as_json(document)) == document
    assert yaml.safe_load(as_yaml(document)) == document
    assert list(yaml.safe_load(as_yaml(document))) == list(document)


def test_the_format_is_plain_unless_a_terminal_or_the_user_says_otherwise() -> None:
    assert chosen_format(None) == "plain"
    assert chosen_format(None, "file") == "plain"
    for name in FORMATS:
        assert chosen_format(name) == chosen_format(name, "out.csv") == name
    with pytest.raises(UsageError) as caught:
        chosen_format("markdwn")
    assert "'markdown'" in caught.value.hint


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("out.json", "json"),
        ("a.b/out.YAML", "yaml"),
        ("out.yml", "yaml"),
        ("./out.csv", "csv"),
        ("out.md", "markdown"),
        ("out.html", "html"),
        ("out.txt", "plain"),
        ("out.log", "plain"),
        ("a.json/out", "plain"),
        ("json", "plain"),
        (".json", "plain"),
        ("-", "plain"),
        ("out.", "plain"),
    ],
)
def test_a_files_ending_means_its_format(file: str, name: str) -> None:
    assert chosen_format(None, file) == name


def verified(*layers: tuple[str, int, int]) -> dict[str, Any]:
    rows = [
        {"layer": str(n), "states": name, "kvcalc": ours, "transformers": theirs, "difference": ours - theirs}
        for n, (name, ours, theirs) in enumerate(layers)
    ]
    ours, theirs = (sum(row[key] for row in rows) for key in ("kvcalc", "transformers"))
    return {
        "schema": "kvcalc.verify/1",
        "model": {"id": "m", "source": "", "model_type": "llama", "dtype": "bf16", "max_context": None},
        "workload": {
            "context": 17,
            "sequences": 1,
            "tensor_parallel": 1,
            "pipeline_parallel": 1,
            "decode_context_parallel": 1,
            "shared_prefix": 0,
        },
        "engine": {"name": "transformers", "version": "5.24.0", "args": {}},
        "kv_dtype": "bf16",
        "equal": ours == theirs,
        "bytes": {"kvcalc": ours, "transformers": theirs, "difference": ours - theirs},
        "layers": rows,
        "class": {"name": "LlamaForCausalLM", "config": "its own config.json", "torch": "2", "transformers": "5"},
        "notes": [],
        "warnings": [],
    }


def test_verify_shows_layers_that_are_alike_as_one_row() -> None:
    document = verified(("full", 10, 10), ("full", 10, 10), ("sliding", 5, 5), ("full", 10, 10))
    jsonschema.Draft202012Validator(SCHEMAS["verify"], registry=REGISTRY).validate(document)
    view = verify_view(document)
    assert view.headline.startswith("equal: 35 B for 1 sequence of 17 tokens: m, bf16")
    table = view.blocks[1]
    assert isinstance(table, Table)
    assert [row[0] for row in table.rows] == ["0-1", "2", "3"]
    assert verify_view(verified(("full", 10, 11))).headline.startswith("DIFFERENT: 11 B")
