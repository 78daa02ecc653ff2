"""Blocks, free lists, owners, and copies on write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")

from kvcalc.lab.kv import multi_head
from kvcalc.lab.paged import BLOCK, OutOfBlocksError, PagedCache, Pool
from kvcalc.lab.prefix import SharedPool, SharingCache
from kvcalc.lab.sizes import Sizes
from kvcalc.lab.trial import draw

if TYPE_CHECKING:
    from kvcalc.lab.frame import Decoder

SIZES = Sizes(layers=2, heads=2, dim=16, tokens=8, vocabulary=31)


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    return multi_head(SIZES)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(torch.allclose(one, other, atol=1e-4))


def test_blocks_are_taken_when_they_are_needed_and_come_back(decoder: Decoder) -> None:
    pool = Pool(5, decoder)
    cache = PagedCache(pool)
    decoder(draw(SIZES, BLOCK), cache)
    assert cache.table.blocks == [0]  # one for all layers
    decoder(draw(SIZES, 1), cache)
    assert cache.table.blocks == [0, 1]
    assert cache.table.entries.tolist() == [0, 1]
    assert cache.table.entries.dtype == torch.int32
    cache.reset()
    assert cache.tensors()[0].numel() == 0
    assert sorted(pool.free) == [0, 1, 2, 3, 4]


def test_blocks_of_two_sequences_lie_between_each_other(decoder: Decoder) -> None:
    pool = Pool(4, decoder)
    one, two = PagedCache(pool), PagedCache(pool)
    texts = draw(SIZES, BLOCK + 3, seed=3), draw(SIZES, BLOCK + 3, seed=4)
    for cut in (slice(0, BLOCK), slice(BLOCK, BLOCK + 3)):
        answers = [decoder(text[cut], cache) for text, cache in zip(texts, (one, two), strict=True)]
    assert (one.table.blocks, two.table.blocks) == ([0, 2], [1, 3])
    assert all(close(answer, decoder(text)) for answer, text in zip(answers, texts, strict=True))


def test_a_used_block_is_not_read_beyond_what_is_filled(decoder: Decoder) -> None:
    pool = Pool(1, decoder)
    first = PagedCache(pool)
    decoder(draw(SIZES, BLOCK, seed=3), first)
    first.reset()
    text = draw(SIZES, 5, seed=4)
    assert close(decoder(text, PagedCache(pool)), decoder(text))


def test_an_empty_pool_says_so(decoder: Decoder) -> None:
    with pytest.raises(OutOfBlocksError):
        decoder(draw(SIZES, BLOCK + 1), PagedCache(Pool(1, decoder)))


def sharing(decoder: Decoder, pool: SharedPool, text: torch.Tensor) -> SharingCache:
    cache = SharingCache(pool, text)
    decoder(text[cache.length :], cache)
    return cache


def test_whole_blocks_are_found_again(decoder: Decoder) -> None:
    pool = SharedPool(8, decoder)
    text = draw(SIZES, 2 * BLOCK + 5)
    first = sharing(decoder, pool, text)
    second = SharingCache(pool, text)
    assert second.length == 2 * BLOCK
    assert second.table.blocks == first.table.blocks[:2]
    assert [pool.owners[block] for block in first.table.blocks] == [2, 2, 1]
    assert close(decoder(text[2 * BLOCK :], second), decoder(text))


def test_the_last_token_is_computed_even_if_all_blocks_are_known(decoder: Decoder) -> None:
    pool = SharedPool(8, decoder)
    text = draw(SIZES, 2 * BLOCK)
    sharing(decoder, pool, text)
    assert SharingCache(pool, text).length == BLOCK


def test_one_changed_token_ends_the_match(decoder: Decoder) -> None:
    pool = SharedPool(12, decoder)
    text = draw(SIZES, 3 * BLOCK + 1)
    sharing(decoder, pool, text)
    changed = text.clone()
    changed[BLOCK + 2] = (changed[BLOCK + 2] + 1) % SIZES.vocabulary
    cache = sharing(decoder, pool, changed)
    assert pool.owners[cache.table.blocks[0]] == 2
    assert [pool.owners[block] for block in cache.table.blocks[1:]] == [1, 1, 1]
    assert SharingCache(pool, changed).length == 3 * BLOCK  # and it is known from now on


def test_the_same_sixteen_tokens_after_another_beginning_are_another_block(decoder: Decoder) -> None:
    pool = SharedPool(8, decoder)
    text = draw(SIZES, 2 * BLOCK + 1)
    sharing(decoder, pool, text)
    assert SharingCache(pool, text[BLOCK:]).length == 0


def test_the_last_owner_gives_the_block_back(decoder: Decoder) -> None:
    pool = SharedPool(4, decoder)
    text = draw(SIZES, BLOCK + 1)
    first = sharing(decoder, pool, text)
    second = sharing(decoder, pool, text)
    assert len(pool.free) == 1
    first.reset()
    assert len(pool.free) == 2  # the shared block stays
    second.reset()
    assert len(pool.free) == 4
    third = SharingCache(pool, text)  # its text is still known
    assert third.length == BLOCK
    assert len(pool.free) == 3


def test_a_block_that_is_taken_again_is_found_no_more(decoder: Decoder) -> None:
    pool = SharedPool(2, decoder)
    text = draw(SIZES, BLOCK + 1, seed=3)
    sharing(decoder, pool, text).reset()
    sharing(decoder, pool, draw(SIZES, BLOCK + 1, seed=4)).reset()
    assert SharingCache(pool, text).length == 0


def test_the_first_writer_copies_and_the_last_writes_in_place(decoder: Decoder) -> None:
    pool = SharedPool(8, decoder)
    text, more = draw(SIZES, BLOCK + 4), draw(SIZES, 6, seed=7)
    parent = sharing(decoder, pool, text)
    child = parent.fork()
    shared = parent.table.blocks[1]
    assert child.table.blocks == parent.table.blocks
    assert pool.owners[shared] == 2
    kept = pool.keys[:, shared].clone()
    answer = decoder(more[:3], child)
    assert child.table.blocks[1] != shared
    assert torch.equal(pool.keys[:, shared], kept)
    other = decoder(more[3:], parent)
    assert parent.table.blocks[1] == shared
    assert pool.owners[shared] == 1
    assert close(answer, decoder(torch.cat((text, more[:3]))))
    assert close(other, decoder(torch.cat((text, more[3:]))))
