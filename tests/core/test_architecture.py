"""Layers in order, counted and cut."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from kvcalc.core.architecture import Architecture, Layout, technique_of
from kvcalc.core.states import Full, Latent, Sliding

LOCAL = {"kind": "sliding", "window": 1024, "kv_heads": 16, "head_dim": 128}
GLOBAL = {"kind": "full", "kv_heads": 16, "head_dim": 128}


def layout(pattern: list[str], count: int) -> Layout:
    return Layout.model_validate({"pattern": pattern, "count": count, "states": {"local": LOCAL, "global": [GLOBAL]}})


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
        ({"pattern": []}, "at least 1"),
        ({"pattern": ["local*99999", "global"]}, "not a name"),
        ({"pattern": ["local*9999", "global"]}, "longer than"),
        ({"pattern": [1, "global"]}, "not a name"),
        ({"count": 0}, "greater than or equal to 1"),
        ({"count": 5000}, "less than or equal to 4096"),
        ({"extra": 1}, "extra"),
    ],
)
def test_layouts_that_contradict_themselves(change: dict[str, object], words: str) -> None:
    document = {"pattern": ["local", "global"], "count": 2, "states": {"local": LOCAL, "global": GLOBAL}} | change
    with pytest.raises(ValidationError, match=words):
        Layout.model_validate(document)


def test_a_state_twice_in_a_layer_counts_twice() -> None:
    twice = Layout.model_validate({"pattern": ["a"], "count": 28, "states": {"a": [{"kind": "latent", "latent_dim": 512}] * 2}})
    assert twice.counts == {Latent(latent_dim=512): 56}


def test_techniques() -> None:
    assert technique_of(Full(kv_heads=32, query_heads=32, head_dim=128)) == "mha"
    assert technique_of(Full(kv_heads=8, query_heads=32, head_dim=128)) == "gqa"
    assert technique_of(Full(kv_heads=1, query_heads=71, head_dim=64)) == "mqa"
    assert technique_of(Full(kv_heads=8, head_dim=128)) == "full"
    assert technique_of(Sliding(kv_heads=8, head_dim=128, window=4096)) == "swa"
    assert Architecture(id="m", family="gemma3_text", layers=layout(["local*5", "global"], 6)).techniques == ("swa", "full")
