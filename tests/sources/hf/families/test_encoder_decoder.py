"""Decoders that also attend to an encoder or to images."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.errors import InvalidConfigError
from kvcalc.core.states import Cross, Full, Sliding
from kvcalc.sources.hf.reader import read_config


def test_whisper_always_has_the_same_source() -> None:
    """Whisper-large: 32 decoder layers of 20 heads x 64, 1,500 audio positions."""
    found = read_config({"model_type": "whisper", "d_model": 1280, "decoder_layers": 32, "decoder_attention_heads": 20})
    assert found.states == {
        Full(kv_heads=20, head_dim=64, query_heads=20): 32,
        Cross(kv_heads=20, head_dim=64, query_heads=20, source_tokens=1500): 32,
    }
    assert not any("encoder" in note for note in found.assumptions)
    assert found.max_context == 448


@pytest.mark.parametrize(
    ("config", "heads", "width", "layers"),
    [
        # BART's num_hidden_layers counts encoder layers.
        ({"model_type": "bart", "d_model": 1024, "decoder_layers": 12, "decoder_attention_heads": 16, "num_hidden_layers": 6}, 16, 64, 12),
        ({"model_type": "prophetnet"}, 16, 64, 12),
        ({"model_type": "t5", "d_model": 1024, "d_kv": 128, "num_heads": 32, "num_layers": 24}, 32, 128, 24),
        ({"model_type": "t5", "d_model": 512, "d_kv": 64, "num_heads": 8, "num_layers": 6, "num_decoder_layers": 3}, 8, 64, 3),
        ({"model_type": "moonshine"}, 8, 36, 6),
        ({"model_type": "florence2", "text_config": {"model_type": "bart", "d_model": 768, "decoder_layers": 6,
                                                     "decoder_attention_heads": 12}}, 12, 64, 6),
    ],
)  # fmt: skip
def test_a_source_of_unknown_length_is_not_counted_and_said(config: dict[str, Any], heads: int, width: int, layers: int) -> None:
    found = read_config(config)
    assert found.states == {
        Full(kv_heads=heads, head_dim=width, query_heads=heads): layers,
        Cross(kv_heads=heads, head_dim=width, query_heads=heads): layers,
    }
    assert any("not counted" in note for note in found.assumptions)


def test_dia_crosses_with_heads_of_its_own() -> None:
    found = read_config({"model_type": "dia"})
    assert found.layers.layer(0) == (
        Full(kv_heads=4, head_dim=128, query_heads=16),
        Cross(kv_heads=16, head_dim=128, query_heads=16),
    )


def test_t5gemma_slides_and_crosses() -> None:
    first = read_config({"model_type": "t5gemma", "decoder": {"model_type": "t5_gemma_module", "num_hidden_layers": 4}})
    assert [tuple(state.kind for state in first.layers.layer(i)) for i in (0, 1)] == [("sliding", "cross"), ("full", "cross")]
    second = read_config({"model_type": "t5gemma2", "decoder": {"model_type": "t5gemma2_decoder", "num_hidden_layers": 6}})
    assert second.layers.order == ("sliding",) * 5 + ("full",)
    assert isinstance(second.layers.layer(0)[0], Sliding)


def test_llama32_vision_sees_images_on_some_layers_only() -> None:
    """Llama-3.2-11B-Vision: 8 of 40 layers see the image only."""
    text = {"model_type": "mllama_text_model", "num_hidden_layers": 40, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]}
    found = read_config({"model_type": "mllama", "text_config": text})
    assert found.states == {
        Full(kv_heads=8, head_dim=128, query_heads=32): 32,
        Cross(kv_heads=8, head_dim=128, query_heads=32): 8,
    }
    by_class = read_config({"model_type": "mllama", "text_config": {"num_hidden_layers": 40}})
    assert by_class.layers == found.layers
    # The class asks of each layer whether it is listed: 8 layers with the list of 40 see images on two (5.24.0).
    assert read_config({"model_type": "mllama", "text_config": {**text, "num_hidden_layers": 8}}).layers.order.count("cross") == 1
    with pytest.raises(InvalidConfigError, match="cross_attention_layers"):
        read_config({"model_type": "mllama", "text_config": {**text, "cross_attention_layers": ["3"]}})


@pytest.mark.parametrize(("fields", "said"), [({}, True), ({"is_encoder_decoder": False}, False)])
def test_an_encoder_decoder_is_one_by_its_class(fields: dict[str, object], said: bool) -> None:
    assert read_config({"model_type": "bart", **fields}).traits.is_encoder_decoder is said
    assert read_config({"model_type": "trocr"}).traits.is_encoder_decoder is None


def test_t5_knows_its_width_by_two_names() -> None:
    """T5Config's attribute_map: head_dim → d_kv, and the other name wins where a file has both."""
    for fields in ({"d_kv": 32}, {"head_dim": 32}, {"d_kv": 12, "head_dim": 32}):
        assert read_config({"model_type": "t5", **fields}).layers.layer(0)[0] == Full(kv_heads=8, head_dim=32, query_heads=8)


def test_a_decoder_counts_its_layers_by_itself() -> None:
    """SwitchTransformersConfig(num_layers=3) keeps its 12 decoder layers; T5's follow the encoder's."""
    assert read_config({"model_type": "switch_transformers", "num_layers": 3}).layers.count == 12
    assert read_config({"model_type": "t5", "num_layers": 3}).layers.count == 3


def test_t5gemma_s_decoder_is_half_of_an_encoder_decoder() -> None:
    """T5GemmaConfig at 4 layers: one encoder token more than the decoder's 32, measured (5.24.0)."""
    found = read_config({"model_type": "t5gemma", "decoder": {"num_hidden_layers": 4, "is_encoder_decoder": False, "is_decoder": True}})
    assert (found.traits.is_encoder_decoder, found.traits.is_decoder) == (True, False)
