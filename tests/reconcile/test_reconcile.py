"""Start-up logs in the engines' own forms, right and deliberately wrong."""

from __future__ import annotations

import io
from fractions import Fraction

import pytest

from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.engines.base.printed import printed
from kvcalc.reconcile import Reconciliation, reconcile
from kvcalc.reconcile.lines import log_lines

GIB = 1024**3


def read(text: str, model: str | None = None) -> Reconciliation:
    return reconcile(io.BytesIO(text.encode()), "server.log", model)


VLLM_HEAD = (
    "INFO 11-29 10:00:00 [core.py:80] Initializing a V1 LLM engine (v0.33.0) with config: model='meta-llama/Llama-3.1-8B', "
    "dtype=torch.bfloat16, max_seq_len=131072, tensor_parallel_size=1, pipeline_parallel_size=1, kv_cache_dtype=auto, enable_prefix_caching=True\n"
)
VLLM_LINE = "INFO 11-29 10:00:09 [kv_cache_utils.py:1120] GPU KV cache size: {tokens} tokens, Maximum concurrency for {length} tokens per request: {times}x\n"


def vllm(available: str, tokens: str, times: str, length: str = "131,072", head: str = VLLM_HEAD) -> str:
    return (
        head
        + f"INFO 11-29 10:00:08 [gpu_worker.py:300] Available KV cache memory: {available} GiB\n"
        + VLLM_LINE.format(tokens=tokens, length=length, times=times)
    )


def test_vllm_closes() -> None:
    found = read(vllm("60.00", "491,520", "3.75"))  # 30,720 blocks of 16 tokens, 8,192 a request
    assert found.engine == "vllm"
    assert found.version == "0.33.0"
    assert [(row.figure, row.within) for row in found.rows] == [("tokens", True), ("concurrency", True)]
    assert found.exit_code == 0


def test_vllm_two_ranks_take_the_smaller() -> None:
    head = VLLM_HEAD.replace("tensor_parallel_size=1", "tensor_parallel_size=2")
    log = head + "(Worker_TP0 pid=11) Available KV cache memory: 31.00 GiB\n(Worker_TP1 pid=12) Available KV cache memory: 30.00 GiB\n"
    assert read(log + VLLM_LINE.format(tokens="491,520", length="131,072", times="3.75")).exit_code == 0
    wrong = read(log + VLLM_LINE.format(tokens="507,904", length="131,072", times="3.88"))
    assert wrong.exit_code == 1


def test_vllm_colours_timestamps_and_a_log_cut_in_half() -> None:
    coloured = "".join(
        f"\x1b[0;36m(EngineCore pid=7)\x1b[0;0m 2026-11-29T10:00:00.123Z {line}\n" for line in vllm("60.00", "491,520", "3.75").splitlines()
    )
    assert read(coloured).exit_code == 0
    half = coloured[: coloured.index("Maximum concurrency")]
    assert [row.figure for row in read(half).rows] == ["tokens"]


@pytest.mark.parametrize(
    ("log", "model", "reason"),
    [
        (vllm("60.00", "983,040", "7.50"), None, "the cache was kept in fp8"),
        (vllm("64.42", "491,520", "3.75"), None, "printed in GB"),
        (vllm("60.00", "245,760", "1.88"), None, "none of the usual reasons"),
        (vllm("100.00", "211,392", "1.61"), "gemma-3-27b", "windows were not honoured"),
        (vllm("20.00", "37,440", "1.11"), "gemma-3-27b", "an older release's meaning of the line: blocks // 7 groups x 16"),
    ],
)
def test_vllm_differences_have_reasons(log: str, model: str | None, reason: str) -> None:
    found = read(log, model)
    assert found.exit_code == 1
    assert any(reason in row.reason for row in found.rows if not row.within), list(found.rows)


def test_vllm_refusal() -> None:
    log = VLLM_HEAD + (
        "ValueError: To serve at least one request with the model's max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the "
        "available KV cache memory (10.0 GiB). Based on the available memory, the estimated maximum model length is 81904.\n"
    )
    found = read(log)
    assert [(row.figure, row.within) for row in found.rows] == [("longest context", True), ("memory needed", True)]


LLAMA_KV = """\
llama_model_loader: - kv   0:                       general.architecture str              = llama
llama_model_loader: - kv   1:                               general.name str              = Secret Name
llama_model_loader: - kv   4:                          llama.block_count u32              = 32
llama_model_loader: - kv   5:                       llama.context_length u32              = 8192
llama_model_loader: - kv   6:                     llama.embedding_length u32              = 4096
llama_model_loader: - kv   8:                 llama.attention.head_count u32              = 32
llama_model_loader: - kv   9:              llama.attention.head_count_kv u32              = 8
llama_model_loader: - kv  20:                      tokenizer.ggml.tokens arr[str,128256]  = ["!", ...
"""
LLAMA_CONTEXT = """\
llama_context: n_seq_max     = {slots}
llama_context: n_ctx         = {context}
llama_context: n_batch       = 2048
llama_context: n_ubatch      = {ubatch}
llama_context: flash_attn    = auto
llama_context: kv_unified    = {unified}
"""


def llama_context(context: int, slots: int = 1, ubatch: int = 512, unified: str = "false") -> str:
    return LLAMA_CONTEXT.format(context=context, slots=slots, ubatch=ubatch, unified=unified)


def test_llama_cpp_from_its_own_metadata() -> None:
    log = (
        LLAMA_KV
        + llama_context(4096)
        + "llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB\n"
    )
    found = read(log)
    assert found.engine == "llama.cpp"
    assert found.exit_code == 0
    assert found.rows[0].low == 512 * 1024**2
    wrong = read(log.replace("512.00 MiB (", "272.00 MiB (").replace("(f16)", "(f32)"))
    assert wrong.exit_code == 1


def test_llama_cpp_windows() -> None:
    log = (
        llama_context(131_072)
        + "llama_kv_cache_iswa: creating non-SWA KV cache, size = 131072 cells\n"
        + "llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  1/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB\n"
        + "llama_kv_cache: size =   18.00 MiB (   768 cells,  12 layers,  1/1 seqs), K (f16):    9.00 MiB, V (f16):    9.00 MiB\n"
    )
    assert read(log, "gpt-oss-20b").exit_code == 0
    full = read(log.replace("18.00 MiB (   768", "3072.00 MiB (131072"), "gpt-oss-20b")
    assert full.rows[0].reason == "windows were not honoured (--swa-full)"


def test_llama_cpp_recurrent_state() -> None:
    log = (
        llama_context(131_072, slots=4, unified="true")
        + "llama_kv_cache: size = 3072.00 MiB (131072 cells,  12 layers,  4/1 seqs), K (f16): 1536.00 MiB, V (f16): 1536.00 MiB\n"
        + "llama_memory_recurrent: size =  301.50 MiB (     4 cells,  48 layers,  4 seqs), R (f32):   13.50 MiB, S (f32):  288.00 MiB\n"
    )
    found = read(log, "qwen3-next-80b-a3b")
    assert [(row.figure, row.within) for row in found.rows] == [("KV cache", True), ("recurrent state", True)]


def test_ollama_is_told_from_what_it_runs() -> None:
    log = (
        'time=2026-11-29T10:00:00Z level=INFO source=server.go:103 msg="starting llama server"\n'
        + LLAMA_KV
        + llama_context(8192, ubatch=1024)
    )
    log += "llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB\n"
    found = read(log)
    assert found.engine == "ollama"
    assert found.exit_code == 0


def test_sglang() -> None:
    tokens = 440_916
    size = tokens * 32 * 8 * 128 * 2 / GIB
    head = "[2026-11-29 10:00:00] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B', tp_size=1, kv_cache_dtype='auto', page_size=1)\n"
    line = f"[2026-11-29 10:00:09 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, K size: {size:.2f} GB, V size: {size:.2f} GB\n"
    found = read(head + line)
    assert found.engine == "sglang"
    assert [(row.figure, row.within) for row in found.rows] == [("K pool", True), ("V pool", True)]
    half = read(head + line.replace(f"{size:.2f}", f"{size / 2:.2f}"))
    assert half.rows[0].reason == "the cache was kept in fp8 or it ran with tensor parallel size 2"


def test_sglang_latents() -> None:
    tokens = 100_000
    size = tokens * 61 * 576 * 2 / GIB
    log = f"KV Cache is allocated. #tokens: {tokens}, KV size: {size:.2f} GB\n"
    assert read(log, "deepseek-v3").exit_code == 0


def test_tensorrt_llm() -> None:
    log = "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).\n"
    log += "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 8219\n"
    fp8 = "kv_cache_quant_algo='FP8'\n" + log
    found = read(fp8, "llama-3.1-8b")
    assert found.engine == "tensorrt-llm"
    assert [(row.figure, row.within) for row in found.rows] == [("pool", True), ("blocks", True)]
    assert read(log, "llama-3.1-8b").rows[0].reason == "the cache was kept in fp8 or it ran with tensor parallel size 2"
    mislabelled = read(fp8, "qwen3-14b")
    assert "compare model" in mislabelled.rows[0].reason


def test_nothing_recognised_is_3_and_a_log_without_a_model_is_2() -> None:
    assert read("nothing here\n" * 10).exit_code == 3
    assert read("").exit_code == 3
    with pytest.raises(UsageError, match="does not name a model"):
        read("GPU KV cache size: 1,000 tokens\n")


def test_hostile_lines_are_bounded_and_not_repeated() -> None:
    secret = "hf_averysecrettoken"  # noqa: S105  not a real one
    log = f"/home/someone/{secret} \x1b]0;owned\x07" + "x" * 1_000_000 + "\n" + vllm("60.00", "491,520", "3.75")
    log += "- kv 1: general.architecture str = " + "y" * 100_000 + "\n" + "- kv 2: llama.block_count u32 = " + "9" * 4000 + "\n"
    found = read(log)
    assert found.exit_code == 0
    assert secret not in str(found.to_dict())


def test_printed_numbers_have_the_width_of_their_last_digit() -> None:
    figure = printed("3.75", 1)
    assert figure.half == Fraction(1, 200)
    assert figure.holds(Fraction(3754, 1000), Fraction(3754, 1000))
    assert not figure.holds(Fraction(374, 100), Fraction(374, 100))
    assert printed("491,520", 1).half == 0
    assert printed("60", 1, "GiB").half == GIB // 2


def test_lines_are_found_across_chunks_and_numbered() -> None:
    other = b"INFO request finished\n" * 100_000  # 2.2 MB: more than two chunks
    marks = (b"KV cache size",)
    log = other + b"GPU KV cache size: 1 tokens\n" + other + b"GPU KV cache size: 2"
    assert list(log_lines(io.BytesIO(log), marks)) == [(100_001, "GPU KV cache size: 1 tokens"), (200_002, "GPU KV cache size: 2")]
    assert list(log_lines(io.BytesIO(b"x" * 5_000_000), marks)) == []


@pytest.mark.parametrize("number", ["", ".", "1..2", ",", "0", "0.00", "9" * 6000, "9" * 30, "1e400", "nan", "-1", "4,294,967,296"])
def test_damaged_numbers_are_no_figures(number: str) -> None:
    """Whatever stands where a number should: an answer or a refusal."""
    lines = [
        VLLM_LINE.format(tokens=number, length="131,072", times="3.75"),
        VLLM_LINE.format(tokens="491,520", length=number, times=number),
        f"Available KV cache memory: {number} GiB\n",
        f"KV Cache is allocated. #tokens: {number}, K size: {number} GB, V size: {number} GB\nmax_total_num_tokens={number}\n",
        f"Allocated {number} GiB for max tokens in paged KV cache ({number})\n[TRT-LLM] Number of tokens per block: {number}\n",
        f"llama_kv_cache: size = {number} MiB ({number} cells, {number} layers, 1/1 seqs), K (f16): 1.00 MiB, V (f16): 1.00 MiB\n",
        f"llama_model_loader: - kv   0: general.architecture str = llama\nllama_model_loader: - kv   1: llama.block_count u32 = {number}\n",
    ]
    for text in (*lines, "".join(lines)):
        try:
            found = read(VLLM_HEAD + text, "llama-3.1-8b")
        except KvcalcError as error:
            assert error.type != "internal"  # noqa: PT017  any other refusal will do
        else:
            assert found.exit_code in (0, 1, 3)
