"""Two measurements against a model, with the ratios worked by hand."""

from __future__ import annotations

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.questions.growth import Growth, growth
from kvcalc.questions.request import parse_request

PER_TOKEN = 131_072  # Llama-3.1-8B: 32 x 8 x (128 + 128) x 2 B


def measured(observed: int, tokens: int = 4096, model: str = "llama-3.1-8b", start: int = 0, **question: object) -> Growth:
    return growth(parse_request({"model": model, **question}), observed, tokens, start)


def test_as_expected_within_five_per_cent() -> None:
    assert measured(4096 * PER_TOKEN).exit_code == 0
    assert measured(4096 * PER_TOKEN * 104 // 100).exit_code == 0
    assert measured(4096 * PER_TOKEN * 106 // 100).exit_code == 1
    assert measured(4096 * PER_TOKEN * 3, sequences=3).ratio == 1


@pytest.mark.parametrize(
    ("times", "over", "words"),
    [
        (4, 1, "grouping is not used"),
        (2, 1, "copied"),
        (1, 2, "half the width"),
        (1, 4, "4 bits"),
        (1, 8, "8 tensor parallel ranks"),
        (7, 5, "none of the usual"),
    ],
)
def test_usual_ratios_have_usual_reasons(times: int, over: int, words: str) -> None:
    assert words in measured(4096 * PER_TOKEN * times // over).reason


def test_only_what_grows_counts() -> None:
    found = measured(1, model="gemma-3-27b", tokens=4096, start=8192)  # beyond the window only the 10 full layers grow
    assert found.expected == 4096 * 10 * 16 * 256 * 2
    assert measured(1, model="qwen3-next-80b-a3b").expected == 4096 * 24_576  # the recurrent state is there from the first token
    with pytest.raises(UsageError, match="does not grow"):
        measured(1, model="falcon-mamba-7b")
