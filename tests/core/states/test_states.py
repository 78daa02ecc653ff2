"""Elements of each state, with the numbers of its docstring put in."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, get_args

import pytest
from pydantic import ValidationError

from kvcalc.core import states as every_state
from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.fields import field_names
from kvcalc.core.states import (
    KINDS,
    Chunked,
    Compressed,
    Cross,
    Full,
    GatedDeltaNet,
    Index,
    Kda,
    Latent,
    Lightning,
    Mamba1,
    Mamba2,
    Nothing,
    RgLru,
    Rwkv,
    Shared,
    ShortConv,
    Sliding,
)
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.sources.schema import read

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState


#: The fields that each kind cannot do without.
FIELDS: dict[str, dict[str, int]] = {
    "full": {"kv_heads": 8, "head_dim": 64},
    "cross": {"kv_heads": 8, "head_dim": 64},
    "sliding": {"kv_heads": 8, "head_dim": 64, "window": 128},
    "chunked": {"kv_heads": 8, "head_dim": 64, "chunk": 128},
    "latent": {"latent_dim": 512},
    "index": {"index_dim": 128},
    "compressed": {"latent_dim": 512, "ratio": 4},
    "mamba1": {"inner_dim": 64, "state_dim": 16},
    "mamba2": {"heads": 8, "head_dim": 64, "state_dim": 16},
    "gated_deltanet": {"key_heads": 8, "value_heads": 8, "key_head_dim": 64, "value_head_dim": 64},
    "kda": {"heads": 8, "head_dim": 64},
    "lightning": {"heads": 8, "head_dim": 64},
    "rwkv": {"heads": 8, "head_dim": 64, "hidden_dim": 512},
    "short_conv": {"channels": 64},
    "rg_lru": {"lru_dim": 64},
    "fixed": {"elements": 64},
}


def total(*states: AnyState, layers: int, context: int = 1, dtype: str = "bfloat16") -> int:
    layout = Layout(pattern=("a",), count=layers, states={"a": states})
    model = Architecture(id="m", family="test", dtype=dtype, layers=layout)
    return get_engine("ideal").plan(model, Workload(context=context)).total


def test_docstring_examples() -> None:
    assert total(Full(kv_heads=32, head_dim=128), layers=32) == 524_288
    assert total(Sliding(kv_heads=16, head_dim=128, window=1024), layers=52, context=32_768) == 436_207_616
    assert total(Chunked(kv_heads=8, head_dim=128, chunk=8192), layers=36, context=131_072) == 1_207_959_552
    assert total(Cross(kv_heads=20, head_dim=64, source_tokens=1500), layers=32, context=7) == 245_760_000
    assert total(Latent(latent_dim=512, rope_dim=64), layers=61) == 70_272
    assert total(Index(index_dim=128), layers=61) == 8052
    assert total(Compressed(latent_dim=512, ratio=4), layers=21, context=131_072) == 21 * 32_768 * 1024
    assert total(Compressed(latent_dim=512, ratio=128), layers=20, context=131_072) == 20 * 1024 * 1024
    assert 21 * 32_768 * 1024 + 20 * 1024 * 1024 == 725_614_592
    assert total(Mamba1(inner_dim=8192, state_dim=16, conv_kernel=4), layers=64, context=99) == 36_700_160
    assert total(Mamba2(heads=256, head_dim=64, state_dim=256, groups=8, conv_kernel=4), layers=54) == 912_605_184
    net = GatedDeltaNet(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
    assert total(net, layers=36) == 77_266_944
    assert total(Kda(heads=32, head_dim=128, conv_kernel=4), layers=20) == 43_417_600
    assert total(Lightning(heads=64, head_dim=128), layers=70) == 293_601_280
    assert total(Rwkv(heads=40, head_dim=64, hidden_dim=2560), layers=32) == 21_299_200
    assert total(ShortConv(channels=2048, conv_kernel=3), layers=10) == 81_920
    assert total(RgLru(lru_dim=2560, conv_kernel=4), layers=18) == 460_800
    assert total(Shared(), Nothing(), layers=20) == 0


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("shared", "none")])
def test_every_docstring_has_symbols_and_numbers(kind: str) -> None:
    doc = KINDS[kind].__doc__ or ""
    assert re.search(r"\n\n +(?:elements|bytes|rows)", doc), f"{kind} has no formula"
    assert KINDS[kind].technique


def test_value_width_may_differ() -> None:
    state = Sliding(kv_heads=8, head_dim=192, value_head_dim=128, window=128)
    assert total(state, layers=1, context=4096) == 128 * 8 * (192 + 128) * 2


def test_state_types_follow_the_config_else_fp32_and_the_models_own() -> None:
    half = Mamba1(inner_dim=8, state_dim=4, conv_kernel=4, state_dtype="bfloat16")
    assert total(half, layers=1) == 8 * 4 * 2 + 8 * 3 * 2
    assert total(Mamba1(inner_dim=8, state_dim=4, conv_kernel=4), layers=1, dtype="float32") == 8 * 4 * 4 + 8 * 3 * 4


def test_windowed_latents_and_pooled_index_keys() -> None:
    assert total(Latent(latent_dim=1024, rope_dim=64, window=512), layers=1, context=4096) == 512 * 1088 * 2
    assert total(Index(index_dim=128, ratio=4), layers=1, context=4099) == 1024 * 132
    assert total(Index(index_dim=128, format="bf16"), layers=1, context=3) == 3 * 256


def test_a_compressed_latent_is_one_vector_a_row() -> None:
    (buffer,) = every_state.Compressed(latent_dim=512, rope_dim=64, ratio=4).buffers()
    assert (buffer.vectors, buffer.width, buffer.rope) == (1, 512, 64)
    assert [buffer.extent.slots(tokens) for tokens in (3, 4, 131_072)] == [0, 1, 32_768]


def test_query_heads_must_be_a_multiple() -> None:
    with pytest.raises(ValueError, match="multiple of kv_heads"):
        Full(kv_heads=3, head_dim=64, query_heads=32)


@pytest.mark.parametrize("kind", KINDS)
def test_every_state_is_a_frozen_value(kind: str) -> None:
    made = [read(KINDS[kind], FIELDS.get(kind, {})) for _ in range(2)]
    state = made[0]
    assert state == made[1]
    assert hash(state) == hash(made[1])
    assert dataclasses.replace(state) == state
    assert not hasattr(state, "__dict__")
    assert state.to_dict() == {"kind": kind, **{name: getattr(state, name) for name in field_names(state)}}
    assert state.kind == kind
    for name in field_names(state):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(state, name, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_checked_where_it_comes_from_outside(kind: str) -> None:
    right = FIELDS.get(kind, {})
    numbers = [field.name for field in dataclasses.fields(KINDS[kind]) if "Int" in str(field.type)]
    assert numbers or kind == "none"
    for name in numbers:
        for wrong in ("8", 8.0, True, -1):
            with pytest.raises(ValidationError):
                read(KINDS[kind], {**right, name: wrong})


def test_the_union_is_closed() -> None:
    assert get_args(every_state.AnyState) == tuple(KINDS.values())
    assert len({state.__name__ for state in KINDS.values()}) == len(KINDS)
    assert [state.kind for state in KINDS.values()] == list(KINDS)
