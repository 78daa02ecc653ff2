"""Row bytes of every format, against facts worked by hand."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.core.formats import FORMATS, GGML_TYPES, get_format, get_kv_format


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("fp32", 2 * 128 * 4),
        ("bf16", 2 * 128 * 2),
        ("fp8", 2 * 128),
        ("mxfp8", 2 * (128 + 128 // 32)),
        ("int8", 2 * (128 + 4)),
        ("int8_per_token_head", 2 * 128 + 8),
        ("fp8_per_token_head", 2 * 128 + 8),
        ("int4", 2 * (64 + 4)),
        ("int4_per_token_head", 128 + 8),
        ("nvfp4", 2 * (64 + 8)),
        ("fp4_mx_block16", 2 * (64 + 8)),
        ("ultraquant_4bit", 128 + 2 * 4),
        ("turboquant_k8v4", 128 + 64 + 4),
        ("turboquant_4bit_nc", 64 + 2 + 64 + 4),
        ("turboquant_k3v4_nc", 48 + 2 + 64 + 4),
        ("turboquant_3bit_nc", 48 + 2 + 48 + 4),
    ],
)
def test_key_and_value_of_one_head_of_128(name: str, pair: int) -> None:
    found = FORMATS[name]
    assert found.key_bytes(128, 1) + found.value_bytes(128, 1) == pair


def test_turboquant_slots_are_even() -> None:
    found = FORMATS[
        "turboquant_k3v4_nc"
    ]  # 6 wide: ceil(18/8) + 2 + 3 + 4 = 12; 2 wide: 1 + 2 + 1 + 4 = 8; 10 wide: 4 + 2 + 5 + 4 = 15 → 16
    assert [found.key_bytes(width, 1) + found.value_bytes(width, 1) for width in (6, 2, 10)] == [12, 8, 16]


@pytest.mark.parametrize(
    ("name", "row_of_1024", "row_of_576"),
    [
        ("fp32", 4096, 2304),
        ("fp16", 2048, 1152),
        ("q8_0", 1088, 612),
        ("q5_1", 768, 432),
        ("q5_0", 704, 396),
        ("q4_1", 640, 360),
        ("q4_0", 576, 324),
        ("iq4_nl", 576, 324),
    ],
)
def test_ggml_rows(name: str, row_of_1024: int, row_of_576: int) -> None:
    assert FORMATS[name].row_bytes(1024) == row_of_1024
    assert FORMATS[name].latent_bytes(512, 64) == row_of_576
    assert name in GGML_TYPES


def test_packed_latents() -> None:
    assert FORMATS["bf16"].latent_bytes(512, 64) == (512 + 64) * 2
    assert FORMATS["fp8"].latent_bytes(512, 64) == 576
    assert FORMATS["int8_per_token_head"].latent_bytes(512, 64) == 576 + 4
    assert FORMATS["fp8_ds_mla"].latent_bytes(512, 64) == 512 + 4 * 4 + 64 * 2
    assert FORMATS["nvfp4_ds_mla"].latent_bytes(512, 64) == 256 + 32 + 64
    assert FORMATS["index_fp8"].row_bytes(128) == 128 + 4
    assert FORMATS["index_fp4"].row_bytes(128) == 64 + 4


@pytest.mark.parametrize("name", ["fp8_ds_mla", "nvfp4_ds_mla", "turboquant_k8v4"])
def test_packed_formats_refuse_plain_rows(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        FORMATS[name].row_bytes(128)


@pytest.mark.parametrize(("name", "width"), [("q8_0", 80), ("nvfp4", 40), ("int4", 63), ("mxfp8", 48), ("index_fp8", 64)])
def test_a_width_that_does_not_fill_blocks_is_an_error(name: str, width: int) -> None:
    with pytest.raises(UsageError, match=f"{width} is not a multiple"):
        FORMATS[name].row_bytes(width)


def test_names_aliases_and_pairs() -> None:
    assert get_format("Float16") is FORMATS["fp16"]
    assert get_format("fp8_e5m2") is FORMATS["fp8"]
    assert get_kv_format("bf16").name == "bf16"
    pair = get_kv_format("q8_0/q4_0")
    assert (pair.key.name, pair.value.name, pair.name) == ("q8_0", "q4_0", "q8_0/q4_0")


@pytest.mark.parametrize("text", ["q9_0", "", "bf16/", "/bf16", "q8_0/q4_0/q4_0", "turboquant_k8v4/fp8", "fp8_ds_mla/bf16"])
def test_unknown_formats_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError):
        get_kv_format(text)


def test_a_near_miss_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        get_format("q8_o")
    assert "q8_0" in caught.value.hint
