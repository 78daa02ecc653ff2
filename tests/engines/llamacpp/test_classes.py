"""One worked example a class of cache. Arithmetic by hand; the totals marked `measured` are llama.cpp b11549's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.sources.gguf.architecture import read_metadata

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan


def plan(name: str, keys: dict[str, Any], **args: Any) -> Plan:
    metadata = {"general.architecture": name} | {f"{name}.{key}": value for key, value in keys.items()}
    return get_engine("llama.cpp").plan(read_metadata(metadata), Workload(engine_args=args))


LLAMA3_8B = {"block_count": 32, "context_length": 8192, "embedding_length": 4096, "attention.head_count": 32, "attention.head_count_kv": 8}


def test_plain() -> None:
    # 32 layers x (K + V) x 8 heads x 128 x 2 B; measured
    assert plan("llama", LLAMA3_8B, ctx_size=4096).total == 32 * 2 * 8 * 128 * 2 * 4096 == 536_870_912
    # q8_0: 34 B per 32 elements; measured
    assert (
        plan("llama", LLAMA3_8B, ctx_size=32_768, cache_type_k="q8_0", cache_type_v="q8_0").total
        == 32 * 2 * 1024 // 32 * 34 * 32_768
        == 2_281_701_376
    )


@pytest.mark.parametrize(
    ("name", "block", "size"),
    [
        ("f32", 1, 4),
        ("f16", 1, 2),
        ("bf16", 1, 2),
        ("q8_0", 32, 34),
        ("q5_1", 32, 24),
        ("q5_0", 32, 22),
        ("q4_1", 32, 20),
        ("q4_0", 32, 18),
        ("iq4_nl", 32, 18),
    ],
)
def test_types(name: str, block: int, size: int) -> None:
    found = plan("llama", LLAMA3_8B, ctx_size=4096, cache_type_k=name)
    assert found.total == 32 * 4096 * (1024 // block * size + 1024 * 2)


DOTS3 = {
    "block_count": 2, "context_length": 512, "embedding_length": 128, "attention.head_count": 1, "attention.head_count_kv": 1,
    "attention.key_length": 576, "attention.value_length": 512, "attention.kv_lora_rank": 512, "attention.key_length_mla": 192,
    "attention.value_length_mla": 128, "attention.key_length_swa": 1088, "attention.value_length_swa": 1024,
    "attention.kv_lora_rank_swa": 1024, "attention.key_length_mla_swa": 192, "attention.value_length_mla_swa": 128,
    "attention.sliding_window": 100, "attention.indexer.key_length": 128, "attention.indexer.top_k": 64,
}  # fmt: skip
NEMOTRON = {
    "context_length": 512, "embedding_length": 256, "attention.head_count": 2, "ssm.conv_kernel": 4, "ssm.inner_size": 512,
    "ssm.state_size": 128, "ssm.time_step_rank": 4, "ssm.group_count": 2,
}  # fmt: skip
DECI = LLAMA3_8B | {"block_count": 4, "attention.head_count_kv": [8, 0, 4, 8]}


def test_without_flash_attention_every_v_row_is_as_wide_as_the_widest() -> None:
    on, off = (plan("deci", DECI, ctx_size=1024, flash_attn=flash) for flash in ("on", "off"))
    # K and V of 8 + 4 + 8 heads; then V of 4 layers x 8 heads, the layer without heads included
    assert on.total == 1024 * 2 * 128 * 2 * (8 + 4 + 8)
    assert off.total == 1024 * 128 * 2 * ((8 + 4 + 8) + 4 * 8)
    assert [line.bytes for line in off.lines if line.state == "padding"] == [off.total - on.total]


DEEPSEEK3 = {
    "block_count": 61,
    "context_length": 163_840,
    "embedding_length": 7168,
    "attention.head_count": 128,
    "attention.head_count_kv": 1,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.kv_lora_rank": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}
INDEX = {"attention.indexer.key_length": 128, "attention.indexer.top_k": 2048}


def test_latents_are_k_alone() -> None:
    assert plan("deepseek2", DEEPSEEK3, ctx_size=4096).total == 61 * 576 * 2 * 4096 == 287_834_112  # measured


def test_old_files_store_71_times_as_much() -> None:
    old = DEEPSEEK3 | {
        "attention.head_count_kv": 128,
        "attention.key_length": 192,
        "attention.value_length": 128,
        "rope.dimension_count": 64,
    }
    del old["attention.key_length_mla"], old["attention.value_length_mla"]
    found = plan("deepseek2", old, ctx_size=4096)
    assert found.total == 61 * 128 * (192 + 128) * 2 * 4096
    assert found.total // 287_834_112 == 71
    # and the types of K and V may differ, which latents do not allow
    assert plan("deepseek2", old, ctx_size=4096, cache_type_k="q8_0").total < found.total


def test_index_keys_lie_in_the_type_of_k() -> None:
    found = plan("deepseek32", DEEPSEEK3 | INDEX, ctx_size=32_768, parallel=4, kv_unified=True)
    assert found.total == 61 * (576 + 128) * 2 * 32_768 == 2_814_377_984  # measured


def test_draft_layers_have_a_context_of_their_own() -> None:
    keys = DEEPSEEK3 | INDEX | {"block_count": 62, "nextn_predict_layers": 1}
    assert plan("deepseek32", keys, ctx_size=4096).total == 61 * (576 + 128) * 2 * 4096
    # no index in the draft context; measured
    assert plan("deepseek32", keys, ctx_size=8192, parallel=2, mtp_context=True).total == 576 * 2 * 8192 == 9_437_184
    with pytest.raises(EngineRejectsError, match="no draft layers"):
        plan("deepseek32", DEEPSEEK3 | INDEX, ctx_size=8192, mtp_context=True)


@pytest.mark.parametrize(
    ("name", "fails"), [("llama", True), ("gpt-oss", True), ("deepseek32", False), ("glm4moe", False), ("jamba", False)]
)
def test_a_draft_context_of_an_architecture_that_computes_no_draft(name: str, fails: bool) -> None:
    """Memory is there, then llama_init_from_model fails as it reserves its graph: the trunk's layers have no cache (unordered_map::at)."""
    state = {"ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 16}
    keys = LLAMA3_8B | INDEX | state | {"block_count": 9, "nextn_predict_layers": 1, "attention.sliding_window": 128}
    found = plan(name, keys, ctx_size=512, mtp_context=True)
    assert found.total > 0
    assert any("fails to start" in warning for warning in found.warnings) == fails


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "cohere2", "olmo2", "gpt-oss", "llama4"])
def test_a_window_without_a_block_that_slides(name: str) -> None:
    """create_memory asserts is_swa_any(): a period of one block leaves no window block."""
    keys = LLAMA3_8B | {"block_count": 4, "attention.sliding_window": 128}
    assert plan(name, keys | {"attention.sliding_window_pattern": 2}, ctx_size=512).total > 0
    with pytest.raises(EngineRejectsError, match="no block that slides"):
        plan(name, keys | {"attention.sliding_window_pattern": 1}, ctx_size=512)


def test_head_widths_are_those_of_the_trunk_also_where_only_drafts_attend() -> None:
    """K cache type q5_1 with block size 32 does not divide n_embd_head_k=80."""
    keys = NEMOTRON | {"block_count": 3, "nextn_predict_layers": 1, "feed_forward_length": [0, 64, 0], "embedding_length": 160}
    with pytest.raises(EngineRejectsError, match="80"):
        plan("nemotron_h", keys | {"attention.head_count_kv": [0, 2, 2]}, ctx_size=512, cache_type_k="q5_1")


def test_a_window_block_with_an_indexer_has_rows_as_wide_as_its_latents() -> None:
    """llama-kv-cache-dsa.cpp narrows n_embd_head_k_full alone. Its own words (0.5.0): 512 cells, 2 layers, K (f16): 1.19 MiB."""
    keys = DOTS3 | {"attention.indexer.types": [1, 1], "attention.sliding_window_pattern": [0, 1]}
    rows = [line for line in plan("dots3note", keys, ctx_size=512).lines if line.buffer == "index"]
    assert [(line.width, line.bytes) for line in rows] == [(128, 128 * 2 * 512), (1088, 1088 * 2 * 512)]
    assert round(sum(line.bytes for line in rows) / 2**20, 2) == 1.19


@pytest.mark.parametrize(("forward", "attention"), [([0, 0, 64], 1), ([0, 0, 64, 0, 64], 2), ([0, 0, 64, 0, 0], 3)])
def test_bare_draft_blocks_of_nemotron_lie_in_the_models_own_cache(forward: list[int], attention: int) -> None:
    """filter_attn of nemotron_h asks for blocks that are not recurrent and have no feed-forward, draft blocks included."""
    drafts = len(forward) - 3
    keys = NEMOTRON | {"block_count": len(forward), "feed_forward_length": forward, "attention.head_count_kv": [2, 0, *[2] * (1 + drafts)]}
    found = plan("nemotron_h_moe", keys | ({"nextn_predict_layers": drafts} if drafts else {}), ctx_size=512)
    assert sum(line.layers for line in found.lines if line.buffer == "key") == attention
    # measured (0.5.0), with 2 heads of 128: 1,323,008 B with one bare draft block, 1,847,296 B with two
    assert found.total == 274_432 + attention * 524_288


def test_minimax_m3_allocates_a_v_row_beside_its_index_keys() -> None:
    keys = LLAMA3_8B | {"block_count": 4, "leading_dense_block_count": 1} | INDEX | {"attention.indexer.key_length": 64}
    found = plan("minimax-m3", keys, ctx_size=1024)
    assert found.total == 1024 * 2 * (4 * 2 * 8 * 128 + 3 * (64 + 128))
    assert [line.bytes for line in found.lines if "never read" in line.formula] == [1024 * 2 * 3 * 128]


DEEPSEEK4 = {
    "block_count": 43,
    "context_length": 1_048_576,
    "embedding_length": 4096,
    "attention.head_count": 64,
    "attention.head_count_kv": 1,
    "attention.key_length": 512,
    "attention.value_length": 512,
    "rope.dimension_count": 64,
    "attention.sliding_window": 128,
    "attention.compress_ratios": [0, 0, *[4, 128] * 20, 4],
} | INDEX


def test_compressed() -> None:
    raw = 43 * 768 * 1024
    csa, lid, hca = 21 * 1024 * 1024, 21 * 1024 * 256, 20 * 256 * 1024
    states = 21 * 65_536 + 20 * 524_288 + 21 * 16_384
    found = plan("deepseek4", DEEPSEEK4, ctx_size=4096)
    assert found.total == raw + csa + lid + hca + states == 78_790_656  # measured
    assert found.fixed == states
    assert plan("deepseek4", DEEPSEEK4, ctx_size=8192, parallel=4, n_rs_seq=3).total == 406_585_344  # measured
    # a pool keeps a stream for every slot, each as long as the pool
    pooled = plan("deepseek4", DEEPSEEK4, ctx_size=4096, parallel=4, kv_unified=True)
    assert pooled.total == 4 * found.total


QWEN3_NEXT = {
    "block_count": 48,
    "context_length": 262_144,
    "embedding_length": 2048,
    "attention.head_count": 16,
    "attention.head_count_kv": 2,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 4096,
    "ssm.state_size": 128,
    "ssm.time_step_rank": 32,
    "ssm.group_count": 16,
}


def test_hybrids_keep_fp32_states_whatever_the_type() -> None:
    cache = 12 * 2 * 2 * 256 * 2 * 32_768
    state = 36 * 4 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096)
    found = plan("qwen3next", QWEN3_NEXT, ctx_size=32_768, parallel=4)
    assert found.total == cache + 4 * state == 1_121_452_032  # measured
    assert found.fixed == state
    quantized = plan("qwen3next", QWEN3_NEXT, ctx_size=32_768, parallel=4, cache_type_k="q4_0", cache_type_v="q4_0")
    assert quantized.total == cache // 64 * 18 + 4 * state


def test_rows_to_roll_back_to_where_the_architecture_can() -> None:
    state = 36 * 4 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096)
    assert plan("qwen35", QWEN3_NEXT, ctx_size=256, n_rs_seq=3).fixed == 4 * state
    ignored = plan("qwen3next", QWEN3_NEXT, ctx_size=256, n_rs_seq=3)
    assert ignored.fixed == state
    assert any("changes nothing" in note for note in ignored.notes)


def test_pure_recurrence_is_independent_of_the_context() -> None:
    mamba2 = QWEN3_NEXT | {"block_count": 64, "embedding_length": 2560, "attention.head_count": 0, "attention.head_count_kv": 0}
    mamba2 |= {"ssm.inner_size": 5120, "ssm.time_step_rank": 80, "ssm.group_count": 1}
    found = plan("mamba2", mamba2, ctx_size=32_768, parallel=4)
    assert found.total == 64 * 4 * (3 * (5120 + 256) + 128 * 5120) * 4 == 687_603_712  # measured
    assert (found.per_token, found.growth_per_token) == (0, 0)
    rwkv = {"block_count": 32, "embedding_length": 4096, "wkv.head_size": 64, "attention.head_count": 0, "context_length": 4096}
    assert plan("rwkv6", rwkv, ctx_size=256).total == 32 * 4 * (2 * 4096 + 4096 * 64)


def test_pooled_index_keys() -> None:
    keys = (
        DEEPSEEK3
        | INDEX
        | {
            "block_count": 4,
            "attention.head_count_kv": [0, 0, 0, 1],
            "kda.head_dim": 128,
            "ssm.conv_kernel": 4,
            "attention.indexer.kpool": 4,
        }
    )
    kda = 3 * 4 * (3 * 3 * 128 * 128 + 128 * 128 * 128)
    # key, gate and pooled key
    assert plan("glm5-next", keys, ctx_size=1024).total == kda + 1024 * 2 * (576 + 3 * 128)
    qwen4 = QWEN3_NEXT | INDEX | {"block_count": 4, "attention.compress_ratios": [4] * 4}
    state = 3 * 4 * (3 * (4096 + 2 * 16 * 128) + 128 * 4096)
    # key and pooled key
    assert plan("qwen4exp", qwen4, ctx_size=1024).total == state + 1024 * 2 * (2 * 2 * 256 + 2 * 128)
    history = {"ple.layers": [0], "ple.conv_kernel": 4, "ple.ngram_size": 3, "hyper_connection.count": 4}
    assert plan("qwen4exp", qwen4 | history, ctx_size=1024).fixed == state + 4 * 3 * 3 * 4 * 2048


def test_dots3_keeps_windows_of_wider_latents() -> None:
    keys = (
        DEEPSEEK3
        | INDEX
        | {"block_count": 4, "attention.kv_lora_rank_swa": 1024, "attention.key_length_swa": 1088, "attention.value_length_swa": 1024}
    )
    keys |= {
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [False, True, True, True],
        "attention.indexer.types": [1, 0, 0, 0],
    }
    found = plan("dots3note", keys, ctx_size=8192)
    assert found.total == 2 * (8192 * (576 + 128) + 3 * 1024 * 1088)


def test_sharing() -> None:
    gemma3n = {
        "block_count": 35,
        "context_length": 32_768,
        "embedding_length": 2048,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.sliding_window": 512,
    }
    # 20 layers own a cache, every 5th of them full; measured
    assert plan("gemma3n", gemma3n, ctx_size=32_768, parallel=4).total == 2 * 2 * 256 * 2 * 4 * (4 * 8192 + 16 * 1024) == 402_653_184
    assistant = gemma3n | {"block_count": 4, "attention.sliding_window_pattern": [True] * 4}
    assert plan("gemma4-assistant", assistant, ctx_size=4096).total == 0
