"""Logs as they arrive: of other systems, of several servers at once, cut, compressed, endless, or of no engine at all."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import random
import re
from typing import TYPE_CHECKING

import pytest

from kvcalc.core.errors import KvcalcError, UsageError
from kvcalc.reconcile import Reconciliation, reconcile
from kvcalc.reconcile.lines import CHUNK, log_lines

if TYPE_CHECKING:
    from collections.abc import Callable

#: 30,720 blocks of 16 tokens in 60 GiB.
VLLM = """INFO 11-29 10:00:00 [core.py:90] Initializing a V1 LLM engine (v0.33.0) with config: model='meta-llama/Llama-3.1-8B', max_seq_len=131072, tensor_parallel_size=1
INFO 11-29 10:00:08 [gpu_worker.py:300] Available KV cache memory: 60.00 GiB
INFO 11-29 10:00:08 [kv_cache_utils.py:900] GPU KV cache size: 491,520 tokens
INFO 11-29 10:00:08 [kv_cache_utils.py:905] Maximum concurrency for 131,072 tokens per request: 3.75x
"""
#: 4,096 cells x 131,072 B.
LLAMA = """llama_context: n_seq_max     = 1
llama_context: n_ctx         = 4096
llama_context: n_ubatch      = 512
llama_context: kv_unified    = false
llama_kv_cache: size =  512.00 MiB (  4096 cells,  32 layers,  1/1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB
"""
#: 440,916 x 32 x 8 x 128 x 2 B = 26.91 GiB, twice.
SGLANG = """[2026-11-29 10:00:00] server_args=ServerArgs(model_path='meta-llama/Llama-3.1-8B', tp_size=1, kv_cache_dtype='auto', page_size=1)
[2026-11-29 10:00:09 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 440916, K size: 26.91 GB, V size: 26.91 GB
"""
TENSORRT = """[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (131504).
[TensorRT-LLM][INFO] Number of tokens per block: 32.
"""
LOGS = {"vllm": VLLM, "llama.cpp": LLAMA, "sglang": SGLANG, "tensorrt-llm": TENSORRT}
STATISTICS = b"INFO 11-29 10:00:18 [loggers.py:118] Engine 000: Running: 1 reqs, GPU KV cache usage: 0.3%, Prefix cache hit rate: 0.0%\n"


def read(log: str | bytes) -> Reconciliation:
    return reconcile(io.BytesIO(log.encode() if isinstance(log, str) else log), "log", "llama-3.1-8b")


def lines(form: Callable[[str], str]) -> Callable[[str], bytes]:
    return lambda text: "".join(form(line) for line in text.splitlines()).encode()


#: How a log is kept → what becomes of its text.
KEPT: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    "CRLF": lines(lambda line: f"{line}\r\n"),
    "CR": lines(lambda line: f"{line}\r"),
    "a mark of UTF-8": lambda text: codecs.BOM_UTF8 + text.encode(),
    "PowerShell, UTF-16": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
    "UTF-16, big endian": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "UTF-16 without a mark": lambda text: text.encode("utf-16-le"),
    "UTF-16 without a mark, big endian": lambda text: text.encode("utf-16-be"),
    "UTF-32": lambda text: text.encode("utf-32"),
    "Docker, JSON": lines(lambda line: json.dumps({"log": line + "\n", "stream": "stderr", "time": "2026-11-29T10:00:00Z"}) + "\n"),
    "Kubernetes": lines(lambda line: f"2026-11-29T10:00:00.123456789Z stderr F {line}\n"),
    "systemd": lines(lambda line: f"Nov 29 10:00:00 host engine[4711]: {line}\n"),
    "colours": lines(lambda line: f"\x1b[32m{line[:20]}\x1b[0m{line[20:]}\x1b[K\n"),
    "a progress bar before": lambda text: ("Loading:   0%|  | 0/4\r" * 500 + "\n" + text).encode(),
    "junk around": lambda text: bytes(range(256)) * 64 + b"\n" + text.encode() + b"\n" + bytes(range(255, -1, -1)) * 64,
    "days of statistics": lambda text: text.encode() + STATISTICS * 2000,
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("engine", LOGS)
def test_the_same_log_however_it_is_kept(engine: str, kept: str) -> None:
    found = read(KEPT[kept](LOGS[engine]))
    plain = read(LOGS[engine])
    assert (found.engine, found.exit_code) == (engine, 0), found.rows
    assert [(row.figure, row.logged, row.within) for row in found.rows] == [(row.figure, row.logged, row.within) for row in plain.rows]


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_log_is_named_as_one(pack: Callable[[bytes], bytes]) -> None:
    with pytest.raises(UsageError, match="compressed") as caught:
        read(pack(VLLM.encode()))
    assert "zcat" in caught.value.hint


@pytest.mark.parametrize(("first", "second"), [(a, b) for a in LOGS for b in LOGS if a != b])
def test_two_engines_in_one_log_do_not_mix(first: str, second: str) -> None:
    """Line by line in turns, as two containers write into one journal: one engine is answered, with its own figures."""
    one, two = LOGS[first].splitlines(), LOGS[second].splitlines()
    longest = max(len(one), len(two))
    mixed = "\n".join(line for i in range(longest) for line in (*one[i : i + 1], *two[i : i + 1]))
    found = read(mixed)
    assert found.engine in (first, second)
    alone = read(LOGS[str(found.engine)])
    assert [(row.figure, row.logged, row.low) for row in found.rows] == [(row.figure, row.logged, row.low) for row in alone.rows]
    assert found.exit_code == 0


def test_ranks_that_write_over_each_other() -> None:
    """Two processes of one engine, each line as a whole or broken into by the other's."""
    two = VLLM.replace("tensor_parallel_size=1", "tensor_parallel_size=2").replace("491,520", "983,040").replace("3.75", "7.50")
    line = "Available KV cache memory: 60.00 GiB\n"
    for written in (
        f"(Worker_TP0 pid=1) {line}(Worker_TP1 pid=2) {line}",
        f"(Worker_TP1 pid=2) {line}(Worker_TP0 pid=1) {line.replace('60.00', '61.50')}",
        f"(Worker_TP0 pid=1) Available KV cache (Worker_TP1 pid=2) {line}(Worker_TP0 pid=1) {line}",
    ):
        assert read(re.sub("INFO.*memory.*\n", written, two)).exit_code == 0


def test_every_beginning_of_a_log_is_a_log() -> None:
    """Cut anywhere: an answer, a refusal, or nothing recognised; never a figure that the log does not hold."""
    for text in LOGS.values():
        for end in range(0, len(text), 7):
            try:
                found = read(text[:end])
            except KvcalcError as error:
                assert error.type != "internal"  # noqa: PT017  any other refusal will do
            else:
                assert found.exit_code in (0, 1, 3)


def test_numbers_replaced_at_random() -> None:
    """Zero, huge, negative, fractions, none: in any place of any log."""
    chance = random.Random(4096)  # noqa: S311  nothing here is a secret
    for text in LOGS.values():
        for _ in range(60):
            damaged = re.sub(
                r"\d+",
                lambda number: chance.choice((*[number[0]] * 12, "0", "1", "-1", "9" * 20, "3.5", "", "nan")),
                text,
            )
            try:
                found = read(damaged)
            except KvcalcError as error:
                assert error.type != "internal"  # noqa: PT017  any other refusal will do
            else:
                document = json.dumps(found.to_dict(), allow_nan=False)
                assert document.isascii()


class Endless(io.RawIOBase):
    """The same bytes again and again, up to a size, never all of them at once."""

    def __init__(self, piece: bytes, size: int) -> None:
        self.piece = piece * (CHUNK // len(piece) + 1)
        self.left = size
        self.largest = 0

    def read(self, size: int = -1) -> bytes:
        assert 0 < size <= CHUNK
        size = min(size, self.left)
        self.left -= size
        return self.piece[:size]


@pytest.mark.parametrize(
    "piece", [b"x", b"\n", b"\r", b"9", b"\0", b"llama_kv_cache: size = ", b"Available KV cache memory: 60.00 GiB ", b"\xff\xfe"]
)
def test_a_line_without_end_is_read_in_pieces(piece: bytes) -> None:
    """40 MB here, a gigabyte just the same: no more than two chunks are held."""
    stream = Endless(piece, 40 * CHUNK)
    count = sum(1 for _ in log_lines(stream, [b"llama_kv_cache", b"KV cache"]))  # type: ignore[arg-type]
    assert stream.left == 0
    assert count <= 41


def test_figures_without_end_are_not_kept() -> None:
    found = read(VLLM + "GPU KV cache size: 491,520 tokens\n" * 12_000)
    assert found.exit_code == 0
    assert read(b"KV cache " + STATISTICS * 20_000).exit_code == 3
