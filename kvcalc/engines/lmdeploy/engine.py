"""LMDeploy's PyTorch engine: packed blocks of 64 tokens, and slots of states beside them.

block      Σ layers, Σ parts (K, V, their scales)   each rounded up to 256 B
sequence   ⌈tokens / 64⌉ blocks; one window for all layers, where there is one: ⌈T / 64⌉ - ⌊(T - 1 - W) / 64⌋
slots      max_batch_size + 2, one each for a sequence of a hybrid, allocated at the start
blocks     int((free - slots - runtime) x cache_max_entry_count) // block bytes, one of them reserved
runtime    (max_prefill_token_num + 2 x max_batch_size) x vocabulary x 2 B

classes.py has the engine's classes, model.py what its builders make of a model, settings.py what its constructor refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.plan import Capacity, Line, Plan
from kvcalc.core.units import clean
from kvcalc.engines.base.engine import Engine, Fitting, Setting, context_messages
from kvcalc.engines.lmdeploy.classes import class_of, find_class
from kvcalc.engines.lmdeploy.model import Cache, cache_of
from kvcalc.engines.lmdeploy.settings import POLICIES, SETTINGS, USUAL, Server, read_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.workload import Workload

#: Slots beside those of the sequences: one of the system, one for a prefill that rolls (executor/base.py).
SPARE_SLOTS = 2
#: Memory for the scores of DSA (LMDEPLOY_DSA_INDEXER_MAX_LOGITS_MB, 512).
_DSA_SCORES = 512 * 1024**2
#: Blocks with which a prefill of the asked length is given up for half of it, and the least with which the engine starts.
_ROOM, _LEAST = 16, 3
_LOGIT = 2


class NoRoomError(EngineRejectsError):
    """The engine does not start: no memory for states, for the runtime or for three blocks."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A model on a server: the cache of one rank, and how many ranks have one."""

    cache: Cache
    server: Server
    ranks: int
    vocabulary: int | None

    @property
    def slots(self) -> int:
        """State slots; 0 for a model without states."""
        return self.server.batch + SPARE_SLOTS + self.server.args["prefix_cache_state_budget"] if self.cache.slot else 0

    def blocks(self, context: int) -> int:
        """Blocks of one sequence of `context` tokens while it decodes."""
        size, window = self.cache.block, self.cache.window
        if not self.cache.parts:
            return 0
        dropped = max(0, context - 1 - window) // size if window is not None else 0
        return -(-context // size) - dropped

    def most_blocks(self, context: int) -> int:
        """The most blocks that a sequence holds on its way to `context` tokens: a window frees one only when it has left it."""
        size, window = self.cache.block, self.cache.window
        if window is None:
            return self.blocks(context)
        # A block begins at each length of one token more than whole blocks.
        lengths = {context, min(context, window + 1), max(1, (context - 1) // size * size + 1)}
        return max(self.blocks(length) for length in lengths)

    def held(self, each: int, sequences: int, prefix: int) -> int:
        """Blocks of all sequences of `each` blocks; whole blocks of a shared prefix once, where the prefix cache can share them."""
        shared = prefix // self.cache.block if self.server.args["enable_prefix_caching"] and self.cache.window is None else 0
        return shared + sequences * (each - shared)

    def runtime(self, free: int) -> int:
        """Bytes kept for a prefill and its logits: of half the tokens again and again, until 16 blocks have room. Raises NoRoomError."""
        if self.vocabulary is None:
            raise UsageError(
                "LMDeploy keeps memory for the logits before it counts blocks, and the vocabulary of this model is not known",
                "give the model's config.json, or the blocks with -E num_gpu_blocks",
            )
        tokens: int = self.server.args["max_prefill_token_num"]
        while tokens > 0:
            kept = (tokens + 2 * self.server.batch) * self.vocabulary * _LOGIT + (_DSA_SCORES if self.cache.sparse else 0)
            if self._count(free - kept) >= _ROOM:
                return kept
            tokens //= 2
        raise NoRoomError(
            "LMDeploy does not start: no enough gpu memory for runtime",
            "lower max_prefill_token_num or max_batch_size, or give it more memory",
        )

    def count(self, memory: int) -> int:
        """Blocks in `memory` bytes a card that are free after the weights, the reserved one included. Raises NoRoomError."""
        free = memory - self.slots * self.cache.slot_bytes
        if self.slots and free <= 0:
            raise NoRoomError(
                f"LMDeploy does not start: no enough gpu memory for state cache: {self.slots:,} slots (max_batch_size {self.server.batch:,}"
                f" and {self.slots - self.server.batch}) take {self.slots * self.cache.slot_bytes:,} B, and {memory:,} B are free",
                "reduce max_batch_size",
            )
        given: int = self.server.args["num_gpu_blocks"]
        if given:
            return given
        return self._count(free - self.runtime(free))

    def _count(self, room: int) -> int:
        # The engine multiplies in double precision and cuts off: int(bytes * 0.8). Done the same way, or blocks differ.
        blocks = int(room * self.server.args["cache_max_entry_count"]) // self.cache.block_bytes
        if blocks < _LEAST:
            raise NoRoomError(
                f"LMDeploy does not start: no enough gpu memory for kv cache: {max(blocks, 0)} blocks of {self.cache.block_bytes:,} B "
                f"in {max(room, 0):,} B x {self.server.args['cache_max_entry_count']:g}",
                "give it more memory, or lower max_batch_size or max_prefill_token_num",
            )
        return blocks


class LmDeploy(Engine):
    """LMDeploy's PyTorch engine, as `lmdeploy serve api_server --backend pytorch` starts it."""

    name: ClassVar[str] = "lmdeploy"
    title: ClassVar[str] = "LMDeploy"
    version: ClassVar[str] = "0.18.0"
    settings: ClassVar[tuple[Setting, ...]] = SETTINGS

    remedy_formats: ClassVar[tuple[str, ...]] = ("fp8", "int8", "int4")
    server_flags: ClassVar[Mapping[str, str]] = {"context": "--session-len", "tensor_parallel": "--tp"}
    rules: ClassVar[tuple[str, ...]] = (
        "Keys and values lie in blocks of 64 tokens; every part of a block is rounded up to 256 B.",
        "One window holds for all layers, or none does: its builders take sliding_window for the full layers too.",
        "Hybrids keep max_batch_size + 2 slots of states, allocated at the start and outside cache_max_entry_count.",
        "Memory for a prefill and its logits is taken off before the share: blocks = (free - slots - runtime) x 0.8 // block.",
        "max_batch_size is 1,024 on an H100 or H200, 384 on an A100 and 128 elsewhere unless it is set: in hybrids, lower it first.",
    )

    def knows(self, family: str, class_name: str = "") -> bool:
        """The engine has a class of that name, or for that family where no class is named."""
        return find_class(family, class_name) is not None

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The blocks of the sequences and the slots. Raises EngineRejectsError, UsageError, UnsupportedArchitectureError."""
        setup, context = self._setup(architecture, workload), self.context_of(architecture, workload)
        notes, warnings = context_messages(architecture, workload, context)
        cache, ranks = setup.cache, setup.ranks
        alone = setup.blocks(context)
        blocks = setup.held(alone, workload.sequences, workload.shared_prefix)
        notes += _notes(setup, workload)
        if workload.sequences > setup.server.batch:
            warnings.append(f"max_batch_size {setup.server.batch:,} serves {setup.server.batch:,} sequences at once, and the others wait")
        page, slot = cache.block_bytes * ranks, cache.slot_bytes * ranks
        lines = _lines(setup, blocks, alone)
        return Plan(
            engine=self.name,
            version=self.version,
            args=dict(setup.server.args),
            kv_dtype=_format(setup),
            context=context,
            lines=lines,
            per_device=sum(line.bytes for line in lines) // ranks,
            per_sequence=alone * page + slot,
            per_token=sum(-(-part.layers * part.bytes * ranks // cache.kernel) for part in cache.parts),
            growth_per_token=(setup.blocks(context + 1) - alone) * page,
            fixed=slot,
            notes=tuple(notes),
            warnings=tuple(warnings),
        )

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> LmDeployFitting:
        """`kv_memory` bytes a card that are free after the weights."""
        setup = self._setup(architecture, workload)
        return LmDeployFitting(self, architecture, workload, kv_memory, setup)

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """Blocks as the engine's own log counts them. Raises EngineRejectsError where it does not start."""
        return self.fitting(architecture, workload, kv_memory).capacity(self.context_of(architecture, workload))

    def _setup(self, architecture: Architecture, workload: Workload) -> Setup:
        row = class_of(architecture)
        server = read_server(self.read_args(workload.engine_args), workload)
        if workload.pipeline_parallel > 1 or workload.decode_context_parallel > 1:
            raise EngineRejectsError("LMDeploy's PyTorch engine splits by heads only", "use --tp")
        cache = cache_of(architecture, row, server, workload.tensor_parallel)
        return Setup(cache, server, workload.tensor_parallel, architecture.traits.vocab_size)


@dataclass(frozen=True, slots=True)
class LmDeployFitting(Fitting):
    """A memory a card under one server: blocks are counted once for every memory."""

    setup: Setup

    def admits(self, context: int, sequences: int) -> bool:
        """The engine starts, and its blocks but the reserved one hold that many sequences at once."""
        try:
            blocks = self.setup.count(self.memory)
        except NoRoomError:
            return False
        return self._holds(blocks, context, sequences)

    def capacity(self, context: int) -> Capacity:
        """Blocks, usable tokens, slots. Raises EngineRejectsError where the engine does not start."""
        blocks, cache = self.setup.count(self.memory), self.setup.cache
        each = self.setup.most_blocks(context)
        return Capacity(
            fits=self._holds(blocks, context, self.workload.sequences),
            tokens=(blocks - 1) * cache.block,
            concurrency=min((blocks - 1) / each, self.setup.server.batch) if each else self.setup.server.batch,
            blocks=blocks,
            block_bytes=cache.block_bytes,
            block_size=cache.block,
            state_slots=self.setup.slots or None,
        )

    def _holds(self, blocks: int, context: int, sequences: int) -> bool:
        prefix = min(context, self.workload.shared_prefix)
        return sequences <= self.setup.server.batch and self.setup.held(self.setup.most_blocks(context), sequences, prefix) < blocks


def _format(setup: Setup) -> str:
    if setup.cache.sparse and setup.server.policy:
        return "fp8_ds_mla"
    return setup.cache.parts[0].format if setup.cache.parts and not setup.server.policy else POLICIES[setup.server.policy]


def _lines(setup: Setup, blocks: int, alone: int) -> tuple[Line, ...]:
    """A line a part of the blocks, a line a part of the slots, and what is rounded up in each."""
    cache, ranks = setup.cache, setup.ranks
    times = "" if ranks == 1 else f" x {ranks} ranks"
    pages = blocks * cache.each
    found = [
        Line(
            state=part.state,
            layers=part.layers,
            buffer=part.buffer,
            width=part.width * (1 if part.buffer in ("latent", "index") else ranks),
            format=part.format,
            slots=alone * cache.block,
            bytes=part.layers * pages * part.bytes * ranks,
            formula=f"{part.layers} layers x {pages:,} blocks of {cache.kernel} x {part.bytes:,} B{times}",
        )
        for part in cache.parts
    ]
    pad = sum(part.layers * (part.held - part.bytes) for part in cache.parts)
    if pad:
        found.append(_padding("block", f"{pages:,} blocks", pages, pad, ranks, fixed=False))
    found += [
        Line(
            state=part.state,
            layers=part.layers,
            buffer=part.buffer,
            width=part.width,
            format=part.format,
            slots=1,
            bytes=setup.slots * part.bytes * ranks,
            formula=f"{setup.slots:,} slots x {part.bytes:,} B{times}",
            fixed=True,
        )
        for part in cache.slot
    ]
    pad = sum(part.held - part.bytes for part in cache.slot)
    if pad:
        found.append(_padding("slot", f"{setup.slots:,} slots", setup.slots, pad, ranks, fixed=True))
    return tuple(found)


def _padding(what: str, count: str, times: int, pad: int, ranks: int, *, fixed: bool) -> Line:
    text = f"{count} x {pad:,} B, each part rounded up to 256 B" + ("" if ranks == 1 else f", x {ranks} ranks")
    return Line("padding", 0, what, 0, "bytes", 1, times * pad * ranks, text, fixed=fixed)


def _notes(setup: Setup, workload: Workload) -> list[str]:
    said = list(setup.cache.notes)
    if workload.gpu is None:
        said.append(f"no card named: max_batch_size {setup.server.batch:,} and FlashMLA as on {clean(USUAL)}")
    if setup.slots:
        said.append(
            f"{setup.slots:,} state slots (max_batch_size {setup.server.batch:,} and {setup.slots - setup.server.batch}) are allocated at the start, "
            "outside cache_max_entry_count"
        )
    if setup.cache.window is not None:
        said.append("of a sequence that decodes; a prefill holds the blocks of its whole length")
    if workload.shared_prefix and not (setup.server.args["enable_prefix_caching"] and setup.cache.window is None):
        said.append("LMDeploy shares a prefix with enable_prefix_caching only, and never under a window: every sequence holds its own")
    return said
