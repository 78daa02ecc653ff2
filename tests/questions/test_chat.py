"""Conversations turn by turn, with the token arithmetic written out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.core.errors import InvalidConfigError, UsageError
from kvcalc.questions.chat import MOST_TURNS, Chat, Conversation, Span, Turn, chat, common_prefix, parse_policy, read_turns
from kvcalc.questions.request import parse_request

if TYPE_CHECKING:
    from pathlib import Path

PER_TOKEN = 4 * 2 * (64 + 64) * 2
MODEL = {
    "architecture": {
        "id": "tiny",
        "family": "llama",
        "dtype": "bfloat16",
        "max_context": 4096,
        "layers": {"pattern": ["all"], "count": 4, "states": {"all": {"kind": "full", "kv_heads": 2, "head_dim": 64}}},
    }
}


def talk(policy: str, *, system: int = 1024, turns: int = 4, user: int = 200, reply: int = 500, **more: Any) -> Chat:
    request = parse_request({"model": MODEL} | {key: more.pop(key) for key in ("kv_memory", "engine") if key in more})
    return chat(request, Conversation(system, ((user, reply),) * turns, parse_policy(policy), **more))


def turn(found: Chat, number: int) -> Turn:
    return found.turns[number - 1]


def test_the_whole_history_grows_and_is_reused() -> None:
    found = talk("full")
    assert [item.prompt for item in found.turns] == [1224, 1924, 2624, 3324]  # 1024 + 200, then + 500 + 200
    assert [item.held for item in found.turns] == [1724, 2424, 3124, 3824]
    assert turn(found, 2).bytes == 2424 * PER_TOKEN
    assert [item.without_reuse for item in found.turns] == [1224, 1924, 2624, 3324]
    assert [item.recomputed for item in found.turns] == [
        1224,
        1924 - 1712,
        2624 - 2416,
        3324 - 3120,
    ]  # whole blocks of 16 of 1724, 2424, 3124
    assert all(item.out_of_sight == () for item in found.turns)


def test_a_window_drops_the_front_and_with_it_every_hit() -> None:
    found = talk("window:1000")
    assert [item.prompt for item in found.turns] == [
        1200,
        1200,
        1200,
        1200,
    ]  # 1000 + 200, the 1,024 of the system prompt cut from the start
    assert turn(found, 2).recomputed == 1200
    assert turn(found, 2).out_of_sight == ()
    assert turn(found, 2).partly == (0,)  # 700 of turn 1, so 300 of the system prompt
    assert turn(found, 4).out_of_sight == (0, 1)  # 700 of turn 3, 300 of turn 2
    assert turn(found, 4).partly == (2,)


def test_a_kept_prefix_keeps_its_blocks() -> None:
    found = talk("keep:1024+window:600", turns=5)
    assert turn(found, 3).prompt == 1024 + 600 + 200
    assert turn(found, 3).recomputed == 1824 - 1024  # 1,024 is 64 blocks of 16
    sinks = talk("sinks:4+window:600", turns=5)
    assert turn(sinks, 3).recomputed == 4 + 600 + 200  # 4 tokens fill no block


def test_a_summary_replaces_older_turns_and_is_new_every_turn() -> None:
    found = talk("summary:300", turns=4)
    assert [item.prompt for item in found.turns] == [1224, 1924, 1024 + 300 + 700 + 200, 1024 + 300 + 700 + 200]
    assert turn(found, 4).recomputed == 2224 - 1024
    assert turn(found, 4).out_of_sight == (1, 2)


def test_a_changed_system_prompt_ends_the_match_at_the_first_difference() -> None:
    found = talk("full", changed_turn=3, changed_at=40)
    assert turn(found, 3).recomputed == 2624 - 32  # two whole blocks lie before position 40
    assert turn(found, 4).recomputed == turn(talk("full"), 4).recomputed
    assert turn(talk("full", changed_turn=3), 3).recomputed == 2624


def test_the_budget_and_the_maximum_break() -> None:
    found = talk("full", turns=6, kv_memory=2424 * PER_TOKEN)
    assert [item.over_budget for item in found.turns] == [False, False, True, True, True, True]
    assert found.breaks_at == 3
    assert talk("full", turns=6).breaks_at == 5  # 4,524 tokens are more than the model's 4,096
    assert found.to_dict()["schema"] == "kvcalc.chat/1"


def test_windows_of_the_model_are_said() -> None:
    states = {
        "local": {"kind": "sliding", "window": 512, "kv_heads": 2, "head_dim": 64},
        "global": {"kind": "full", "kv_heads": 2, "head_dim": 64},
    }
    model = {"architecture": MODEL["architecture"] | {"layers": {"pattern": ["local*5", "global"], "count": 12, "states": states}}}
    found = chat(parse_request({"model": model}), Conversation(0, ((10, 10),), parse_policy("full")))
    assert "10 of 12 layers see only their window of 512 tokens" in found.notes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "window",
        "window:0",
        "sinks:4",
        "keep:512",
        "summary:3+window:4",
        "window:1+window:2",
        "sinks:4+keep:4+window:9",
        "window:-1",
    ],
)
def test_policies_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        parse_policy(text)


@pytest.mark.parametrize(
    "more", [{"turns": 0}, {"block_size": 0}, {"changed_turn": 1}, {"changed_turn": 9}, {"changed_turn": 2, "changed_at": 1024}]
)
def test_conversations_that_are_none(more: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        talk("full", **more)


def test_prefixes_are_counted_across_span_borders() -> None:
    assert common_prefix([Span(0, 0, 10), Span(1, 0, 5)], [Span(0, 0, 4), Span(0, 4, 10), Span(1, 0, 3)]) == 13
    assert common_prefix([Span(0, 0, 10)], [Span(0, 1, 10)]) == 0
    assert common_prefix([Span(-1, 0, 10, 2)], [Span(-1, 0, 10, 3)]) == 0


@given(
    st.sampled_from(["full", "window:100", "sinks:4+window:64", "keep:50+window:100", "summary:30"]),
    st.integers(0, 300),
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=12),
    st.integers(1, 64),
)
def test_properties(policy: str, system: int, turns: list[tuple[int, int]], block: int) -> None:
    found = chat(parse_request({"model": MODEL}), Conversation(system, tuple(turns), parse_policy(policy), block))
    history = system
    for item, (user, reply) in zip(found.turns, turns, strict=True):
        assert user <= item.prompt <= history + user + 30
        assert 1 <= item.recomputed <= item.without_reuse == item.prompt
        assert item.bytes == item.held * PER_TOKEN
        history += user + reply
    assert found.turns[-1].prompt <= history


def test_real_turns_are_read_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('{"user": 10, "reply": 20}\n\n{"user": 3, "reply": 4}\n')
    assert read_turns(path) == ((10, 20), (3, 4))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"user": 1}', '{"user": 0, "reply": 1}', '{"user": 1, "reply": true}', '{"user": 1, "replay": 2}', "{"]
)
def test_lines_that_are_no_turns_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidConfigError, match=r"talk\.jsonl"):
        read_turns(path)


SPANS = st.lists(
    st.builds(lambda author, start, length, version: Span(author, start, start + length, version), *(st.integers(0, 3),) * 4), max_size=8
)


@given(SPANS, SPANS, SPANS)
def test_a_common_prefix_is_that_of_the_tokens_themselves(shared: list[Span], before: list[Span], after: list[Span]) -> None:
    def tokens(spans: list[Span]) -> list[tuple[int, int, int]]:
        return [(span.author, span.version, position) for span in spans for position in range(span.start, span.end)]

    left, right = tokens(shared + before), tokens(shared + after)
    expected = next((i for i, (old, new) in enumerate(zip(left, right, strict=False)) if old != new), min(len(left), len(right)))
    assert common_prefix(shared + before, shared + after) == expected


def test_as_many_turns_as_there_may_be() -> None:
    """Two thousand, and not one more."""
    found = talk("full", turns=MOST_TURNS)
    assert turn(found, MOST_TURNS).prompt == 1024 + (MOST_TURNS - 1) * 700 + 200
    assert turn(found, MOST_TURNS).recomputed < 700 + 16
    with pytest.raises(UsageError, match="2,001 turns"):
        talk("full", turns=MOST_TURNS + 1)
