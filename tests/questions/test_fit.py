"""`fit`: the inverse of the plan, for every engine; budgets, remedies and the document."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import UsageError
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.search import MOST, last_that
from kvcalc.questions.documents.fit import CardShares, Sure
from kvcalc.questions.documents.kinds import plain
from kvcalc.questions.fit import Budget, Fit, fit
from kvcalc.questions.request import parse_request

LLAMA = {"kind": "full", "kv_heads": 8, "query_heads": 32, "head_dim": 128}
WINDOW = {"kind": "sliding", "window": 4096, "kv_heads": 8, "query_heads": 32, "head_dim": 128}
STATE = {"kind": "mamba2", "heads": 128, "head_dim": 64, "state_dim": 128, "groups": 1, "conv_kernel": 4}
GIB = 1024**3


def document(*kinds: dict[str, Any], count: int = 32, family: str = "llama", longest: int | None = 131072) -> dict[str, Any]:
    states = {f"s{n}": [kind] for n, kind in enumerate(kinds)}
    layers = {"pattern": list(states), "count": count, "states": states}
    return {"architecture": {"id": "m", "family": family, "dtype": "bfloat16", "max_context": longest, "layers": layers}}


def asked(model: dict[str, Any], memory: int | str | None = 10 * GIB, *, beyond: bool = False, **question: Any) -> Fit:
    return fit(parse_request({"model": model, "kv_memory": memory} | question), beyond=beyond)


@pytest.mark.parametrize(
    ("limit", "most", "found"), [(0, 10, None), (1, 10, 1), (7, 10, 7), (8, 8, 8), (10, 10, 10), (99, 10, 10), (10**9, MOST, 10**9)]
)
def test_the_last_integer_that_holds(limit: int, most: int, found: int | None) -> None:
    assert last_that(lambda n: n <= limit, most) == found


def test_ideal_is_a_division() -> None:
    """131,072 B a token: 10 GiB hold 81,920 tokens."""
    found = asked(document(LLAMA), context=40960)
    assert (found.fits, found.max_context, found.max_sequences) == (True, 81_920, 2)
    assert set(found.to_dict()["capacity"].values()) == {None}


def test_the_models_maximum_ends_it_unless_beyond() -> None:
    assert asked(document(LLAMA, longest=8192), context=100).max_context == 8192
    assert asked(document(LLAMA, longest=8192), context=100, beyond=True).max_context == 81_920
    assert asked(document(LLAMA, longest=8192), context=9000).max_context == 9000


def test_what_never_ends_has_no_largest_context() -> None:
    found = asked(document(STATE, family="mamba2", longest=None), context=100, beyond=True)
    assert (found.fits, found.max_context) == (True, None)


def test_nothing_fits_into_nothing() -> None:
    found = asked(document(LLAMA), memory=1000, context=64)
    assert (found.fits, found.max_context, found.max_sequences) == (False, None, None)
    assert [remedy.setting for remedy in found.remedies] == []


def test_vllm_holds_back_the_null_block() -> None:
    """5,120 blocks, of which 5,119 are usable: 81,904 tokens; asked with -1, that is the context."""
    found = asked(document(LLAMA), engine="vllm", context=-1)
    assert (found.fits, found.max_context, found.plan.context) == (True, 81_904, 81_904)
    assert found.to_dict()["capacity"] == {
        "tokens": 81_920,
        "concurrency": 5120 / 5119,
        "blocks": 5120,
        "block_bytes": 2_097_152,
        "block_size": 16,
        "sliding_tokens": None,
        "state_slots": None,
    }
    refused = asked(document(LLAMA), engine="vllm", context=131072)
    assert (refused.fits, refused.max_context) == (False, 81_904)
    assert any("refuses to start" in text and "8,193 blocks" in text for text in refused.warnings)


def test_vllm_with_more_sequences_than_one() -> None:
    found = asked(document(LLAMA), engine="vllm", context=8192, sequences=4)
    assert (found.fits, found.max_sequences, found.max_context) == (True, 5119 // 512, 5119 // 4 * 16)


def test_a_context_of_minus_one_that_does_not_fit_at_all() -> None:
    found = asked(document(LLAMA), memory=2_097_152, engine="vllm", context=-1)
    assert (found.fits, found.max_context) == (False, None)


@pytest.mark.parametrize(
    ("engine", "needed"),
    [
        ("ideal", 131_072 * 8192 * 3),
        ("llama.cpp", 131_072 * 8192 * 3),
        # 512 blocks of 16 tokens for each, and the null block
        ("vllm", 131_072 * 16 * (3 * 512 + 1)),
        # nine tenths of it are the blocks, rounded up to 4 MiB
        ("tensorrt-llm", -(-(131_072 * 8192 * 3 - 4 * 2**20 + 1) * 10 // 9)),
    ],
)
def test_the_least_memory_that_holds_the_question(engine: str, needed: int) -> None:
    for memory in ("1GiB", "100GiB"):
        assert asked(document(LLAMA), memory=memory, engine=engine, context=8192, sequences=3).needed == needed
    assert asked(document(LLAMA), memory=needed, engine=engine, context=8192, sequences=3).fits
    assert not asked(document(LLAMA), memory=needed - 1, engine=engine, context=8192, sequences=3).fits


def test_what_keeps_nothing_needs_nothing() -> None:
    assert asked(document({"kind": "none"}), memory=0, context=64).needed == 0


def test_the_largest_that_fits_needs_what_it_takes_and_nothing_that_does_not() -> None:
    assert asked(document(LLAMA), context=-1).needed == 10 * GIB
    assert asked(document(LLAMA), memory=1000, context=-1).needed is None


def test_remedies_are_tried_before_they_are_named() -> None:
    found = asked(document(LLAMA), engine="vllm", context=65536, sequences=2)
    assert [(remedy.setting, remedy.value) for remedy in found.remedies] == [
        ("context", 5119 // 2 * 16),
        ("sequences", 1),
        ("kv_dtype", "fp8"),
        ("tensor_parallel", 2),
    ]
    for remedy in found.remedies:
        again = asked(document(LLAMA), engine="vllm", **({"context": 65536, "sequences": 2} | {remedy.setting: remedy.value}))
        assert again.fits, remedy


def test_the_document() -> None:
    found = asked(document(LLAMA), engine="vllm", context=4096, kv_dtype="fp8", tensor_parallel=2).to_dict()
    assert found["schema"] == "kvcalc.fit/1"
    assert found["budget"] == {"kv_bytes_per_device": 10 * GIB, "from": "--kv-memory"}
    assert (found["kv_dtype"], found["engine"]["name"], found["engine"]["version"]) == ("fp8", "vllm", "0.33.0")
    assert found["workload"]["tensor_parallel"] == 2
    assert found["remedies"] == []


def test_a_budget_of_another_origin() -> None:
    origin = CardShares("h100-80gb", 80 * GIB, 0.92, 16 * GIB, 0, GIB, GIB, GIB, Sure("given", "given", "given", "given"))
    request = parse_request({"model": document(LLAMA), "context": 4096})
    found = fit(request, budget=Budget(10 * GIB, origin)).to_dict()
    assert found["budget"] == {"kv_bytes_per_device": 10 * GIB, "from": plain(origin)}


def test_without_a_budget() -> None:
    with pytest.raises(UsageError, match="no memory"):
        asked(document(LLAMA), memory=None, context=64)


questions = st.fixed_dictionaries(
    {
        "context": st.integers(1, 131072),
        "sequences": st.integers(1, 40),
        "engine": st.sampled_from(["ideal", "vllm"]),
        "kv_dtype": st.sampled_from(["auto", "fp8"]),
    }
)
models = st.sampled_from(
    [document(LLAMA), document(WINDOW, LLAMA), document(WINDOW), document(STATE, STATE, LLAMA, count=30, family="granitemoehybrid")]
)


@given(models, questions, st.integers(0, 40 * GIB))
def test_fits_at_the_largest_and_not_one_further(model: dict[str, Any], question: dict[str, Any], memory: int) -> None:
    found = asked(model, memory, **question)
    context, sequences = question["context"], question["sequences"]

    def holds(tokens: int, count: int) -> bool:
        return fitting(found, memory).admits(tokens, count)

    assert found.fits == holds(context, sequences)
    assert found.fits == (found.max_sequences is not None and found.max_sequences >= sequences)
    assert found.fits == (found.max_context is not None and found.max_context >= context)
    if found.max_context is not None:
        assert holds(found.max_context, sequences)
        assert found.max_context == 131072 or not holds(found.max_context + 1, sequences)
    if found.max_sequences is not None:
        assert holds(context, found.max_sequences)
        assert not holds(context, found.max_sequences + 1)


def fitting(found: Fit, memory: int) -> Any:
    workload = Workload(context=found.workload.context, kv_dtype=found.workload.kv_dtype)
    return get_engine(found.plan.engine).fitting(found.architecture, workload, memory)


@given(models, st.integers(0, 40 * GIB), st.integers(0, GIB))
def test_capacity_never_falls_with_more_memory(model: dict[str, Any], memory: int, more: int) -> None:
    less, greater = (asked(model, size, engine="vllm", context=8192) for size in (memory, memory + more))
    assert (greater.capacity.blocks or 0) >= (less.capacity.blocks or 0)
    assert (greater.capacity.tokens or 0) >= (less.capacity.tokens or 0)
    assert (greater.max_context or 0) >= (less.max_context or 0)
    assert greater.fits >= less.fits


@given(models, st.integers(1, 131072), st.integers(1, 8))
def test_what_the_plan_takes_fits_beside_the_null_block(model: dict[str, Any], context: int, sequences: int) -> None:
    plan = asked(model, 0, engine="vllm", context=context, sequences=sequences).plan
    block = asked(model, 0, engine="vllm", context=context).capacity.block_bytes or 0
    assert asked(model, plan.per_device + block, engine="vllm", context=context, sequences=sequences).fits
    assert not asked(model, plan.per_device + block - 1, engine="vllm", context=context, sequences=sequences).fits


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_an_engine_without_room_for_more_sequences_is_no_error(engine: str) -> None:
    """llama.cpp holds at most 256 sequences (LLAMA_MAX_SEQ), however large the memory."""
    found = asked(document(LLAMA), memory=10**15, context=512, engine=engine)
    assert (found.fits, found.max_sequences) == (True, 256)


def test_slots_that_sequences_wait_for_have_no_limit_on_a_card_either() -> None:
    from kvcalc.questions.fit_card import size

    request = parse_request(
        {"model": document(LLAMA), "gpu": "h100-80gb", "context": 512, "engine": "llama.cpp", "engine_args": {"parallel": 4}}
    )
    sized = size(request, weights=GIB)
    assert (sized.fit.max_sequences, sized.sequences_range) == (None, (None, None))


def test_no_limit_is_said_and_is_not_none() -> None:
    """A cache that does not grow holds any context; one that does not fit holds none; and both are null."""
    for memory, unbounded in (("1GiB", True), ("1KiB", False)):
        for context in (4096, -1):
            found = fit(parse_request({"model": "falcon-mamba-7b", "context": context, "kv_memory": memory}))
            said = found.to_dict()
            assert (said["max_context"], said["unbounded"], said["fits"]) == (None, unbounded, unbounded)
    assert not asked(document(LLAMA), context=64).to_dict()["unbounded"]
