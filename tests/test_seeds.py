"""Figures that introductions quote, each with what is true, and the settings that give the quoted one where there are any."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import kvcalc
from kvcalc.core.formats import get_format
from kvcalc.questions.work import attended

GIB = 1024**3


def totals(*techniques: str, **more: Any) -> dict[str, int]:
    found = kvcalc.compare(techniques=techniques, **more)
    return {row.name: row.plan.total for row in found.rows if row.plan is not None}


def test_llama_2_7b_has_32_kv_heads_not_8() -> None:
    long = kvcalc.estimate("llama-2-7b", context="128k")
    assert long.plan.per_token == 524_288
    assert long.plan.total == 64 * GIB == 68_719_476_736
    assert long.plan.warnings == ("context 131,072 is beyond the 4,096 tokens that the model was trained for",)
    assert kvcalc.estimate("llama-2-7b", context=4096).plan.total == 2 * GIB


def test_the_quoted_figures_are_those_of_8_kv_heads() -> None:
    from kvcalc.questions.set_fields import override

    grouped = override(kvcalc.load("llama-2-7b"), {"kv_heads": "8"})
    assert kvcalc.estimate(grouped, context=4096).plan.per_token == 128 * 1024
    assert kvcalc.estimate(grouped, context=4096).plan.total == 512 * 1024**2
    assert kvcalc.estimate(grouped, context="128k").plan.total == 16 * GIB


def test_mha_to_gqa_is_32k_tokens_of_32_layers_not_8k_of_64() -> None:
    # 2 x 32 layers x 32 heads x 128 x 32,768 tokens x 2 B, and a quarter of it
    assert totals("gqa") == {"mha": 17_179_869_184, "gqa": 4_294_967_296}
    # the geometry that is quoted beside them, "8,192 tokens, 64 layers, head_dim 64", is a quarter of that
    quoted = {"layers": "64", "head_dim": "64"}
    assert totals("gqa", context=8192, settings=quoted)["mha"] == 2 * 64 * 32 * 64 * 8192 * 2 == 4_294_967_296


def test_mqa_is_one_thirty_second_not_a_sixth() -> None:
    found = totals("mqa")
    assert found["mqa"] == 536_870_912 == found["mha"] // 32
    # 2.86 GB is six query heads to a K/V head: 16 of 96 heads of the same width
    sixth = totals("gqa:kv_heads=16", settings={"query_heads": "96"})
    assert Fraction(sixth["gqa:kv_heads=16"], sixth["mha"]) == Fraction(1, 6)
    assert round(Fraction(found["mha"], 6) / 10**9, 2) == Fraction(286, 100)


def test_mla_from_3_25_to_0_81_gb() -> None:
    geometry = {"layers": "48", "query_heads": "24", "head_dim": "86", "latent_dim": "1024", "rope_dim": "0"}
    assert totals("mla", context=8192, settings=geometry) == {"mha": 3_246_391_296, "mla": 805_306_368}


def test_gqa_with_sliding_windows_is_22_times_less() -> None:
    found = totals("gqa+swa", "gqa+swa:window=1024:ratio=5-1")
    # 8 heads x (128 + 128) x 2 B x (27 x 1,024 + 5 x 32,768)
    assert found["gqa+swa"] == found["gqa+swa:window=1024:ratio=5-1"] == 784_334_848
    assert round(found["mha"] / found["gqa+swa"], 1) == 21.9


def windows(model: str) -> dict[str, tuple[int, int | None]]:
    return {state.kind: (layers, getattr(state, "window", None)) for state, layers in kvcalc.load(model).states.items()}


def test_gemma_2_alternates_and_gemma_3_is_5_to_1() -> None:
    assert windows("gemma-2-9b") == {"sliding": (21, 4096), "full": (21, None)}
    assert windows("gemma-3-27b") == {"sliding": (52, 1024), "full": (10, None)}
    assert windows("gemma-3-1b")["sliding"] == (22, 512)


def test_gemma_4_e2b_keeps_15_of_35_layers_not_8() -> None:
    model = kvcalc.load("gemma-4-e2b")
    layers = {
        kind: [(state.to_dict(), n) for state, n in model.states.items() if state.kind == kind] for kind in ("sliding", "full", "shared")
    }
    assert model.layers.count == 35
    ((sliding, slid),) = layers["sliding"]
    ((full, filled),) = layers["full"]
    assert (slid, sliding["window"], sliding["kv_heads"], sliding["head_dim"]) == (12, 512, 1, 256)
    assert (filled, full["kv_heads"], full["head_dim"]) == (3, 1, 512)
    assert sum(n for _, n in layers["shared"]) == 20
    # 8 of 35 is a what-if: 7 sliding layers of 1 x 256 and 1 full layer of 1 x 512
    shared = totals("share:producer_layers=8", models=["gemma-4-e2b"], context=4096)["share:producer_layers=8"]
    assert shared == 2 * 2 * (7 * 256 * 512 + 1 * 512 * 4096)


def test_dsa_reads_64_times_fewer_positions_and_stores_more() -> None:
    model = kvcalc.load("deepseek-v3.2")
    assert attended(model, 131_072) == {2048: 61}
    assert 131_072 // 2048 == 64
    assert kvcalc.estimate("deepseek-v3.2", context="128k").plan.total == 61 * (1152 + 132) * 131_072
    found = kvcalc.compare(techniques=["mla", "dsa"], context="128k")
    mla, dsa = found.rows[1:]
    assert mla.plan is not None
    assert dsa.plan is not None
    assert dsa.plan.total - mla.plan.total == 32 * 132 * 131_072
    assert (mla.attended, dsa.attended) == ({131_072: 32}, {2048: 32})


def test_int8_halves_the_cache_plus_scales() -> None:
    int8 = get_format("int8")
    assert int8.key_bytes(128, 1) + int8.value_bytes(128, 1) == 264
    assert get_format("bf16").row_bytes(128) * 2 == 512


def test_mqa_is_a_thirty_second_of_llama_7b_and_llama_2_70b_has_64_to_8_heads() -> None:
    found = totals("mqa", models=["llama-2-7b"], context=4096)
    assert found["mqa"] * 32 == found["llama-2-7b"]
    large = totals("mha", models=["llama-2-70b"], context=4096)
    assert large["mha"] == 8 * large["llama-2-70b"]


def test_one_hundred_requests_with_one_system_prompt_store_it_once() -> None:
    alone = kvcalc.estimate("llama-2-7b", context=4096, sequences=100).plan.total
    together = kvcalc.estimate("llama-2-7b", context=4096, sequences=100, shared_prefix=1024).plan.total
    assert alone - together == 99 * 1024 * 524_288


def test_of_the_prompt_whole_blocks_are_shared() -> None:
    paged = kvcalc.compare(techniques=["paged:block=16+prefix:tokens=1030"], context=4096, sequences=100).rows[1].plan
    assert paged is not None
    assert paged.total == 32 * 16_384 * (1024 + 100 * 3072) + 100 * 256 * 4


def test_what_the_cache_buys_is_one_power_of_t() -> None:
    found = kvcalc.compare(techniques=["gqa"], context=4096).rows[0].work
    assert found is not None
    assert found.without_cache.projections * 2 == found.with_cache.projections * 4097
    assert found.without_cache.scores * 3 == found.with_cache.scores * 4098


def test_five_times_faster_with_a_cache_is_measured_here_not_believed() -> None:
    from kvcalc.lab.sizes import make_sizes

    assert make_sizes("gpt2-124m").tokens == 200
