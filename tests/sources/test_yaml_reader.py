"""YAML read with suspicion: values, lines, and what is refused."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import InvalidConfigError
from kvcalc.sources import yaml_reader
from kvcalc.sources.yaml_reader import Document, Problem, plain_scalar, problem_from, read_yaml

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


def test_values_and_lines() -> None:
    document = read_yaml("a: 1\nb:\n  c: {d: [x, y]}\n  e: text\n", "m.yaml")
    assert document.value == {"a": 1, "b": {"c": {"d": ["x", "y"]}, "e": "text"}}
    assert document.lines["b", "c", "d", 1] == 3
    assert document.lines["b", "e"] == 4


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("2026-11-29", "2026-11-29"),
        ("12", 12),
        ("-3", -3),
        ("1_000", 1000),
        ("0", 0),
        ("012", "012"),
        ("0x10", "0x10"),
        ("1.5", 1.5),
        ("1e-05", 1e-05),
        ("32k", "32k"),
        (".inf", float("inf")),
        ("9" * 40, "9" * 40),
    ],
)
def test_plain_scalars_are_yaml_1_2(text: str, value: object) -> None:
    assert plain_scalar(text) == value
    assert type(plain_scalar(text)) is type(value)


def test_quotes_make_text() -> None:
    assert read_yaml("a: '12'\nb: \"null\"\n", "m.yaml").value == {"a": "12", "b": "null"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "m.yaml:1: '&a': anchors and aliases are not read"),
        ("a: 1\nb: *a\n", "m.yaml:2: '*a': anchors and aliases are not read"),
        ("a: !!python/object:os.system x", "m.yaml:1: tag 'tag:yaml.org,2002:python/object:os.syst…' is not read"),
        ("a: 1\nb: 2\na: 3\n", "m.yaml:3: key 'a' stands twice in one mapping"),
        ("a: 1\n---\nb: 2\n", "m.yaml:2: a second document begins here, and one is expected"),
        ("? [a, b]\n: 1\n", "m.yaml:1: a key is not plain text"),
        ("a:\n\tb: 1\n", "m.yaml:2: is not YAML: found character that cannot start any token"),
        ("a: [1, 2\n", "m.yaml:2: is not YAML: did not find expected ',' or ']'"),
        ("a: \x07", "m.yaml: is not YAML: control characters are not allowed"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        read_yaml(text, "m.yaml")
    assert caught.value.message == message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 50_000, "{a: " * 20_000])
def test_deep_nesting_is_refused_soon(text: str) -> None:
    started = time.process_time()
    with pytest.raises(InvalidConfigError, match="nest"):
        read_yaml(text, "m.yaml")
    assert time.process_time() - started < 5


def test_size_and_encoding() -> None:
    with pytest.raises(InvalidConfigError, match="larger than 1,048,576 bytes"):
        read_yaml(b" " * (1024**2 + 1), "m.yaml")
    with pytest.raises(InvalidConfigError, match=r"m\.yaml: is not UTF-8 text \(byte 3\)"):
        read_yaml(b"a: \xff", "m.yaml")
    assert read_yaml(b"\xef\xbb\xbfa: 1", "m.yaml").value == {"a": 1}


def test_an_empty_file_is_none() -> None:
    assert read_yaml("", "m.yaml") == Document("m.yaml", None)


def test_the_python_loader_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: {b: [1, 'x', null]}\nc: -1\n"
    quick = read_yaml(text, "m.yaml")
    monkeypatch.setattr(yaml_reader, "_LOADER", yaml.SafeLoader)
    assert read_yaml(text, "m.yaml") == quick
    for bad in (BOMB, "a: [", "a: \x07", "[" * 50):
        with pytest.raises(InvalidConfigError, match=r"m\.yaml"):
            read_yaml(bad, "m.yaml")


def test_a_problem_stands_on_the_nearest_line() -> None:
    document = read_yaml("a:\n  b: 1\n", "m.yaml")
    assert str(document.problem(("a", "b"), "is wrong")) == "m.yaml:2: a.b: is wrong"
    assert str(document.problem(("a", "c"), "is missing")) == "m.yaml:1: a.c: is missing"
    assert str(Document("inline", {}).problem(("a",), "is missing")) == "inline: a: is missing"
    assert problem_from("m.yaml", "m.yaml:3: is not YAML: x") == Problem("m.yaml", 3, "", "is not YAML: x")
    assert problem_from("m.yaml", "m.yaml: no such file") == Problem("m.yaml", 0, "", "no such file")


def refusal(text: str) -> str:
    try:
        read_yaml(text, "m.yaml")
    except InvalidConfigError as error:
        return error.message
    return "read"


@given(st.text(max_size=200) | st.text(alphabet="a:-[]{}&*!|>'\"#%@`,? \n\t", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert refusal(text).isprintable()


#: Text that this YAML 1.2 reader and PyYAML's 1.1 writer both take for text.
TEXT = st.text(max_size=20).filter(lambda text: isinstance(plain_scalar(text), str))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**20), 10**20) | TEXT,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=12,
    )
)
def test_reads_what_pyyaml_writes(value: object) -> None:
    assert read_yaml(yaml.safe_dump(value), "m.yaml").value == value
