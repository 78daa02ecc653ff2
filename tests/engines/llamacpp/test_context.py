"""The geometry of contexts: padding, slots, windows, entries, rows of state."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.llamacpp.context import Context, pad
from kvcalc.sources.gguf.architecture import read_metadata

GEMMA = {
    "general.architecture": "gemma3",
    "gemma3.block_count": 6,
    "gemma3.context_length": 131_072,
    "gemma3.embedding_length": 512,
    "gemma3.attention.head_count": 4,
    "gemma3.attention.head_count_kv": 2,
    "gemma3.attention.sliding_window": 1024,
}
#: One row of K, and one of V: 2 heads x 128 elements x 2 B.
ROW = 2 * 128 * 2


def total(**args: object) -> int:
    return get_engine("llama.cpp").plan(read_metadata(GEMMA), Workload(engine_args=args)).total


def test_pad() -> None:
    assert [pad(n) for n in (1, 256, 257, 1000)] == [256, 256, 512, 1024]


def test_more_cells_than_asked() -> None:
    # 1024 cells over 3 slots: pad256(341) = 512 each; full layer 1, window layers 5 with min(512, 1024 + 512)
    assert total(ctx_size=1024, parallel=3) == (1 + 5) * 2 * ROW * 3 * 512
    # 5000 over 3: pad256(pad256(5000) // 3) = pad256(1706) = 1792 each; windows pad256(min(1792, 1536)) = 1536
    assert total(ctx_size=5000, parallel=3) == 2 * ROW * 3 * (1792 + 5 * 1536)
    assert total(ctx_size=1000) == 6 * 2 * ROW * 1024


def test_windows_hold_slots_in_a_pool_and_the_batch_in_all() -> None:
    full = 2 * ROW * 32_768
    assert total(ctx_size=32_768, parallel=4) == full + 5 * 2 * ROW * 4 * (1024 + 512)
    assert total(ctx_size=32_768, parallel=4, kv_unified=True) == full + 5 * 2 * ROW * (4 * 1024 + 512)
    assert total(ctx_size=32_768, ubatch_size=2048) == full + 5 * 2 * ROW * 3072
    assert total(ctx_size=32_768, ubatch_size=2048, batch_size=64) == full + 5 * 2 * ROW * 1280
    assert total(ctx_size=32_768, ubatch_size=0, batch_size=1000) == full + 5 * 2 * ROW * 2048
    assert total(ctx_size=32_768, swa_full=True) == 6 * full


def test_the_batch_is_cut_by_the_context_before_it_is_padded() -> None:
    # n_batch = min(300, 2048), so a window layer needs 1024 + 300; the cells of 300 tokens are 512
    context = Context(cells=2048, slots=1, unified=False, ubatch=300, window=1024)
    assert context.sliding().each == pad(1324)


def test_the_library_holds_windows_in_full() -> None:
    assert total(ctx_size=32_768, usage="library") == 6 * 2 * ROW * 32_768
    assert total(ctx_size=32_768, usage="library", swa_full=False) == total(ctx_size=32_768)


def test_the_server_opens_four_slots_in_one_pool_by_itself() -> None:
    assert total(ctx_size=32_768, parallel=-1) == total(ctx_size=32_768, parallel=4, kv_unified=True)
    assert total(ctx_size=32_768, parallel=-1, usage="cli") == total(ctx_size=32_768)


def test_context_and_sequences_instead_of_flags() -> None:
    engine, gemma = get_engine("llama.cpp"), read_metadata(GEMMA)
    plan = engine.plan(gemma, Workload(context=8192, sequences=4))
    assert plan.total == total(ctx_size=4 * 8192, parallel=4) == 4 * plan.per_sequence
    assert plan.args["ctx_size"] == 4 * 8192
    unified = engine.plan(gemma, Workload(context=8192, sequences=4, engine_args={"kv_unified": True}))
    assert unified.total == total(ctx_size=8192, parallel=4, kv_unified=True)
    assert engine.plan(gemma, Workload()).context == 131_072
    assert engine.plan(gemma, Workload(engine_args={"ctx_size": 0})).total == total(ctx_size=131_072)


def test_messages_say_what_was_made_of_the_question() -> None:
    engine, gemma = get_engine("llama.cpp"), read_metadata(GEMMA)
    plan = engine.plan(gemma, Workload(context=1000))
    assert any("1,024 cells" in note for note in plan.notes)
    plan = engine.plan(gemma, Workload(context=9000, engine_args={"ctx_size": 8192}))
    assert any("fewer than the 9,000 tokens" in warning for warning in plan.warnings)
    plan = engine.plan(gemma, Workload(context=1024, sequences=3, engine_args={"parallel": 2}))
    assert any("3 sequences wait for 2 slots" in warning for warning in plan.warnings)
    plan = engine.plan(gemma, Workload(context=1024, shared_prefix=512))
    assert any("shared prefix changes nothing" in note for note in plan.notes)


def test_per_token_growth_and_saturation() -> None:
    engine, gemma = get_engine("llama.cpp"), read_metadata(GEMMA)
    short, long = (engine.plan(gemma, Workload(context=tokens)) for tokens in (512, 32_768))
    assert short.per_token == long.per_token == 6 * 2 * ROW
    assert (short.growth_per_token, long.growth_per_token) == (6 * 2 * ROW, 2 * ROW)


@given(st.integers(1, 200_000), st.integers(1, 9), st.booleans(), st.integers(0, 3000))
def test_bytes_never_fall_with_the_context(tokens: int, slots: int, pooled: bool, ubatch: int) -> None:
    args = {"parallel": slots, "kv_unified": pooled, "ubatch_size": ubatch}
    assert total(ctx_size=tokens, **args) <= total(ctx_size=tokens + 77, **args)


@given(st.integers(1, 100_000), st.integers(1, 7))
def test_split_slots_cost_the_same_each(tokens: int, slots: int) -> None:
    plan = get_engine("llama.cpp").plan(read_metadata(GEMMA), Workload(context=tokens, sequences=slots))
    assert plan.total == slots * plan.per_sequence == sum(line.bytes for line in plan.lines)
