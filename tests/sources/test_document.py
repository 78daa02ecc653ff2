"""A kvcalc document: every problem with its line, in our own words."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Full, Index, Latent, Sliding
from kvcalc.sources.catalogue import read_mapping, read_text
from kvcalc.sources.document import check
from kvcalc.sources.yaml_reader import Document, read_yaml

TEXT = """\
id: tiny
family: llama
dtype: bfloat16
max_context: 4096
source: {file: config.json, assumed: {head_dim: class default, window: catalogue}}
layers:
  pattern: [local*2, global]
  count: 6
  states:
    local: {kind: sliding, window: 128, query_heads: 4, kv_heads: 2, head_dim: 64}
    global:
      - {kind: full, query_heads: 4, kv_heads: 2, head_dim: 64}
      - {kind: index, index_dim: 128}
expect:
  - {context: 1024, bytes: 1}
"""


def problems(text: str) -> list[str]:
    return [str(problem) for problem in check(read_yaml(text, "tiny.yaml"))[1]]


def test_a_right_document() -> None:
    found = read_text(TEXT, "tiny.yaml")
    assert found.layers.order == ("local", "local", "global") * 2
    assert found.layers.states == {
        "local": (Sliding(window=128, query_heads=4, kv_heads=2, head_dim=64),),
        "global": (Full(query_heads=4, kv_heads=2, head_dim=64), Index(index_dim=128)),
    }
    assert found.expect[0].bytes == 1


def test_what_was_not_read_is_said_with_every_answer() -> None:
    sentence = "not read from the released config: head_dim (class default), window (catalogue)"
    assert read_text(TEXT, "tiny.yaml").assumptions == (sentence,)
    assert read_text(TEXT + f"assumptions: ['{sentence}']\n", "tiny.yaml").assumptions == (sentence,)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("kv_heads: 2, head_dim: 64}\n    global", "kv_head: 2, head_dim: 64}\n    global",
         "tiny.yaml:10: layers.states.local: unknown key 'kv_head'; did you mean 'kv_heads'?"),
        ("family:", "famly:", "tiny.yaml:2: unknown key 'famly'; did you mean 'family'?"),
        ("kind: sliding", "kind: slidng", "tiny.yaml:10: layers.states.local: unknown kind 'slidng'; did you mean 'sliding'?"),
        ("kind: sliding, ", "", "tiny.yaml:10: layers.states.local: key 'kind' is missing; known kinds: full, sliding"),
        ("kind: sliding, window: 128", "kind: sliding", "tiny.yaml:10: layers.states.local: key 'window' is missing"),
        ("window: 128", "window: '128'", "tiny.yaml:10: layers.states.local.window: must be a whole number, not '128'"),
        ("window: 128", "window: true", "tiny.yaml:10: layers.states.local.window: must be a whole number, not True"),
        ("window: 128", "window: 1.5", "tiny.yaml:10: layers.states.local.window: must be a whole number, not 1.5"),
        ("window: 128", "window: 0", "tiny.yaml:10: layers.states.local.window: must be more than 0, not 0"),
        ("window: 128", "window: 1000000000000000001", "tiny.yaml:10: layers.states.local.window: is out of range; at most 1,000,000,000,000,000,000"),
        ("query_heads: 4, kv_heads: 2, head_dim: 64}\n      -", "query_heads: 3, kv_heads: 2, head_dim: 64}\n      -",
         "tiny.yaml:12: layers.states.global[0]: query_heads 3 must be a multiple of kv_heads 2"),
        ("index_dim: 128}", "index_dim: 128, format: fp7}", "tiny.yaml:11: layers.states.global: unknown format 'fp7'; did you mean 'fp8'"),
        ("dtype: bfloat16", "dtype: bfloat17", "tiny.yaml:3: dtype: unknown format 'bfloat17'; did you mean 'bfloat16'"),
        ("dtype: bfloat16", "dtype: [a]", "tiny.yaml:3: dtype: must be text"),
        ("max_context: 4096", "max_context: 32k", "tiny.yaml:4: max_context: must be a whole number, not '32k'"),
        ("pattern: [local*2, global]", "pattern: [locl*2, global]",
         "tiny.yaml:6: layers: pattern names 'locl', which has no entry under states; did you mean 'local'"),
        ("pattern: [local*2, global]", "pattern: [local]", "tiny.yaml:6: layers: states.global is not used by the pattern"),
        ("pattern: [local*2, global]", "pattern: local", "tiny.yaml:7: layers.pattern: must be a list, not 'local'"),
        ("pattern: [local*2, global]", "pattern: []", "tiny.yaml:7: layers.pattern: must not be empty"),
        ("pattern: [local*2, global]", "pattern: [local*9999]", "tiny.yaml:7: layers.pattern: pattern is longer than 4096 layers"),
        ("count: 6", "count: 5000", "tiny.yaml:8: layers.count: must be at most 4096, not 5000"),
        ("  count: 6\n", "", "tiny.yaml:6: layers: key 'count' is missing"),
        ("file: config.json", "fil: config.json", "tiny.yaml:5: source: unknown key 'fil'; did you mean 'file'?"),
        ("bytes: 1}", "byts: 1}", "tiny.yaml:15: expect[0]: unknown key 'byts'; did you mean 'bytes'?"),
        ("  - {context: 1024, bytes: 1}", "  context: 1024", "tiny.yaml:14: expect: must be a list"),
        ("{kind: index, index_dim: 128}", "{kind: shared, shares_with: 6}", "tiny.yaml:11: layers.states.global: shares_with 6 is no layer; the last is 5"),
        ("{kind: index, index_dim: 128}", "index", "tiny.yaml:13: layers.states.global[1]: is not a mapping"),
    ],
)  # fmt: skip
def test_each_mistake_names_its_line(right: str, wrong: str, message: str) -> None:
    assert right in TEXT
    found = problems(TEXT.replace(right, wrong))
    assert any(problem.startswith(message) for problem in found), found
    with pytest.raises(InvalidConfigError) as caught:
        read_text(TEXT.replace(right, wrong), "tiny.yaml")
    assert caught.value.message == found[0]


def test_several_mistakes_are_all_listed() -> None:
    text = TEXT.replace("kv_heads: 2, head_dim: 64}\n    global", "kv_head: 2, head_dim: 64}\n    global").replace("family:", "famly:")
    text = text.replace("bytes: 1}", "bytes: '1'}")
    found = problems(text)
    assert found == [
        "tiny.yaml:2: unknown key 'famly'; did you mean 'family'?",
        "tiny.yaml:10: layers.states.local: unknown key 'kv_head'; did you mean 'kv_heads'?",
        "tiny.yaml:15: expect[0].bytes: must be a whole number, not '1'",
    ]
    with pytest.raises(InvalidConfigError) as caught:
        read_text(text, "tiny.yaml")
    assert caught.value.hint == "and 2 more; `kvcalc models validate` lists all"


@pytest.mark.parametrize("text", ["", "just text", "[1, 2]", "12"])
def test_what_is_no_mapping(text: str) -> None:
    assert problems(text) == [
        f"tiny.yaml{':1' if text else ''}: is not a mapping; a kvcalc model begins with `id:`, `family:` and `layers:`"
    ]


def test_an_inline_document_has_no_lines() -> None:
    document = {"id": "x", "family": "y", "layers": {"pattern": ["a"], "count": 2, "states": {"a": {"kind": "latent", "latent_dim": 8}}}}
    assert read_mapping(document).layers.states == {"a": (Latent(latent_dim=8),)}
    with pytest.raises(InvalidConfigError, match=r"^architecture: layers\.states\.a: key 'latent_dim' is missing$"):
        read_mapping({**document, "layers": {"pattern": ["a"], "count": 2, "states": {"a": {"kind": "latent"}}}})


def test_a_deep_or_huge_inline_document_is_refused() -> None:
    deep: Any = 1
    for _ in range(1000):
        deep = {"a": deep}
    with pytest.raises(InvalidConfigError, match="nested deeper than 32 levels"):
        read_mapping({"id": "x", "traits": deep})
    with pytest.raises(InvalidConfigError, match="out of range"):
        read_mapping({"id": "x", "parameters": 10**4000})


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers(), max_size=2) | st.just({"a": 1})
)


@given(st.data())
def test_any_value_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    document = copy.deepcopy(read_yaml(TEXT, "tiny.yaml").value)
    place = document
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(VALUES)
            break
        place = place[key]
    architecture, found = check(Document("tiny.yaml", document))
    assert architecture is not None or found
    assert not any("\n" in str(problem) or "pydantic" in str(problem).lower() for problem in found)
