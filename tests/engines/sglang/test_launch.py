"""SGLang's flags, as its own parser of 0.5.23 reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kvcalc.core.errors import UsageError
from kvcalc.engines import get_engine
from kvcalc.engines.sglang.launch import _FLAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    from kvcalc.engines.base.reading import Reading

#: Flags → keys of the request and settings.
READ: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "": ({}, {}),
    "--context-length 131072 --tp 8": ({"context": 131_072, "tensor_parallel": 8}, {}),
    "--tp-size 4 --tensor-parallel-size 8": ({"tensor_parallel": 8}, {}),
    "--pp-size 2 --dcp-size 2": ({"pipeline_parallel": 2, "decode_context_parallel": 2}, {}),
    "--kv-cache-dtype fp8_e5m2": ({"kv_dtype": "fp8_e5m2"}, {}),
    "--mem-fraction-static 0.85 --page-size 64": ({}, {"mem_fraction_static": 0.85, "page_size": 64}),
    "--chunked-prefill-size -1": ({}, {"chunked_prefill_size": -1}),
    "--attention-backend nsa": ({}, {"attention_backend": "dsa"}),
    "--attention-backend=fa3": ({}, {"attention_backend": "fa3"}),
    "--disable-radix-cache --disable-hybrid-swa-memory": ({}, {"disable_radix_cache": True, "disable_hybrid_swa_memory": True}),
    "--enable-dp-attention --dp 4 --tp 8": ({"tensor_parallel": 8}, {"enable_dp_attention": True, "dp_size": 4}),
    "--attn-dp-size 4": ({}, {"attn_dp_size": 4}),
    "--enable-hicache --hicache-ratio 2.5": ({}, {"enable_hierarchical_cache": True, "hicache_ratio": 2.5}),
    "--speculative-algorithm EAGLE --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 9": (
        {},
        {"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 4},
    ),
    "--speculative-algorithm NEXTN": ({}, {"speculative_algorithm": "NEXTN"}),
    "--speculative-algorithm NEXTN --speculative-draft-model-path org/name": (
        {},
        {"speculative_algorithm": "NEXTN", "speculative_draft_model_path": "itself"},
    ),
    "--speculative-draft-model org/eagle": ({}, {}),
    "--speculative-num-draft-tokens 4": ({}, {}),
    "--max-total-tokens 100000 --max-running-requests 64": ({}, {"max_total_tokens": 100_000, "max_running_requests": 64}),
    "--host 0.0.0.0 --port 30000 --api-key x --trust-remote-code --served-model-name n --tool-call-parser qwen --lora-paths a=b c=d": (
        {},
        {},
    ),
}


@pytest.mark.parametrize("flags", READ)
def test_flags_are_read_as_sglang_reads_them(read: Callable[[str], Reading], flags: str) -> None:
    found = read(f"python3 -m sglang.launch_server --model-path org/name {flags}")
    assert (found.keys, found.settings) == READ[flags]
    assert (found.engine, found.model, found.replicas, found.warnings) == ("sglang", "org/name", 1, [])


@pytest.mark.parametrize(
    "command",
    [
        "sglang serve org/name",
        "sglang serve --model org/name",
        "docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path org/name",
        "docker run --gpus all lmsysorg/sglang:latest sglang serve --model-path org/name",
        "CUDA_VISIBLE_DEVICES=0 SGLANG_LOG_MS=1 python -m sglang.launch_server --model-path=org/name",
    ],
)
def test_the_launcher_is_found_among_the_words(read: Callable[[str], Reading], command: str) -> None:
    found = read(command)
    assert (found.engine, found.model, found.keys, found.warnings) == ("sglang", "org/name", {}, [])


REFUSED = {
    "--config server.yaml": "--config: the file that it names is not here",
    "--json-model-override-args '{\"a\": 1}'": "--json-model-override-args makes another model of this one",
    "--disaggregation-mode prefill": "--disaggregation-mode splits the work",
    "--speculative-algorithm EAGLE3": "--speculative-algorithm: kvcalc has no rule for this algorithm",
    "--speculative-algorithm EAGLE --speculative-num-steps 3": "--speculative-num-steps without --speculative-num-draft-tokens",
    "--speculative-algorithm EAGLE --speculative-draft-model-path org/eagle": "--speculative-draft-model-path runs a second model",
    "--speculative-eagle-topk 4": "--speculative-eagle-topk drafts more than one chain",
    "--enable-unified-memory": "--enable-unified-memory shares pools in another way",
    "--prefill-attention-backend fa3": "--prefill-attention-backend decides pages",
    "--dtype int3": "--dtype: its value is not one of auto",
    "--tp": "--tp has no value",
    "--trust-remote-code x": "a word behind --trust-remote-code is neither",
    "--page-size 0": "--page-size: its value is not a whole number",
}


@pytest.mark.parametrize("flags", REFUSED)
def test_what_kvcalc_has_no_rule_for_is_refused_by_name(read: Callable[[str], Reading], flags: str) -> None:
    with pytest.raises(UsageError) as error:
        read(f"python -m sglang.launch_server --model-path org/name {flags}")
    assert error.value.message.startswith(REFUSED[flags])


def test_data_parallel_replicas_are_said_and_not_multiplied(ask: Callable[..., Answer]) -> None:
    words = ("sglang", "serve", "org/name", "--tp", "2", "--context-length", "4096")
    one = ask("launch", "--model", "llama-3.1-8b", "-f", "json", *words)
    four = ask("launch", "--model", "llama-3.1-8b", "-f", "json", *words, "--dp-size", "4")
    assert four.document["bytes"] == one.document["bytes"]
    assert "4 replicas, each with a cache of its own: the figures are those of one, on 2 of 8 GPUs" in four.document["notes"]


def test_what_touches_the_weights_is_a_warning_on_a_card_alone(ask: Callable[..., Answer]) -> None:
    words = ("--model", "llama-3.1-8b", "-f", "json", "python", "-m", "sglang.launch_server", "--model", "x/y", "--disable-cuda-graph")
    assert ask("launch", *words).document["warnings"] == []
    assert ask("launch", "--kv-memory", "10GiB", *words).document["warnings"] == []
    warned = ask("launch", "--gpu", "h100-80gb", *words).document["warnings"]
    assert warned == [
        "--disable-cuda-graph changes what SGLang leaves free on a card: the memory left for the cache is estimated without it"
    ]


def test_every_setting_has_its_flag() -> None:
    settings = {f"--{setting.name.replace('_', '-')}" for setting in get_engine("sglang").settings}
    assert settings <= _FLAGS.keys()
