"""Every file of the catalogue: valid, sourced, and its figures hold."""

from __future__ import annotations

import pytest

from kvcalc.questions.models import list_models, validate_files
from kvcalc.sources import catalogue, load

IDS = catalogue.ids()


def test_there_are_enough() -> None:
    assert len(IDS) >= 150


def test_every_file_is_valid_and_every_figure_holds() -> None:
    assert [str(problem) for problem in validate_files([catalogue.folder()])] == []


@pytest.mark.parametrize("model_id", IDS)
def test_every_model_says_who_it_is(model_id: str) -> None:
    found = load(model_id)
    assert found.name
    assert found.family
    assert found.class_name
    assert found.hub.count("/") == 1
    assert found.source is not None
    assert found.source.file
    assert found.source.where
    assert found.source.read
    assert set(found.source.assumed.values()) <= {"class default", "catalogue", "memory"}
    assert len(found.expect) >= 1


def test_no_two_entries_are_the_same_repository() -> None:
    assert len(catalogue.hubs()) == len(IDS)


#: Models that introductions talk about, one or more of each kind.
EXPECTED = [
    "llama-2-7b", "llama-2-13b", "llama-2-70b", "llama-3-8b", "llama-3.1-8b", "llama-3.1-405b", "llama-3.2-1b", "llama-3.3-70b",
    "llama-4-scout-17b-16e", "llama-4-maverick-17b-128e", "mistral-7b-v0.1", "mistral-nemo-12b", "mixtral-8x7b", "mixtral-8x22b",
    "qwen2.5-7b", "qwen2.5-72b", "qwen3-8b", "qwen3-235b-a22b", "qwen3-next-80b-a3b", "qwen3.5-27b", "qwen3.6-35b-a3b", "gemma-2-9b",
    "gemma-3-27b", "gemma-3n-e4b", "gemma-4-e2b", "gemma-4-31b", "deepseek-v2", "deepseek-v2-lite", "deepseek-v3", "deepseek-r1",
    "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro", "kimi-k2", "kimi-k3", "kimi-linear-48b-a3b", "glm-4.5", "glm-4.7-flash",
    "glm-5", "glm-5.2", "minimax-m1", "minimax-m2", "minimax-m3", "gpt-oss-20b", "gpt-oss-120b", "nemotron-h-8b",
    "nemotron-3-nano-30b-a3b", "granite-4.0-h-small", "falcon-7b", "falcon-40b", "falcon-h1-0.5b", "jamba-v0.1", "mamba-2.8b",
    "lfm2-1.2b", "phi-3-mini-4k", "phi-4", "olmo-2-7b", "olmo-3-7b", "gpt2", "gpt2-xl", "gpt-j-6b", "opt-13b", "bloom", "rwkv7-g1j-2.9b",
    "recurrentgemma-2b",
]  # fmt: skip


@pytest.mark.parametrize("model_id", EXPECTED)
def test_the_models_that_people_ask_for(model_id: str) -> None:
    assert model_id in IDS


def per_token(model_id: str) -> int:
    return next(row.bytes_per_token for row in list_models(model_id) if row.id == model_id)


@pytest.mark.parametrize(
    ("model_id", "figure"),
    [
        ("llama-2-7b", 2 * 32 * 32 * 128 * 2),  # multi-head, 524,288 B; not the 128 KiB that 8 heads would give
        ("llama-3.1-405b", 516_096),  # arXiv 2505.09343, table 1
        ("qwen2.5-72b", 327_680),  # the same table
        ("deepseek-v3", 70_272),  # the same table: 61 x (512 + 64) x 2 B
        ("opt-13b", 800 * 1024),  # the vLLM paper, arXiv 2309.06180
        ("gpt2", 36 * 1024),
        ("gpt2-xl", 300 * 1024),  # the figure that is often quoted for "GPT-2"
        ("falcon-7b", 32 * 1 * 2 * 64 * 2),  # one KV head
        ("deepseek-v3.2", 70_272 + 61 * 132),  # one fp8 index key of 128 with its fp32 scale a layer
    ],
)
def test_published_bytes_per_token(model_id: str, figure: int) -> None:
    assert per_token(model_id) == figure
