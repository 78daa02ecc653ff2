"""vLLM's flags, as its own parser of 0.33.0 reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.engines.vllm.launch import _FLAGS, _spell

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.engines.base.reading import Reading

MODEL = "vllm serve org/name"

#: Flags → keys of the request and settings.
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "": ({}, {}),
    "--max-model-len 32768": ({"context": 32_768}, {}),
    "--max-model-len 32k": ({"context": 32_000}, {}),
    "--max-model-len=32K": ({"context": 32_768}, {}),
    "--max-model-len 25.6k": ({"context": 25_600}, {}),
    "--max-model-len 1.001k": ({"context": 1000}, {}),
    "--max-model-len 8_192": ({"context": 8192}, {}),
    "--max_model_len 1M": ({"context": 1_048_576}, {}),
    "--max-model-len auto": ({"context": -1}, {}),
    "--max-model-len -1": ({"context": -1}, {}),
    "--max-model-len 8192 --max-model-len 4096": ({"context": 4096}, {}),
    "-tp 2 -pp 4 -dcp 2": ({"tensor_parallel": 2, "pipeline_parallel": 4, "decode_context_parallel": 2}, {}),
    "-tp 4 --tensor-parallel-size 8": ({"tensor_parallel": 8}, {}),
    "-tp=2": ({"tensor_parallel": 2}, {}),
    "--kv-cache-dtype fp8_e4m3": ({"kv_dtype": "fp8_e4m3"}, {}),
    "--kv-cache-memory-bytes 25.6g": ({"kv_memory": 25_600_000_000}, {}),
    "--block-size 32 --max-num-seqs 64": ({}, {"block_size": 32, "max_num_seqs": 64}),
    "--max-num-batched-tokens 8K": ({}, {"max_num_batched_tokens": 8192}),
    "--gpu-memory-utilization 0.85": ({}, {"gpu_memory_utilization": 0.85}),
    "--device-memory-utilization .5": ({}, {"gpu_memory_utilization": 0.5}),
    "--enable-prefix-caching": ({}, {"enable_prefix_caching": True}),
    "--no-enable-prefix-caching": ({}, {"enable_prefix_caching": False}),
    "--disable-prefix-caching": ({}, {"enable_prefix_caching": False}),
    "--no-disable-prefix-caching": ({}, {"enable_prefix_caching": True}),
    "--no-async-scheduling": ({}, {"async_scheduling": False}),
    "--disable-hybrid-kv-cache-manager": ({}, {"disable_hybrid_kv_cache_manager": True}),
    "--enable-hybrid-kv-cache-manager": ({}, {"disable_hybrid_kv_cache_manager": False}),
    "--kv-cache-dtype-skip-layers 0 31 sliding_window --port 1": ({}, {"kv_cache_dtype_skip_layers": ["0", "31", "sliding_window"]}),
    "--attention-backend flashinfer": ({}, {"attention_backend": "FLASHINFER"}),
    "--attention-backend auto": ({}, {}),
    "-ac.backend FLASH_ATTN": ({}, {"attention_backend": "FLASH_ATTN"}),
    "--mamba-ssm-cache-dtype float32": ({}, {"mamba_ssm_cache_dtype": "float32"}),
    "--spec-method mtp --spec-tokens 3": ({}, {"speculative_method": "mtp", "num_speculative_tokens": 3}),
    "-sc.method deepseek_mtp --speculative-config.num_speculative_tokens 1 --port 1": (
        {},
        {"speculative_method": "mtp", "num_speculative_tokens": 1},
    ),
    """--speculative-config '{"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}'""": (
        {},
        {"speculative_method": "eagle3", "num_speculative_tokens": 3},
    ),
    "--host 0.0.0.0 --port 8000 --api-key a b --served-model-name x y --enable-auto-tool-choice --tool-call-parser hermes": ({}, {}),
    "--trust-remote-code --no-enable-log-requests -O3 -O 2 --enforce-eager --seed 0 --hf-token --disable-log-stats": ({}, {}),
    "--enable-chunked-prefill --no-enable-lora": ({}, {}),
}


@pytest.mark.parametrize("flags", READ)
def test_flags_are_read_as_vllm_reads_them(read: Callable[[str], Reading], flags: str) -> None:
    found = read(f"{MODEL} {flags}")
    assert (found.keys, found.settings) == READ[flags]
    assert found.model == "org/name"
    assert found.engine == "vllm"
    assert found.warnings == []


LAUNCHERS = (
    "vllm serve org/name",
    "vllm serve --model org/name",
    "/opt/venv/bin/vllm serve org/name",
    "HF_TOKEN=hf_x CUDA_VISIBLE_DEVICES=0,1 VLLM_LOGGING_LEVEL=DEBUG sudo -E vllm serve org/name",
    "python3 -m vllm.entrypoints.openai.api_server --model org/name",
    "nohup python -u -m vllm.entrypoints.openai.api_server --model=org/name > server.log 2>&1 &",
    "docker run --gpus all -v ~/.cache:/root/.cache -e HF_TOKEN=x --name vllm -p 8000:8000 vllm/vllm-openai:v0.33.0 --model org/name",
    "podman run --rm docker.io/vllm/vllm-openai@sha256:0123 --model org/name",
    "cd /srv/vllm && source venv/bin/activate; export A=1 && vllm serve org/name | tee log",
    "docker pull vllm/vllm-openai && docker run --name vllm-openai vllm/vllm-openai:v0.33.0 --model org/name; echo done",
    "docker run --entrypoint python3 vllm/vllm-openai -m vllm.entrypoints.openai.api_server --model org/name",
    "ssh host 'HF_TOKEN=x vllm serve org/name'",
    "docker run --entrypoint vllm nvcr.io/nvidia/vllm:1 bash -c 'exec vllm serve org/name'",
)


@pytest.mark.parametrize("command", LAUNCHERS)
def test_the_launcher_is_found_among_the_words(read: Callable[[str], Reading], command: str) -> None:
    found = read(command)
    assert (found.engine, found.model, found.keys, found.warnings) == ("vllm", "org/name", {}, [])


def test_types_of_the_model_and_of_its_weights(read: Callable[[str], Reading]) -> None:
    assert read(f"{MODEL} --dtype half").dtype == "fp16"
    assert read(f"{MODEL} --dtype auto").dtype is None
    assert (read(f"{MODEL} -q awq").weight_dtype, read(f"{MODEL} -q awq").requantised) == ("int4", False)
    assert (read(f"{MODEL} -q fp8").weight_dtype, read(f"{MODEL} -q fp8").requantised) == ("fp8", True)
    assert read(f"{MODEL} -q torchao").on_card == [
        "--quantization does not tell the size of the weights: the memory left for the cache is estimated without it"
    ]


REFUSED = {
    "--hf-overrides '{\"a\": 1}'": "--hf-overrides makes another model of this one",
    "--hf-overrides.rope_scaling x": "--hf-overrides makes another model of this one",
    "--config serve.yaml": "--config: the file that it names is not here",
    "--config=serve.yaml": "--config names a file in a way that vLLM does not read",
    "--kv-transfer-config '{}'": "--kv-transfer-config gives the cache to a connector",
    "--runner pooling": "--runner starts a model that generates nothing",
    "--disable-sliding-window": "--disable-sliding-window caps the context",
    "--no-enable-chunked-prefill": "--no-enable-chunked-prefill raises the tokens of a step",
    "--disable-chunked-prefill": "--no-enable-chunked-prefill raises the tokens of a step",
    "--performance-mode throughput": "--performance-mode doubles the tokens of a step",
    "-pcp 2": "--prefill-context-parallel-size splits prefill",
    "--dtype float32": "--dtype: kvcalc reads half, float16, bfloat16 and auto",
    "--spec-model org/draft": "the method of speculation is not said",
    "--spec-method draft_model": "--spec-method: kvcalc has no rule for this method",
    "--speculative-config '[1]'": "--speculative-config: its value is not a JSON object",
    "--attention-config.flash_attn_version 4": "--attention-config: kvcalc has a rule for its backend alone",
    "--max-model-len 1.5K": "--max-model-len: its value is not a whole number",
    "--max-model-len 0": "--max-model-len: its value is not a whole number of at least 1",
    "--max-model-len 0k": "--max-model-len: its value is out of range",
    "--rope-scaling '{}'": "--rope-scaling stretches the context, for which this release has --hf-overrides",
    "--max-model-len 99999999999t": "--max-model-len: its value is out of range",
    "--max-model-len": "--max-model-len has no value",
    "-tp --port 8000": "-tp has no value",
    "-tp 0": "--tensor-parallel-size: its value is not a whole number of at least 1",
    "-tp two": "--tensor-parallel-size: its value is not a whole number of at least 1",
    "--enforce-eager=true": "--enforce-eager takes no value",
    "--gpu-memory-utilization 2": "--gpu-memory-utilization: its value is not a number",
    "--mamba-cache-dtype int3": "--mamba-cache-dtype: its value is not one of auto",
    "--port 8000 stray": "a word behind --port is neither a flag nor the value of one",
    "--model https://me:secret@example.org/x": "--model: kvcalc does not read the model from this address",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_what_kvcalc_has_no_rule_for_is_refused_by_name(read: Callable[[str], Reading], flags: str) -> None:
    with pytest.raises(UsageError) as error:
        read(f"{MODEL} {flags}")
    assert error.value.message.startswith(REFUSED[flags])
    assert "secret" not in error.value.message + error.value.hint


@pytest.mark.parametrize("flags", ["--model-impl auto", "--runner generate", "--performance-mode balanced", "-pcp 1"])
def test_a_value_that_leaves_everything_as_it_is_is_no_refusal(read: Callable[[str], Reading], flags: str) -> None:
    assert read(f"{MODEL} {flags}").warnings == []


def test_a_flag_in_no_table_is_named_and_its_value_is_not(read: Callable[[str], Reading]) -> None:
    found = read(f"{MODEL} --made-up hunter2 --made-up=hunter3 -sk-0123456789abcdef --port 1")
    assert found.warnings == [
        "--made-up is not a flag that kvcalc knows of this engine: it was not read",
        "a word that begins with a dash is not a flag that kvcalc knows of this engine: it was not read",
    ]


def test_a_variable_of_the_engine_is_named_and_others_are_not(read: Callable[[str], Reading]) -> None:
    found = read("HF_TOKEN=x VLLM_API_KEY=y VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve org/name")
    assert found.warnings == ["variables of the engine that kvcalc does not read: VLLM_ALLOW_LONG_MAX_MODEL_LEN"]


def test_every_setting_has_its_flag() -> None:
    """But for three that vLLM's command line says in other words."""
    flags = {name for name in _FLAGS if name.startswith("--")}
    settings = {f"--{setting.name.replace('_', '-')}" for setting in get_engine("vllm").settings}
    assert settings - flags == {"--usage-context", "--num-speculative-tokens", "--speculative-method"}


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("--enable_prefix_caching", ("--enable-prefix-caching", False)),
        ("--no-disable-prefix-caching", ("--enable-prefix-caching", False)),
        ("--enable-custom-all-reduce", ("--disable-custom-all-reduce", True)),
        ("--no-enable-custom-all-reduce", ("--disable-custom-all-reduce", False)),
    ],
)
def test_spellings(spelled: str, meant: tuple[str, bool]) -> None:
    assert _spell(spelled) == meant
