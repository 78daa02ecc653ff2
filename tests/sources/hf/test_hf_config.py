"""config.json → Architecture: descending, identity, refusals."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.architecture import Source
from kvcalc.core.errors import InvalidConfigError, KvcalcError, UnsupportedArchitectureError
from kvcalc.core.fields import plain
from kvcalc.core.states import Full, Kda, Sliding
from kvcalc.sources.hf.reader import read_config

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}

GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "num_hidden_layers": 34,
    "sliding_window": 1024,
}


def test_a_flat_config_says_who_the_model_is() -> None:
    found = read_config(LLAMA)
    assert found.id == found.family == "llama"
    assert (found.class_name, found.dtype, found.max_context, found.hidden_dim) == ("LlamaForCausalLM", "bfloat16", 8192, 4096)
    assert found.states == {Full(kv_heads=8, head_dim=128, query_heads=32): 32}
    assert found.layers.pattern == ("full",)
    assert found.assumptions == ()
    assert found.draft is None


def test_the_id_is_the_callers_then_the_files_own_then_the_family() -> None:
    source = Source(file="config.json", where="a test")
    found = read_config(LLAMA, model_id="org/name", source=source)
    assert (found.id, found.source) == ("org/name", source)
    assert read_config({**LLAMA, "_name_or_path": "meta llama\x1b[31m/L"}).id == "meta-llama-31m/L"


@pytest.mark.parametrize("where", ["text_config", "language_config", "llm_config"])
def test_the_language_model_is_found_inside_a_wrapper(where: str) -> None:
    found = read_config(
        {
            "model_type": "some_vl",
            "architectures": ["SomeForConditionalGeneration"],
            "vision_config": {"hidden_size": 1},
            where: LLAMA,
        }
    )
    assert (found.family, found.class_name) == ("llama", "SomeForConditionalGeneration")
    assert found.traits.outer_model_type == "some_vl"
    assert found.traits.is_multimodal is True


def test_a_language_model_may_be_wrapped_twice() -> None:
    found = read_config({"model_type": "qwen2_5_omni", "thinker_config": {"model_type": "x", "text_config": LLAMA}})
    assert found.family == "llama"


def test_a_wrapper_names_the_model_type_that_its_language_model_leaves_out() -> None:
    inner = {key: value for key, value in GEMMA3.items() if key != "model_type"}
    assert read_config({"model_type": "gemma3", "text_config": inner}).family == "gemma3_text"
    kimi = {
        "num_hidden_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "linear_attn_config": {"full_attn_layers": [4], "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4},
    }
    found = read_config({"model_type": "kimi_k3", "text_config": kimi})
    assert found.family == "kimi_linear"
    assert found.states[Kda(heads=4, head_dim=16, conv_kernel=4)] == 3


def test_a_wrapper_may_keep_the_language_model_at_its_own_level() -> None:
    found = read_config(
        {
            "model_type": "qwen2_vl",
            "hidden_size": 3584,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vision_config": {"depth": 32},
        }
    )
    assert found.family == "qwen2_vl_text"
    assert found.states == {Full(kv_heads=4, head_dim=128, query_heads=28): 28}
    assert found.traits.given() == {"outer_model_type": "qwen2_vl", "is_multimodal": True, "vocab_size": 152_064}


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "torch.bfloat16", "torch_dtype": "float16"}, "bfloat16"),
        ({"dtype": "auto", "torch_dtype": None}, None),
        ({"dtype": "float32", "text_config": {**LLAMA, "dtype": "bfloat16"}}, "float32"),
        ({"text_config": LLAMA}, "bfloat16"),
    ],
)
def test_the_dtype_stands_outside_or_inside_in_either_spelling(config: dict[str, object], dtype: str | None) -> None:
    flat = {key: value for key, value in LLAMA.items() if key != "torch_dtype"} if "text_config" not in config else {}
    assert read_config({**flat, **config}).dtype == dtype


@pytest.mark.parametrize("name", ["n_positions", "max_seq_len", "seq_length", "model_max_length", "max_sequence_length"])
def test_the_longest_context_has_many_names(name: str) -> None:
    flat = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    assert read_config({**flat, name: 12345}).max_context == 12345
    assert read_config(flat).max_context == 2048  # the class default of llama
    assert read_config({"model_type": "mamba2", "hidden_size": 4096, "num_hidden_layers": 1}).max_context is None


def test_what_came_from_the_class_default_is_said() -> None:
    found = read_config(GEMMA3)
    assert found.states == {
        Sliding(window=1024, kv_heads=4, head_dim=256, query_heads=8): 29,
        Full(kv_heads=4, head_dim=256, query_heads=8): 5,
    }
    note = found.assumptions[0]
    assert "class default of gemma3_text" in note
    assert "head_dim = 256" in note
    assert "num_key_value_heads = 4" in note
    assert "sliding_window" not in note


def test_null_is_not_missing() -> None:
    missing = {**LLAMA, "model_type": "mistral"}
    assert read_config(missing).layers.layer(0)[0] == Sliding(window=4096, kv_heads=8, head_dim=128, query_heads=32)
    assert read_config({**missing, "sliding_window": None}).layers.layer(0)[0].kind == "full"


def test_traits_carry_what_engines_need_under_the_configs_own_names() -> None:
    found = read_config(
        {
            **LLAMA,
            "num_nextn_predict_layers": 2,
            "num_local_experts": 8,
            "quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8", "kv_cache_scheme": None},
        }
    )
    assert found.traits.given() == {
        "num_nextn_predict_layers": 2,
        "num_local_experts": 8,
        "quantization": "modelopt",
        "kv_cache_quant_algo": "FP8",
        "vocab_size": 32_000,
    }
    assert found.layers.count == 32
    assert found.draft is not None
    assert found.draft.order == ("full", "full")


def test_an_unknown_model_type_is_refused_with_the_fields_it_carries() -> None:
    with pytest.raises(UnsupportedArchitectureError) as caught:
        read_config({"model_type": "lamma", "num_hidden_layers": 3, "head_dim": 4, "vocab_size": 9, "rope_theta": 1.0})
    assert caught.value.exit_code == 3
    assert caught.value.message.endswith("carries head_dim, num_hidden_layers")
    assert "llama" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": None}, "model_type"),
        ({"model_type": 7}, "model_type"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": 5000}, "num_hidden_layers"),
        ({"num_attention_heads": -1}, "num_attention_heads"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"num_key_value_heads": [8]}, "num_key_value_heads"),
        ({"num_attention_heads": 33, "num_key_value_heads": 33}, "hidden_size"),
        ({"head_dim": 0.5}, "head_dim"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"torch_dtype": {"a": 1}}, "torch_dtype"),
        ({"max_position_embeddings": "long"}, "max_position_embeddings"),
        ({"num_nextn_predict_layers": "two"}, "num_nextn_predict_layers"),
    ],
)
def test_a_field_that_cannot_be_is_named(change: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        read_config({**LLAMA, **change})
    assert named in caught.value.message
    assert caught.value.exit_code == 2


def test_a_missing_field_without_a_default_is_named() -> None:
    with pytest.raises(InvalidConfigError, match="'num_attention_heads'"):
        read_config({"model_type": "internlm2", "hidden_size": 64, "num_hidden_layers": 2})


def test_a_config_is_a_json_object() -> None:
    with pytest.raises(InvalidConfigError, match="not a JSON object"):
        read_config([1])  # type: ignore[arg-type]


_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**12),
    st.floats(allow_nan=True),
    st.text(max_size=6),
    st.lists(st.one_of(st.integers(-2, 9), st.text(max_size=4), st.none()), max_size=6),
    st.dictionaries(st.text(max_size=6), st.integers(-2, 9), max_size=3),
)
_WORDS = st.sampled_from([
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "sliding_window", "layer_types",
    "kv_lora_rank", "qk_rope_head_dim", "index_head_dim", "linear_attn_config", "attn_config", "block_configs", "compress_ratios",
    "hybrid_override_pattern", "layers_block_type", "text_config", "model_type", "per_layer_config", "num_nextn_predict_layers",
    "num_kv_shared_layers", "sparse_attention_config", "mamba_d_head", "dtype", "architectures", "quantization_config",
])  # fmt: skip
_TYPES = st.sampled_from([
    "llama", "gemma3", "gemma4_text", "qwen2", "dbrx", "nemotron-nas", "nemotron_h", "deepseek_v32", "deepseek_v4", "deepseek_v41",
    "kimi_linear", "bailing_hybrid", "minimax_m3_vl", "zamba2", "lfm2", "whisper", "mllama", "dory", "inkling2_loop_text", "step3p5",
    "qwen4_exp_text", "recurrent_gemma", "xlstm", "jet_nemotron", "mistral_large4_text", "dots3_note", "falcon", "falcon_h1",
])  # fmt: skip


@given(_TYPES, st.dictionaries(_WORDS, _JUNK, max_size=5))
def test_no_config_gives_anything_but_an_answer_or_a_refusal(model_type: str, fields: dict[str, object]) -> None:
    with suppress(KvcalcError):
        found = read_config({"model_type": model_type, **fields})
        assert len(found.layers.order) == found.layers.count
        json.dumps(plain(found))


def test_a_wrapped_part_that_is_no_mapping_is_no_missing_part() -> None:
    """A missing part takes the class defaults, as the class does; a wrong one is refused."""
    assert read_config({"model_type": "gemma3"}).family == "gemma3_text"
    for wrong in (5, "x", [1], True):
        with pytest.raises(InvalidConfigError, match=r"'text_config' is .* must be a mapping"):
            read_config({"model_type": "gemma3", "text_config": wrong})
    wrapped: dict[str, Any] = {"model_type": "llama", "num_hidden_layers": 1}
    for _ in range(5):
        wrapped = {"model_type": "gemma3", "text_config": wrapped}
    with pytest.raises(InvalidConfigError, match="more than 4 times"):
        read_config(wrapped)


WHOLE = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}


@pytest.mark.parametrize("name", ["decoder", "generator", "vlm_config"])
def test_a_part_of_a_whole_model_does_not_take_its_place(name: str) -> None:
    part = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    assert read_config(WHOLE | {name: part}).states == read_config(WHOLE).states
    assert read_config({"model_type": "llama", name: WHOLE}).states == read_config(WHOLE).states


@pytest.mark.parametrize("value", ["int4", "int8", "q8_0", "nvfp4", "fp8_ds_mla", "index_fp8", "torch.int8"])
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_type_that_no_checkpoint_is_in(key: str, value: str) -> None:
    with pytest.raises(InvalidConfigError, match="floating-point type"):
        read_config(WHOLE | {key: value})
