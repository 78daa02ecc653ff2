"""vLLM's start-up log.

Available KV cache memory: 60.00 GiB                                    one line a rank
GPU KV cache size: 491,520 tokens, Maximum concurrency for 131,072 tokens per request: 3.75x
# GPU blocks: 30720, # CPU blocks: 2048                                 older releases
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.engines import get_engine
from kvcalc.errors import KvcalcError
from kvcalc.reconcile.base import Printed, Recogniser, Row, printed
from kvcalc.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.architecture import Architecture
    from kvcalc.plan import Capacity

_FIGURES = (
    ("available", re.compile(r"Available KV cache memory: ([0-9.]+) (GiB)"), "GiB"),
    ("tokens", re.compile(r"GPU KV cache size: ([0-9,]+) tokens"), ""),
    ("concurrency", re.compile(r"Maximum concurrency for [0-9,]+ tokens per request: ([0-9.]+)x"), ""),
    ("blocks", re.compile(r"# (?:GPU|cuda) blocks: ([0-9]+)"), ""),
    ("needed", re.compile(r"\(([0-9.]+) (GiB) KV cache is needed"), "GiB"),
    ("longest", re.compile(r"estimated maximum model length is ([0-9]+)"), ""),
)
_LENGTH = re.compile(r"Maximum concurrency for ([0-9,]+) tokens per request|max seq len \(([0-9]+)\)")
_VERSION = re.compile(r"\(v([0-9]+(?:\.[0-9]+){1,3})")
_SETTINGS = (
    ("context", re.compile(r"max_(?:seq|model)_len['\"]?[=:] ?([0-9]+)"), int),
    ("tensor_parallel", re.compile(r"tensor_parallel_size['\"]?[=:] ?([0-9]+)"), int),
    ("pipeline_parallel", re.compile(r"pipeline_parallel_size['\"]?[=:] ?([0-9]+)"), int),
    ("kv_dtype", re.compile(r"kv_cache_dtype['\"]?[=:] ?['\"]?([a-z0-9_]+)"), str),
    ("enable_prefix_caching", re.compile(r"enable_prefix_caching['\"]?[=:] ?(True|False)"), lambda text: text == "True"),
    ("block_size", re.compile(r"['\"]block_size['\"]: ?([0-9]+)"), int),
    ("max_num_batched_tokens", re.compile(r"max_num_batched_tokens['\"]?[=:] ?([0-9]+)"), int),
)
_MODEL = re.compile(r"(?:\bmodel=|'model': )'([^']{1,200})'")
_WORKLOAD_KEYS = ("context", "tensor_parallel", "pipeline_parallel", "kv_dtype")


class VllmLog(Recogniser):
    """vLLM, on one rank or several."""

    engine: ClassVar[str] = "vllm"
    marks: ClassVar[tuple[bytes, ...]] = (
        b"KV cache",
        b"KV Cache",
        b"Maximum concurrency",
        b"GPU blocks",
        b"cuda blocks",
        b"max_seq_len",
        b"max_model_len",
        b"model length",
        b"non-default args",
    )

    def feed(self, line: str, number: int) -> None:
        """Figures, settings and the model of one line."""
        for name, pattern, unit in _FIGURES:
            match = pattern.search(line)
            if match:
                self.seen.add(name, printed(match[1].rstrip("."), number, unit))
        length = _LENGTH.search(line)
        if length:
            self.seen.settings["context"] = int((length[1] or length[2]).replace(",", ""))
        if "LLM engine" in line or "non-default args" in line:
            self._settings(line)

    def _settings(self, line: str) -> None:
        version, model = _VERSION.search(line), _MODEL.search(line)
        if version:
            self.seen.version = version[1]
        if model:
            self.seen.model = model[1]
        for name, pattern, read in _SETTINGS:
            match = pattern.search(line)
            if match:
                self.seen.settings.setdefault(name, read(match[1]))

    def workload(self) -> Workload:
        """The question that the log answers."""
        settings = self.seen.settings
        asked = {key: settings[key] for key in _WORKLOAD_KEYS if key in settings}
        return Workload(**asked, engine_args={key: value for key, value in settings.items() if key not in _WORKLOAD_KEYS})

    def rows(self, architecture: Architecture) -> list[Row]:
        """Tokens, concurrency, blocks and the refusal's figures, recomputed from the memory that the log prints."""
        asked = self.workload()
        found = [*self._capacity_rows(architecture, asked), *self._needed_rows(architecture, asked)]
        return [row if row.within else replace(row, reason=self._reason(architecture, asked, row)) for row in found]

    def _capacity_rows(self, architecture: Architecture, asked: Workload) -> Iterator[Row]:
        memory = self.seen.smallest("available")
        if memory is None:
            yield from self._closing_row(asked)
            return
        low, high = (self._capacity(architecture, asked, value) for value in (memory.low, memory.high))
        for name, unit in (("tokens", "tokens"), ("concurrency", "sequences"), ("blocks", "blocks")):
            figure = self.seen.smallest(name)
            if figure is not None:
                ends = [Fraction(str(getattr(capacity, name) or 0)) for capacity in (low, high)]
                yield Row(name, unit, figure.line, figure.value, ends[0], ends[1], figure.holds(ends[0], ends[1]))
        longest = self.seen.last("longest")
        if longest is not None:
            ends = [Fraction(self._longest(architecture, asked, value)) for value in (memory.low, memory.high)]
            yield Row("longest context", "tokens", longest.line, longest.value, ends[0], ends[1], longest.holds(ends[0], ends[1]))

    def _closing_row(self, asked: Workload) -> Iterator[Row]:
        """Without the memory: tokens must be concurrency x length."""
        tokens, concurrency = self.seen.last("tokens"), self.seen.last("concurrency")
        if tokens is None or concurrency is None or asked.context is None:
            return
        low, high = (value * asked.context for value in (concurrency.low, concurrency.high))
        yield Row("tokens = concurrency x length", "tokens", tokens.line, tokens.value, low, high, tokens.holds(low, high))

    def _needed_rows(self, architecture: Architecture, asked: Workload) -> Iterator[Row]:
        needed = self.seen.last("needed")
        if needed is not None:
            expected = Fraction(get_engine("vllm").plan(architecture, asked).per_device)
            yield Row("memory needed", "bytes", needed.line, needed.value, expected, expected, needed.holds(expected, expected))

    @staticmethod
    def _capacity(architecture: Architecture, asked: Workload, memory: Fraction) -> Capacity:
        found = get_engine("vllm").capacity(architecture, asked, max(0, int(memory)))
        assert found is not None  # noqa: S101  vLLM always has a notion of its capacity
        return found

    @staticmethod
    def _longest(architecture: Architecture, asked: Workload, memory: Fraction) -> int:
        from kvcalc.fit import largest_context

        fitting = get_engine("vllm").fitting(architecture, asked, max(0, int(memory)))
        return largest_context(architecture, asked, fitting, beyond=True) or 0

    def _reason(self, architecture: Architecture, asked: Workload, row: Row) -> str:
        """The first of the usual suspects under which the row closes."""
        tokens, memory = self.seen.smallest("tokens"), self.seen.smallest("available")
        if row.figure.startswith("tokens") and memory is not None and tokens is not None:
            older = self._older_meaning(architecture, asked, memory, tokens)
            if older:
                return older
        for text, changed in _suspects(asked):
            if self._closes(architecture, changed, row, memory):
                return text
        if memory is not None:
            decimal = Printed(memory.value * 10**9 / 1024**3, memory.half, "GB", memory.line)
            if self._closes(architecture, asked, row, decimal):
                return "the memory was printed in GB (10^9 bytes), not GiB"
        return "none of the usual reasons explains it: compare model, settings and version"

    def _closes(self, architecture: Architecture, asked: Workload, row: Row, memory: Printed | None) -> bool:
        try:
            if row.figure == "memory needed":
                rows = list(self._needed_rows(architecture, asked))
            elif memory is None:
                return False
            else:
                ends = [self._capacity(architecture, asked, value) for value in (memory.low, memory.high)]
                values = [Fraction(str(getattr(capacity, row.figure, None) or 0)) for capacity in ends]
                return Printed(row.logged, Fraction(1, 200) if row.figure == "concurrency" else Fraction(0)).holds(*values)
        except KvcalcError:
            return False
        return any(found.within for found in rows)

    def _older_meaning(self, architecture: Architecture, asked: Workload, memory: Printed, tokens: Printed) -> str:
        """Releases up to 0.20 printed blocks // groups x block size."""
        low, high = (self._capacity(architecture, asked, value) for value in (memory.low, memory.high))
        if low.blocks is None or high.blocks is None or not low.block_size:
            return ""
        for groups in range(1, 33):
            ends = [
                Fraction(capacity.blocks // groups * (capacity.block_size or 0)) for capacity in (low, high) if capacity.blocks is not None
            ]
            if tokens.holds(*ends):
                return f"an older release's meaning of the line: blocks // {groups} groups x {low.block_size}"
        return ""


def _suspects(asked: Workload) -> Iterator[tuple[str, Workload]]:
    """The usual differences between what was asked and what ran."""

    def with_args(**more: Any) -> Workload:
        return replace(asked, engine_args={**asked.engine_args, **more})

    yield "windows were not honoured (hybrid manager off)", with_args(disable_hybrid_kv_cache_manager=True)
    yield "the cache was kept in fp8", replace(asked, kv_dtype="fp8")
    yield "the cache was kept in the model's type", replace(asked, kv_dtype="auto")
    yield "prefix caching was off", with_args(enable_prefix_caching=False)
    yield "the recurrent state was kept in fp32", with_args(mamba_ssm_cache_dtype="float32")
    yield "async scheduling was off (fewer tokens in flight)", with_args(async_scheduling=False)
    yield "another limit of batched tokens: 2,048", with_args(max_num_batched_tokens=2048)
    yield "another limit of batched tokens: 16,384", with_args(max_num_batched_tokens=16384)
    if asked.tensor_parallel > 1:
        yield "heads were replicated, not divided, over the ranks", replace(asked, tensor_parallel=1)
    for ranks in (2, 4, 8):
        if ranks > asked.tensor_parallel:
            yield f"it ran with tensor parallel size {ranks}", replace(asked, tensor_parallel=ranks)
