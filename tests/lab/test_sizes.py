from __future__ import annotations

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.lab.sizes import LIMITS, PRESETS, Sizes, make_sizes


def test_the_preset_is_a_model_of_124_million_parameters() -> None:
    sizes = make_sizes("gpt2-124m")
    assert sizes.hidden == 2048
    # embedding, and 12 layers of four square matrices and the three of SwiGLU
    assert sizes.parameters == 50257 * 768 + 12 * (4 * 768 * 768 + 3 * 768 * 2048) == 123_532_032
    assert (sizes.tokens, sizes.total) == (200, 216)


def test_a_flag_wins_over_the_preset() -> None:
    sizes = make_sizes("gpt2-124m", tokens=20, layers=None)
    assert (sizes.tokens, sizes.layers) == (20, 12)


def test_an_unknown_preset_gets_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown preset 'gpt2'") as caught:
        make_sizes("gpt2")
    assert "gpt2-124m" in caught.value.hint


@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (8, 2), (9, 3), (12, 3), (32, 8)])
def test_groups_divide_the_heads(heads: int, groups: int) -> None:
    assert Sizes(heads=heads, dim=8 * heads).groups == groups
    assert heads % groups == 0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"heads": 5}, "5 heads do not divide a dim of 64"),
        ({"heads": 32}, "heads of 2 .* are not a multiple of 4"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"layers": 0}, "--layers: 0 is out of range"),
        ({"layers": 300}, "--layers: 300 is more"),
        ({"dim": 16384, "layers": 256}, "weights"),
        ({"tokens": 32768}, "scores in a layer"),
    ],
)
def test_sizes_that_do_not_go_together_are_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make_sizes(**given)


def test_presets_are_within_the_limits() -> None:
    for preset in PRESETS.values():
        assert all(LIMITS[name][0] <= value <= LIMITS[name][1] for name, value in preset.items())
