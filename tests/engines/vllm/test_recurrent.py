"""States of recurrent layers on one GPU, number by number."""

from __future__ import annotations

from typing import Any

import pytest

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Fixed, GatedDeltaNet, Kda, Lightning, Mamba1, Mamba2, ShortConv, State
from kvcalc.core.traits import Traits
from kvcalc.engines.vllm.recurrent import Prefill, checkpoint_alignment, keeps_checkpoint, read_types, tensors

NET = GatedDeltaNet(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
MAMBA2 = Mamba2(heads=128, head_dim=64, state_dim=128, groups=8, conv_kernel=4)
KDA = Kda(heads=32, head_dim=128, conv_kernel=4)
ONE_GROUP = Mamba2(heads=128, head_dim=64, state_dim=128, groups=1, conv_kernel=4)
AUTO = {"mamba_cache_dtype": "auto", "mamba_ssm_cache_dtype": "auto"}


def size(state: State, ranks: int = 1, spec: int = 0, family: str = "qwen3_next", traits: dict[str, Any] | None = None, **args: str) -> int:
    types = read_types(family, Traits(**(traits or {})), AUTO | args, "bf16")
    return sum(tensor.bytes for tensor in tensors(state, types, ranks, spec))


@pytest.mark.parametrize(
    ("state", "bytes_"),
    [
        (NET, 3 * 8192 * 2 + 32 * 128 * 128 * 2),
        (MAMBA2, 3 * (8192 + 2 * 8 * 128) * 2 + 128 * 64 * 128 * 2),
        (Mamba1(inner_dim=5120, state_dim=16, conv_kernel=4), 3 * 5120 * 2 + 5120 * 16 * 2),
        (Kda(heads=32, head_dim=128, conv_kernel=4), 3 * 12288 * 2 + 32 * 128 * 128 * 4),
        (Lightning(heads=32, head_dim=128), 32 * 128 * 128 * 2),
        (ShortConv(channels=2048, conv_kernel=3), 2 * 2048 * 2),
    ],
)
def test_one_gpu(state: State, bytes_: int) -> None:
    assert size(state) == bytes_


def test_heads_and_channels_divide() -> None:
    assert size(NET, ranks=4) == 3 * 2048 * 2 + 8 * 128 * 128 * 2 == 274_432
    with pytest.raises(EngineRejectsError, match="64 cannot split the 32 recurrent heads"):
        size(NET, ranks=64)


def test_a_single_group_is_repeated_on_every_gpu() -> None:
    assert size(ONE_GROUP, ranks=4) == 3 * (8192 + 2 * 4 * 128) // 4 * 2 + 32 * 64 * 128 * 2
    assert size(MAMBA2, ranks=8) == 3 * (8192 + 2 * 8 * 128) // 8 * 2 + 16 * 64 * 128 * 2
    with pytest.raises(EngineRejectsError, match="8 groups"):
        size(MAMBA2, ranks=16)


def test_draft_tokens_widen_the_convolution() -> None:
    assert size(NET, spec=7) - size(NET) == 7 * 8192 * 2
    assert size(ShortConv(channels=2048, conv_kernel=3), spec=2) == 4 * 2048 * 2
    mamba = Mamba1(inner_dim=5120, state_dim=16, conv_kernel=4)
    assert size(mamba, spec=2) == size(mamba)


@pytest.mark.parametrize(
    ("family", "traits", "args", "matrix"),
    [
        ("qwen3_next", {}, {}, 2),
        ("qwen3_next", {"mamba_ssm_dtype": "float32"}, {}, 2),
        ("qwen3_5_text", {"mamba_ssm_dtype": "float32"}, {}, 4),
        ("qwen3_5_text", {}, {}, 2),
        ("qwen3_5_text", {"mamba_ssm_dtype": "float32"}, {"mamba_ssm_cache_dtype": "bfloat16"}, 2),
        ("nemotron_h", {}, {}, 4),
        ("nemotron_h", {"mamba_ssm_cache_dtype": "bfloat16"}, {}, 2),
        ("granitemoehybrid", {}, {"mamba_ssm_cache_dtype": "float32"}, 4),
    ],
)
def test_who_decides_the_type_of_a_matrix(family: str, traits: dict[str, Any], args: dict[str, str], matrix: int) -> None:
    assert size(NET, family=family, traits=traits, **args) == 3 * 8192 * 2 + 32 * 128 * 128 * matrix


def test_the_cache_type_of_columns_is_also_that_of_matrices_left_alone() -> None:
    assert size(NET, mamba_cache_dtype="float32") == 2 * size(NET)
    assert size(Lightning(heads=2, head_dim=8), mamba_cache_dtype="float32") == 2 * 8 * 8 * 4


def test_kda_knows_two_types() -> None:
    kda = Kda(heads=32, head_dim=128, conv_kernel=4)
    assert size(kda, mamba_ssm_cache_dtype="bfloat16") == 3 * 12288 * 2 + 32 * 128 * 128 * 2
    with pytest.raises(EngineRejectsError, match="float32 or bfloat16"):
        size(kda, mamba_ssm_cache_dtype="float16")


def test_checkpoints() -> None:
    assert checkpoint_alignment(NET, Prefill("qwen3_next", 90, "bf16")) == 64
    assert checkpoint_alignment(NET, Prefill("qwen3_next", 100, "bf16")) is None
    assert checkpoint_alignment(NET, Prefill("olmo_hybrid", 90, "bf16")) is None
    assert checkpoint_alignment(MAMBA2, Prefill("nemotron_h", 80, "bf16")) == 1
    assert checkpoint_alignment(ShortConv(channels=8, conv_kernel=3), Prefill("lfm2", 90, "bf16")) is None


@pytest.mark.parametrize(
    ("state", "prefill", "step", "keeps"),
    [
        (NET, Prefill("qwen3_next", 90, "bf16"), 64, True),
        (NET, Prefill("qwen3_next", 90, "bf16"), None, False),
        (MAMBA2, Prefill("nemotron_h", 80, "bf16"), None, True),
        (KDA, Prefill("kimi_linear", 90, "bf16", flash_kda=True), None, True),
        (KDA, Prefill("kimi_linear", 90, "bf16"), None, False),
        (KDA, Prefill("kimi_linear", 80, "bf16", flash_kda=True), None, False),
        (KDA, Prefill("kimi_linear", 90, "fp16", flash_kda=True), None, False),
        (Kda(heads=32, head_dim=64, conv_kernel=4), Prefill("kimi_linear", 90, "bf16", flash_kda=True), None, False),
    ],
)
def test_which_layers_keep_a_state_more(state: State, prefill: Prefill, step: int | None, *, keeps: bool) -> None:
    assert keeps_checkpoint(state, prefill, step) is keeps


def test_the_convolution_over_n_gram_embeddings_is_whole_on_every_rank() -> None:
    """Nine rows of 10,240 in bf16, and as many more as there are draft tokens."""
    memory = Fixed(name="ngram_conv", elements=9 * 10_240)
    assert size(memory, ranks=8) == 9 * 10_240 * 2
    assert size(memory, ranks=8, spec=2) == 11 * 10_240 * 2
    with pytest.raises(UnsupportedArchitectureError, match="n-gram convolutions of 9 rows"):
        size(Fixed(name="ngram_conv", elements=10))


def test_states_that_vllm_does_not_have() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="no layers of kind fixed"):
        size(Fixed(elements=10))
