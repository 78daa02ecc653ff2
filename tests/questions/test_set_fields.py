"""`--set`: every field, together, and none that does not exist."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.questions.set_fields import override
from kvcalc.sources import load


def total(model: str, fields: dict[str, str], context: int = 4096) -> int:
    return get_engine("ideal").plan(override(load(model), fields), Workload(context=context)).total


def test_every_state_that_has_the_field() -> None:
    # Gemma 3 27B: 52 sliding and 10 full layers of 16 x (128 + 128) x 2 B
    assert total("gemma-3-27b", {"kv_heads": "8"}) == 8 * 256 * 2 * (52 * 1024 + 10 * 4096)
    assert total("gemma-3-27b", {"window": "512"}) == 16 * 256 * 2 * (52 * 512 + 10 * 4096)


def test_only_the_layers_of_one_name() -> None:
    assert total("gemma-3-27b", {"full.kv_heads": "8"}) == 256 * 2 * (16 * 52 * 1024 + 8 * 10 * 4096)


def test_fields_are_checked_together() -> None:
    assert total("llama-2-7b", {"query_heads": "24", "kv_heads": "24"}) == 32 * 24 * 256 * 2 * 4096
    with pytest.raises(UsageError, match="query_heads 24 must be a multiple of kv_heads 32"):
        total("llama-2-7b", {"query_heads": "24"})


def test_layers_repeat_the_pattern() -> None:
    # 12 layers of the 5:1 pattern: 10 sliding, 2 full
    assert total("gemma-3-27b", {"layers": "12"}) == 16 * 256 * 2 * (10 * 1024 + 2 * 4096)


def test_producer_layers_share_the_rest() -> None:
    assert total("llama-2-7b", {"producer_layers": "8"}) == 8 * 32 * 256 * 2 * 4096


def test_the_models_own_fields() -> None:
    assert total("llama-2-7b", {"dtype": "fp32"}) == 2 * total("llama-2-7b", {})
    changed = override(load("llama-2-7b"), {"max_context": "128k", "hidden_dim": "1", "family": "other", "parameters": "7"})
    assert (changed.max_context, changed.hidden_dim, changed.family, changed.parameters) == (131_072, 1, "other", 7)
    assert changed.assumptions[-1] == "what-if: max_context=128k, hidden_dim=1, family=other, parameters=7"
    assert changed.expect == ()


def test_counts_are_those_of_the_changed_layers() -> None:
    model = load("llama-2-7b")
    assert [state.to_dict()["kv_heads"] for state in model.states] == [32]
    assert [state.to_dict()["kv_heads"] for state in override(model, {"kv_heads": "4"}).states] == [4]
    assert [state.to_dict()["kv_heads"] for state in model.states] == [32]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kv_head": "8"}, "no layer of this model has the field 'kv_head'"),
        ({"kind": "sliding"}, "no layer of this model has the field 'kind'"),
        ({"local.kv_heads": "8"}, "no layer of this model has the field 'local.kv_heads'"),
        ({"kv_heads": "-1"}, "kv_heads"),
        ({"kv_heads": "0"}, "kv_heads: must be more than 0, not 0"),
        ({"kv_heads": "many"}, "kv_heads"),
        ({"kv_heads": "1.5"}, "not a whole number"),
        ({"layers": "0"}, "--set layers: 0 is too small"),
        ({"layers": "5000"}, "--set layers: must be at most 4096, not 5000"),
        ({"dtype": "bf17"}, "--set dtype: unknown format 'bf17'"),
        ({"max_context": "0"}, "--set max_context: 0 is too small"),
        ({"producer_layers": "33"}, "33 is more than the 32 attention layers"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        override(load("llama-2-7b"), fields)


@given(st.dictionaries(st.sampled_from(["kv_heads", "layers", "window", "x", "dtype", "a.b"]), st.text(max_size=12), min_size=1))
def test_any_text_is_applied_or_refused(fields: dict[str, str]) -> None:
    try:
        changed = override(load("llama-2-7b"), fields)
    except UsageError:
        return
    assert changed.layers.count >= 1
