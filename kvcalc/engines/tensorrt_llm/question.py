"""One question, read: what does not depend on its context and sequences, and what does.

    Question   architecture, settings, ranks, formats, blocks, the manager: read once and asked again and again by `fit`
    Case       a context and a number of requests: the stages with their windows, and the blocks that are held

Blocks of a request of L tokens in the pool of a window W, in blocks of t tokens:

    first manager    ⌈min(L, W) / t⌉
    second manager   ⌈L / t⌉ - ⌊(L - W) / t⌋          one more than W / t while the window slides over a block's edge
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.states import Chunked, Full, Latent, Recurrent, Sliding
from kvcalc.engines.base.engine import check_query_heads
from kvcalc.engines.base.families import unknown_family
from kvcalc.engines.ideal.engine import stages_of
from kvcalc.engines.tensorrt_llm import v4
from kvcalc.engines.tensorrt_llm.families import FAMILIES, Family
from kvcalc.engines.tensorrt_llm.formats import DS_MLA, cache_format, model_format
from kvcalc.engines.tensorrt_llm.layers import LayerReader, Stage
from kvcalc.engines.tensorrt_llm.pools import groups_of
from kvcalc.engines.tensorrt_llm.releases import Release, read_release
from kvcalc.engines.tensorrt_llm.settings import TOKENS_PER_BLOCK
from kvcalc.engines.tensorrt_llm.states import read_parts
from kvcalc.engines.tensorrt_llm.windows import layer_windows
from kvcalc.hardware import get_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.workload import Workload
    from kvcalc.engines.tensorrt_llm.pools import Group

#: Compute capability x 10 from which cards read NVFP4, and of the cards whose MLA kernels insist on their own blocks.
BLACKWELL, HOPPER = 100, 90
#: Width of the latents that FlashMLA reads, and its blocks; Kimi K3 asks for the same blocks everywhere.
FLASH_MLA_WIDTH, FLASH_MLA_BLOCK = 576, 64
_KIMI_K3 = "kimi_k3"


@dataclass(frozen=True, slots=True)
class Question:
    """What a question is before its context and sequences.

    second    the second manager has the cache, not the first
    block     tokens of a block
    ranks     tensor parallel ranks of a stage; `spread` of them hold each request
    windows   of each layer as given or taken from the model, before a context cuts them
    hybrid    recurrent state is kept beside the blocks; `dummies` slots of it for nobody
    is_v4     rows are DeepSeek-V4's
    """

    architecture: Architecture
    workload: Workload
    args: Mapping[str, Any]
    release: Release
    stored: Format
    model: Format
    second: bool
    block: int
    ranks: int
    spread: int
    windows: tuple[int, ...]
    hybrid: bool
    notes: tuple[str, ...]
    is_v4: bool
    _stages: dict[tuple[int, ...], tuple[Stage, ...]] = field(default_factory=dict)
    _groups: dict[int, tuple[Group, ...]] = field(default_factory=dict)

    @property
    def dummies(self) -> int:
        """Slots of recurrent state for requests that pad a batch."""
        return 1 + int(self.args["enable_attention_dp"]) if self.hybrid else 0

    def groups(self, stage: Stage) -> tuple[Group, ...]:
        """The second manager's pool groups of one of the stages."""
        found = self._groups.get(id(stage))
        if found is None:
            found = self._groups[id(stage)] = groups_of(stage, self.block)
        return found

    def case(self, context: int, sequences: int, shared_prefix: int = 0) -> Case:
        """The question at a context. Raises EngineRejectsError, UnsupportedArchitectureError."""
        requests = -(-sequences // (self.ranks // self.spread))
        stages = self.workload.pipeline_parallel
        reserved = (self.args["max_batch_size"] or -(-requests // stages)) * stages
        return Case(self, context, requests, reserved, min(context, shared_prefix), self._stages_at(context))

    def _stages_at(self, context: int) -> tuple[Stage, ...]:
        """The stages whose windows are those shorter than the context. Raises EngineRejectsError where no layer attends."""
        alive = tuple(sorted({window for window in self.windows if 0 < window < context}))
        found = self._stages.get(alive)
        if found is None:
            found = self._stages[alive] = tuple(self._read_stages(set(alive)))
            if not any(stage.rows for stage in found):
                raise EngineRejectsError("TensorRT-LLM has no cache for a model without attention", "it needs at least one attention layer")
        return found

    def _read_stages(self, alive: set[int]) -> list[Stage]:
        found: list[Stage] = []
        start = 0
        reader = LayerReader(self.architecture, self.stored, self.spread, every_index=self.release.every_index) if not self.is_v4 else None
        for names in stages_of(self.architecture.layers, self.workload.pipeline_parallel):
            here = [window if window in alive else 0 for window in self.windows[start : start + len(names)]]
            start += len(names)
            if reader is None:
                found.append(Stage(v4.v4_rows(self.architecture, names, self.stored), {}))
                continue
            parts = read_parts(self.architecture, names, self.model, self.args["mamba_ssm_cache_dtype"], self.spread)
            found.append(Stage(reader.rows(tuple(zip(names, here, strict=True))), parts))
        return found


@dataclass(frozen=True, slots=True)
class Case:
    """A question at one context.

    requests   of the fullest rank; `reserved` those that recurrent state is kept for
    prefix     tokens that all requests share
    """

    question: Question
    context: int
    requests: int
    reserved: int
    prefix: int
    stages: tuple[Stage, ...]

    @property
    def most(self) -> int:
        """The most requests that a rank runs at once."""
        return self.reserved if self.question.args["max_batch_size"] is not None else self.requests

    @property
    def batch(self) -> int:
        """The largest batch of one step: `max_batch_size`."""
        return self.reserved // self.question.workload.pipeline_parallel

    @property
    def slots(self) -> int:
        """Slots of recurrent state: of the requests that it is kept for, and of nobody."""
        return self.reserved + self.question.dummies

    @property
    def windows(self) -> tuple[int, ...]:
        """The windows of all pools: the whole context (0) first, then the longest."""
        found = {window for stage in self.stages for window in stage.windows()}
        return tuple(sorted(found, key=lambda window: -(window or self.context)))

    def held(self, window: int, requests: int) -> tuple[int, int]:
        """Blocks and tokens that the requests hold in the pool of a window; full blocks of a shared prefix once."""
        block, length = self.question.block, min(self.context, window or self.context)
        if self.question.second:
            passed = max(0, self.context - window) // block if window else 0
            blocks = -(-self.context // block) - passed
            shared = max(0, self.prefix // block - passed)
        else:
            blocks = -(-length // block)
            shared = max(0, length - (self.context - self.prefix)) // block
        tokens = min(shared * block, length)
        return shared + requests * (blocks - shared), tokens + requests * (length - tokens)

    def rank_bytes(self, stage: Stage, requests: int, slots: int) -> int:
        """Bytes on one rank of a stage."""
        blocks = sum(self.held(window, requests)[0] * stage.block_bytes(window, self.question.block) for window in stage.windows())
        return blocks + stage.part_bytes * slots

    def alone(self) -> int:
        """Bytes of one request on all devices."""
        return sum(self.rank_bytes(stage, 1, 1) for stage in self.stages) * self.question.spread


def read_question(architecture: Architecture, workload: Workload, args: Mapping[str, Any]) -> Question:
    """Everything but the context and the sequences. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
    family = FAMILIES.get(architecture.family)
    if family is None:
        raise unknown_family("tensorrt-llm", architecture)
    if not 0 < args["free_gpu_memory_fraction"] <= 1:
        raise UsageError(f"free_gpu_memory_fraction {args['free_gpu_memory_fraction']:g} is not a share of the memory", "write it like 0.9")
    if workload.decode_context_parallel > 1:
        raise EngineRejectsError("kvcalc knows no context parallelism of TensorRT-LLM", "leave decode context parallelism out")
    release = read_release(args["version"])
    notes = list[str]()
    second = _manager(family, args["use_kv_cache_manager_v2"], release, notes)
    capability = get_gpu(workload.gpu.partition(":")[0]).capability if workload.gpu else None
    stored = cache_format(architecture, workload.kv_dtype)
    model, said = model_format(architecture)
    notes += [said] if said else []
    spread = 1 if args["enable_attention_dp"] else workload.tensor_parallel
    check_query_heads(architecture, spread)
    is_v4 = v4.is_v4(architecture)
    if is_v4:
        if args["max_attention_window"] is not None:
            raise EngineRejectsError("DeepSeek-V4 has windows of its own", "leave max_attention_window out")
        stored = v4.v4_format(stored, workload.kv_dtype, capability)
        block = v4.v4_block(args["tokens_per_block"], stored, capability)
    else:
        _check_card(stored, capability)
        block = _block(architecture, args["tokens_per_block"], capability, notes)
    hybrid = any(isinstance(state, Recurrent) for state in architecture.states)
    windows = layer_windows(architecture, args["max_attention_window"], second=second)
    notes += _notes(architecture, args, windows, second=second, hybrid=hybrid)
    return Question(
        architecture,
        workload,
        args,
        release,
        stored,
        model,
        second,
        block,
        workload.tensor_parallel,
        spread,
        windows,
        hybrid,
        tuple(notes),
        is_v4,
    )


def _manager(family: Family, asked: str, release: Release, notes: list[str]) -> bool:
    """Whether the second manager has the cache. Raises EngineRejectsError where the release has none, and needs one."""
    if not release.second:
        if family.only:
            raise EngineRejectsError(
                f"TensorRT-LLM {release.name.partition(' ')[0]} has no cache manager for this model", "leave version out"
            )
        if asked == "true":
            raise EngineRejectsError(
                "kvcalc has not read the second cache manager of releases up to 1.2, a prototype there", "leave version out"
            )
        return False
    if family.only and asked == "false":
        notes.append("use_kv_cache_manager_v2=false says nothing here: only the second cache manager holds this model")
    second = family.only or (family.second if asked == "auto" else asked == "true")
    if second:
        notes.append("by the second cache manager, KVCacheManagerV2" + (", which the model prefers" if asked == "auto" else ""))
    return second


def _check_card(stored: Format, capability: int | None) -> None:
    if stored.name == DS_MLA:
        raise EngineRejectsError("TensorRT-LLM stores DeepSeek-V4 only in fp8_ds_mla", "choose fp8 or auto")
    if stored.name == "nvfp4" and capability is not None and capability < BLACKWELL:
        raise EngineRejectsError("an NVFP4 cache needs a Blackwell card", "choose fp8, or another card")


def _block(architecture: Architecture, asked: int | None, capability: int | None, notes: list[str]) -> int:
    """Tokens of a block: FlashMLA on Hopper has its own, and Kimi K3 its defaults."""
    latents = {buffer.width for state in architecture.states if isinstance(state, Latent) for buffer in state.buffers()}
    if capability == HOPPER and FLASH_MLA_WIDTH in latents:
        notes.append(f"tokens_per_block is {FLASH_MLA_BLOCK} for FlashMLA on this card, whatever was asked for")
        return FLASH_MLA_BLOCK
    if asked is None and architecture.traits.outer_model_type == _KIMI_K3:
        return FLASH_MLA_BLOCK
    return TOKENS_PER_BLOCK if asked is None else asked


def _notes(architecture: Architecture, args: Mapping[str, Any], windows: tuple[int, ...], *, second: bool, hybrid: bool) -> list[str]:
    found: list[str] = []
    limited = [(state, layers) for state, layers in architecture.states.items() if isinstance(state, Sliding | Chunked)]
    if limited and args["max_attention_window"] is None and not any(windows):
        kinds = "chunked" if all(isinstance(state, Chunked) for state, _ in limited) else "sliding"
        why = (
            "its second cache manager takes windows of models that mix sliding and full layers"
            if second
            else ("TensorRT-LLM gives windows only where max_attention_window is set")
        )
        found.append(f"{sum(layers for _, layers in limited)} {kinds} layers are kept in full: {why}")
    if hybrid and args["max_batch_size"] is None:
        found.append("recurrent state is kept for the sequences asked for; TensorRT-LLM keeps it for max_batch_size, 2,048 by default")
    idle = [name for name in ("avg_seq_len", "pool_ratio") if args[name] is not None and not second]
    if idle:
        found.append(f"{' and '.join(idle)} {'says' if len(idle) == 1 else 'say'} nothing to the first cache manager")
    if any(isinstance(state, Full | Sliding) and state.value_head_dim not in (None, state.head_dim) for state in architecture.states):
        found.append("K and V are stored as wide as K: TensorRT-LLM has one width for both")
    return found
