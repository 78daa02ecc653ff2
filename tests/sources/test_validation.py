"""Nobody who uses kvcalc has to know Pydantic."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from kvcalc.core.architecture import Layout
from kvcalc.core.fields import field_names
from kvcalc.core.states import KINDS, Mamba2, Sliding
from kvcalc.sources.schema import read
from kvcalc.sources.validation import first, sentences

SLIDING: dict[str, Any] = {"kv_heads": 8, "head_dim": 128, "window": 512}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kv_heads": 0}, "kv_heads: must be more than 0, not 0"),
        ({"kv_heads": "x"}, "kv_heads: must be a whole number, not 'x'"),
        ({"kv_heads": 1.5}, "kv_heads: must be a whole number, not 1.5"),
        ({"kv_heads": None}, "kv_heads: must be a whole number"),
        ({"nominal": "maybe"}, "nominal: must be true or false, not 'maybe'"),
        ({"query_heads": 12}, "query_heads 12 must be a multiple of kv_heads 8"),
    ],
)
def test_one_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        read(Sliding, SLIDING | change)
    assert first(caught.value) == said


def test_what_is_missing_is_a_problem_of_what_lacks_it() -> None:
    with pytest.raises(ValidationError) as caught:
        read(Mamba2, {"heads": -1})
    found = list(sentences(caught.value))
    assert ("must be more than 0, not -1", ("heads",), "") in found
    assert ("key 'state_dim' is missing", (), "state_dim") in found
    with pytest.raises(ValidationError) as caught:
        read(Layout, {"pattern": [], "count": 5000, "states": {}})
    assert {message for message, _, _ in sentences(caught.value)} == {"must not be empty", "must be at most 4096, not 5000"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_of_pydantic_comes_through(kind: str) -> None:
    for value in (None, -1, "x", [], {}, 1.5, float("nan")):
        fields = dict.fromkeys(field_names(KINDS[kind]), value)
        try:
            read(KINDS[kind], fields)
        except ValidationError as error:
            for message, _, _ in sentences(error):
                assert "nput should" not in message
                assert "wrong kind" not in message
