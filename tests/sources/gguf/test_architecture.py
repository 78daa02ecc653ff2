"""Metadata → states: which blocks keep what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import InvalidConfigError, KvcalcError, UnsupportedArchitectureError
from kvcalc.core.traits import Traits
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.sources.gguf.architecture import FAMILIES, KNOWN, read_metadata
from kvcalc.sources.gguf.attention import WINDOWS
from kvcalc.sources.gguf.blocks import CACHELESS, READERS


def metadata(name: str, **keys: Any) -> dict[str, Any]:
    base = {"block_count": 8, "context_length": 4096, "embedding_length": 512, "attention.head_count": 8, "attention.head_count_kv": 2}
    found = {f"{name}.{key.replace('__', '.')}": value for key, value in (base | keys).items()}
    return {"general.architecture": name} | {key: value for key, value in found.items() if value is not None}


def kinds(name: str, **keys: Any) -> list[str]:
    layout = read_metadata(metadata(name, **keys)).layers
    return ["+".join(state.kind for state in layout.states[layer]) for layer in layout.order]


def test_heads_default_to_the_embedding_divided() -> None:
    (state,) = read_metadata(metadata("llama", attention__head_count_kv=None)).layers.layer(0)
    assert state.to_dict() == {"kind": "full", "kv_heads": 8, "head_dim": 64, "value_head_dim": 64, "query_heads": 8}


def test_families_are_model_types() -> None:
    assert read_metadata(metadata("llama")).family == "llama"
    assert read_metadata(metadata("gemma3")).family == "gemma3_text"
    assert set(FAMILIES) <= KNOWN
    assert set(READERS) <= KNOWN


def test_an_array_has_an_entry_a_block() -> None:
    assert kinds("deci", attention__head_count_kv=[2, 2, 0, 1, 2, 0, 2, 2]) == [
        "full",
        "full",
        "none",
        "full",
        "full",
        "none",
        "full",
        "full",
    ]
    with pytest.raises(InvalidConfigError, match="one entry for each of 8 blocks"):
        kinds("deci", attention__head_count_kv=[2, 2])


def test_full_blocks_stand_at_the_end_of_each_period() -> None:
    # every 6th of 8 blocks: the 6th; the test i % 6 < 5, not (i + 1) % 6
    assert kinds("gemma3", attention__sliding_window=128) == ["sliding"] * 5 + ["full"] + ["sliding"] * 2
    assert kinds("gemma3") == ["full"] * 8
    assert kinds("gpt-oss", attention__sliding_window=128) == ["sliding", "full"] * 4
    assert kinds("cohere2moe", attention__sliding_window=128) == ["full", "sliding", "sliding", "sliding"] * 2


def test_a_pattern_of_the_file_wins() -> None:
    assert kinds("gemma3", attention__sliding_window=128, attention__sliding_window_pattern=2) == ["sliding", "full"] * 4
    assert (
        kinds("gemma3", attention__sliding_window=128, attention__sliding_window_pattern=[False, True])
        == ["full", "sliding"] + ["full"] * 6
    )
    assert kinds("gemma3", attention__sliding_window=128, attention__sliding_window_pattern=0) == ["sliding"] * 8


def test_architectures_that_need_an_array_say_so() -> None:
    for name in ("gemma4", "mimo2", "step35", "maple", "granite_swa"):
        assert WINDOWS[name].period is None
        with pytest.raises(InvalidConfigError, match="needs an array"):
            kinds(name, attention__sliding_window=128)


def test_windows_that_the_loader_sets() -> None:
    (state,) = read_metadata(metadata("llama4", attention__sliding_window=77)).layers.layer(0)
    assert state.to_dict()["chunk"] == 8192
    assert kinds("llama4", attention__sliding_window=0) == ["full"] * 8
    (state,) = read_metadata(metadata("smallthinker", attention__sliding_window=77)).layers.layer(1)
    assert state.to_dict()["window"] == 4096
    assert kinds("exaone4", attention__sliding_window=128) == ["full"] * 8
    assert kinds("exaone4", block_count=64).count("sliding") == 48


def test_draft_blocks_stand_apart() -> None:
    found = read_metadata(metadata("glm4moe", nextn_predict_layers=1))
    assert found.layers.count == 7
    assert found.draft is not None
    assert found.draft.count == 1


MLA = {"attention__key_length": 576, "attention__value_length": 512, "attention__kv_lora_rank": 512, "attention__head_count_kv": 1}
MLA_KEYS = {"attention__key_length_mla": 192, "attention__value_length_mla": 128}


def test_latents() -> None:
    found = read_metadata(metadata("deepseek2", **MLA, **MLA_KEYS))
    (state,) = found.layers.layer(0)
    assert (state.kind, found.traits) == ("latent", Traits(gguf_architecture="deepseek2"))
    assert state.to_dict()["rope_dim"] == 64


def test_a_file_from_before_latents_is_the_same_mathematics() -> None:
    old = {"attention__key_length": 192, "attention__value_length": 128, "attention__kv_lora_rank": 512, "attention__head_count_kv": 8}
    found = read_metadata(metadata("deepseek2", **old, rope__dimension_count=64))
    (state,) = found.layers.layer(0)
    assert (state.kind, found.traits.gguf_expanded_latent) == ("latent", True)
    assert kinds("deepseek2", **old) == ["full"] * 8


def test_index_keys_where_the_file_says() -> None:
    index = {"attention__indexer__key_length": 128, "attention__indexer__top_k": 2048}
    assert kinds("deepseek32", **MLA, **MLA_KEYS, **index) == ["latent+index"] * 8
    assert kinds("hy_v4", **MLA, **MLA_KEYS) == ["latent"] * 8
    listed = kinds("hy_v4", **MLA, **MLA_KEYS, **index, attention__indexer__types=[1, 0, 0, 0, 1, 0, 0, 0])
    assert listed == (["latent+index"] + ["latent"] * 3) * 2
    # GLM-5.2: layers 0, 1, 2 and every fourth from there
    shared = kinds("glm-dsa", **MLA, **MLA_KEYS, **index, context_length=1_048_576)
    assert [i for i, kind in enumerate(shared) if kind == "latent+index"] == [0, 1, 2, 6]
    assert kinds("minimax-m3", **index, leading_dense_block_count=3) == ["full"] * 3 + ["full+index"] * 5


def test_compressed_blocks() -> None:
    found = kinds(
        "deepseek4",
        attention__head_count_kv=1,
        attention__key_length=512,
        attention__sliding_window=128,
        attention__indexer__key_length=128,
        attention__compress_ratios=[0, 0, 4, 128, 4, 128, 4, 0],
    )
    assert found == ["latent", "latent"] + ["latent+compressed+index", "latent+compressed"] * 2 + ["latent+compressed+index", "latent"]


SSM = {"ssm__inner_size": 1024, "ssm__state_size": 128, "ssm__conv_kernel": 4, "ssm__time_step_rank": 8, "ssm__group_count": 2}


def test_recurrent_blocks() -> None:
    assert kinds("mamba", **SSM) == ["mamba1"] * 8
    assert kinds("falcon-h1", **SSM) == ["full+mamba2"] * 8
    assert kinds("granitehybrid", **SSM, attention__head_count_kv=[0, 0, 2, 0] * 2) == ["mamba2", "mamba2", "full", "mamba2"] * 2
    assert kinds("qwen3next", **SSM) == ["gated_deltanet"] * 3 + ["full"] + ["gated_deltanet"] * 3 + ["full"]
    assert kinds("qwen35", **SSM, attention__recurrent_layers=[1, 0] * 4) == ["gated_deltanet", "full"] * 4
    assert kinds("rwkv7", wkv__head_size=64, attention__head_count=0) == ["rwkv"] * 8
    lfm2 = {"shortconv__l_cache": 3, "attention__head_count_kv": [0, 2] * 4}
    assert kinds("lfm2", **lfm2) == ["short_conv", "full"] * 4
    assert kinds("lfm2", **lfm2, attention__sliding_window=256) == ["short_conv", "sliding"] * 4
    assert kinds("lfm2", **lfm2, decision__block_count=1) == ["none"] * 8
    kda = {"kda__head_dim": 128, "ssm__conv_kernel": 0} | MLA | MLA_KEYS | {"attention__head_count_kv": [0, 0, 0, 1] * 2}
    assert kinds("kimi-linear", **kda) == ["kda", "kda", "kda", "latent"] * 2


def test_a_feed_forward_block_of_nemotron_keeps_nothing() -> None:
    heads, forward = [0, 0, 2, 0, 0, 0, 0, 0], [0, 64, 0, 64, 0, 64, 0, 64]
    found = kinds("nemotron_h", **SSM, attention__head_count_kv=heads, feed_forward_length=forward)
    assert found == ["mamba2", "none", "full", "none", "mamba2", "none", "mamba2", "none"]


def test_sharing_and_looping() -> None:
    pattern = [True, True, True, False] * 2
    gemma4 = {"attention__sliding_window": 128, "attention__sliding_window_pattern": pattern, "attention__shared_kv_layers": 3}
    assert kinds("gemma4", **gemma4) == ["sliding", "sliding", "sliding", "full", "sliding", "shared", "shared", "shared"]
    gemma3n = kinds("gemma3n", block_count=30, attention__sliding_window=128)
    assert gemma3n.index("shared") == 20
    assert kinds("nanbeige", num_loops=3) == ["full"] * 24
    assert read_metadata(metadata("graniteswitch")).layers.count == 9


def test_encoders_keep_nothing_and_say_so() -> None:
    for name in CACHELESS:
        found = read_metadata(metadata(name))
        assert {state.kind for state in found.states} == {"none"}
        assert "keeps no cache" in found.assumptions[0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"block_count": None}, "no 'llama.block_count'"),
        ({"block_count": 0}, "at least 1"),
        ({"block_count": 10**6}, "at most 512"),
        ({"block_count": True}, "whole number"),
        ({"block_count": "8"}, "whole number"),
        ({"embedding_length": -1}, "whole number"),
        ({"embedding_length": 2**40}, "whole number"),
        ({"nextn_predict_layers": 9}, "8 blocks"),
        ({"attention__head_count": [8] * 9}, "one entry"),
        ({"attention__head_count": {"a": 1}}, "whole number"),
        ({"attention__value_length": 0}, "value_head_dim"),
        ({"attention__causal": "no"}, "true or false"),
    ],
)
def test_metadata_that_cannot_be(change: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        read_metadata(metadata("llama", **change))


def test_unknown_architectures_are_refused() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="no architecture 'lama'") as caught:
        read_metadata(metadata("lama"))
    assert "llama" in caught.value.hint
    with pytest.raises(InvalidConfigError, match=r"general\.architecture"):
        read_metadata({})


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


@given(st.data())
def test_wrong_types_anywhere_are_kvcalcs_own_errors(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(KNOWN)))
    extras = MLA | MLA_KEYS | SSM | {"attention__sliding_window": 64, "shortconv__l_cache": 3, "kda__head_dim": 64, "wkv__head_size": 64}
    raw = metadata(name, **extras, attention__indexer__key_length=64, attention__compress_ratios=[4] * 8)
    for key in data.draw(st.lists(st.sampled_from(sorted(raw)), min_size=1, max_size=3)):
        raw[key] = data.draw(ANY)
    try:
        get_engine("llama.cpp").plan(read_metadata(raw), Workload(context=1000))
    except KvcalcError as error:
        assert error.exit_code in (2, 3)  # noqa: PT017  which one depends on what was drawn
