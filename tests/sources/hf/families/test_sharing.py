"""Layers that read another layer's keys and values."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Full, Shared, Sliding
from kvcalc.sources.hf.reader import read_config

GEMMA4 = {
    "model_type": "gemma4_text",
    "hidden_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
}


def test_gemma3n_e4b_owns_twenty_of_its_layers() -> None:
    """35 layers, the last 15 share: 16 window layers and 4 full ones own a cache."""
    found = read_config({"model_type": "gemma3n_text", "hidden_size": 2048, "num_hidden_layers": 35})
    assert found.states[Sliding(window=512, kv_heads=2, head_dim=256, query_heads=8)] == 16
    assert found.states[Full(kv_heads=2, head_dim=256, query_heads=8)] == 4
    assert found.layers.layer(34) == (Shared(shares_with=19),)
    assert found.layers.layer(33) == (Shared(shares_with=18),)


def test_gemma4_e2b_shares_the_last_twenty_and_widens_its_full_layers() -> None:
    """Every 5th of 35 layers is full by the file's list; full layers are 512 wide, which the class knows and the file need not say."""
    types = (["sliding_attention"] * 4 + ["full_attention"]) * 7
    found = read_config({**GEMMA4, "num_hidden_layers": 35, "num_kv_shared_layers": 20, "layer_types": types})
    assert found.states[Sliding(window=512, kv_heads=1, head_dim=256, query_heads=8)] == 12
    assert found.states[Full(kv_heads=1, head_dim=512, query_heads=8)] == 3
    assert sum(layers for state, layers in found.states.items() if isinstance(state, Shared)) == 20


@pytest.mark.parametrize(
    ("fields", "kv_heads", "width"),
    [
        ({}, 1, 512),
        ({"global_head_dim": 384}, 1, 384),
        # Global KV heads count only where K = V; K = V itself saves no cache.
        ({"num_global_key_value_heads": 4, "attention_k_eq_v": True}, 4, 512),
        ({"num_global_key_value_heads": 4, "attention_k_eq_v": False}, 1, 512),
        ({"per_layer_config": {"5": {"head_dim": 320}}}, 1, 320),
    ],
)
def test_the_full_layers_of_gemma4(fields: dict[str, object], kv_heads: int, width: int) -> None:
    found = read_config({**GEMMA4, "num_hidden_layers": 6, **fields})
    assert found.layers.layer(5) == (Full(kv_heads=kv_heads, head_dim=width, query_heads=8),)


def test_the_last_layer_of_gemma4_is_full_whatever_its_list_says() -> None:
    found = read_config({**GEMMA4, "num_hidden_layers": 3, "layer_types": ["sliding_attention"] * 3})
    assert found.layers.order == ("sliding", "sliding", "full")
    assert read_config({**GEMMA4, "num_hidden_layers": 8}).layers.order[5:] == ("full", "sliding", "full")


def test_a_draft_that_borrows_everything_keeps_nothing() -> None:
    found = read_config({"model_type": "gemma4_assistant", "text_config": {**GEMMA4, "num_hidden_layers": 4}})
    assert found.family == "gemma4_assistant"
    assert found.states == {Shared(): 4}


def test_more_sharing_layers_than_layers_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="num_kv_shared_layers"):
        read_config({**GEMMA4, "num_hidden_layers": 3, "num_kv_shared_layers": 3})
