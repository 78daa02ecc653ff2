"""Architecture → YAML → the same architecture."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.architecture import Architecture, Expectation, Layout, Source
from kvcalc.core.states import Full, Index, Latent, Mamba2, Sliding
from kvcalc.core.traits import Traits
from kvcalc.sources.catalogue import ids, load_id, read_text
from kvcalc.sources.yaml_reader import read_yaml
from kvcalc.sources.yaml_writer import shortest_pattern, to_yaml

FULL = Full(query_heads=8, kv_heads=2, head_dim=64)
GEMMA = Architecture(
    id="gemma-3-27b",
    name="Gemma 3 27B",
    source=Source(file="config.json", read="2026-11-29", assumed={"head_dim": "class default"}),
    family="gemma3_text",
    dtype="bfloat16",
    layers=Layout(
        pattern=("local",) * 5 + ("global",),
        count=62,
        states={"local": (Sliding(window=1024, kv_heads=16, head_dim=128),), "global": (FULL,)},
    ),
    draft=Layout(pattern=("both",), count=1, states={"both": (Latent(latent_dim=512), Index(index_dim=128))}),
    traits=Traits(num_experts=8, kv_cache_scheme={"skip": ["a", None, 1e-05]}),
    assumptions=("not read from the released config: head_dim (class default)",),
    expect=(Expectation(context=4096, bytes=771751936),),
)


def test_the_page_that_people_read() -> None:
    assert to_yaml(GEMMA) == (
        "id: gemma-3-27b\n"
        "name: Gemma 3 27B\n"
        "source: {file: config.json, read: 2026-11-29, assumed: {head_dim: class default}}\n"
        "family: gemma3_text\n"
        "dtype: bfloat16\n"
        "layers:\n"
        "  pattern: [local*5, global]\n"
        "  count: 62\n"
        "  states:\n"
        "    local:  {kind: sliding, window: 1024, kv_heads: 16, head_dim: 128}\n"
        "    global: {kind: full, query_heads: 8, kv_heads: 2, head_dim: 64}\n"
        "draft:\n"
        "  pattern: [both]\n"
        "  count: 1\n"
        "  states:\n"
        "    both:\n"
        "      - {kind: latent, latent_dim: 512}\n"
        "      - {kind: index, index_dim: 128}\n"
        "traits:\n"
        "  num_experts: 8\n"
        "  kv_cache_scheme: {skip: [a, null, 1e-05]}\n"
        "expect:\n"
        "  - {context: 4096, bytes: 771751936}\n"
    )


def test_reads_back_as_itself() -> None:
    assert read_text(to_yaml(GEMMA), "x.yaml") == GEMMA


@pytest.mark.parametrize("model_id", ids())
def test_the_whole_catalogue_reads_back_as_itself(model_id: str) -> None:
    found = load_id(model_id)
    assert read_text(to_yaml(found), "x.yaml") == found


@pytest.mark.parametrize(
    ("order", "pattern"),
    [
        ("a", "a"),
        ("aaaa", "a"),
        ("aab", "aab"),
        ("aabaab", "aab"),
        ("aabaabaa", "aab"),
        ("abcab", "abc"),
        ("abca", "abc"),
        ("aaab", "aaab"),
    ],
)
def test_the_shortest_pattern(order: str, pattern: str) -> None:
    assert shortest_pattern(tuple(order)) == tuple(pattern)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40))
def test_the_shortest_pattern_gives_the_order_back(letters: list[str]) -> None:
    order = tuple(letters)
    pattern = shortest_pattern(order)
    assert (pattern * len(order))[: len(order)] == order


def test_long_lists_are_wrapped() -> None:
    order = tuple("mamba" if i % 3 else f"full_{i}" for i in range(60))
    states = {name: (Mamba2(heads=2, head_dim=4, state_dim=8) if name == "mamba" else FULL,) for name in dict.fromkeys(order)}
    found = Architecture(
        id="x",
        family="y",
        layers=Layout(pattern=order, count=60, states=states),
        traits=Traits(kv_cache_scheme={"names": [f"layer.{i}" for i in range(99)]}),
    )
    text = to_yaml(found)
    assert max(map(len, text.splitlines())) <= 140
    assert read_text(text, "x.yaml") == found


VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), VALUE, max_size=4),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_text_and_traits_read_back(traits: dict[str, object], name: str) -> None:
    found = replace(GEMMA, traits=Traits(kv_cache_scheme=traits), name=name)
    assert read_text(to_yaml(found), "x.yaml") == found


@pytest.mark.parametrize(
    "word", ["yes", "No", "on", "null", "12", "1e5", "a: b", "a #b", "- a", "*a", "&a", "!a", "@a", "", " a", "a ", "[a]", "'", "a, b"]
)
def test_words_that_yaml_would_misread_are_quoted(word: str) -> None:
    assert f'name: "{word}"' in to_yaml(replace(GEMMA, name=word)) or word == ""
    assert read_yaml(to_yaml(replace(GEMMA, traits=Traits(kv_cache_scheme={word: [word]}))), "x.yaml").value["traits"] == {
        "kv_cache_scheme": {word: [word]}
    }
