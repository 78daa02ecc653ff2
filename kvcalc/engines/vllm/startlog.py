"""vLLM's start-up log.

Available KV cache memory: 60.0 GiB                                     one line a rank; always rounded to hundredths
Setting attention block size to 1568 tokens …                           models with recurrent layers
GPU KV cache size: 491,520 tokens, Maximum concurrency for 131,072 tokens per request: 3.75x        two lines until 0.28
# GPU blocks: 30720, # CPU blocks: 2048                                 before 0.8, beside kv_cache_size=60.00GiB
… max seq len (131072), (16.0 GiB KV cache is needed, which is larger than the available KV cache memory (10.0 GiB) …

Until 0.20 the first figure was blocks // groups x block size: it is told by not being concurrency x length.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from kvcalc.core.errors import KvcalcError
from kvcalc.core.workload import Workload
from kvcalc.engines.base.logs import Ranks, Recogniser, Row, Suspects, explained
from kvcalc.engines.base.printed import Printed, printed
from kvcalc.engines.base.trouble import Refusal
from kvcalc.engines.vllm.engine import Vllm
from kvcalc.engines.vllm.refusal import MARKS as REFUSAL_MARKS
from kvcalc.engines.vllm.refusal import RefusalReader
from kvcalc.engines.vllm.specs import MLA, RECURRENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.vllm.engine import VllmFitting

_FIGURES = (
    ("available", re.compile(r"Available KV cache memory: ([0-9.]+) GiB"), "GiB"),
    ("available", re.compile(r"(?:kv_cache_size=|reserved for KV Cache is )([0-9.]+)GiB"), "GiB"),
    ("available", re.compile(r"'kv_cache_memory_bytes': ([0-9]+)"), ""),
    ("refused", re.compile(r"larger than the available (?:KV cache memory )?\(([0-9.]+) GiB"), "GiB"),
    ("tokens", re.compile(r"GPU KV cache size: ([0-9,]+) tokens"), ""),
    ("concurrency", re.compile(r"Maximum concurrency for [0-9,]+ tokens per request: ([0-9.]+)x"), ""),
    ("blocks", re.compile(r"\b(?:GPU|cuda) blocks: ([0-9]+)"), ""),
    ("needed", re.compile(r"([0-9.]+) GiB KV cache is needed"), "GiB"),
    ("longest", re.compile(r"estimated maximum model length is ([0-9]+)"), ""),
    ("block", re.compile(r"Setting attention block size to ([0-9]+) tokens"), ""),
)
#: format_gib rounds to hundredths and drops zeros: 22.5 is 22.50.
_DIGITS = 2
_LENGTH = re.compile(r"Maximum concurrency for ([0-9,]+) tokens per request|max seq len \(([0-9]+)\)")
_VERSION = re.compile(r"(?:\(v|API server version )([0-9]+(?:\.[0-9]+){1,3})(?!\.dev|[0-9])")
_SETTINGS = (
    ("context", re.compile(r"max_(?:seq|model)_len['\"]?[=:] ?([0-9]+)"), int),
    ("tensor_parallel", re.compile(r"tensor_parallel_size['\"]?[=:] ?([0-9]+)"), int),
    ("pipeline_parallel", re.compile(r"pipeline_parallel_size['\"]?[=:] ?([0-9]+)"), int),
    ("decode_context_parallel", re.compile(r"(?:decode_context_parallel_size['\"]?[=:]|by the dcp_world_size) ?([0-9]+)"), int),
    ("kv_dtype", re.compile(r"kv_cache_dtype['\"]?[=:] ?['\"]?([a-z0-9_]+)"), str),
    ("enable_prefix_caching", re.compile(r"enable_prefix_caching['\"]?[=:] ?(True|False)"), lambda text: text == "True"),
    ("block_size", re.compile(r"['\"]block_size['\"]: ?([0-9]+)"), int),
    ("max_num_batched_tokens", re.compile(r"max_num_batched_tokens['\"]?[=:] ?([0-9]+)"), int),
    ("max_num_seqs", re.compile(r"['\"]max_num_seqs['\"]: ?([0-9]+)"), int),
    ("mamba_ssm_cache_dtype", re.compile(r"mamba_ssm_cache_dtype(?:['\"]?[=:] ?| to )['\"](float32|float16|bfloat16)"), str),
    ("num_speculative_tokens", re.compile(r"num_spec(?:ulative)?_tokens['\"]?[=:] ?([0-9]+)"), int),
    ("speculative_method", re.compile(r"['\"]?\bmethod['\"]?[=:] ?['\"](mtp|eagle3?|ngram(?:_gpu)?|suffix)['\"]"), str),
)
#: What the lines that hold settings say.
_SAYING = ("LLM engine", "non-default args", "Chunked prefill is enabled", "Updating mamba_ssm_cache_dtype", "dcp_world_size")
#: Drafts with a model of their own.
_DRAFT = re.compile(r"\bmethod['\"]?[=:] ?['\"](draft_model|dflash|dspark)['\"]")
_MODEL = re.compile(r"(?:\bmodel=|'model': )'([^']{1,200})'")
_WORKERS = re.compile(r"\(Worker_([A-Z0-9_]{1,60}) ?(?:pid=[0-9]+)?\)")
_WORKLOAD_KEYS = ("context", "tensor_parallel", "pipeline_parallel", "decode_context_parallel", "kv_dtype", "gpu")
_DECIMAL = "decimal"
VLLM = Vllm()


class VllmLog(Recogniser):
    """vLLM, on one rank or several."""

    engine: ClassVar[str] = "vllm"
    marks: ClassVar[tuple[bytes, ...]] = (
        b"KV cache",
        b"KV Cache",
        b"kv_cache_size=",
        b"Maximum concurrency",
        b"GPU blocks",
        b"cuda blocks",
        b"max_seq_len",
        b"max_model_len",
        b"max seq len",
        b"model length",
        b"attention block size",
        b"non-default args",
        b"LLM engine",
        b"API server version",
        b"Chunked prefill is enabled",
        b"mamba_ssm_cache_dtype",
        b"(Worker_",
        *REFUSAL_MARKS,
    )

    def __init__(self) -> None:
        super().__init__()
        self._ranks = Ranks()
        self._notes: list[str] = []
        self._draft = ""
        self._refusal = RefusalReader()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was read from the names of the workers."""
        return tuple(self._notes)

    def feed(self, line: str, number: int) -> None:
        """Figures, settings and the model of one line."""
        workers = _WORKERS.search(line)
        if workers:
            self._ranks.read(workers[1].replace("_", " "))
        for name, pattern, unit in _FIGURES:
            match = pattern.search(line)
            if match:
                self.seen.add(name, printed(match[1].rstrip("."), number, unit, digits=_DIGITS if unit else 0))
        length = _LENGTH.search(line)
        if length:
            self.seen.settings["context"] = int((length[1] or length[2]).replace(",", ""))
        version = _VERSION.search(line)
        if version and ("LLM engine" in line or "API server" in line):
            self.seen.version = version[1]
        if any(saying in line for saying in _SAYING):
            self._settings(line)

    def hear(self, line: str, number: int) -> None:
        """What the line says of a server that does not start."""
        self._refusal.hear(line, number)

    @property
    def complains(self) -> bool:
        """The server did not start."""
        return bool(self._refusal.line)

    def complaint(self) -> Refusal | None:
        """The refusal, unless the server started later in the log."""
        found, seen = self._refusal, self.seen
        started = max((figure.line for name in ("tokens", "blocks") for figure in seen.figures.get(name, ())), default=0)
        if found.line <= started:
            return None
        asked = self.workload()
        if found.context is not None:
            asked = replace(asked, context=found.context)
        return Refusal(found.line, asked, found.left or seen.last("refused") or seen.smallest("available"), found.below, found.nothing)

    def _settings(self, line: str) -> None:
        model = _MODEL.search(line)
        if model:
            self.seen.model = model[1]
        draft = _DRAFT.search(line)
        if draft:
            self._draft = draft[1]
        for name, pattern, read in _SETTINGS:
            match = pattern.search(line)
            if match:
                self.seen.settings.setdefault(name, read(match[1]))

    def workload(self, **more: Any) -> Workload:
        """The question that the log answers."""
        settings = {**self.seen.settings, **more}
        if "speculative_method" not in settings:
            settings.pop("num_speculative_tokens", None)  # a draft model of its own: its layers are not in the log
        asked = {key: settings[key] for key in _WORKLOAD_KEYS if key in settings}
        args = {key: value for key, value in settings.items() if key not in (*_WORKLOAD_KEYS, _DECIMAL)}
        return Workload(**asked, engine_args=args)

    def rows(self, architecture: Architecture) -> list[Row]:
        """Tokens, concurrency, blocks and the refusal's figures, recomputed from the memory that the log prints."""
        settings = self.seen.settings
        self._notes += self._ranks.settle(settings)
        if settings.get("decode_context_parallel", 1) > settings.get("tensor_parallel", 1):
            settings["tensor_parallel"] = settings.get("decode_context_parallel", 1)  # it divides the tensor parallel ranks
        found = list(self._rows(architecture))
        if self._draft:
            reason = f"a draft model of its own ({self._draft}) shares the memory, and the log does not hold its layers"
            return [row if row.within or row.reason else replace(row, reason=reason) for row in found]
        return explained(found, _tiers(settings, self._older_blocks(architecture)), lambda more: self._rows(architecture, **more))

    def _older_blocks(self, architecture: Architecture) -> Suspects:
        """Recurrent layers beside MLA: their blocks are multiples of 128, and were of 64 in 2025."""
        with suppress(KvcalcError):
            pool = VLLM.fitting(architecture, self.workload(), 0).pool
            kinds = {spec.kind for group in pool.groups for spec in group.specs}
            if "block_size" not in self.seen.settings and pool.block_size > _OLDER_MLA_STEP and kinds >= {MLA, RECURRENT}:
                size = pool.block_size - _OLDER_MLA_STEP
                return ((f"an older release's blocks of a hybrid with MLA: {size}", {"block_size": size}),)
        return ()

    def _rows(self, architecture: Architecture, **more: Any) -> Iterator[Row]:
        asked = self.workload(**more)
        memory = self.seen.smallest("available") or self.seen.last("refused")
        if memory is None:
            yield from self._closing_row(architecture, asked)
        else:
            scale = Fraction(10**9, 1024**3) if more.get(_DECIMAL) else Fraction(1)
            ends = [VLLM.fitting(architecture, asked, max(0, int(value * scale))) for value in (memory.low, memory.value + memory.half)]
            yield from self._capacity_rows(architecture, asked, ends)
        block = self.seen.last("block")
        if block is not None:
            size = Fraction(VLLM.fitting(architecture, asked, 0).pool.block_size or 0)
            yield Row("attention block", "tokens", block.line, block.value, size, size, block.holds(size, size))
        needed = self.seen.last("needed")
        if needed is not None:
            expected = Fraction(VLLM.plan(architecture, asked).per_device)
            yield Row("memory needed", "bytes", needed.line, needed.value, expected, expected, needed.holds(expected, expected))

    def _capacity_rows(self, architecture: Architecture, asked: Workload, ends: list[VllmFitting]) -> Iterator[Row]:
        context = VLLM.context_of(architecture, asked)
        low, high = (fitting.capacity(context) for fitting in ends)
        for name, unit in (("tokens", "tokens"), ("concurrency", "sequences"), ("blocks", "blocks")):
            figure = self.seen.smallest(name)
            if figure is not None:
                bounds = [Fraction(str(getattr(capacity, name) or 0)) for capacity in (low, high)]
                row = Row(name, unit, figure.line, figure.value, bounds[0], bounds[1], figure.holds(*bounds))
                yield replace(row, reason=self._older_meaning(figure, ends, low.block_size)) if name == "tokens" and not row.within else row
        longest = self.seen.last("longest")
        if longest is not None:
            bounds = [Fraction(_longest(architecture, asked, fitting)) for fitting in ends]
            yield Row("longest context", "tokens", longest.line, longest.value, bounds[0], bounds[1], longest.holds(*bounds))

    def _closing_row(self, architecture: Architecture, asked: Workload) -> Iterator[Row]:
        """Without the memory: tokens must be concurrency x length."""
        tokens, concurrency = self.seen.last("tokens"), self.seen.last("concurrency")
        if tokens is None or concurrency is None or asked.context is None:
            return
        low, high = (value * asked.context for value in (concurrency.low, concurrency.high))
        row = Row("tokens = concurrency x length", "tokens", tokens.line, tokens.value, low, high, tokens.holds(low, high))
        pool = VLLM.fitting(architecture, asked, 0).pool
        groups, needed = len(pool.groups), pool.request_blocks(asked.context)
        if row.within:
            yield row
            if needed:
                yield _whole_blocks(tokens, needed, asked.context)
            return
        for size in self._block_sizes(pool.block_size) if groups > 1 and needed else ():
            blocks = tokens.value / size * groups
            if blocks.denominator == 1 and concurrency.holds(blocks / needed, (blocks + groups - 1) / needed):
                row = replace(row, reason=_OLDER.format(groups, size))
        yield row

    def _block_sizes(self, block: int) -> list[int]:
        """A recurrent layer's block may be the whole context; older releases counted the smallest of all blocks."""
        return list(dict.fromkeys((block, min(block, self.seen.settings.get("context", block)))))

    @property
    def _is_older(self) -> bool:
        """The figure of tokens is not concurrency x length."""
        tokens, concurrency, context = self.seen.last("tokens"), self.seen.last("concurrency"), self.seen.settings.get("context")
        if tokens is None or concurrency is None or context is None:
            return True  # it cannot be told
        return not tokens.holds(concurrency.low * context, concurrency.high * context)

    def _older_meaning(self, tokens: Printed, ends: list[VllmFitting], block: int | None) -> str:
        """Releases up to 0.20 printed blocks // groups x block size."""
        groups = len(ends[0].pool.groups)
        if not self._is_older or not block or groups <= 1:
            return ""
        for size in self._block_sizes(block):
            bounds = [Fraction(fitting.pool.blocks(fitting.memory) // groups * size) for fitting in ends]
            if tokens.holds(*bounds):
                return _OLDER.format(groups, size)
        return ""


def _whole_blocks(tokens: Printed, needed: int, context: int) -> Row:
    """Tokens are blocks / blocks of a request x length, and blocks are whole: another layout gives no such number."""
    blocks = tokens.value * needed // context
    low, high = (Fraction(int(count / needed * context)) for count in (int(blocks), int(blocks) + 1))
    return Row("tokens of whole blocks", "tokens", tokens.line, tokens.value, low, high, tokens.value in (low, high))


def _longest(architecture: Architecture, asked: Workload, fitting: VllmFitting) -> int:
    from kvcalc.engines.base.search import largest_context

    return largest_context(architecture, asked, fitting, beyond=True) or 0


_OLDER = "an older release's meaning of the line: blocks // {} groups x {}"
_OLDER_MLA_STEP = 64
_RANKS = (2, 4, 8)
#: Any card but a Hopper: gated DeltaNet's prefill hands out no states there, and fewer tokens are in flight by default.
_CARD = {"gpu": "a100-80gb"}
_CARD_TEXT = "the card is no Hopper card (an H100 is assumed)"


def _tiers(settings: dict[str, Any], older: Suspects) -> tuple[Suspects, ...]:
    """The usual differences between what was asked and what ran: one at a time, then two, then three."""
    ranks = int(settings.get("tensor_parallel", 1))
    parallel: Suspects = tuple((f"it ran with tensor parallel size {more}", {"tensor_parallel": more}) for more in _RANKS if more > ranks)
    if "pipeline_parallel" not in settings:
        parallel += (("it ran with pipeline parallel size 2", {"pipeline_parallel": 2}),)
    card: Suspects = () if "gpu" in settings else ((_CARD_TEXT, _CARD),)
    types: Suspects = (
        ("the cache was kept in fp8", {"kv_dtype": "fp8"}),
        ("the cache was kept in the model's type", {"kv_dtype": "auto"}),
    )
    states: Suspects = (
        ("prefix caching was off", {"enable_prefix_caching": False}),
        ("the recurrent state was kept in fp32", {"mamba_ssm_cache_dtype": "float32"}),
        ("the recurrent state was kept in the model's type", {"mamba_ssm_cache_dtype": "bfloat16"}),
    )
    drafts: Suspects = ()
    if "speculative_method" not in settings:
        drafts = (
            *(
                (f"multi-token prediction, draft tokens: {count}", {"speculative_method": "mtp", "num_speculative_tokens": count})
                for count in range(1, 5)
            ),
            ("an EAGLE draft of one layer", {"speculative_method": "eagle", "num_speculative_tokens": 1}),
        )
    steps: Suspects = (("async scheduling was off (fewer tokens in flight)", {"async_scheduling": False}),)
    if "max_num_batched_tokens" not in settings:
        steps += tuple(
            (f"another limit of batched tokens: {size:,}", {"max_num_batched_tokens": size}) for size in (2048, 4096, 8192, 16384)
        )
    blocks: Suspects = tuple(
        (f"another block size: {size}", {"block_size": size}) for size in (32, 64, 128, 256) if "block_size" not in settings
    )
    one: Suspects = (
        ("windows were not honoured (hybrid manager off)", {"disable_hybrid_kv_cache_manager": True}),
        *older,
        *types,
        *states,
        *steps,
        *card,
        *parallel,
        *drafts,
        *blocks,
        *((("heads were replicated, not divided, over the ranks", {"tensor_parallel": 1}),) if ranks > 1 else ()),
        ("the memory was printed in GB (10^9 bytes), not GiB", {_DECIMAL: True}),
    )
    two = (
        *_both(older, states),
        *_both(types, (*card, *parallel, *states, *drafts)),
        *_both(card, (*parallel, *states, *drafts)),
        *_both(parallel, (*states, *drafts, *blocks)),
    )
    three = (*_both(_both(types, card), (*parallel, *states, *drafts)), *_both(_both(card, parallel), (*states, *drafts)))
    return one, two, three


def _both(some: Suspects, others: Suspects) -> Suspects:
    return tuple((f"{text}, and {other}", {**changed, **more}) for text, changed in some for other, more in others)


RECOGNISER = VllmLog
