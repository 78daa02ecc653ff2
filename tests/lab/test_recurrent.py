"""Recurrences against their unrolled forms, in float64, and the memory of the short convolution."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvcalc.lab.convolution import KERNEL, ShortConvolution
from kvcalc.lab.deltanet import DeltaNet
from kvcalc.lab.frame import Weights
from kvcalc.lab.mamba2 import Mamba
from kvcalc.lab.sizes import Sizes

SIZES = Sizes(layers=1, heads=2, dim=16, tokens=10)


def uniform(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.float64)


def test_the_delta_rule_unrolled_is_a_triangular_system() -> None:
    mixer = DeltaNet(Weights(SIZES), SIZES)
    key = torch.nn.functional.normalize(uniform(2, 12, 8) - 0.5, dim=-1)
    query, value, decay, beta = uniform(2, 12, 8) - 0.5, uniform(2, 12, 8) - 0.5, -uniform(2, 12), uniform(2, 12)
    recurrent, state = mixer._recur(query, key, value, decay, beta, None)
    torch.testing.assert_close(recurrent, mixer._unrolled(query, key, value, decay, beta))
    assert state.shape == (2, 8, 8)


def test_the_delta_rule_overwrites_what_a_key_says() -> None:
    mixer = DeltaNet(Weights(SIZES), SIZES)
    key = torch.zeros(2, 2, 8, dtype=torch.float64)
    key[:, :, 0] = 1.0
    value = uniform(2, 2, 8)
    none, full = torch.zeros(2, 2, dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
    output, _ = mixer._recur(key, key, value, none, full, None)
    torch.testing.assert_close(output, value)  # the second value replaced the first, nothing was added


def test_mamba2_is_attention_without_a_softmax() -> None:
    mixer = Mamba(Weights(SIZES), SIZES)
    inner, b, c, decay = uniform(2, 12, 8) - 0.5, uniform(12, 8), uniform(12, 8), -uniform(2, 12, 1)
    recurrent, state = mixer._recur(inner, b, c, decay, None)
    torch.testing.assert_close(recurrent, mixer._dual(inner, b, c, decay))
    assert state.shape == (2, 8, 8)


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
def test_a_convolution_continues_where_it_was_cut(cut: int) -> None:
    convolution = ShortConvolution(Weights(SIZES), 5)
    x = torch.randn(9, 5)
    whole, _ = convolution(x, None)
    first, columns = convolution(x[:cut], None)
    second, columns = convolution(x[cut:], columns)
    torch.testing.assert_close(torch.cat((first, second)), whole)
    assert torch.equal(columns, x[-(KERNEL - 1) :])


def test_the_columns_are_a_copy() -> None:
    _, columns = ShortConvolution(Weights(SIZES), 5)(torch.randn(100, 5), None)
    assert columns.untyped_storage().nbytes() == (KERNEL - 1) * 5 * 4


def test_a_convolution_is_causal() -> None:
    convolution = ShortConvolution(Weights(SIZES), 3)
    x = torch.randn(6, 3)
    before, _ = convolution(x, None)
    x[4:] = 100.0
    after, _ = convolution(x, None)
    assert torch.equal(before[:4], after[:4])
