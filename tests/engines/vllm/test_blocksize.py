"""Tokens per block: alignment with recurrent pages, and with layers of another type."""

from __future__ import annotations

import pytest

from kvcalc.engines.vllm.blocksize import Blocks, align_hybrid, align_mixed


@pytest.mark.parametrize(
    ("page", "token", "checkpoint", "mla", "size"),
    [
        # Qwen3-Next on 4 GPUs: 3 x 2048 x 2 + 8 x 128 x 128 x 2
        (274_432, 1024, 64, False, 320),
        (274_432, 1024, 1, False, 272),
        # on one
        (1_097_728, 2048, 64, False, 576),
        # Qwen3.5-9B: the matrix in fp32
        (2_146_304, 4096, 64, False, 576),
        # Qwen3.5-35B-A3B with an fp8 cache
        (2_146_304, 1024, 64, False, 2112),
        # Granite-4.0-H-Small, Nemotron-Nano-9B-v2
        (2_147_840, 4096, 1, False, 528),
        (5_316_608, 4096, 1, False, 1312),
        # Kimi-Linear on 2 GPUs: 3 x 6144 x 2 + 16 x 128 x 128 x 4, latents in steps of 128
        (1_085_440, 1152, 1, True, 1024),
    ],
)
def test_an_attention_page_holds_a_recurrent_page(page: int, token: int, checkpoint: int, mla: bool, size: int) -> None:
    found = align_hybrid(Blocks(16), kernel=16, kernels=(16,), token_bytes=token, recurrent_page=page, mla=mla, checkpoint=checkpoint)
    assert found == Blocks(size, recurrent_page=size * token)
    assert found.recurrent_page >= page


def test_a_larger_block_is_kept() -> None:
    found = align_hybrid(Blocks(1024), kernel=16, kernels=(16,), token_bytes=1024, recurrent_page=274_432, mla=False, checkpoint=1)
    assert found == Blocks(1024, recurrent_page=1024 * 1024)


def test_the_kernels_of_all_backends_count() -> None:
    found = align_hybrid(Blocks(16), kernel=16, kernels=(16, 64), token_bytes=1024, recurrent_page=274_432, mla=False, checkpoint=1)
    assert found.size == 320


def test_pages_that_are_equal_need_no_padding() -> None:
    found = align_hybrid(Blocks(16), kernel=16, kernels=(16,), token_bytes=1024, recurrent_page=32_768, mla=False, checkpoint=1)
    assert found == Blocks(32)


def test_layers_in_the_models_type_raise_the_block() -> None:
    """fp8 beside bf16: 16 tokens of 4,096 B need 32 tokens of 2,048 B. TurboQuant's packed row counts a byte an element."""
    assert align_mixed(Blocks(16), kernel=16, token_bytes=2048, model_token_bytes=4096) == Blocks(32, 0, 65_536)
    assert align_mixed(Blocks(64), kernel=16, token_bytes=2048, model_token_bytes=4096) == Blocks(64, 0, 131_072)
    assert align_mixed(Blocks(16), kernel=16, token_bytes=4096, model_token_bytes=4096) == Blocks(16)
    assert align_mixed(Blocks(320, 327_680), kernel=16, token_bytes=512, model_token_bytes=1024) == Blocks(640, 327_680, 327_680)
