"""Layers in order, counted and cut."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kvcalc.core.architecture import Architecture, Layout, technique_of
from kvcalc.core.fields import plain
from kvcalc.core.states import Full, Latent, Sliding
from kvcalc.sources.schema import checked, read
from kvcalc.sources.validation import first

LOCAL = Sliding(window=1024, kv_heads=16, head_dim=128)
GLOBAL = Full(kv_heads=16, head_dim=128)


def layout(pattern: list[str], count: int) -> Layout:
    return read(Layout, {"pattern": pattern, "count": count, "states": {"local": [LOCAL], "global": [GLOBAL]}})


def test_the_pattern_repeats_to_the_count() -> None:
    found = layout(["local*5", "global"], 62)  # Gemma-3-27B: every sixth of 62 is full
    assert found.order[:6] == ("local",) * 5 + ("global",)
    assert list(found.counts.values()) == [52, 10]
    assert found.layer(5) == (Full(kv_heads=16, head_dim=128),)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pattern": ["loca", "global"]}, "did you mean 'local'"),
        ({"pattern": ["local"]}, "not used by the pattern"),
        ({"pattern": []}, "pattern: must not be empty"),
        ({"pattern": ["local*99999", "global"]}, "not a name"),
        ({"pattern": ["local*9999", "global"]}, "longer than"),
        ({"pattern": [1, "global"]}, "not a name"),
        ({"count": 0}, "count: must be at least 1, not 0"),
        ({"count": 5000}, "count: must be at most 4096, not 5000"),
        ({"extra": 1}, "extra"),
        ({"states": {"local": ({},), "global": (GLOBAL,)}}, "states.local.0"),
    ],
)
def test_layouts_that_contradict_themselves(change: dict[str, object], words: str) -> None:
    document = {"pattern": ["local", "global"], "count": 2, "states": {"local": (LOCAL,), "global": (GLOBAL,)}} | change
    with pytest.raises(ValidationError) as caught:
        read(Layout, document)
    assert words in first(caught.value)


def test_a_state_twice_in_a_layer_counts_twice() -> None:
    twice = Layout(pattern=("a",), count=28, states={"a": (Latent(latent_dim=512),) * 2})
    assert twice.counts == {Latent(latent_dim=512): 56}


def test_techniques() -> None:
    assert technique_of(Full(kv_heads=32, query_heads=32, head_dim=128)) == "mha"
    assert technique_of(Full(kv_heads=8, query_heads=32, head_dim=128)) == "gqa"
    assert technique_of(Full(kv_heads=1, query_heads=71, head_dim=64)) == "mqa"
    assert technique_of(Full(kv_heads=8, head_dim=128)) == "full"
    assert technique_of(Sliding(kv_heads=8, head_dim=128, window=4096)) == "swa"
    assert Architecture(id="m", family="gemma3_text", layers=layout(["local*5", "global"], 6)).techniques == ("swa", "full")


def test_what_is_made_in_code_is_checked_by_the_same_classes() -> None:
    wrong = Layout(pattern=("a",), count=1, states={"a": (Full(kv_heads=8, head_dim=0),)})
    for model in (
        Architecture(id="m", family="f", layers=wrong),
        Architecture(id="m", family="f", layers=layout(["local", "global"], 2), draft=wrong),
    ):
        with pytest.raises(ValidationError) as caught:
            checked(model)
        assert first(caught.value) == "head_dim: must be more than 0, not 0"
    right = Architecture(id="m", family="f", layers=layout(["local", "global"], 2))
    assert checked(right) == right
    assert hash(checked(right)) == hash(right)


def test_equal_models_are_one_key() -> None:
    one, other = (Architecture(id="m", family="f", layers=layout(["local", "global"], count)) for count in (2, 3))
    assert {one: 1}[Architecture(id="m", family="f", layers=layout(["local", "global"], 2))] == 1
    assert one != other


def test_a_model_as_json_has_what_is_set() -> None:
    model = Architecture(id="m", family="f", max_context=8, layers=Layout(pattern=("a",), count=1, states={"a": (Latent(latent_dim=4),)}))
    found = plain(model)
    assert found["layers"] == {"pattern": ["a"], "count": 1, "states": {"a": [{"kind": "latent", "latent_dim": 4, "rope_dim": 0}]}}
    assert found["max_context"] == 8
    assert "dtype" not in found
