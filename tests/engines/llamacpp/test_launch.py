"""The options of llama-server and llama-cli, as common/arg.cpp reads them; Ollama's variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.engines.llamacpp.launch import _FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    from kvcalc.engines.base.reading import Reading

AUTO = {"parallel": -1}

#: Options → keys of the request and settings.
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "-c 4096": ({"context": 4096}, AUTO),
    "-c 0 -np 2": ({"sequences": 2}, {"parallel": 2, "ctx_size": 0}),
    "-c 65536 -np 4": ({"sequences": 4, "context": 16_384}, {}),
    "-c 65536 -np 4 -kvu": ({"context": 65_536}, {"parallel": 4, "kv_unified": True}),
    "-c 65536 -np 4 -kvu -no-kvu": ({"sequences": 4, "context": 16_384}, {"kv_unified": False}),
    "--no-kv-unified -np 1 --ctx-size 8192": ({"sequences": 1, "context": 8192}, {"kv_unified": False}),
    "-c 5000 -np 3": ({"sequences": 3}, {"parallel": 3, "ctx_size": 5000}),
    "-np -1 --kv-unified-per-slot 4096": ({"context": 16_384}, AUTO),
    "-ctk q8_0 --cache-type-v q4_0": ({"kv_dtype": "q8_0/q4_0"}, AUTO),
    "--cache_type_k q8_0": ({"kv_dtype": "q8_0/f16"}, AUTO),
    "-ctk q8_0 -ctv q8_0": ({"kv_dtype": "q8_0"}, AUTO),
    "-ctk f16": ({}, AUTO),
    "-fa on": ({}, AUTO | {"flash_attn": "on"}),
    "-fa 0": ({}, AUTO | {"flash_attn": "off"}),
    "-fa auto": ({}, AUTO | {"flash_attn": "auto"}),
    "-b 4096 -ub 1024 --swa-full": ({}, AUTO | {"batch_size": 4096, "ubatch_size": 1024, "swa_full": True}),
    "-ngl 20 -sm tensor -ts 3/1": ({}, AUTO | {"n_gpu_layers": 20, "split_mode": "tensor", "tensor_split": ["3", "1"]}),
    "-ngl all -sm layer -ts 1,1": ({}, AUTO | {"split_mode": "layer", "tensor_split": ["1", "1"]}),
    "-nkvo": ({}, AUTO | {"no_kv_offload": True}),
    "--no-kv-offload --kv-offload": ({}, AUTO),
    "--spec-type ngram-mod": ({}, AUTO),
    "--host -x --api-key -sk-1 -p --ctx-size --jinja -t 8 -tb 8 --metrics --no-mmproj -v -lv 4 --temp 0.7 -a name": ({}, AUTO),
}


@pytest.mark.parametrize("flags", READ)
def test_options_are_read_as_llama_server_reads_them(read: Callable[[str], Reading], flags: str) -> None:
    found = read(f"llama-server -m model.gguf {flags}")
    assert (found.keys, found.settings) == READ[flags]
    assert (found.engine, found.model, found.warnings) == ("llama.cpp", "model.gguf", [])


def test_the_programs_and_their_images(read: Callable[[str], Reading]) -> None:
    server = read("docker run -v /m:/m --name llama-cli ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/x.gguf --port 8000")
    assert (server.settings, server.model) == (AUTO, "/m/x.gguf")
    cli = {"usage": "cli", "parallel": 1}
    assert read("./build/bin/llama-cli -m x.gguf").settings == cli
    assert read("docker run ghcr.io/ggml-org/llama.cpp:light -m x.gguf").settings == cli


def test_variables_stand_for_options_which_override_them(read: Callable[[str], Reading]) -> None:
    found = read("LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_N_PARALLEL=2 LLAMA_ARG_SWA_FULL=1 LLAMA_ARG_KV_UNIFIED=off llama-server -np 4")
    assert (found.keys, found.settings) == ({"sequences": 4, "context": 2048}, {"swa_full": True, "kv_unified": False})
    found = read("LLAMA_ARG_HOST=x LLAMA_ARG_ENDPOINT_METRICS=1 LLAMA_API_KEY=secret LLAMA_ARG_MADE_UP=secret llama-server")
    assert found.warnings == ["variable LLAMA_ARG_MADE_UP is none that kvcalc knows of this engine: it was not read"]


@pytest.mark.parametrize(
    ("flags", "weights"),
    [
        ("-hf org/name-GGUF:Q4_K_M", "q4_k_m"),
        ("-hf org/name-GGUF", None),
        ("-m a/qwen3-32b-Q8_0.gguf", "q8_0"),
        ("-m qwen3-32b-Q4_K_M-00001-of-00003.gguf", "q4_k_m"),
        ("-m model.gguf", None),
        ("-hf org/name-GGUF -hff name-bf16.gguf", "bf16"),
    ],
)
def test_the_quantization_in_a_name(read: Callable[[str], Reading], flags: str, weights: str | None) -> None:
    found = read(f"llama-server {flags}")
    assert found.weight_dtype == weights
    assert found.on_card == []


def test_a_quantization_without_a_known_size_is_a_warning_on_a_card(read: Callable[[str], Reading]) -> None:
    found = read("llama-server -hf org/name:UD-Q2_K_XL")
    assert (found.model, found.weight_dtype, len(found.on_card)) == ("org/name", None, 1)
    assert found.on_card[0].startswith("--hf-repo names a quantization whose size is not known: ")


def test_drafts_keep_rows_to_roll_back_to_and_a_cache_of_their_own(read: Callable[[str], Reading]) -> None:
    found = read("llama-server -m m.gguf --spec-draft-n-max 5 --spec-type draft-mtp")
    assert found.settings["n_rs_seq"] == 5
    assert read("llama-server -m m.gguf --spec-type draft-mtp").settings["n_rs_seq"] == 3
    assert found.warnings == ["--spec-type opens a second context for drafts, whose cache is not counted here"]
    assert read("llama-server -md d.gguf").warnings == ["--spec-draft-model runs a second model, whose cache is not counted here"]


REFUSED = {
    "--override-kv a=int:1": "--override-kv changes the keys",
    "--embedding": "--embedding serves no text",
    "--gpt-oss-20b-default": "--gpt-oss-20b-default is a set of flags of its own",
    "--ctx-size=4096": "--ctx-size: this engine reads no value behind =",
    "-c": "-c has no value",
    "-c 4k": "--ctx-size: its value is not a whole number",
    "-np 0": "--parallel: its value is 0",
    "-fa maybe": "--flash-attn: its value is not on, off or auto",
    "-ts secret": "--tensor-split: its value is not a list of proportions",
    "-sm columns": "--split-mode: its value is not one of auto",
    "-m https://example.org/x.gguf?token=secret": "--model: kvcalc does not read the model from this address",
    "stray": "a word behind the launcher is neither a flag nor the value of one",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_what_kvcalc_has_no_rule_for_is_refused_by_name(read: Callable[[str], Reading], flags: str) -> None:
    with pytest.raises(UsageError) as error:
        read(f"llama-server {flags}")
    assert error.value.message.startswith(REFUSED[flags])
    assert "secret" not in error.value.message + error.value.hint


def test_every_setting_has_its_flag() -> None:
    settings = {f"--{setting.name.replace('_', '-')}" for setting in get_engine("llama.cpp").settings}
    assert settings - _FLAGS.keys() == {"--n-rs-seq", "--mtp-context", "--no-kv-offload"}


def test_the_bytes_are_those_of_the_engine(ask: Callable[..., Answer]) -> None:
    """Gemma-3-27B, 32k cells in 4 slots: 10 full layers x 8,192 B x 32,768, 52 window layers of 4 x pad256(1,024 + 512) cells."""
    words = ["llama-server", "-m", "x.gguf", "-c", "32768", "-np", "4"]
    found = ask("launch", "--model", "gemma-3-27b", "-f", "json", *words)
    assert found.document["bytes"]["total"] == 10 * 8192 * 32_768 + 52 * 8192 * 6144
    shared = ask("launch", "--model", "gemma-3-27b", "-f", "json", *words[:-2])
    assert shared.document["bytes"]["total"] == 10 * 8192 * 32_768 + 52 * 8192 * 4608


# ── Ollama ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ollama_is_told_by_variables(read: Callable[[str], Reading]) -> None:
    found = read(
        "OLLAMA_CONTEXT_LENGTH=16384 OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 OLLAMA_FLASH_ATTENTION=1 OLLAMA_HOST=x ollama serve"
    )
    assert found.keys == {"context": 16_384, "sequences": 2, "kv_dtype": "q8_0"}
    assert found.settings == {"flash_attention": "on"}
    assert (found.engine, found.model, found.warnings) == ("ollama", None, [])
    run = read("ollama run qwen3:8b --verbose why is the sky blue")
    assert (run.model, run.keys, run.settings) == ("qwen3:8b", {}, {})
    box = read("docker run -d --gpus=all -v ollama:/root/.ollama -e OLLAMA_CONTEXT_LENGTH=8192 --name ollama ollama/ollama")
    assert box.keys == {"context": 8192}
    assert read("OLLAMA_MADE_UP=secret ollama serve").warnings == ["variable OLLAMA_MADE_UP is none that kvcalc reads of this engine"]
    with pytest.raises(UsageError, match="neither true nor false"):
        read("OLLAMA_FLASH_ATTENTION=maybe ollama serve")
