"""Latents (MLA) and index keys (DSA). Every figure is worked out in the test."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pool_engines import GIB, SGLANG, Asked, sizes
from vllm_models import DEEPSEEK, INDEX, deepseek_v3, model, uniform

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.states import Full, Index
from kvcalc.sources import load

ASKED = Asked(SGLANG)


def test_latents_stand_on_every_rank() -> None:
    """DeepSeek-V3: 61 x (512 + 64) x 2 B = 70,272 B a token and rank. Hopper's FA3 has pages of 1."""
    found = ASKED.plan(deepseek_v3(), 32_768, tensor_parallel=8)
    assert found.per_device == (32_768 + 1) * 70_272
    assert found.total == 8 * found.per_device
    assert found.per_token == 70_272
    assert ASKED.capacity(deepseek_v3(), 40 * GIB, tensor_parallel=8).tokens == 40 * GIB // 70_272


@pytest.mark.parametrize(
    ("backend", "gpu", "page"),
    [
        (None, "h100-80gb", 1),
        ("flashmla", "h100-80gb", 64),
        (None, "b200-180gb", 64),
        (None, "a100-80gb", 1),
        ("trtllm_mla", "b200-180gb", 64),
    ],
)
def test_pages_by_backend(backend: str | None, gpu: str, page: int) -> None:
    found = ASKED.plan(deepseek_v3(), 4096, attention_backend=backend, gpu=gpu)
    assert found.args["page_size"] == page
    assert found.per_device == (4096 + page) * 70_272


@pytest.mark.parametrize(("kv_dtype", "row"), [("fp8", 576), ("fp8_e5m2", 576), ("fp4_mx_block16", 576 * 9 // 16), ("bf16", 1152)])
def test_rows_of_latents(kv_dtype: str, row: int) -> None:
    backend = {"fp4_mx_block16": "flashinfer"}.get(kv_dtype)
    assert ASKED.plan(deepseek_v3(), 4096, kv_dtype=kv_dtype, attention_backend=backend).per_device == 4097 * 61 * row


def test_a_model_that_is_no_latent_model_to_sglang() -> None:
    with pytest.raises(EngineRejectsError, match="no pool of latents for Mistral4ForCausalLM"):
        ASKED.plan(uniform(4, DEEPSEEK, family="mistral4", class_name="Mistral4ForCausalLM", max_context=8192), 4096)


@pytest.mark.parametrize("name", ["mistralai/Mistral-Small-4-119B-2603", "some/leanstral-tuned"])
def test_a_mistral_whose_own_parameter_file_is_read(name: str) -> None:
    """is_mistral_model goes by the name: params.json makes a Pixtral with DeepSeek's latents of it, whatever config.json says."""
    named = replace(uniform(4, DEEPSEEK, family="mistral4", class_name="Mistral4ForCausalLM", max_context=8192), hub=name)
    assert ASKED.plan(named, 4096).per_device == 4097 * 4 * 576 * 2
    assert ASKED.plan(load("mistral-small-4-119b"), 4096).per_device == 4097 * 36 * (256 + 64) * 2


def test_sparse_attention() -> None:
    """DeepSeek-V3.2: pages of 64; bf16 on Hopper, on Blackwell fp8 rows of 576 B; 132 B of index key whatever the type."""
    sparse = load("deepseek-v3.2")
    hopper = ASKED.plan(sparse, 4096, gpu="h100-80gb")
    assert hopper.kv_dtype == "bf16"
    assert hopper.per_device == (4096 + 64) * 61 * (1152 + 132)
    blackwell = ASKED.plan(sparse, 4096, gpu="b200-180gb")
    assert blackwell.kv_dtype == "fp8"
    assert blackwell.per_device == (4096 + 64) * 61 * (576 + 132)
    scaled = ASKED.plan(sparse, 4096, gpu="h100-80gb", kv_dtype="fp8")
    assert scaled.per_device == (4096 + 64) * 61 * (512 + 512 // 128 * 4 + 64 * 2 + 132)
    assert 61 * (656 + 132) == 48_068 == scaled.per_token
    with pytest.raises(EngineRejectsError, match="bf16 or fp8_e4m3"):
        ASKED.plan(sparse, 4096, kv_dtype="fp8_e5m2")


def test_shared_indexers_own_no_keys() -> None:
    """GLM-5.2: 78 layers of latents, of which 21 own an indexer. The others read the nearest one's choice."""
    glm = load("glm-5.2")
    owners = sum("index" in {state.kind for state in glm.layers.layer(layer)} for layer in range(glm.layers.count))
    assert (glm.layers.count, owners) == (78, 21)
    found = ASKED.plan(glm, 131_072, gpu="h100-80gb")
    assert found.per_device == (131_072 + 64) * (78 * 1152 + 21 * 132)
    assert sizes(found)["index", "index"] == 131_072 * 21 * 132
    memory = 50 * GIB
    assert ASKED.capacity(glm, memory, 131_072, gpu="h100-80gb").tokens == memory // (78 * 1152 + 21 * 132) // 64 * 64


def test_index_keys_do_not_divide_over_the_tokens_of_ranks() -> None:
    """Decode context parallelism over 2: half of the latents a rank, all of the index keys."""
    found = ASKED.plan(load("deepseek-v3.2"), 4096, tensor_parallel=2, decode_context_parallel=2)
    assert sizes(found)["latent", "latent"] == 2 * 2048 * 61 * 1152
    assert sizes(found)["index", "index"] == 2 * 4096 * 61 * 132


def test_pooled_keys_and_their_open_groups() -> None:
    """GLM-5-next with groups of 4: pages of 256, a key for 4 tokens, and with compression keys and scores of an open group a request."""
    pooled = {"latent": (DEEPSEEK, Index(index_dim=128, top_k=2048, pool=4))}
    architecture = model(["latent"], 8, pooled, "glm5_next_text", max_context=65_536, traits={"index_kpool_compress": True})
    found = ASKED.plan(architecture, 4096, sequences=3)
    assert found.args["page_size"] == 256
    assert sizes(found)["index", "index"] == 3 * 4096 // 4 * 8 * 132
    assert sizes(found)["index", "open groups"] == 3 * 8 * 2 * 4 * 128 * 2


def test_index_keys_beside_keys_and_values() -> None:
    """MiniMax-M3 keeps a bf16 index key of 128 on its sparse layers; pages of 128 with FA3. With fp8 the keys follow on Hopper."""
    heads = Full(kv_heads=4, query_heads=64, head_dim=128)
    states = {"dense": heads, "sparse": (heads, Index(index_dim=128, format="bf16"))}
    m3 = model(["dense*3", "sparse*9"], 12, states, "minimax_m3_vl_text", max_context=65_536)
    assert ASKED.plan(m3, 4096).per_device == (4096 + 128) * (12 * 4 * 512 + 9 * 256)
    assert ASKED.plan(m3, 4096, kv_dtype="fp8").per_device == (4096 + 128) * (12 * 4 * 256 + 9 * 128)


def test_two_attentions_in_a_layer() -> None:
    """LongCat: each layer has two blocks of latents."""
    longcat = uniform(5, DEEPSEEK, DEEPSEEK, family="longcat_flash", max_context=8192)
    assert ASKED.plan(longcat, 4096).per_device == 4097 * 10 * 1152


def test_index_keys_of_other_classes_are_not_kept() -> None:
    plain = uniform(4, DEEPSEEK, INDEX, family="deepseek_v2", class_name="DeepseekV2ForCausalLM", max_context=8192)
    assert ASKED.plan(plain, 4096).per_device == 4097 * 4 * 1152


def test_sinks_keep_sparse_attention_in_bf16() -> None:
    hunyuan = uniform(4, DEEPSEEK, INDEX, family="hy_v4", max_context=8192)
    assert ASKED.plan(hunyuan, 4096, gpu="b200-180gb").kv_dtype == "bf16"
    with pytest.raises(EngineRejectsError, match="with sinks in bf16"):
        ASKED.plan(hunyuan, 4096, kv_dtype="fp8")
