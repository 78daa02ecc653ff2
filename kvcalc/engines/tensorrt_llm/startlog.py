"""TensorRT-LLM's start-up log.

[MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).
Max KV cache blocks per sequence: 65 [window size=2049], tokens per block=32, primary blocks=13189, secondary blocks=0
Number of blocks in KV cache primary pool: 8219 · Number of tokens per block: 32.
Memory usage when calculating max tokens in paged kv cache: total: 39.39 GiB, available: 21.89 GiB
Allocate 69524783104 bytes for k/v cache. · Using 132608 tokens in paged KV cache.          before 0.9

It prints twice: the estimate of a dry run, then the pool itself; the last figure of each kind counts.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.workload import Workload
from kvcalc.engines import get_engine
from kvcalc.engines.base.logs import Recogniser, Row, Suspects, explained
from kvcalc.engines.base.printed import printed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture

_POOL = re.compile(r"Allocated ([0-9.]+) (GiB|MiB) for max tokens in paged KV cache \(([0-9]+)\)")
_OLD_POOL = re.compile(r"Allocate ([0-9]+) bytes for k/v cache")
_OLD_TOKENS = re.compile(r"Using ([0-9]+) tokens in paged KV cache")
_FREE = re.compile(r"calculating max tokens in paged kv cache: total: [0-9.]+ GiB, available: ([0-9.]+) (GiB)")
_BLOCKS = re.compile(r"Number of blocks in KV cache primary pool: ([0-9]+)|tokens per block=[0-9]+, primary blocks=([0-9]+)")
_TOKENS_PER_BLOCK = re.compile(r"[Nn]umber of tokens per block: ([0-9]+)|tokens per block=([0-9]+)")
_RANKS = re.compile(r"(?:tp_size|tensor_parallel_size)['\"]?[=:] ?([0-9]+)")
_DTYPE = re.compile(r"(?:kv_cache_dtype|kv_cache_quant_algo)['\"]?[=:] ?['\"]?([A-Za-z0-9_]+)")
_SIZES = (2, 4, 8)
#: Releases of 2024 and 2025 gave the rest of the free memory a block of its own.
_ROUNDED_UP = "an older release rounded the last block up"
_WORKLOAD_KEYS = ("tensor_parallel", "kv_dtype", "gpu")


class TensorRtLlmLog(Recogniser):
    """TensorRT-LLM, one rank's view."""

    engine: ClassVar[str] = "tensorrt-llm"
    marks: ClassVar[tuple[bytes, ...]] = (
        b"paged KV cache",
        b"paged kv cache",
        b"k/v cache",
        b"KV cache primary pool",
        b"okens per block",
        b"tp_size",
        b"kv_cache_",
    )

    def feed(self, line: str, number: int) -> None:
        """Figures and settings of one line."""
        pool, old, blocks, size = _POOL.search(line), _OLD_POOL.search(line), _BLOCKS.search(line), _TOKENS_PER_BLOCK.search(line)
        tokens, free = _OLD_TOKENS.search(line), _FREE.search(line)
        if pool:
            self.seen.add("pool", printed(pool[1], number, pool[2]))
            self.seen.add("tokens", printed(pool[3], number))
        if old:
            self.seen.add("pool", printed(old[1], number))
        if tokens:
            self.seen.add("tokens", printed(tokens[1], number))
        if free:
            self.seen.add("free", printed(free[1], number, free[2]))
        if blocks:
            self.seen.add("blocks", printed(blocks[1] or blocks[2], number))
        if size:
            self.seen.settings["tokens_per_block"] = int(size[1] or size[2])
        ranks, dtype = _RANKS.search(line), _DTYPE.search(line)
        if ranks:
            self.seen.settings["tensor_parallel"] = int(ranks[1])
        if dtype:
            self.seen.settings["kv_dtype"] = dtype[1].lower()

    @property
    def recognised(self) -> bool:
        """The pool or its blocks were found; other engines print tokens per block too."""
        return "pool" in self.seen.figures or "blocks" in self.seen.figures

    def workload(self, **more: Any) -> Workload:
        """One sequence as long as the pool. Only the first manager prints these lines."""
        settings = {"use_kv_cache_manager_v2": "false", **self.seen.settings, **more}
        tokens, blocks = self.seen.last("tokens"), self.seen.last("blocks")
        context = int(tokens.value) if tokens else None
        if context is None and blocks is not None:
            context = int(blocks.value) * int(settings.get("tokens_per_block", 32))
        asked = {name: settings.pop(name) for name in _WORKLOAD_KEYS if name in settings}
        return Workload(context=context, **asked, engine_args=settings)

    def rows(self, architecture: Architecture) -> list[Row]:
        """The pool's bytes from its tokens, its blocks from its tokens, or both from the free memory."""
        found = list(self._rows(architecture))
        return explained(found, (_SUSPECTS, _PAIRS), lambda more: self._rows(architecture, **more))

    def _rows(self, architecture: Architecture, **more: Any) -> Iterator[Row]:
        asked = self.workload(**more)
        engine = get_engine("tensorrt-llm")
        pool, tokens, blocks, free = (self.seen.last(name) for name in ("pool", "tokens", "blocks", "free"))
        if pool is not None and tokens is not None:
            size = Fraction(engine.plan(architecture, asked).per_device)
            yield Row("pool", "bytes", pool.line, pool.value, size, size, pool.holds(size, size))
        if blocks is None:
            return
        if tokens is not None:
            per_block = int(asked.engine_args.get("tokens_per_block", 32))
            expected = Fraction(-(-int(tokens.value) // per_block))
            yield Row("blocks", "blocks", blocks.line, blocks.value, expected, expected, blocks.value == expected)
        elif free is not None:
            ends = [engine.capacity(architecture, asked, int(value)) for value in (free.low, free.value + free.half)]
            low, high = (Fraction(str(capacity.blocks)) if capacity and capacity.blocks else Fraction(0) for capacity in ends)
            within = blocks.holds(low, high)
            rounded = not within and low <= blocks.value - 1 <= high
            yield Row("blocks", "blocks", blocks.line, blocks.value, low, high, within, _ROUNDED_UP if rounded else "")


#: What usually differs between the log and what was asked.
_SUSPECTS: Suspects = (
    ("the cache was kept in fp8", {"kv_dtype": "fp8"}),
    ("the cache was kept in the model's type", {"kv_dtype": "auto"}),
    ("the cache was kept in nvfp4", {"kv_dtype": "nvfp4"}),
    *((f"it ran with tensor parallel size {ranks}", {"tensor_parallel": ranks}) for ranks in _SIZES),
    ("heads were replicated, not divided, over the ranks", {"tensor_parallel": 1}),
    *((f"another block size: {size}", {"tokens_per_block": size}) for size in (32, 64, 128)),
    *((f"another share of the free memory: {share}", {"free_gpu_memory_fraction": share}) for share in (0.95, 0.85, 0.8, 0.5)),
)
#: Two of them at once.
_PAIRS: Suspects = tuple(
    (f"fp8 with tensor parallel size {ranks}", {"kv_dtype": "fp8", "tensor_parallel": ranks}) for ranks in _SIZES
) + tuple(
    (f"tensor parallel size {ranks} with blocks of {size}", {"tensor_parallel": ranks, "tokens_per_block": size})
    for ranks in _SIZES
    for size in (64, 128)
)


RECOGNISER = TensorRtLlmLog
