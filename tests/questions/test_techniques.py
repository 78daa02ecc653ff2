"""Techniques: each worked example of their docstrings, how they combine, and what they refuse."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import UsageError
from kvcalc.core.formats import FORMATS
from kvcalc.core.states import KINDS, State
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.questions.compare import introduction
from kvcalc.questions.techniques import TECHNIQUES, Case, Ratio, apply, get_technique, parse, share_layers
from kvcalc.sources import load
from kvcalc.sources.schema import read

CONTEXT = 32_768
#: One layer of 32 heads x (128 + 128) x 2 B.
ROW = 16_384
MHA = 32 * ROW * CONTEXT


def total(text: str, context: int = CONTEXT, sequences: int = 1, architecture: Architecture | None = None) -> int:
    case, _ = apply(Case(architecture or introduction({}), Workload(context=context, sequences=sequences)), parse(text))
    return get_engine("ideal").plan(case.architecture, case.workload).total


def changed(text: str, architecture: Architecture) -> Architecture:
    return apply(Case(architecture, Workload(context=CONTEXT)), parse(text))[0].architecture


@pytest.mark.parametrize(
    ("text", "figure"),
    [
        ("mha", MHA),
        ("gqa", MHA // 4),
        ("gqa:kv_heads=16", MHA // 2),
        ("mqa", MHA // 32),
        ("mla", 32 * (512 + 64) * 2 * CONTEXT),
        ("mla:latent_dim=1024:rope_dim=0", 32 * 1024 * 2 * CONTEXT),
        ("swa", ROW * (27 * 1024 + 5 * CONTEXT)),
        ("swa:window=4096:ratio=1-1", ROW * 16 * (4096 + CONTEXT)),
        ("swa:ratio=1-0", ROW * 32 * 1024),
        ("gqa+swa", ROW // 4 * (27 * 1024 + 5 * CONTEXT)),
        ("swa+gqa", ROW // 4 * (27 * 1024 + 5 * CONTEXT)),
        ("chunked", ROW * (24 * 8192 + 8 * CONTEXT)),
        ("share", MHA // 2),
        ("share:producer_layers=8", MHA // 4),
        ("dsa", 32 * (1152 + 132) * CONTEXT),
        ("gqa+dsa", MHA // 4 + 32 * 132 * CONTEXT),
        ("deltanet", 8 * ROW * CONTEXT + 24 * (32 * 128 * 128 * 4 + 3 * 32 * 128 * 3 * 2)),
        ("deltanet:ratio=1-0", 32 * (32 * 128 * 128 * 4 + 3 * 32 * 128 * 3 * 2)),
        ("mamba2", 8 * ROW * CONTEXT + 24 * (128 * 64 * 128 * 4 + (8192 + 2 * 128) * 3 * 2)),
        ("fp8", MHA // 2),
        ("int8", 32 * 32 * 2 * (128 + 4) * CONTEXT),
        ("int4", 32 * 32 * 2 * (64 + 4) * CONTEXT),
        ("q8_0", 32 * 32 * 2 * 4 * 34 * CONTEXT),
        ("q4_0", 32 * 32 * 2 * 4 * 18 * CONTEXT),
        ("nvfp4", 32 * 32 * 2 * 8 * 9 * CONTEXT),
        ("q8_0/q4_0", 32 * 32 * 4 * (34 + 18) * CONTEXT),
        ("mla+fp8", 32 * 576 * CONTEXT),
        ("mla+swa", 1152 * (27 * 1024 + 5 * CONTEXT)),
        ("no-cache", 0),
        ("gqa+no-cache", 0),
        ("window", 32 * ROW * 4096),
        ("window:tokens=40k", MHA),
        ("sinks", 32 * ROW * (4 + 4096)),
        ("keep", 32 * ROW * (512 + 2048)),
        ("summary", 32 * ROW * (1024 + 300 + 700)),
        ("summary:system=0:tokens=100:turn=1k", 32 * ROW * 1124),
        ("gqa+window:tokens=1000+fp8", 32 * ROW // 8 * 1000),
        ("swa+sinks", ROW * (27 * 1024 + 5 * 4100)),
    ],
)
def test_worked_by_hand(text: str, figure: int) -> None:
    assert total(text) == figure


def test_index_keys_in_fp8_come_in_blocks_of_128() -> None:
    with pytest.raises(UsageError):
        total("mla+dsa:index_dim=64")


def test_a_prefix_is_stored_once() -> None:
    assert total("prefix:tokens=1024", 4096, 100) == 32 * ROW * (1024 + 100 * 3072)


@pytest.mark.parametrize(
    ("text", "held", "shared", "said"),
    [
        ("window", 4096, 0, "window: 4,096 of 32,768 tokens are held; tokens 1 to 28,672 are out of sight in every layer"),
        ("sinks", 4100, 4, "sinks: 4,100 of 32,768 tokens are held; tokens 5 to 28,672 are out of sight in every layer"),
        ("keep:tokens=2k", 4096, 1500, "keep: 4,096 of 32,768 tokens are held; tokens 2,049 to 30,720 are out of sight in every layer"),
        ("summary", 2024, 1024, "the tokens between the system prompt and the latest turn are in the summary alone"),
    ],
)
def test_what_a_policy_drops_is_out_of_sight_and_shared_no_more(text: str, held: int, shared: int, said: str) -> None:
    case, _ = apply(Case(introduction({}), Workload(context=CONTEXT, sequences=4, shared_prefix=1500)), parse(text))
    assert (case.workload.context, case.workload.shared_prefix) == (held, shared)
    assert said in case.remarks[-1]


def test_pages_and_prefix_leave_marks_in_the_case() -> None:
    case, used = apply(Case(introduction({}), Workload(context=1000, sequences=4)), parse("paged:block=32+prefix:tokens=100"))
    assert (case.block, case.workload.shared_prefix) == (32, 100)
    assert [str(item) for item in used] == ["paged block=32", "prefix tokens=100"]
    assert case.remarks == ("paged: 24 of 1,024 slots stay empty, in the last block",)


def test_dsa_stands_on_mla_unless_heads_were_asked_for() -> None:
    _, used = apply(Case(introduction({}), Workload(context=CONTEXT)), parse("dsa"), {"latent_dim": "256"})
    assert [str(item) for item in used] == ["mla latent_dim=256 rope_dim=64", "dsa index_dim=128 top_k=2048"]
    _, used = apply(Case(introduction({}), Workload(context=CONTEXT)), parse("gqa+dsa"))
    assert [item.name for item in used] == ["gqa", "dsa"]


def test_a_latent_has_the_heads_that_it_decompresses_into() -> None:
    deepseek = load("deepseek-v3")
    # 61 layers x 128 heads x (128 + 64 for K, 128 for V) x 2 B
    assert total("mha", 1000, architecture=deepseek) == 61 * 128 * (192 + 128) * 2 * 1000
    assert total("mqa", 1000, architecture=deepseek) == 61 * (192 + 128) * 2 * 1000
    assert "index" not in {state.kind for state in changed("gqa", load("deepseek-v3.2")).states}


def test_a_hybrids_recurrent_layers_stay_as_they_are() -> None:
    before, after = load("qwen3-next-80b-a3b"), changed("mqa", load("qwen3-next-80b-a3b"))
    assert after.layers.count == before.layers.count
    assert [state for state in after.states if state.is_recurrent] == [state for state in before.states if state.is_recurrent]
    assert {getattr(state, "kv_heads", 1) for state in after.states} == {1}


def test_sharing_reads_the_nearest_earlier_producer_of_the_same_kind() -> None:
    layers = changed("swa:ratio=1-1+share:producer_layers=4", introduction({"layers": "8"})).layers
    assert [getattr(layers.layer(index)[0], "shares_with", None) for index in range(8)] == [None] * 4 + [2, 3, 2, 3]
    with pytest.raises(UsageError, match="none of the first 1 attention layers is like layer 1"):
        changed("swa:ratio=1-1+share:producer_layers=1", introduction({"layers": "8"}))
    with pytest.raises(UsageError, match="9 is more than the 8 attention layers"):
        share_layers(introduction({"layers": "8"}), 9)


@pytest.mark.parametrize(
    ("model", "text", "said"),
    [
        ("mamba-2.8b", "gqa", "has no attention layers to change"),
        ("deepseek-v4-flash", "swa", "compresses its cache over tokens"),
        ("deepseek-v3", "chunked", "no latent attention over chunks"),
        ("llama-3.1-8b", "chunked+mla", "no latent attention over chunks"),
        ("llama-3.1-8b", "gqa:kv_heads=3", "must be a multiple of kv_heads 3"),
    ],
)
def test_what_cannot_be_is_refused(model: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        total(text, 1024, architecture=load(model))


@pytest.mark.parametrize("text", ["gqa", "mha"])
def test_heads_that_are_not_known_are_refused(text: str) -> None:
    state: State = read(KINDS["full"], {"kv_heads": 8, "head_dim": 64})
    layout = Layout(pattern=("a",), count=2, states={"a": (state,)})
    with pytest.raises(UsageError, match="query heads"):
        total(text, architecture=Architecture(id="m", family="test", dtype="bf16", layers=layout))


def test_every_technique_has_a_page_with_a_formula_and_every_format_is_a_technique() -> None:
    for technique in TECHNIQUES.values():
        assert technique.about.endswith(".")
        assert "\n    " in (technique.change.__doc__ or "")
        assert all(parameter.about for parameter in technique.parameters)
    for name in FORMATS:
        assert get_technique(name).about


def test_ratios() -> None:
    (step,) = parse("swa:ratio=3-1")
    assert step.given == {"ratio": Ratio(3, 1)}
    assert str(Ratio(3, 1)) == "3-1"
    for text in ("3", "a-b", "0-0", "-", "1-2-3", "²-1", "99999-99999"):
        with pytest.raises(UsageError):
            parse(f"swa:ratio={text}")


@given(
    heads=st.sampled_from([1, 2, 4, 8, 16, 32]),
    window=st.integers(1, 5000),
    changed_layers=st.integers(0, 9),
    kept_layers=st.integers(1, 9),
    context=st.integers(1, 10**6),
)
def test_saving_techniques_never_cost_more(heads: int, window: int, changed_layers: int, kept_layers: int, context: int) -> None:
    mha = 32 * ROW * context
    assert total(f"gqa:kv_heads={heads}", context) == mha * heads // 32
    windowed = total(f"swa:window={window}:ratio={changed_layers}-{kept_layers}", context)
    assert windowed <= mha
    assert total(f"gqa:kv_heads={heads}+swa:window={window}:ratio={changed_layers}-{kept_layers}", context) == windowed * heads // 32


@given(st.text(max_size=40))
def test_no_text_makes_the_parser_fail_otherwise(text: str) -> None:
    with suppress(UsageError):
        parse(text)
