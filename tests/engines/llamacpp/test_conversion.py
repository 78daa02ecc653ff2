"""Models of the catalogue and config.json under the architecture that llama.cpp's converter writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.architecture import Layout
from kvcalc.core.errors import EngineRejectsError, InvalidConfigError, UnsupportedArchitectureError
from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.llamacpp.architectures import ARCHITECTURES, FAMILIES
from kvcalc.sources import load
from kvcalc.sources.gguf.architecture import FAMILIES as MODEL_TYPES
from kvcalc.sources.gguf.architecture import KNOWN

if TYPE_CHECKING:
    from kvcalc.core.plan import Plan


def plan(model: str | dict[str, Any], *, context: int | None = None, **args: Any) -> Plan:
    return get_engine("llama.cpp").plan(load(model), Workload(context=context, engine_args=args))


Q8 = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}


@pytest.mark.parametrize(
    ("model", "args", "total"),
    [
        ("llama-3-8b", {"ctx_size": 4096}, 536_870_912),
        ("llama-3-8b", {"ctx_size": 1024, "parallel": 3}, 201_326_592),
        ("gpt-oss-20b", {"ctx_size": 32_768, **Q8}, 437_846_016),
        ("deepseek-v3", {"ctx_size": 32_768, **Q8}, 1_223_294_976),
        ("deepseek-v3.2", {"ctx_size": 32_768, "parallel": 4, "kv_unified": True}, 2_814_377_984),
        ("deepseek-v4-flash", {"ctx_size": 8192, "parallel": 4, "n_rs_seq": 3}, 406_585_344),
        ("gemma-3-27b", {"ctx_size": 32_768, "parallel": 4}, 5_301_600_256),
        ("gemma-3-27b", {"ctx_size": 32_768, "parallel": 4, "kv_unified": True}, 4_647_288_832),
        ("gemma-3-27b", {"ctx_size": 32_768, "ubatch_size": 2048}, 3_992_977_408),
        ("gemma-3-27b", {"ctx_size": 32_768, "parallel": 2, "swa_full": True}, 16_642_998_272),
        ("gemma-3n-e4b", {"ctx_size": 32_768, "parallel": 4}, 402_653_184),
        ("qwen3-next-80b-a3b", {"ctx_size": 32_768, "parallel": 4}, 1_121_452_032),
        ("granite-4.0-h-small", {"ctx_size": 32_768, "parallel": 4, "kv_unified": True}, 1_155_448_832),
    ],
)
def test_catalogue_models_take_what_llamacpp_measured(model: str, args: dict[str, Any], total: int) -> None:
    assert plan(model, **args).total == total


def test_windows_that_the_architecture_does_not_read() -> None:
    found = plan("mistral-7b-v0.1", context=32_768)
    assert found.total == 32 * 2 * 8 * 128 * 2 * 32_768
    assert any("reads no window: 32 sliding layers" in note for note in found.notes)
    assert plan("phi-3-mini-4k", context=4096).total == 32 * 2 * 32 * 96 * 2 * 4096


def test_a_latent_that_llamacpp_expands() -> None:
    config = {
        "model_type": "minicpm3",
        "num_hidden_layers": 62,
        "hidden_size": 2560,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "kv_lora_rank": 256,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
        "max_position_embeddings": 32_768,
    }
    assert plan({"hf_config": config}, context=4096).total == 62 * 40 * (96 + 64) * 2 * 4096


def gemma(pattern: list[str], family: str = "gemma3_text") -> dict[str, Any]:
    heads = {"kv_heads": 1, "head_dim": 128}
    states = {"local": {"kind": "sliding", "window": 512, **heads}, "global": {"kind": "full", **heads}}
    layers = {"pattern": pattern, "count": len(pattern), "states": {name: states[name] for name in dict.fromkeys(pattern)}}
    return {"architecture": {"id": "small", "family": family, "max_context": 8192, "layers": layers}}


def test_a_pattern_that_no_converter_writes_is_the_loaders_own() -> None:
    # one full layer in six: with 12 layers two, wherever the model has its own
    own = ["global", "local", "local"] * 4
    found = plan(gemma(own), context=8192)
    assert found.total == 2 * 128 * 2 * (2 * 8192 + 10 * 1024)
    assert any("one layer in 6 of gemma3 full" in note for note in found.notes)
    usual = plan(gemma(["local"] * 5 + ["global"] + ["local"] * 5 + ["global"]), context=8192)
    assert usual.total == found.total
    assert not any("one layer in" in note for note in usual.notes)
    # olmo2's converter writes the pattern
    assert plan(gemma(own, "olmo3"), context=8192).total == 2 * 128 * 2 * (4 * 8192 + 8 * 1024)


def test_architectures_that_always_have_windows() -> None:
    with pytest.raises(UnsupportedArchitectureError, match="always gives gpt-oss models window layers"):
        plan(gemma(["global"] * 4, "gpt_oss"), context=8192)
    assert plan(gemma(["global"] * 4), context=8192).total == 4 * 2 * 128 * 2 * 8192


def test_converters_drop_most_draft_layers() -> None:
    with pytest.raises(EngineRejectsError, match="no draft layers"):
        plan("deepseek-v3", context=4096, mtp_context=True)
    assert plan("deepseek-v3.2", context=4096, mtp_context=True).total == 576 * 2 * 4096


def test_models_that_no_converter_writes() -> None:
    for model in ("opt-13b", "longcat-flash"):
        with pytest.raises(UnsupportedArchitectureError, match="no converter writes it"):
            plan(model, context=2048)


def test_gemma_3n_must_own_twenty_layers() -> None:
    model = load("gemma-3n-e4b")
    pattern = ("sliding",) * 18 + ("shared_sliding",) * 4
    states = {name: model.layers.states[name] for name in ("sliding", "shared_sliding")}
    fewer = replace(model, layers=Layout(pattern=pattern, count=22, states=states))
    with pytest.raises(UnsupportedArchitectureError, match="exactly 20 gemma3n layers, and this model has 18"):
        get_engine("llama.cpp").plan(fewer, Workload(context=4096))


def test_the_tables_speak_of_architectures_that_exist() -> None:
    assert set(ARCHITECTURES) == KNOWN
    assert {rule.otherwise or rule.with_experts for rule in ARCHITECTURES.values()} <= {"", *KNOWN}
    for name, family in MODEL_TYPES.items():
        assert FAMILIES[family] in {name, "nemotron_h", "deepseek2", "kimi-linear"} or name == "qwen2vl"


def test_traits_are_not_trusted() -> None:
    model = gemma(["local"] * 4)
    model["architecture"]["traits"] = {"gguf_architecture": "gemma33"}
    with pytest.raises(UnsupportedArchitectureError, match="no architecture 'gemma33'"):
        plan(model, context=4096)
    wrong = {"gguf_architecture": ["x"], "gguf_head_dims": ["a", None], "gguf_value_width": "wide", "gguf_value_length": {}}
    for name, value in wrong.items():
        model["architecture"]["traits"] = {"gguf_architecture": "gemma3"} | {name: value}
        with pytest.raises(InvalidConfigError, match=rf"traits\.{name}.*: must be"):
            plan(model, context=4096)
