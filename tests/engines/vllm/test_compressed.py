"""DeepSeek-V4: pages of every state, packed groups, and figures measured on the class-default layers."""

from __future__ import annotations

from collections import Counter

import pytest
from vllm_models import GIB, fitting, model, plan

from kvcalc.core.architecture import Architecture, Layout
from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.states import Compressed, Index, Latent
from kvcalc.engines.vllm.compressed import read_layout, specs
from kvcalc.sources.schema import read

WINDOW = Latent(latent_dim=448, rope_dim=64, window=128, query_heads=64)
CSA = (WINDOW, Compressed(latent_dim=512, rope_dim=64, ratio=4), Index(index_dim=128, ratio=4))
HCA = (WINDOW, Compressed(latent_dim=512, rope_dim=64, ratio=128))


def flash(**fields: object) -> Architecture:
    """43 layers: three of ratio 128, then ratio 4 and 128 in turn."""
    return model(["h*2", *["h", "c"] * 20, "h"], 43, {"c": CSA, "h": HCA}, "deepseek_v4", max_context=1048576, **fields)


def test_pages() -> None:
    packed = read_layout("auto", None, 90)
    pages = [spec.page for state in (*CSA, HCA[1]) for spec in specs(state, packed)]
    assert pages == [
        65 * 576,  # 64 rows of 584
        65 * 576,  # 256 / 4 rows of 584
        57 * 576,  # 4 rows of 8,192: 32,768 to 32,832
        15 * 576,  # 64 keys of 132: 8,448 to 8,640
        15 * 576,  # 4 rows of 2,048
        3 * 576,  # 2 rows of 584
        57 * 576,  # 8 rows of 4,096
    ]


def test_plain_rows_of_flashinfer() -> None:
    plain = read_layout("auto", "FLASHINFER_MLA_SPARSE_DSV4", 100)
    assert [spec.page for spec in specs(WINDOW, plain)] == [64 * 512 * 2]
    fp8 = read_layout("fp8", "FLASHINFER_MLA_SPARSE_DSV4", 100)
    assert [spec.page for spec in specs(CSA[1], fp8)] == [64 * 512, 64 * 512]


def test_groups() -> None:
    found = fitting(flash(), 40 * GIB, tensor_parallel=4)
    counts = Counter(layer.state.kind for layer in found.pool.layers)
    assert counts == {"latent": 43, "compressed": 2 * 43, "index": 2 * 20}
    assert [len(group.layers) for group in found.pool.groups] == [22, 21, 63, 23, 40]
    assert found.pool.block_bytes == 961_344
    assert found.pool.group_blocks(1_048_576) == (259, 259, 4096, 2065, 4099)
    assert (found.capacity(1_048_576).blocks, found.capacity(1_048_576).tokens) == (44_676, 4_346_463)
    assert found.capacity(131_072).tokens == 813_980


def test_latents_stand_on_every_gpu_and_fp8_is_what_it_is_anyway() -> None:
    assert plan(flash(), context=4096, tensor_parallel=8, kv_dtype="fp8").per_device == plan(flash(), context=4096).per_device


def test_draft_layers_keep_a_window_alone() -> None:
    draft = read(Layout, {"pattern": ["c"], "count": 1, "states": {"c": list(CSA)}})
    args = {"speculative_method": "mtp"}
    found = fitting(flash(draft=draft), 40 * GIB, args=args)
    assert len(found.pool.layers) == len(fitting(flash(), 40 * GIB).pool.layers) + 1


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ({"kv_dtype": "nvfp4"}, "cache of nvfp4"),
        ({"args": {"block_size": 64}}, "blocks of 64"),
        ({"args": {"attention_backend": "TRITON_MLA"}}, "backend TRITON_MLA"),
        ({"args": {"attention_backend": "FLASHINFER_MLA_SPARSE_DSV4"}}, "before Blackwell"),
        ({"tensor_parallel": 2, "decode_context_parallel": 2}, "sliding windows"),
    ],
)
def test_refused(question: dict[str, object], reason: str) -> None:
    with pytest.raises(EngineRejectsError, match=reason):
        plan(flash(), context=4096, **question)
