"""Logs as people paste them: lines of every release's form, a few of many, with settings that nobody printed.

The figures are those of public start-up logs; each test says whose.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from kvcalc.cli.app import run
from kvcalc.core.errors import UsageError
from kvcalc.reconcile import Reconciliation, reconcile

if TYPE_CHECKING:
    from pathlib import Path


def read(text: str, model: str | None = None) -> Reconciliation:
    return reconcile(io.BytesIO(text.encode()), "server.log", model)


def closes(found: Reconciliation) -> list[str]:
    """The figures of a log that agrees as a whole."""
    assert found.exit_code == 0, list(found.rows)
    return [row.figure for row in found.rows]


# --- llama.cpp -------------------------------------------------------------------------------------------------------------------


def test_llama_cpp_context_and_slots_are_read_from_the_cells() -> None:
    """Qwen3.5-9B on llama-server, -c 135168 with its four slots; Qwen3.6-27B in q8_0 (public benchmark notes, 2026-05)."""
    found = read(
        "llama_kv_cache: size = 4224.00 MiB (135168 cells,   8 layers,  4/1 seqs), K (f16): 2112.00 MiB, V (f16): 2112.00 MiB\n"
        "llama_memory_recurrent: size =  201.00 MiB (     4 cells,  32 layers,  4 seqs), R (f32):    9.00 MiB, S (f32):  192.00 MiB\n",
        "qwen3.5-9b",
    )
    assert closes(found) == ["KV cache", "recurrent state"]
    assert found.settings["ctx_size"] == 135_168
    assert (found.settings["parallel"], found.settings["kv_unified"]) == (4, True)
    assert closes(
        read(
            "llama_kv_cache: size = 4352.00 MiB (131072 cells,  16 layers,  4/1 seqs), K (q8_0): 2176.00 MiB, V (q8_0): 2176.00 MiB\n"
            "llama_memory_recurrent: size =  598.50 MiB (     4 cells,  65 layers,  4 seqs), R (f32):   22.50 MiB, S (f32):  576.00 MiB\n",
            "qwen3.6-27b",
        )
    )


def test_llama_cpp_cells_are_those_of_one_stream() -> None:
    """Separate slots: four streams of 2,048 cells are a context of 8,192 (worked: 32 x 2 x 1,024 x 2 B x 8,192)."""
    found = read(
        "llama_kv_cache: size = 1024.00 MiB (  2048 cells,  32 layers,  4/4 seqs), K (f16): 512.00 MiB, V (f16): 512.00 MiB\n",
        "llama-3.1-8b",
    )
    assert closes(found)
    assert (found.settings["ctx_size"], found.settings["kv_unified"]) == (8192, False)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        # b4000s to b5000s: no sequences yet, or no streams (Mistral 7B, Phi-3-mini; public logs of 2025)
        ("llama_kv_cache_unified: size = 1024.00 MiB (  8192 cells,  32 layers), K (f16):  512.00 MiB, V (f16):  512.00 MiB", "mistral-7b-v0.3"),
        ("llama_kv_cache_unified: size = 1536.00 MiB (  4096 cells,  32 layers,  1 seqs), K (f16): 768.00 MiB, V (f16): 768.00 MiB", "phi-3-mini-4k"),
        # Llama-3.1-405B over RPC, 2025-08
        ("llama_kv_cache_unified: size = 2016.00 MiB (  4096 cells, 126 layers,  1/ 1 seqs), K (f16): 1008.00 MiB, V (f16): 1008.00 MiB", "llama-3.1-405b"),
        # before 2024: no types (worked: Llama-2-7B at 512, 32 x 2 x 4,096 x 2 B x 512)
        ("llama_new_context_with_model: n_ctx      = 512\nllama_new_context_with_model: kv self size  =  256.00 MB", "llama-2-7b"),
        # early 2025 (worked, the same)
        ("llama_init_from_model: n_ctx = 512\nllama_init_from_model: KV self size  =  256.00 MiB, K (f16):  128.00 MiB, V (f16):  128.00 MiB", "llama-2-7b"),
        # a locale with decimal commas (Intel Arc, 2025-10)
        ("llama_kv_cache: size =  224,00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (f16):  112,00 MiB, V (f16):  112,00 MiB", "qwen2.5-7b"),
        # no context printed but its warning
        ("llama_context: n_ctx_per_seq (4096) < n_ctx_train (131072) -- the full\nllama_kv_cache: CPU KV buffer size = 512.00 MiB", "llama-3.1-8b"),
    ],
)  # fmt: skip
def test_llama_cpp_forms_of_every_age(text: str, model: str) -> None:
    assert closes(read(text, model)) == ["KV cache"]


def test_llama_cpp_device_buffers_stand_for_a_size_that_is_not_printed() -> None:
    """Qwen3.5-9B over CPU and Vulkan, -c 8192 (public log, 2026-08): the size of the cache itself is a debug line there."""
    log = (
        "0.27.252.200 I llama_context: n_ctx         = 8192\n"
        "0.27.253.065 I llama_kv_cache:        CPU KV buffer size =    96.00 MiB\n"
        "0.27.302.186 I llama_kv_cache:    Vulkan1 KV buffer size =   160.00 MiB\n"
        "0.27.795.572 I llama_memory_recurrent:        CPU RS buffer size =    20.94 MiB\n"
        "0.27.840.222 I llama_memory_recurrent:    Vulkan1 RS buffer size =    29.31 MiB\n"
    )
    assert closes(read(log, "qwen3.5-9b")) == ["KV cache", "recurrent state"]
    size = "llama_memory_recurrent: size =   50.25 MiB (     1 cells,  32 layers,  1 seqs  0 rs_seq), R (f32):    2.25 MiB, S (f32):   48.00 MiB\n"
    assert closes(read(log + size, "qwen3.5-9b")) == ["KV cache", "recurrent state"]  # said twice, counted once


def test_llama_cpp_rollback_rows_are_printed_since_2026() -> None:
    """Qwen3.8-27B with two draft tokens (public log, 2026-08): three rows of state a slot."""
    log = (
        "llama_context: n_ctx_seq (8192) < n_ctx_train (262144) -- the full capacity of the model will not be utilized\n"
        "llama_kv_cache:    Vulkan0 KV buffer size =   512.00 MiB\n"
        "llama_memory_recurrent: size =  448.88 MiB (     1 cells,  64 layers,  1 seqs  2 rs_seq), R (f32):   16.88 MiB, S (f32):  432.00 MiB\n"
    )
    found = read(log, "qwen3.6-27b")  # the same dimensions
    assert closes(found) == ["KV cache", "recurrent state"]
    assert found.settings["n_rs_seq"] == 2
    hidden = read(log.replace("  2 rs_seq", ""), "qwen3.6-27b")
    assert hidden.rows[1].reason == "rollback rows for 2 draft tokens"


def test_llama_cpp_bindings_keep_windows_whole() -> None:
    """Gemma-4-E4B through bindings that leave swa_full unset (public log, 2026-06): 32,768 cells in the window cache too."""
    found = read(
        "llama_kv_cache: size =  512.00 MiB ( 32768 cells,   4 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB\n"
        "llama_kv_cache: size = 1280.00 MiB ( 32768 cells,  20 layers,  1/1 seqs), K (f16):  640.00 MiB, V (f16):  640.00 MiB\n",
        "gemma-4-e4b",
    )
    assert found.rows[0].reason == "windows were not honoured (--swa-full)"


KV_512 = "llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB\n"


def context(tokens: int) -> str:
    return f"llama_context: n_seq_max     = 1\nllama_context: n_ctx         = {tokens}\n"


def test_llama_cpp_a_second_context_is_not_added_to_the_first() -> None:
    twice = read(context(4096) + KV_512 + context(4096) + KV_512, "llama-3.1-8b")  # started again
    assert closes(twice) == ["KV cache"]
    other = read(context(4096) + KV_512 + context(2048) + KV_512.replace("512.00", "256.00").replace("4096", "2048"), "llama-3.1-8b")
    assert closes(other) == ["KV cache", "another context: KV cache"]
    constructed = "llama_context: constructing llama_context\n"
    assert closes(read(constructed + KV_512 + constructed + KV_512, "llama-3.1-8b")) == ["KV cache"]
    draft = "llama_kv_cache: size =  28.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (f16):  14.00 MiB, V (f16):  14.00 MiB\n"
    drafted = read(context(4096) + KV_512 + context(4096) + draft, "llama-3.1-8b")
    assert closes(drafted) == ["KV cache"]
    assert drafted.notes == ("another context was left out: its figures are not this model's (a draft model?)",)


def test_llama_cpp_a_draft_of_the_model_itself_is_recognised() -> None:
    """Qwen3.6-27B and its one layer of multi-token prediction: 4 x 256 x 2 x 2 B x 8,192 cells (worked)."""
    log = (
        context(8192)
        + "llama_kv_cache: size =  512.00 MiB (  8192 cells,  16 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB\n"
        + context(8192)
        + "llama_kv_cache: size =   32.00 MiB (  8192 cells,   1 layers,  1/1 seqs), K (f16):   16.00 MiB, V (f16):   16.00 MiB\n"
    )
    assert closes(read(log, "qwen3.6-27b")) == ["KV cache", "draft context: KV cache"]


def test_llama_cpp_the_first_metadata_is_the_models() -> None:
    """A projector and a draft print metadata too, after the model's caches or its own."""
    model = "".join(
        f"llama_model_loader: - kv {number}: {key} {kind} = {value}\n"
        for number, (key, kind, value) in enumerate(
            [
                ("general.architecture", "str", "llama"),
                ("llama.block_count", "u32", "32"),
                ("llama.embedding_length", "u32", "4096"),
                ("llama.attention.head_count", "u32", "32"),
                ("llama.attention.head_count_kv", "u32", "8"),
                ("llama.context_length", "u32", "8192"),
            ]
        )
    )
    draft = model.replace("u32 = 32\n", "u32 = 16\n")
    assert closes(read(model + context(4096) + KV_512 + draft)) == ["KV cache"]


# --- SGLang ----------------------------------------------------------------------------------------------------------------------


def test_sglang_until_04_the_tokens_stand_in_the_last_line() -> None:
    """TinyLlama on a Jetson and Llama-3.1-8B on an H100 (public logs, 2025): K and V without tokens, with a full stop."""
    tiny = "[2026-05-14 10:55:40 TP0] KV Cache is allocated. K size: 4.41 GB, V size: 4.41 GB.\n[2026-05-14 10:55:40 TP0] max_total_num_tokens=420200, x\n"
    assert closes(read(tiny, "tinyllama-1.1b")) == ["K pool", "V pool"]
    llama = "[2025-01-23 19:35:20 TP0] KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.\n[2025-01-23 19:35:27 TP0] max_total_num_tokens=444500, x\n"
    assert closes(read(llama, "llama-3.1-8b")) == ["K pool", "V pool"]


def test_sglang_ranks_and_types_are_read_where_they_stand() -> None:
    """Qwen3.5-9B on two GPUs (public log, 2026-04); the recurrent pool has a slot more than it says."""
    log = "".join(
        f"[2026-04-14 16:08:49 TP{rank}] Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, ssm_state size: 4.38GB \n"
        f"[2026-04-14 16:08:49 TP{rank}] KV Cache is allocated. #tokens: 327310, K size: 2.50 GB, V size: 2.50 GB\n"
        for rank in (0, 1)
    )
    found = read(log, "qwen3.5-9b")
    assert closes(found) == ["K pool", "V pool", "convolution state", "recurrent state"]
    assert found.settings["tensor_parallel"] == 2
    assert found.notes == ("tensor parallel size 2 read from the names of the ranks",)


def test_sglang_a_rank_by_itself_tells_the_least_that_there_are() -> None:
    """GLM-5 in fp8 on eight GPUs, two of whose lines were pasted (public log, 2026-02)."""
    log = (
        "[2026-02-26 05:35:08 TP0] Using KV cache dtype: torch.float8_e4m3fn\n"
        "[2026-02-26 05:35:08 TP7] KV Cache is allocated. #tokens: 3262823, KV size: 186.77 GB\n"
    )
    found = read(log, "glm-5")
    assert closes(found) == ["KV pool"]
    assert (found.settings["tensor_parallel"], found.settings["kv_dtype"]) == (8, "fp8_e4m3")


def test_sglang_attention_data_parallelism_is_in_the_names_too() -> None:
    """DeepSeek-V3, eight groups of one rank (public test log, 2025-11); latents are whole on every rank."""
    lines = [
        f"[2025-11-04 05:27:13 DP{rank} TP{rank} EP{rank}] KV Cache is allocated. #tokens: 524288, KV size: 17.16 GB\n" for rank in range(8)
    ]
    found = read("Using KV cache dtype: torch.float8_e4m3fn\n" + "".join(lines), "deepseek-v3")
    assert closes(found) == ["KV pool"]
    assert (found.settings["dp_size"], found.settings["enable_dp_attention"]) == (8, True)


def test_sglang_window_layers_have_a_pool_of_their_own() -> None:
    """Gemma-4-26B-A4B in bf16: the sum alone, then both pools at page size 256 (public logs, 2026)."""
    assert closes(read("SWAKVPool mem usage: 36.69 GB, swa size: 171008, full size: 213761\n", "gemma-4-26b-a4b")) == ["both pools"]
    pools = (
        "server_args=ServerArgs(page_size=256)\n"
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 54272, K size: 5.20 GB, V size: 5.20 GB\n"
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 67840, K size: 0.65 GB, V size: 0.65 GB\n"
        "SWAKVPool mem usage: 11.70 GB, swa size: 54272, full size: 67840\n"
    )
    both = ["K pool of window layers", "V pool of window layers", "K pool", "V pool", "both pools"]
    assert closes(read(pools, "gemma-4-26b-a4b")) == both
    hidden = read(pools.partition("\n")[2], "gemma-4-26b-a4b")
    assert {row.reason for row in hidden.rows if not row.within} == {"another page size: 256"}


def test_one_reason_for_all_rows_before_one_for_each() -> None:
    """Nemotron-3-Nano in fp8 on four GPUs (public log, 2026-10): two ranks would explain the K pool, only four the states."""
    log = (
        "Mamba Cache is allocated. max_mamba_cache_size: 2211, conv_state size: 0.44GB, ssm_state size: 24.84GB\n"
        "KV Cache is allocated. dtype: float8_e4m3fn, #tokens: 19644177, K size: 14.05 GB, V size: 14.05 GB\n"
    )
    found = read(log, "nemotron-3-nano-30b-a3b")
    assert {row.reason for row in found.rows} == {"it ran with tensor parallel size 4"}


def test_sglang_a_drafts_pool_is_left_out() -> None:
    log = (
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 295950, K size: 4.52 GB, V size: 4.52 GB\n"
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 295950, K size: 3.39 GB, V size: 3.39 GB\n"
    )
    found = read(log, "qwen3.5-9b")
    assert closes(found) == ["K pool", "V pool"]
    assert found.notes == ("another pool was left out: a draft model's, or that of another start",)


def test_sglang_tokens_alone_are_not_evaluated() -> None:
    found = read("max_total_num_tokens=440916, max_running_requests=48, context_len=8192\n", "llama-3.1-8b")
    assert found.exit_code == 3
    assert found.notes == ("nothing to compare: the lines 'KV Cache is allocated' give the bytes of the pools",)


# --- vLLM ------------------------------------------------------------------------------------------------------------------------


def vllm(available: str, tokens: str, times: str, length: str) -> str:
    return (
        f"(EngineCore pid=7) INFO 07-06 22:52:09 [gpu_worker.py:508] Available KV cache memory: {available} GiB\n"
        f"(EngineCore pid=7) INFO 07-06 22:52:09 [kv_cache_utils.py:2146] GPU KV cache size: {tokens} tokens\n"
        f"(EngineCore pid=7) INFO 07-06 22:52:09 [kv_cache_utils.py:2147] Maximum concurrency for {length} tokens per request: {times}x\n"
    )


def reasons(text: str, model: str) -> dict[str, str]:
    return {row.figure: row.reason for row in read(text, model).rows}


def test_vllm_ranks_are_read_from_the_workers_names() -> None:
    """Qwen3-30B-A3B on two GPUs, of which one line was pasted (public log, vLLM 0.10.2)."""
    log = (
        "(Worker_TP1_EP1 pid=2295) INFO 09-24 19:58:12 [gpu_worker.py:298] Available KV cache memory: 25.91 GiB\n"
        "(EngineCore_DP0 pid=2225) INFO 09-24 19:58:12 [kv_cache_utils.py:864] GPU KV cache size: 566,016 tokens\n"
        "(EngineCore_DP0 pid=2225) INFO 09-24 19:58:12 [kv_cache_utils.py:868] Maximum concurrency for 32,768 tokens per request: 17.27x\n"
    )
    found = read(log, "qwen3-30b-a3b")
    assert closes(found) == ["tokens", "concurrency"]
    assert found.notes == ("tensor parallel size 2 read from the names of the ranks",)


def test_vllm_drops_zeros_and_still_means_hundredths() -> None:
    """6.5 GiB is 6.495 to 6.505: 53,288 tokens of Llama-3.1-8B would need 6.5049 GiB, 53,600 tokens 6.543 GiB."""
    assert closes(read(vllm("6.5", "53,248", "6.50", "8,192"), "llama-3.1-8b"))
    assert read(vllm("6.5", "53,600", "6.54", "8,192"), "llama-3.1-8b").exit_code == 1


@pytest.mark.parametrize(
    "memory",
    [
        "gpu_memory_utilization=0.90 kv_cache_size=3.81GiB peak_torch_memory=17.06GiB",
        "non_torch_memory takes 0.20GiB; the rest of the memory reserved for KV Cache is 3.81GiB.",
        "non-default args: {'kv_cache_memory_bytes': 4093640704, 'max_model_len': 20000}",
    ],
)
def test_vllm_before_its_second_engine_printed_blocks(memory: str) -> None:
    """Llama-3.1-8B, 1,952 blocks (vLLM issue 10517); today the memory may be given instead."""
    log = f"{memory}\n# cuda blocks: 1952, # CPU blocks: 2048\nMaximum concurrency for 20000 tokens per request: 1.56x\n"
    assert closes(read(log, "llama-3.1-8b")) == ["concurrency", "blocks"]


def test_vllm_decode_context_parallelism_multiplies() -> None:
    """DeepSeek-V3 on eight NPUs (guide to decode context parallelism, 2025-11): 715,072 tokens, and eight times as many."""
    log = (
        "(Worker_TP0 pid=666845) Available KV cache memory: 46.80 GiB\n"
        "Multiplying the GPU KV cache size by the dcp_world_size 8.\n"
        "GPU KV cache size: 5,720,576 tokens\n"
    )
    found = read(log, "deepseek-v3")
    assert found.settings["tensor_parallel"] == 8
    assert closes(found) == ["tokens"]


def test_vllm_a_draft_layer_is_a_reason() -> None:
    """Llama-3.1-8B with EAGLE (an issue on speculation with prefix caching, 2025-06)."""
    assert set(reasons(vllm("51.63", "410,128", "3.13", "131,072"), "llama-3.1-8b").values()) == {"an EAGLE draft of one layer"}


@pytest.mark.parametrize(
    "text",
    [
        (
            "ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed, which is larger than"
            " the available KV cache memory (1.25 GiB). Based on the available memory,  Try increasing\n"
        ),  # vLLM 0.9
        (
            "ValueError: To serve at least one request with the model's max seq len (40960),\n10.0 GiB KV cache is needed, which is larger than"
            " the available KV cache memory (1.25 GiB). Based on the available memory, the estimated maximum model length is 5120.\n"
        ),
        (
            "To serve at least one request with the model's max seq len (40960), (10.0 GiB KV cache is needed, which is larger than the"
            " available (1.25 GiB)\n"
        ),
    ],
)
def test_vllm_refusals_of_every_wording(text: str) -> None:
    """Qwen3-32B at its full length (public logs, vLLM 0.9 and later)."""
    assert "memory needed" in closes(read(text, "qwen3-32b"))


def test_vllm_a_refusal_tells_what_there_was() -> None:
    """MiniMax-M2.7 on two DGX Spark (spark-vllm-docker issue 396, vLLM 0.29.1): 23.25 GiB needed, 22.5 there, 190,272 tokens at most."""
    log = (
        "Available KV cache memory: 22.5 GiB\nValueError: To serve at least one request with the model's max seq len (196608), 23.25 GiB KV cache"
        " is needed, which is larger than the available KV cache memory (22.5 GiB). Based on the available memory, the estimated maximum"
        " model length is 190272.\n"
    )
    assert closes(read("tensor_parallel_size=2 LLM engine\n" + log, "minimax-m2.7")) == ["longest context", "memory needed"]
    hidden = reasons(log, "minimax-m2.7")
    assert set(hidden) == {"longest context", "memory needed"}
    assert all("it ran with tensor parallel size 2" in reason for reason in hidden.values())


def test_vllm_hybrids_on_other_cards() -> None:
    """Qwen3.6-35B-A3B in fp8 on an RTX 5090 (club-3090 issue 612, vLLM 0.24.0)."""
    args = (
        "non-default args: {'model': '/models/a', 'max_model_len': 131072, 'kv_cache_dtype': 'fp8', 'enable_prefix_caching': True,"
        " 'max_num_batched_tokens': 8192, 'max_num_seqs': 1}\n"
        "Initializing a V1 LLM engine (v0.24.0) with config: mo"
    )
    found = read(vllm("5.98", "567,978", "4.33", "131,072") + args, "qwen3.6-35b-a3b")
    assert {row.reason for row in found.rows} == {"the card is no Hopper card (an H100 is assumed)"}
    assert found.notes == ("the log is of vllm 0.24.0, and kvcalc has the rules of 0.33.0",)


def test_vllm_an_older_release_beside_other_reasons() -> None:
    """Qwen3.6-27B in fp8 on a card of 24 GiB (public log, 2026-05): the tokens of the line are blocks // 4 groups x 1568."""
    block = "Setting attention block size to 1568 tokens to ensure that attention page size is >= mamba page size.\n"
    found = reasons(block + vllm("6.67", "53,312", "5.15", "32,768"), "qwen3.6-27b")
    why = "the cache was kept in fp8, and the card is no Hopper card (an H100 is assumed)"
    assert found == {
        "tokens": f"{why}; an older release's meaning of the line: blocks // 4 groups x 1568",
        "concurrency": why,
        "attention block": why,
    }


def test_vllm_an_older_release_counts_the_smallest_block(tmp_path: Path) -> None:
    """Falcon-H1-3B on an RTX 5060 Ti (public notes, vLLM 0.12.0): without prefix caching a recurrent block is the whole context, 2,048.

    The state's dimensions are those from which the printed block of 2,080 tokens and its padding of 0.24 % follow.
    """
    config = {"model_type": "falcon_h1", "num_hidden_layers": 32, "hidden_size": 2560, "num_attention_heads": 10, "num_key_value_heads": 2}
    config |= {"head_dim": 128, "mamba_d_ssm": 4096, "mamba_n_heads": 32, "mamba_d_head": 128, "mamba_d_state": 256, "mamba_n_groups": 1}
    config |= {"mamba_d_conv": 4, "mamba_expand": 2, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    log = (
        "non-default args: {'max_model_len': 2048, 'max_num_seqs': 8, 'enable_prefix_caching': False}\n"
        "Setting attention block size to 2080 tokens to ensure that attention page size is >= mamba page size.\n"
    )
    found = read(log + vllm("5.28", "83,968", "41.50", "2,048"), str(path))
    assert {row.figure: row.within for row in found.rows} == {"tokens": False, "concurrency": True, "attention block": True}
    assert found.rows[0].reason == "an older release's meaning of the line: blocks // 2 groups x 2048"


def test_vllm_three_things_that_nobody_printed() -> None:
    """Qwen3.8-27B with two draft tokens on two cards (public notes, 2026-08): 12.29 GiB, 364,688 tokens."""
    found = reasons(vllm("12.29", "364,688", "1.39", "262,144"), "qwen3.6-27b")
    assert set(found.values()) == {
        "the card is no Hopper card (an H100 is assumed), and it ran with tensor parallel size 2, and multi-token prediction, draft tokens: 2"
    }


def test_vllm_settings_of_speculation_and_of_states_are_read() -> None:
    log = (
        "Initializing a V1 LLM engine (v0.1.dev1+g4d2a68d64) with config: model='/m/Qwen3.8-27B', speculative_config=SpeculativeConfig("
        "method='mtp', model='/m/Qwen3.8-27B', num_spec_tokens=1), max_seq_len=262144, tensor_parallel_size=1, decode_context_parallel_size=1\n"
        "Chunked prefill is enabled with max_num_batched_tokens=2048.\n"
        "Updating mamba_ssm_cache_dtype to 'float16' for NemotronH model\n"
    )
    found = read(log + vllm("18.53", "1", "1.00", "262,144"), "qwen3.6-27b")
    assert found.version == ""  # a build from source does not know its release
    assert found.settings["speculative_method"] == "mtp"
    assert found.settings["num_speculative_tokens"] == 1
    assert found.settings["max_num_batched_tokens"] == 2048
    assert found.settings["mamba_ssm_cache_dtype"] == "float16"
    drafted = read(log.replace("method='mtp'", "method='draft_model'") + vllm("18.53", "1", "1.00", "262,144"), "qwen3.6-27b")
    assert drafted.exit_code == 1  # answered without the draft's layers, which no log describes


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("non-default args: {'model': 'RedHatAI/gemma-4-31B-it-FP8-Dynamic'}\n" + vllm("1.00", "1", "1.00", "8,192"), "gemma-4-31b"),
        ("server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B-Instruct')\nmax_total_num_tokens=1\n", "llama-3.1-8b"),
        ("llama_model_loader: - kv 0: general.name str = Qwen3.6 27B\nllama_kv_cache: CPU KV buffer size = 1.00 MiB\n", "qwen3.6-27b"),
    ],
    ids=["vllm", "sglang", "llama.cpp"],
)
def test_a_name_that_the_catalogue_does_not_have_is_no_guess_but_a_hint(line: str, meant: str) -> None:
    with pytest.raises(UsageError, match="does not name a model") as refused:
        read(line)
    assert "--model MODEL" in (refused.value.hint or "")
    assert f"'{meant}'" in (refused.value.hint or "")


def test_vllm_the_older_tokens_are_known_without_the_memory() -> None:
    """Gemma-3-4B, seven groups of 16: 1,350 blocks a request of 3,072 tokens (kvcached issue 215)."""
    log = "GPU KV cache size: 317,136 tokens\nMaximum concurrency for 3,072 tokens per request: {}x\n"
    reason = "an older release's meaning of the line: blocks // 7 groups x 16"
    assert read(log.format("102.78"), "gemma-3-4b").rows[0].reason == reason
    assert read(log.format("102.79"), "gemma-3-4b").rows[0].reason != reason


def test_vllm_tokens_are_whole_blocks_without_the_memory() -> None:
    """Llama-3.1-8B, worked: blocks of 16, 8,192 of them a request. Qwen3.8-27B on two RTX 5090 (vllm recipes, pull request 810): 491 blocks at 341."""
    log = "GPU KV cache size: {} tokens\nMaximum concurrency for 131,072 tokens per request: 3.75x\n"
    assert closes(read(log.format("491,520"), "llama-3.1-8b")) == ["tokens = concurrency x length", "tokens of whole blocks"]
    row = read(log.format("491,530"), "llama-3.1-8b").rows[1]
    assert (row.within, row.low, row.high, row.difference) == (False, 491_520, 491_536, 10)
    qwen = "GPU KV cache size: 377,456 tokens\nMaximum concurrency for 262,144 tokens per request: 1.44x\n"
    known = {"gpu": "rtx5090-32gb", "tensor_parallel": 2}
    assert closes(reconcile(io.BytesIO(qwen.encode()), "log", "qwen3.6-27b", given=known))
    assert read(qwen, "qwen3.6-27b").rows[1].reason == "the card is no Hopper card (an H100 is assumed)"


def test_vllm_the_block_size_alone_is_a_figure() -> None:
    """Qwen3.6-27B, worked: a page of 48 x 128 x 128 x 4 + 3 x 10,240 x 2 B is 783 tokens of 4,096 B: 784, or 832 where checkpoints stand 64 apart."""
    log = "Setting attention block size to 784 tokens to ensure that attention page size is >= mamba page size.\n"
    row = read(log, "qwen3.6-27b").rows[0]
    assert (row.figure, row.low, row.reason) == (
        "attention block",
        832,
        "prefix caching was off or the card is no Hopper card (an H100 is assumed)",
    )
    assert closes(reconcile(io.BytesIO(log.encode()), "log", "qwen3.6-27b", given={"gpu": "rtx5090-32gb"})) == ["attention block"]


def test_vllm_what_the_log_says_itself_is_no_suspect() -> None:
    """Three draft tokens are said: two are no reason, though 425 blocks at 179 a request would explain it too (club-3090 issue 294)."""
    settings = "non-default args: {'tensor_parallel_size': 2, 'kv_cache_dtype': 'fp8_e5m2', 'max_num_batched_tokens': 8192, 'speculative_config': {'method': 'mtp', 'num_speculative_tokens': 3}}\n"
    log = settings + "GPU KV cache size: 622,408 tokens\nMaximum concurrency for 262,144 tokens per request: 2.37x\n"
    assert read(log, "qwen3.6-27b").rows[1].reason == "the card is no Hopper card (an H100 is assumed)"


def test_vllm_the_older_tokens_of_recurrent_layers_without_the_memory() -> None:
    """LFM2.5-1.2B on a C500, notes of 2026: groups of 6, 5 and 5 layers, 130 blocks a request of 2,048 tokens."""
    log = (
        "Initializing a V1 LLM engine with config: enable_prefix_caching=False, x\n"
        "Setting attention block size to 16 tokens to ensure that attention page size is >= mamba page size.\n"
        "GPU KV cache size: 217,264 tokens\nMaximum concurrency for 2,048 tokens per request: 313.37x\n"
    )
    rows = {row.figure: row for row in read(log, "lfm2-1.2b").rows}
    assert rows["attention block"].within
    assert rows["tokens = concurrency x length"].reason == "an older release's meaning of the line: blocks // 3 groups x 16"


def test_vllm_blocks_of_a_hybrid_with_latents_were_multiples_of_64() -> None:
    """Kimi-Linear on two RTX 3090, 2025-11 (vllm issue 28228): blocks of 960, where 0.33 has 1,024."""
    workers = "".join(f"(Worker_TP{rank} pid=1) INFO Available KV cache memory: 2.30 GiB\n" for rank in range(2))
    log = workers + "GPU KV cache size: 75,840 tokens\nMaximum concurrency for 120,000 tokens per request: 2.48x\n"
    found = {row.figure: row.reason for row in read(log, "kimi-linear-48b-a3b").rows}
    assert found["concurrency"] == "an older release's blocks of a hybrid with MLA: 960, and prefix caching was off"
    assert found["tokens"] == found["concurrency"] + "; an older release's meaning of the line: blocks // 4 groups x 960"


@pytest.mark.parametrize("method", ["dflash", "dspark", "draft_model"])
def test_vllm_a_draft_model_of_its_own_is_the_reason(method: str) -> None:
    """Qwen3.8-27B with DFlash on two RTX 5090 (club-3090 issue 1084)."""
    settings = (
        f"non-default args: {{'tensor_parallel_size': 2, 'speculative_config': {{'method': '{method}', 'num_speculative_tokens': 7}}}}\n"
    )
    log = settings + vllm("16.01", "374,847", "1.83", "204,800")
    assert {row.reason for row in read(log, "qwen3.6-27b").rows} == {
        f"a draft model of its own ({method}) shares the memory, and the log does not hold its layers"
    }


def test_vllm_blocks_without_their_hash() -> None:
    """Markdown takes the first `#` of a pasted line (vllm issue 10517, 0.6)."""
    log = "kv_cache_size=3.81GiB gpu_memory_utilization=0.90\nGPU blocks: 1952, # CPU blocks: 2048\nMaximum concurrency for 20000 tokens per request: 1.56x\n"
    assert closes(read(log, "llama-3.1-8b")) == ["concurrency", "blocks"]


# --- TensorRT-LLM ----------------------------------------------------------------------------------------------------------------


def test_tensorrt_llm_lines_of_every_age() -> None:
    """A 7B model in fp16 (TensorRT-LLM issue 1400, 0.8), Qwen3-0.6B and gpt-oss-120b (public logs, 2025 and 2026)."""
    old = "[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache. \n[TensorRT-LLM][INFO] Using 132608 tokens in paged KV cache.\n"
    assert closes(read(old, "llama-2-7b")) == ["pool"]
    small = "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 68.69 GiB for max tokens in paged KV cache (643136).\n"
    assert closes(read(small, "qwen3-0.6b")) == ["pool"]
    windows = (
        "[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 288 [window size=8224], tokens per block=32, primary blocks=257, secondary blocks=0\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8224).\n"
    )
    assert closes(read(windows, "gpt-oss-120b")) == ["pool", "blocks"]


def test_tensorrt_llm_the_pool_follows_the_dry_run() -> None:
    dry = "[MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8224).\n"
    pool = "[MemUsageChange] Allocated 68.69 GiB for max tokens in paged KV cache (643136).\n"
    assert closes(read(dry + pool, "qwen3-0.6b")) == ["pool"]


def test_tensorrt_llm_blocks_from_the_free_memory() -> None:
    """0.9 x 20 GiB // (32 x 131,072 B) blocks of Llama-3.1-8B (worked)."""
    log = "Memory usage when calculating max tokens in paged kv cache: total: 39.39 GiB, available: 20.00 GiB\nNumber of blocks in KV cache primary pool: {}\n"
    assert closes(read(log.format(4608), "llama-3.1-8b")) == ["blocks"]
    assert read(log.format(2304), "llama-3.1-8b").rows[0].reason == "another block size: 64"


def test_tensorrt_llm_older_releases_round_the_last_block_up() -> None:
    """A 7B model in fp16, 0.13.0.dev2024082000 (TensorRT-LLM issue 2268): 0.9 x 21.89 GiB are 630.4 blocks of 32 MiB."""
    log = (
        "[MemUsageChange] Memory usage when calculating max tokens in paged kv cache: total: 39.39 GiB, available: 21.89 GiB\n"
        "Number of blocks in KV cache primary pool: {}\nNumber of tokens per block: 64.\n"
    )
    assert closes(read(log.format(630), "llama-2-7b")) == ["blocks"]
    assert read(log.format(631), "llama-2-7b").rows[0].reason == "an older release rounded the last block up"
    assert "rounded" not in read(log.format(632), "llama-2-7b").rows[0].reason


# --- what the user knows ---------------------------------------------------------------------------------------------------------


def test_what_the_log_does_not_say_can_be_given() -> None:
    """Qwen3.8-27B on two cards, with two draft tokens (256k-context prefill OOM on Qwen3.8-27B, run 4)."""
    log = vllm("12.29", "364,688", "1.39", "262,144").encode()
    known = {"gpu": "a100-80gb", "tensor_parallel": 2, "speculative_method": "mtp", "num_speculative_tokens": "2"}
    found = reconcile(io.BytesIO(log), "log", "qwen3.6-27b", given=known)
    assert closes(found) == ["tokens", "concurrency"]
    assert found.settings["tensor_parallel"] == 2
    assert found.notes == ()


def test_what_is_given_rules_and_says_so() -> None:
    log = "non-default args: {'tensor_parallel_size': 4, 'max_model_len': 8192}\n" + vllm("6.5", "53,248", "6.50", "8,192")
    found = reconcile(io.BytesIO(log.encode()), "log", "llama-3.1-8b", given={"tensor_parallel": 1})
    assert closes(found)
    assert found.notes == ("tensor_parallel was given as 1, and the log says 4",)


def test_given_types_reach_every_engine() -> None:
    sglang = "KV Cache is allocated. #tokens: 2659072, KV size: 87.01 GB\n"
    assert closes(reconcile(io.BytesIO(sglang.encode()), "log", "kimi-k2", given={"kv_dtype": "fp8_e4m3"}))
    tensorrt = "Allocated 166.02 GiB for max tokens in paged KV cache (5073376).\n"
    assert closes(reconcile(io.BytesIO(tensorrt.encode()), "log", "kimi-k2.5", given={"kv_dtype": "fp8"}))
    llama = "llama_kv_cache: CPU KV buffer size = 272.00 MiB\n"
    known = {"kv_dtype": "q8_0", "ctx_size": "4096"}
    assert closes(reconcile(io.BytesIO(llama.encode()), "log", "llama-3.1-8b", given=known))
    with pytest.raises(UsageError, match="all devices together"):
        reconcile(io.BytesIO(llama.encode()), "log", "llama-3.1-8b", given={"tensor_parallel": 2})
    with pytest.raises(UsageError, match="no_such"):
        reconcile(io.BytesIO(tensorrt.encode()), "log", "kimi-k2.5", given={"no_such": "1"})


def test_the_command_takes_what_the_log_does_not_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "server.log"
    log.write_text(vllm("5.98", "567,978", "4.33", "131,072"), encoding="utf-8")
    asked = ["reconcile", str(log), "-m", "qwen3.6-35b-a3b", "--kv-dtype", "fp8", "-E", "max_num_batched_tokens=8192"]
    assert run([*asked, "--gpu", "rtx5090-32gb"]) == 0
    assert "2 of 2 figures agree" in capsys.readouterr().out
    assert run(asked) == 1
    assert "the card is no Hopper card" in capsys.readouterr().out
    assert run([*asked, "--gpu", "rtx5090-32gb:2", "--tp", "4"]) == 2
    assert run([*asked, "--sequences", "2"]) == 2
