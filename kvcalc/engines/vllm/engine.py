"""The vLLM engine: plans, capacity, and what fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from kvcalc.core.plan import Capacity, Plan
from kvcalc.core.workload import Workload
from kvcalc.engines.base.engine import Engine, Fitting, Setting, context_messages
from kvcalc.engines.base.memo import per_model
from kvcalc.engines.vllm import lines, settings, support
from kvcalc.engines.vllm.dtypes import format_of
from kvcalc.engines.vllm.model import build_pool
from kvcalc.engines.vllm.notes import concurrency_notes, pool_notes, sequence_notes
from kvcalc.engines.vllm.specs import RECURRENT, RING
from kvcalc.engines.vllm.start import read_start

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.vllm.pool import Pool
    from kvcalc.engines.vllm.start import Start


class Ready(NamedTuple):
    """A start with its pool and what every plan of it says alike: for any context and number of sequences.

    alike      the layers of every group by state and spec
    per_token  bytes of a token in every layer that still holds it
    """

    start: Start
    pool: Pool
    alike: lines.Alike
    per_token: int
    kv_dtype: str


def ready(architecture: Architecture, workload: Workload, args: Mapping[str, Any]) -> Ready:
    """The start of a question, whatever its context, sequences and prefix. Raises every error that vLLM's own start would raise."""
    ranks = (workload.tensor_parallel, workload.pipeline_parallel, workload.decode_context_parallel)
    settled = tuple((name, _hashable(value) if isinstance(value, list) else value) for name, value in args.items())
    return _ready(architecture, ranks, workload.kv_dtype, workload.gpu, settled)


def _hashable(items: list[Any]) -> tuple[int | str, ...]:
    return tuple(item if type(item) in (int, str) else str(item) for item in items)


@per_model
def _ready(
    architecture: Architecture, ranks: tuple[int, int, int], kv_dtype: str, gpu: str | None, settled: tuple[tuple[str, Any], ...]
) -> Ready:
    tensor, pipeline, decode = ranks
    workload = Workload(tensor_parallel=tensor, pipeline_parallel=pipeline, decode_context_parallel=decode, kv_dtype=kv_dtype, gpu=gpu)
    args = {name: list(value) if isinstance(value, tuple) else value for name, value in settled}
    start = read_start(architecture, workload, args)
    pool = build_pool(start)
    alike = lines.alike_layers(pool)
    return Ready(start, pool, alike, lines.per_token(alike), format_of(start.cache, start.own))


@dataclass(frozen=True, slots=True)
class VllmFitting(Fitting):
    """One start of vLLM with a fixed memory per GPU: what it admits, and what its log says."""

    ready: Ready

    @property
    def start(self) -> Start:
        """The start itself."""
        return self.ready.start

    @property
    def pool(self) -> Pool:
        """Its pool of blocks."""
        return self.ready.pool

    @property
    def grain(self) -> int:
        """Tokens of context between two blocks of full attention."""
        return self.ready.pool.block_size * self.workload.decode_context_parallel

    def left(self, context: int, sequences: int) -> int:
        """Bytes of the fullest GPU that stay free beside the null block; blocks where their number is given."""
        prefix = self.workload.shared_prefix
        return self.ready.pool.left(self.memory, context, sequences, min(context, prefix))

    def admits(self, context: int, sequences: int) -> bool:
        """That many requests of that length fit."""
        return self.left(context, sequences) >= 0

    def plan(self, workload: Workload) -> Plan:
        """The plan of the same start."""
        return make_plan(self.ready, workload, self.engine.context_of(self.architecture, workload))

    def capacity(self, context: int) -> Capacity:
        """The log line at this max_model_len: blocks, tokens, concurrency."""
        blocks, needed = self.pool.blocks(self.memory), self.pool.request_blocks(context)
        concurrency = blocks / needed if needed else None
        warnings: list[str] = []
        if not self.admits(context, 1):
            warnings.append(
                f"vLLM refuses to start: one request of {context:,} tokens needs {needed + 1:,} blocks, and the memory gives {blocks:,}"
            )
        elif self.start.is_hybrid and blocks < self.start.scheduler.sequences:
            warnings.append(
                f"vLLM refuses full CUDA graphs of a model with recurrent layers unless max_num_seqs ({self.start.scheduler.sequences:,})"
                f" is at most the {blocks:,} blocks: lower max_num_seqs"
            )
        return Capacity(
            fits=self.admits(context, 1),
            tokens=None if concurrency is None else int(concurrency * context),
            concurrency=concurrency,
            blocks=blocks,
            block_bytes=self.pool.block_bytes,
            block_size=self.pool.block_size,
            notes=(*self.start.notes, *concurrency_notes(self.pool, context)),
            warnings=tuple(warnings),
        )


class Vllm(Engine):
    """vLLM 0.33."""

    name: ClassVar[str] = "vllm"
    title: ClassVar[str] = "vLLM"
    version: ClassVar[str] = settings.VERSION
    server_flags: ClassVar[Mapping[str, str]] = settings.SERVER_FLAGS
    settings: ClassVar[tuple[Setting, ...]] = settings.SETTINGS

    def knows(self, family: str, class_name: str = "") -> bool:
        """A class of vLLM's own, or of transformers that its backend drives, and a rule for its caches."""
        return support.knows(family, class_name)

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """Blocks of `sequences` requests of full length, on every GPU. Raises every error that vLLM's own start would raise."""
        found = ready(architecture, workload, self.read_args(workload.engine_args))
        return make_plan(found, workload, self.context_of(architecture, workload))

    def fitting(self, architecture: Architecture, workload: Workload, kv_memory: int) -> VllmFitting:
        """What vLLM makes of `kv_memory` bytes per GPU."""
        return VllmFitting(self, architecture, workload, kv_memory, ready(architecture, workload, self.read_args(workload.engine_args)))

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """The figures of vLLM's log at the asked context."""
        return self.fitting(architecture, workload, kv_memory).capacity(self.context_of(architecture, workload))


def make_plan(found: Ready, workload: Workload, context: int) -> Plan:
    """The plan of one start at one context."""
    start, pool = found.start, found.pool
    notes, warnings = context_messages(start.architecture, workload, context)
    prefix = workload.shared_prefix
    if prefix and not pool.shares_prefixes:
        warnings.append("prefix caching is off, so no prefix is shared")
    one, more = pool.request_blocks(context), pool.request_blocks(context + 1)
    return Plan(
        engine=Vllm.name,
        version=Vllm.version,
        args=in_force(start, pool, context),
        kv_dtype=found.kv_dtype,
        context=context,
        lines=lines.lines(pool, found.alike, context, workload.sequences, prefix),
        per_device=pool.used_blocks(context, workload.sequences, prefix) * pool.block_bytes,
        per_sequence=one * pool.all_devices,
        per_token=found.per_token,
        growth_per_token=(more - one) * pool.all_devices,
        fixed=_fixed_blocks(pool, context) * pool.all_devices,
        notes=(*notes, *start.notes, *pool_notes(start, pool, context), *sequence_notes(start, pool, context, workload.sequences)),
        warnings=tuple(warnings),
    )


def _fixed_blocks(pool: Pool, context: int) -> int:
    blocks = pool.group_blocks(context)
    return sum(count for count, group in zip(blocks, pool.groups, strict=True) if group.specs[0].kind in (RECURRENT, RING))


def in_force(start: Start, pool: Pool, context: int) -> dict[str, object]:
    """Every setting, with what its default resolved to."""
    scheduler = start.scheduler
    return {
        **start.args,
        "block_size": pool.block_size,
        "max_num_batched_tokens": scheduler.step_tokens(context),
        "max_num_seqs": scheduler.sequences,
        "enable_prefix_caching": start.prefix_caching,
        "async_scheduling": start.args["async_scheduling"] is not False,
        "disable_hybrid_kv_cache_manager": start.args["disable_hybrid_kv_cache_manager"] is True,
        "num_speculative_tokens": start.spec_tokens or None,
    }
