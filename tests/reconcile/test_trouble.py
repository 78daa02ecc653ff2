"""Complaints of logs: servers that did not start and prompts that were cut; every way out that is named is one."""

from __future__ import annotations

import io
import re
import textwrap
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.questions.documents.kinds import plain
from kvcalc.reconcile import Reconciliation, reconcile
from kvcalc.sources import load

if TYPE_CHECKING:
    from kvcalc.reconcile.trouble import Trouble

GIB = 1024**3
HEAD = (
    "INFO Initializing a V1 LLM engine (v0.33.0) with config: model='meta-llama/Llama-3.1-8B', max_seq_len=131072, tensor_parallel_size=1\n"
)
REFUSED = (
    "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than "
    "the available KV cache memory (10.5 GiB). Based on the available memory, the estimated maximum model length is 86000.\n"
)
NOTHING = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
STARTED = "GPU KV cache size: 491,520 tokens\nMaximum concurrency for 131,072 tokens per request: 3.75x\n"
CONTEXT = """\
llama_context: n_seq_max     = {slots}
llama_context: n_ctx         = {context}
llama_context: n_ubatch      = 512
llama_context: kv_unified    = {unified}
llama_kv_cache: size =  {size}.00 MiB (  4096 cells,  32 layers,  {slots}/{streams} seqs), K (f16): 256.00 MiB, V (f16): 256.00 MiB
"""
OLLAMA = 'time=2026-11-29T10:00:00Z level=INFO source=server.go:103 msg="starting llama server"\n'
CUT = 'level=WARN source=runner.go:153 msg="truncating input prompt" limit={limit} prompt={prompt} keep=4 new={limit}\n'


def read(text: str, model: str | None = "llama-3.1-8b") -> Reconciliation:
    return reconcile(io.BytesIO(text.encode()), "server.log", model)


def trouble(text: str, model: str | None = "llama-3.1-8b") -> Trouble:
    found = read(text, model).trouble
    assert found is not None
    return found


def flags(found: Trouble) -> dict[str, str]:
    return dict(way.flag.rpartition(" ")[::2] if way.flag.startswith("--") and " " in way.flag else (way.flag, "") for way in found.ways)


@pytest.mark.parametrize(
    "text",
    [
        REFUSED,
        HEAD + "Available KV cache memory: 10.50 GiB\n" + REFUSED,
        REFUSED.replace("model's", "models's").replace("(16.0 GiB", "16.00 GiB"),
        "(EngineCore_DP0 pid=316) ERROR 11-29 10:00:09 [core.py:390] " + REFUSED,
        HEAD + STARTED + "Available KV cache memory: 10.50 GiB\n" + REFUSED,  # it ran, and was started again with less
    ],
)
def test_a_refusal_of_vllm_in_every_wording(text: str) -> None:
    """8,192 blocks of 2 MiB and the null block; 10.5 GiB may be 10.495 GiB."""
    found = trouble(text)
    assert (found.kind, found.needed, found.available) == ("refused", 8193 * 2 * 1024**2, 21 * GIB // 2)
    assert found.text.startswith("vLLM did not start: one sequence of 131,072 (128k) tokens needs 17,181,966,336 B (16 GiB)")
    assert found.ways[0].flag == "--gpu-memory-utilization"
    assert "higher by 5.51 GiB / the card's memory, 0.07 on 80 GiB" in found.ways[0].text
    assert flags(found)["--max-model-len"] == "85952"


def test_every_flag_lets_it_start() -> None:
    asked, engine, model = {"context": 131_072}, get_engine("vllm"), load("llama-3.1-8b")
    least = int(10.495 * GIB)

    def starts(**change: object) -> bool:
        workload = Workload(**(asked | change))  # type: ignore[arg-type]
        return engine.fitting(model, workload, least).admits(workload.context or 0, 1)

    assert not starts()
    named = flags(trouble(REFUSED))
    assert starts(context=int(named["--max-model-len"]))
    assert starts(kv_dtype=named["--kv-cache-dtype"])
    assert starts(tensor_parallel=int(named["--tensor-parallel-size"]))
    assert set(named) == {"--gpu-memory-utilization", "--max-model-len", "--kv-cache-dtype", "--tensor-parallel-size"}


def test_nothing_left_names_what_is_missing() -> None:
    found = trouble(HEAD + "Available KV cache memory: -0.3 GiB\n" + NOTHING, None)
    assert (found.available, found.needed) == (0, 8193 * 2 * 1024**2)
    assert "nothing was left beside weights and activations" in found.text
    assert "higher by 16.3 GiB" in found.ways[0].text
    assert [way.flag for way in found.ways[1:]] == ["a smaller checkpoint"]
    alone = read(HEAD + NOTHING, None)
    assert alone.trouble is not None
    assert alone.exit_code == 0
    assert alone.rows == ()


def test_a_refusal_that_a_later_start_has_ended_is_past() -> None:
    log = HEAD + "Available KV cache memory: 60.0 GiB\n" + REFUSED.replace("10.5", "60.0") + STARTED
    assert read(log).trouble is None


@pytest.mark.parametrize(
    ("limit", "prompt", "context"),
    [(4096, 10_211, 16_384), (2050, 8707, 16_384), (2048, 74_706, 131_072), (4096, 4096, 8192)],
)
def test_a_prompt_that_ollama_cut(limit: int, prompt: int, context: int) -> None:
    """The next power of two above the prompt; f16, 131,072 B a token."""
    log = OLLAMA + CONTEXT.format(slots=1, streams=1, context=4096, unified="false", size=512) + CUT.format(limit=limit, prompt=prompt)
    found = trouble(log + CUT.format(limit=limit, prompt=prompt // 2))
    assert (found.kind, found.needed, found.available) == ("truncated", prompt, limit)
    assert found.ways[0].flag == f"OLLAMA_CONTEXT_LENGTH={context}"
    assert f"leaves {context - prompt:,} tokens for the reply" in found.ways[0].text
    assert f"the cache takes {context * 131_072:,} B" in found.ways[0].text
    assert plain(trouble(CUT.format(limit=limit, prompt=prompt)).ways) == plain(found.ways), "one line of the log is enough"


def test_half_of_the_context_is_what_ollama_keeps() -> None:
    log = OLLAMA + CONTEXT.format(slots=1, streams=1, context=4096, unified="false", size=512)
    found = trouble(log + CUT.format(limit=2050, prompt=8707))
    assert found.text == "a prompt of 8,707 tokens met a limit of 2,050, which is kept of a prompt that is longer than the context of 4,096"
    assert trouble(log + CUT.format(limit=4096, prompt=8707)).text == "a prompt of 8,707 tokens met a limit of 4,096"


def test_a_request_that_llama_server_refused() -> None:
    line = (
        "srv send_error: task id = 0, error: request (10211 tokens) exceeds the available context size (1024 tokens), try increasing it\n"
    )
    four = CONTEXT.format(slots=4, streams=4, context=4096, unified="false", size=512)
    found = trouble(four + line)
    assert found.ways[0].flag == "-c 65536"
    assert "the cache takes 8,589,934,592 B (8 GiB) for 4 slots" in found.ways[0].text
    assert trouble(four.replace("false", "true").replace("4/4", "4/1") + line).ways[0].flag == "-c 16384"


def test_a_prompt_beyond_what_the_model_was_trained_for() -> None:
    found = trouble(CUT.format(limit=2048, prompt=332_874))
    assert found.ways == ()
    assert found.text.endswith("llama-3.1-8b was trained for 131,072: shorten the prompt")


@pytest.mark.parametrize("number", ["", "9" * 40, "-1", "1e9", "x"])
def test_damaged_complaints_are_no_answer(number: str) -> None:
    for line in (
        CUT.format(limit=number, prompt=number),
        f"request ({number} tokens) exceeds the available context size ({number} tokens)\n",
    ):
        assert read(line).exit_code == 3
    text = HEAD + f"Available KV cache memory: -{number} GiB\n" + NOTHING
    assert re.match("vLLM did not start", trouble(text).text)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132, 1000])
def test_a_paste_that_a_terminal_has_wrapped(width: int) -> None:
    """Between words, wherever the width falls; the context and the memory are those of the sentence."""
    refused = REFUSED.replace("131072", "100000").replace("16.0 GiB", "12.21 GiB")
    found = trouble("\n".join(textwrap.wrap(refused, width)) + "\n")
    assert (found.needed, found.available) == ((6250 + 1) * 2 * 1024**2, 21 * GIB // 2)
    assert flags(found)["--max-model-len"] == "85952"


def test_a_refusal_whose_memory_cannot_be_read_claims_none() -> None:
    found = trouble("max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV\n")
    assert found.text.endswith("17,181,966,336 B (16 GiB) for the cache on each device, more than was left")
    assert [way.text for way in found.ways] == ["higher, until 16 GiB are left for the cache"]


def test_the_memory_is_that_of_the_refusal_not_of_an_earlier_start() -> None:
    log = HEAD + "Available KV cache memory: 2.0 GiB\n" + REFUSED.replace("10.5", "2.0") + "Available KV cache memory: 10.5 GiB\n" + REFUSED
    assert trouble(log).available == 21 * GIB // 2


def test_on_a_card_that_is_known_the_step_is_of_that_card() -> None:
    """5.51 GiB are missing of the 22.04 GiB that engines print as an L4's total: 0.25."""
    found = reconcile(io.BytesIO(REFUSED.encode()), "server.log", "llama-3.1-8b", given={"gpu": "l4-24gb"}).trouble
    assert found is not None
    assert found.ways[0].text == "higher by 0.25: 5.51 GiB of 22.04 GiB, if nothing else uses them"
