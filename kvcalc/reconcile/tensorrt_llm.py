"""TensorRT-LLM's start-up log.

[MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (263008).
Number of blocks in KV cache primary pool: 8219 · Number of tokens per block: 32.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.engines import get_engine
from kvcalc.errors import KvcalcError
from kvcalc.reconcile.base import Recogniser, Row, printed
from kvcalc.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.architecture import Architecture

_POOL = re.compile(r"Allocated ([0-9.]+) (GiB|MiB) for max tokens in paged KV cache \(([0-9]+)\)")
_BLOCKS = re.compile(r"Number of blocks in KV cache primary pool: ([0-9]+)")
_TOKENS_PER_BLOCK = re.compile(r"[Nn]umber of tokens per block: ([0-9]+)")
_RANKS = re.compile(r"(?:tp_size|tensor_parallel_size)['\"]?[=:] ?([0-9]+)")
_DTYPE = re.compile(r"(?:kv_cache_dtype|kv_cache_quant_algo)['\"]?[=:] ?['\"]?([A-Za-z0-9_]+)")


class TensorRtLlmLog(Recogniser):
    """TensorRT-LLM, one rank's view."""

    engine: ClassVar[str] = "tensorrt-llm"
    marks: ClassVar[tuple[bytes, ...]] = (b"paged KV cache", b"KV cache primary pool", b"okens per block", b"tp_size", b"kv_cache_")

    def feed(self, line: str, number: int) -> None:
        """Figures and settings of one line."""
        pool, blocks, size = _POOL.search(line), _BLOCKS.search(line), _TOKENS_PER_BLOCK.search(line)
        if pool:
            self.seen.add("pool", printed(pool[1], number, pool[2]))
            self.seen.add("tokens", printed(pool[3], number))
        if blocks:
            self.seen.add("blocks", printed(blocks[1], number))
        if size:
            self.seen.settings["tokens_per_block"] = int(size[1])
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
        """One sequence as long as the pool."""
        settings = {**self.seen.settings, **more}
        tokens = self.seen.last("tokens")
        context = int(tokens.value) if tokens else None
        blocks = self.seen.last("blocks")
        if context is None and blocks is not None:
            context = int(blocks.value) * int(settings.get("tokens_per_block", 32))
        args = {"tokens_per_block": settings["tokens_per_block"]} if "tokens_per_block" in settings else {}
        return Workload(
            context=context, kv_dtype=settings.get("kv_dtype", "auto"), tensor_parallel=settings.get("tensor_parallel", 1), engine_args=args
        )

    def rows(self, architecture: Architecture) -> list[Row]:
        """The pool's bytes from its tokens, its blocks from its tokens."""
        return list(self._rows(architecture))

    def _rows(self, architecture: Architecture) -> Iterator[Row]:
        asked = self.workload()
        pool, tokens, blocks = (self.seen.last(name) for name in ("pool", "tokens", "blocks"))
        if pool is not None:
            size = Fraction(get_engine("tensorrt-llm").plan(architecture, asked).per_device)
            within = pool.holds(size, size)
            yield Row("pool", "bytes", pool.line, pool.value, size, size, within, "" if within else self._reason(architecture, pool))
        if blocks is not None and tokens is not None:
            per_block = int(self.seen.settings.get("tokens_per_block", 32))
            expected = Fraction(-(-int(tokens.value) // per_block))
            within = blocks.value == expected
            yield Row(
                "blocks",
                "blocks",
                blocks.line,
                blocks.value,
                expected,
                expected,
                within,
                "" if within else f"not {per_block} tokens a block",
            )

    def _reason(self, architecture: Architecture, pool: Any) -> str:
        for text, more in _SUSPECTS:
            try:
                size = get_engine("tensorrt-llm").plan(architecture, self.workload(**more)).per_device
            except KvcalcError:
                continue
            if pool.holds(size, size):
                return text
        return "none of the usual reasons explains it: the log may belong to another model"


_SUSPECTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("the cache was kept in fp8", {"kv_dtype": "fp8"}),
    ("the cache was kept in the model's type", {"kv_dtype": "auto"}),
    ("the cache was kept in nvfp4", {"kv_dtype": "nvfp4"}),
    ("heads were replicated, not divided, over the ranks", {"tensor_parallel": 1}),
    ("it ran with tensor parallel size 2", {"tensor_parallel": 2}),
    ("it ran with tensor parallel size 4", {"tensor_parallel": 4}),
    ("it ran with tensor parallel size 8", {"tensor_parallel": 8}),
)
