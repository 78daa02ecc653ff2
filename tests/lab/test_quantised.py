from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from kvcalc.core.formats import get_format
from kvcalc.lab.quantised import GROUP, ByChannel, ByToken, QuantisedStore, pack, unpack


def stored(tensors: tuple[torch.Tensor, ...]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_two_codes_share_a_byte() -> None:
    codes = torch.arange(-8, 8, dtype=torch.int8)[None]
    packed = pack(codes)
    assert packed.dtype == torch.uint8
    assert packed.numel() == 8
    assert packed[0, 0] == 0 + (1 << 4)  # -8 and -7
    assert torch.equal(unpack(packed), codes)


@pytest.mark.parametrize(("bits", "largest"), [(8, 127), (4, 7)])
def test_an_element_is_off_by_half_a_step_at_most(bits: int, largest: int) -> None:
    x = torch.randn(3, 20, 16)
    step = x.abs().amax(-1, keepdim=True) / largest
    assert ((ByToken(bits).extend(x) - x).abs() <= step / 2 + 1e-6).all()


@pytest.mark.parametrize(("bits", "name"), [(8, "int8"), (4, "int4")])
def test_a_vector_of_128_weighs_what_the_format_says(bits: int, name: str) -> None:
    held = ByToken(bits)
    held.extend(torch.randn(1, 1, 128))
    assert stored(held.tensors()) == get_format(name).row_bytes(128) == 128 * bits // 8 + 4


def test_keys_wait_until_their_group_is_full() -> None:
    held = ByChannel(8)
    keys = torch.randn(2, GROUP + 3, 8)
    for position in range(GROUP - 1):
        assert torch.equal(held.extend(keys[:, position : position + 1]), keys[:, : position + 1])  # exact
    assert stored(held.tensors()) == 2 * (GROUP - 1) * 8 * 4
    closed = held.extend(keys[:, GROUP - 1 : GROUP])
    assert not torch.equal(closed, keys[:, :GROUP])
    assert stored(held.tensors()) == 2 * 8 * (GROUP + 4)
    later = held.extend(keys[:, GROUP:])
    assert torch.equal(later[:, :GROUP], closed)  # a closed group is not quantised again
    assert torch.equal(later[:, GROUP:], keys[:, GROUP:])


def test_many_groups_at_once_keep_tokens_and_channels_apart() -> None:
    keys = torch.randn(2, 3 * GROUP + 5, 8)
    read = ByChannel(8).extend(keys)
    assert read.shape == keys.shape
    assert (read - keys).abs().max() < 0.05


def test_a_large_channel_does_not_crush_the_others_when_keys_are_grouped_by_channel() -> None:
    keys = torch.randn(1, GROUP, 16)
    keys[..., 3] *= 100

    def error(held: ByToken | ByChannel) -> float:
        return float((held.extend(keys) - keys)[..., :3].abs().mean())

    assert error(ByChannel(4)) < error(ByToken(4)) / 5


def test_zeros_stay_zeros() -> None:
    zeros = torch.zeros(1, 2, 8)
    assert torch.equal(ByToken(4).extend(zeros), zeros)


def test_a_reset_store_holds_nothing() -> None:
    store = QuantisedStore(4, ByChannel)
    store.extend(torch.randn(1, 40, 8), torch.randn(1, 40, 8), torch.arange(40))
    store.reset()
    assert store.tensors() == ()
