"""What LMDeploy's PyTorch engine logs of its cache (pytorch/engine/executor/base.py, serve/core/async_engine.py, 0.18.0).

input backend=pytorch, backend_config=PytorchEngineConfig(dtype='auto', tp=2, dp=1, …, block_size=64, …)
minimal free gpu memory: 131072 mb                      at --log-level DEBUG; MiB, cut off; after the weights
Building CacheEngine with config:
CacheConfig(max_batches=1024, block_size=64, num_cpu_blocks=0, num_gpu_blocks=30410, …, num_state_caches=1026, …)

No line gives the bytes of a block. The blocks are compared where the free memory was printed, the slots of states wherever there are any.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.units import MIB
from kvcalc.core.workload import Workload
from kvcalc.engines.base.logs import Recogniser, Row, Suspects, explained
from kvcalc.engines.base.printed import Printed, printed
from kvcalc.engines.lmdeploy.engine import SPARE_SLOTS, LmDeploy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture

_CONFIG = re.compile(r"(?<![A-Za-z])CacheConfig\(max_batches=")
_FREE = re.compile(r"minimal free gpu memory: ([0-9]{1,9}) mb")
_BLOCKS = re.compile(r"\bnum_gpu_blocks=([0-9]{1,12})\b")
_SLOTS = re.compile(r"\bnum_state_caches=([0-9]{1,9})\b")
_ASKED_BLOCKS = re.compile(r"PytorchEngineConfig\(.{0,2000}?\bnum_gpu_blocks=([1-9][0-9]{0,11})\b")
_RANKS = {word: re.compile(rf"PytorchEngineConfig\(.{{0,400}}?\b{word}=([0-9]{{1,6}})\b") for word in ("tp", "dp", "ep")}
#: Fields of CacheConfig → settings of the engine.
_FIELDS = (
    ("max_batch_size", re.compile(r"\bmax_batches=([0-9]{1,9})\b"), int),
    ("block_size", re.compile(r"\bblock_size=([0-9]{1,9})\b"), int),
    ("kernel_block_size", re.compile(r"\bkernel_block_size=([0-9]{1,9})\b"), int),
    ("cache_max_entry_count", re.compile(r"\bcache_max_entry_count=([0-9.]{1,20})"), float),
    ("max_prefill_token_num", re.compile(r"\bmax_prefill_token_num=([0-9]{1,9})\b"), int),
    ("quant_policy", re.compile(r"\bquant_policy=(?:<QuantPolicy\.[A-Z0-9_]{1,20}: )?([0-9]{1,3})\b"), int),
    ("prefix_cache_state_budget", re.compile(r"\bprefix_cache_state_budget=([0-9]{1,9})\b"), int),
)
_WORKLOAD = ("tensor_parallel", "kv_dtype", "gpu")


class LmDeployLog(Recogniser):
    """`lmdeploy serve api_server --backend pytorch`."""

    engine: ClassVar[str] = "lmdeploy"
    marks: ClassVar[tuple[bytes, ...]] = (b"CacheConfig(max_batches=", b"PytorchEngineConfig(", b"minimal free gpu memory:")

    def feed(self, line: str, number: int) -> None:
        """Figures and settings of one line."""
        free = _FREE.search(line)
        if free:
            self.seen.add("free", Printed(Fraction(free[1]) * MIB, Fraction(0), "MiB", number))
        if "PytorchEngineConfig(" in line:
            self._asked(line)
        # The engine of drafts prints the same, after the one of the model.
        if _CONFIG.search(line) and "blocks" not in self.seen.figures:
            self._config(line, number)

    def _asked(self, line: str) -> None:
        ranks = {word: int(match[1]) for word, pattern in _RANKS.items() if (match := pattern.search(line))}
        world = ranks["ep"] if ranks.get("ep", 1) > 1 else ranks.get("tp", 1)
        self.seen.settings["tensor_parallel"] = max(world // max(ranks.get("dp", 1), 1), 1)
        blocks = _ASKED_BLOCKS.search(line)
        if blocks:
            self.seen.settings["num_gpu_blocks"] = int(blocks[1])

    def _config(self, line: str, number: int) -> None:
        for name, pattern, read in _FIELDS:
            match = pattern.search(line)
            if match:
                self.seen.settings[name] = read(match[1])
        for name, pattern in (("blocks", _BLOCKS), ("slots", _SLOTS)):
            match = pattern.search(line)
            if match:
                self.seen.add(name, printed(match[1], number))

    @property
    def recognised(self) -> bool:
        """The configuration of the cache was printed."""
        return "blocks" in self.seen.figures

    @property
    def notes(self) -> tuple[str, ...]:
        """What the log leaves open."""
        if "free" in self.seen.figures:
            return ()
        return ("the free memory is printed at --log-level DEBUG only: without it the blocks cannot be recomputed",)

    def rows(self, architecture: Architecture) -> list[Row]:
        """The blocks in the memory that was free, and the slots of states."""
        return explained(list(self._rows(architecture)), (_SUSPECTS,), lambda more: self._rows(architecture, **more))

    def _rows(self, architecture: Architecture, **more: Any) -> Iterator[Row]:
        settings = {**self.seen.settings, **more}
        asked = {name: settings.pop(name) for name in _WORKLOAD if name in settings}
        workload = Workload(context=1, engine_args=settings, **asked)
        blocks, slots, free = (self.seen.last(name) for name in ("blocks", "slots", "free"))
        if blocks and free:
            low, high = (_blocks(architecture, workload, int(free.value) + more_bytes) for more_bytes in (0, MIB - 1))
            yield _compared("blocks", "blocks", blocks, low, high)
        if slots:
            plan = LmDeploy().plan(architecture, workload)
            held = any(line.fixed and line.layers for line in plan.lines)
            count = plan.args["max_batch_size"] + SPARE_SLOTS + plan.args["prefix_cache_state_budget"] if held else 0
            yield _compared("state slots", "slots", slots, count, count)


def _compared(figure: str, unit: str, logged: Printed, low: int, high: int) -> Row:
    return Row(figure, unit, logged.line, logged.value, Fraction(low), Fraction(high), logged.holds(low, high))


def _blocks(architecture: Architecture, workload: Workload, memory: int) -> int:
    """Blocks in so many bytes; 0 where the engine would not start."""
    try:
        return LmDeploy().capacity(architecture, workload, memory).blocks or 0
    except EngineRejectsError:
        return 0


_SUSPECTS: Suspects = (
    *((f"it ran with tensor parallel size {ranks}", {"tensor_parallel": ranks}) for ranks in (2, 4, 8)),
    ("the cache was kept in int8", {"quant_policy": 8}),
    ("the cache was kept in int4", {"quant_policy": 4}),
    ("the recurrent state was kept in float32", {"fp32_mamba_ssm_dtype": True}),
)

RECOGNISER = LmDeployLog
