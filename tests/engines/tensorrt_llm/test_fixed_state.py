"""What a request holds whatever its length: recurrent state, and DeepSeek-V4's windows. Every figure is worked out in the test."""

from __future__ import annotations

import pytest
from pool_engines import GIB, TENSORRT, Asked, sizes
from vllm_models import NEXT_HEADS, model, nemotron_nano, qwen3_next

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.states import Kda, Latent, Mamba2
from kvcalc.sources import load

ASKED = Asked(TENSORRT)
#: Qwen3-Next in bf16 throughout: TensorRT-LLM takes the state's type from the model's.
STATE = 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 2)
TOKEN = 12 * 2 * 512 * 2


def test_state_for_the_sequences_asked_for_and_a_slot_for_nobody() -> None:
    found = ASKED.plan(qwen3_next(), 8192, sequences=3)
    assert found.per_device == 3 * 8192 * TOKEN + (3 + 1) * STATE
    assert sizes(found)["padding", "slot"] == STATE
    assert found.fixed == STATE
    assert any("2,048 by default" in note for note in found.notes)


def test_state_is_kept_for_the_largest_batch() -> None:
    found = ASKED.plan(qwen3_next(), 8192, sequences=3, max_batch_size=64)
    assert found.per_device == 3 * 8192 * TOKEN + 65 * STATE
    capacity = ASKED.capacity(qwen3_next(), 40 * GIB, 8192, max_batch_size=64, use_kv_cache_manager_v2="false")
    assert capacity.state_slots == 65
    assert capacity.tokens == (int(0.9 * 40 * GIB) - 64 * STATE) // TOKEN // 32 * 32


def test_snapshots_cost_the_first_manager_tokens() -> None:
    """Every 256 tokens: a token of 24,576 B pays 154,368 B of state beside its own."""
    question = {"max_batch_size": 64, "use_kv_cache_manager_v2": "false", "mamba_state_cache_interval": 256}
    found = ASKED.capacity(qwen3_next(), 40 * GIB, 8192, **question)
    assert STATE // 256 == 154_368
    assert found.tokens == (int(0.9 * 40 * GIB) - 64 * STATE) // (TOKEN + 154_368) // 32 * 32
    assert found.state_slots == 65 + found.tokens // 256


def test_attention_data_parallelism_adds_a_slot_for_nobody() -> None:
    found = ASKED.plan(qwen3_next(), 8192, sequences=4, tensor_parallel=4, enable_attention_dp=True)
    assert found.per_device == 8192 * TOKEN + (1 + 2) * STATE


def test_ranks_divide_heads_and_channels() -> None:
    found = ASKED.plan(qwen3_next(), 8192, tensor_parallel=4)
    assert found.per_device == 8192 * TOKEN // 2 + 2 * STATE // 4
    with pytest.raises(EngineRejectsError, match="cannot split the 128 heads of mamba2"):
        ASKED.plan(nemotron_nano(query_heads=48), 8192, tensor_parallel=3)


def test_stages_keep_state_for_each_batch_in_flight() -> None:
    """Qwen3-Next on 2 stages: 18 of 36 layers each, and state for the batch of each stage."""
    found = ASKED.plan(qwen3_next(), 8192, sequences=8, pipeline_parallel=2, max_batch_size=4)
    assert found.per_device == 8 * 8192 * TOKEN // 2 + (8 + 1) * STATE // 2


def test_the_type_of_the_matrices() -> None:
    """The option, else the config's mamba_ssm_cache_dtype; mamba_ssm_dtype is not read. KDA always fp32, and 4 columns of its convolution."""
    wide = 36 * (3 * 8192 * 2 + 32 * 128 * 128 * 4)
    assert ASKED.plan(qwen3_next(), 8192, mamba_ssm_cache_dtype="float32").fixed == wide
    assert ASKED.plan(qwen3_next(traits={"mamba_ssm_cache_dtype": "float32"}), 8192).fixed == wide
    assert ASKED.plan(qwen3_next(traits={"mamba_ssm_dtype": "float32"}), 8192).fixed == STATE
    states = {"k": Kda(heads=32, head_dim=128, conv_kernel=4), "l": Latent(latent_dim=512, rope_dim=64)}
    kimi = model(["k*3", "l"], 8, states, "kimi_linear", max_context=65_536)
    found = ASKED.plan(kimi, 8192, mamba_ssm_cache_dtype="bfloat16")
    assert found.fixed == 6 * (4 * 12_288 * 2 + 32 * 128 * 128 * 4)
    assert found.per_token == 2 * 1152


def test_a_mamba_hybrid() -> None:
    """Nemotron-Nano-9B-v2, its 27 Mamba-2 and 4 attention layers, matrices in bf16."""
    state = 27 * (3 * (10_240 + 2 * 8 * 128) * 2 + 128 * 80 * 128 * 2)
    found = ASKED.plan(nemotron_nano(), 32_768, sequences=2)
    assert found.per_device == 2 * 32_768 * 4 * 8 * 512 + 3 * state


def test_too_little_for_the_state() -> None:
    found = ASKED.capacity(qwen3_next(), 10 * STATE, 8192, max_batch_size=64)
    assert (found.fits, found.tokens) == (False, 0)
    assert f"need at least {65 * STATE + 32 * TOKEN:,} bytes (state of 65 requests and one block)" in found.warnings[0]
    first = ASKED.capacity(qwen3_next(), 10 * STATE, 8192, max_batch_size=64, use_kv_cache_manager_v2="false")
    assert (first.fits, first.tokens) == (False, 0)
    assert "does not hold the state of 65 requests" in first.warnings[0]


def test_the_least_that_a_server_of_2048_requests_starts_with() -> None:
    """Qwen3-Next under trtllm-serve's default batch: 2,049 states and one block, 80,973,594,624 B."""
    least = 2049 * STATE + 32 * TOKEN
    assert least == 80_973_594_624
    question = {"max_batch_size": 2048, "max_gpu_total_bytes": least - 1}
    found = ASKED.capacity(qwen3_next(), 200 * GIB, 32_768, **question)
    assert not found.fits
    assert "TensorRT-LLM does not start" in found.warnings[0]
    assert ASKED.capacity(qwen3_next(), 200 * GIB, 32_768, **question | {"max_gpu_total_bytes": least + 100 * 2**20}).state_slots == 2049


def test_hybrids_that_it_does_not_serve() -> None:
    falcon = model(["m"], 4, {"m": (Mamba2(heads=8, head_dim=64, state_dim=64, groups=1, conv_kernel=4), NEXT_HEADS)}, "falcon_h1")
    with pytest.raises(EngineRejectsError, match="no cache for the mamba2 layers of falcon_h1"):
        ASKED.plan(falcon, 4096)
    with pytest.raises(UnsupportedArchitectureError, match="index keys beside latents only"):
        ASKED.plan(load("qwen3.8-flash-next"), 4096)


def test_deepseek_v4_grows_at_a_fraction_of_a_token() -> None:
    """21 layers of ratio 4 with an indexer and 20 of ratio 128: 512 x 2 B // 4 + 132 // 4, and 512 x 2 B // 128."""
    flash = load("deepseek-v4-flash")
    token = 21 * (256 + 33) + 20 * 8
    found = ASKED.plan(flash, 8192, sequences=2)
    assert found.per_token == token
    assert found.per_device == 2 * (8192 * token + found.fixed)
    assert found.args["tokens_per_block"] == 128


def test_deepseek_v4_holds_windows_for_every_request() -> None:
    """Each window is rounded up to a block of 128: 43 of rows, and of the compressor KV and score in fp32."""
    rows = 43 * 128 * 512 * 2
    ratio_4 = 21 * 2 * 128 * 2 * 512 * 4 + 21 * 2 * 128 * 2 * 128 * 4
    ratio_128 = 20 * 2 * 128 * 512 * 4
    assert ASKED.plan(load("deepseek-v4-flash"), 8192).fixed == rows + ratio_4 + ratio_128
    wider = ASKED.plan(load("deepseek-v4-flash"), 8192, tokens_per_block=256)
    assert wider.fixed == 2 * (rows + ratio_4 + ratio_128)


def test_deepseek_v4_rows_by_card() -> None:
    """Hopper: rows of 584 B; Blackwell has them in blocks of 256 only."""
    flash = load("deepseek-v4-flash")
    hopper = ASKED.plan(flash, 8192, gpu="h100-80gb")
    assert hopper.kv_dtype == "fp8_ds_mla"
    assert hopper.per_token == 21 * (584 // 4 + 33) + 20 * (584 // 128)
    assert ASKED.plan(flash, 8192, gpu="b200-180gb", kv_dtype="fp8_ds_mla").args["tokens_per_block"] == 256
    assert ASKED.plan(flash, 8192, kv_dtype="fp8").per_token == 21 * (128 + 33) + 20 * 4
    for question, sentence in (
        ({"gpu": "h100-80gb", "kv_dtype": "bf16"}, "fp8_ds_mla on this card"),
        ({"kv_dtype": "nvfp4"}, "bf16, fp8 or fp8_ds_mla"),
        ({"tokens_per_block": 64}, "blocks of 128 or 256"),
        ({"gpu": "b200-180gb", "kv_dtype": "fp8_ds_mla", "tokens_per_block": 128}, "blocks of 256 tokens"),
        ({"max_attention_window": [128]}, "windows of its own"),
    ):
        with pytest.raises(EngineRejectsError, match=sentence):
            ASKED.plan(flash, 8192, **question)
    with pytest.raises(UnsupportedArchitectureError, match=r"DeepSeek-V4\.1"):
        ASKED.plan(load("deepseek-v4.1-flash"), 8192)


def test_deepseek_v4_holds_a_further_block_of_each_window_over_an_edge() -> None:
    """One token past 8,192: a 65th block of rows, and a second one of every window."""
    flash = load("deepseek-v4-flash")
    aligned, over = (ASKED.plan(flash, context) for context in (8192, 8193))
    assert over.per_device - aligned.per_device == 128 * aligned.per_token + aligned.fixed
    assert ASKED.plan(flash, 8320).per_device == aligned.per_device + 128 * aligned.per_token


def test_whole_rows_in_a_block() -> None:
    """584 B rows at ratio 128: a block of 128 tokens has one, not 128 x (584 // 128) = 512 B."""
    plan = ASKED.plan(load("deepseek-v4-flash"), 8192, gpu="h100-80gb")
    assert plan.per_device == 64 * (21 * 32 * (584 + 132) + 20 * 584) + plan.fixed


def test_windows_and_rows_share_the_memory() -> None:
    """Memory is divided for requests of the asked length, so that as many fit as do in all."""
    flash = load("deepseek-v4-flash")
    plan = ASKED.plan(flash, 8192)
    found = ASKED.capacity(flash, 40 * GIB, 8192, sequences=16, free_gpu_memory_fraction=1.0)
    assert found.fits
    assert found.blocks is not None
    assert found.blocks * 128 * plan.per_token < 40 * GIB - 16 * plan.fixed
    assert found.state_slots is None
