"""The three classic mistakes with a cache, made on purpose: each must show, so that the lab's "output equal" means something."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

from kvcalc.lab import ENTRIES
from kvcalc.lab.lesson import TOLERANCE
from kvcalc.lab.measure import lesson_of
from kvcalc.lab.sizes import Sizes
from kvcalc.lab.trial import Trial, draw

if TYPE_CHECKING:
    from torch import Tensor

    from kvcalc.lab.frame import Cache, Decoder

SIZES = Sizes(layers=6, heads=4, dim=32, tokens=20, prompt=8, vocabulary=61)
#: Without the one whose cache opens in the middle of a conversation.
CACHED = [name for name in ENTRIES if name not in ("no-cache", "batch", "turns-summary")]
#: A recurrence knows no positions.
WITH_POSITIONS = [name for name in CACHED if name not in ("deltanet", "mamba2")]


def opened(name: str) -> tuple[Decoder, Cache]:
    lesson = lesson_of(name)
    decoder = lesson.decoder(SIZES)
    trial = lesson.trial(SIZES)
    return decoder, lesson.open(decoder, Trial(trial.sequences[:1]))(trial.sequences[0])


def difference(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


@pytest.mark.parametrize("name", [name for name in CACHED if name != "turns-sinks"])  # whose store insists on position 0 first
def test_the_prefill_fills_the_cache(name: str) -> None:
    decoder, cache = opened(name)
    tokens = draw(SIZES, 12)
    decoder(tokens[:11], cache)
    right = decoder(tokens[11:], cache)
    cache.reset()
    cache.length = 11  # the prompt was answered without the cache, and only the next token goes through it
    assert difference(decoder(tokens[11:], cache), right) > 100 * TOLERANCE


@pytest.mark.parametrize("name", [name for name in WITH_POSITIONS if name not in ("paged", "prefix", "fork")])
def test_positions_continue(name: str) -> None:
    decoder, cache = opened(name)
    tokens = draw(SIZES, 12)
    decoder(tokens[:11], cache)
    assert cache.length == 11
    right = decoder(tokens[11:], cache)
    assert cache.length == 12
    cache.reset()
    decoder(tokens[:11], cache)
    cache.length = 3  # as if the positions of a call began anew
    assert difference(decoder(tokens[11:], cache), right) > 10 * TOLERANCE


@pytest.mark.parametrize("name", CACHED)
def test_a_new_request_starts_from_an_empty_cache(name: str) -> None:
    decoder, cache = opened(name)
    first, second = draw(SIZES, 14, seed=5), draw(SIZES, 9, seed=6)
    alone = decoder(second[:8], cache), decoder(second[8:], cache)
    cache.reset()
    decoder(first, cache)
    cache.reset()
    assert cache.length == 0
    again = decoder(second[:8], cache), decoder(second[8:], cache)
    for one, other in zip(again, alone, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", [name for name in CACHED if name not in ("turns-window", "swa")])
def test_a_cache_that_is_not_reset_shows(name: str) -> None:
    decoder, cache = opened(name)
    first, second = draw(SIZES, 6, seed=5), draw(SIZES, 6, seed=6)
    right = decoder(second, cache)
    cache.reset()
    decoder(first, cache)
    assert difference(decoder(second, cache), right) > 10 * TOLERANCE


@pytest.mark.parametrize("name", [name for name in CACHED if lesson_of(name).tolerance is not None])
def test_a_prompt_in_pieces_is_the_prompt(name: str) -> None:
    decoder, cache = opened(name)
    tokens = draw(SIZES, 25)
    for start, stop in ((0, 3), (3, 4), (4, 19), (19, 25)):
        pieces = decoder(tokens[start:stop], cache)
    assert difference(pieces, decoder(tokens)) < TOLERANCE


def test_rows_of_a_turn_whose_text_before_it_changed_are_of_no_use() -> None:
    """The last turn's words stand behind a summary now: its rows from the whole conversation say something else."""
    decoder = lesson_of("turns-summary").decoder(SIZES)
    system, older, last, question = draw(SIZES, 8), draw(SIZES, 14, seed=5), draw(SIZES, 9, seed=6), draw(SIZES, 4, seed=7)
    digest = draw(SIZES, 14, seed=8)
    right = decoder(torch.cat((system, digest, last, question)))
    cache = decoder.start()
    decoder(torch.cat((system, older, last)), cache)
    assert difference(decoder(question, cache), right) > 100 * TOLERANCE
