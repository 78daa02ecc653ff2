"""The engine itself: blocks for a context, and the capacity of a memory.

bytes of a pool      blocks x tokens_per_block x Σ layers   bytes of a token on one rank
sequence             Σ windows   ⌈min(context, window) / tokens_per_block⌉ blocks
capacity             tokens = (fraction x free memory - state of max_batch_size requests) // bytes of a token
                     blocks = tokens // tokens_per_block          the stage with fewest decides
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.plan import Capacity, Line, Plan
from kvcalc.engines.base.engine import Engine, check_query_heads, context_messages
from kvcalc.engines.ideal.engine import stages_of
from kvcalc.engines.tensorrt_llm import v4
from kvcalc.engines.tensorrt_llm.formats import DS_MLA, cache_format, model_format
from kvcalc.engines.tensorrt_llm.layers import LayerReader, Part, Row, Stage
from kvcalc.engines.tensorrt_llm.settings import SETTINGS, TOKENS_PER_BLOCK, VERSION
from kvcalc.engines.tensorrt_llm.states import read_parts
from kvcalc.engines.tensorrt_llm.windows import has_own_windows, read_windows
from kvcalc.hardware import get_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.formats import Format
    from kvcalc.core.workload import Workload
    from kvcalc.engines.base.engine import Setting

_Item = TypeVar("_Item", Row, Part)

#: Compute capability x 10 from which cards read NVFP4, and of the cards whose MLA kernels insist on their own blocks.
BLACKWELL, HOPPER = 100, 90
#: Width of the latents that FlashMLA reads, and its blocks.
FLASH_MLA_WIDTH, FLASH_MLA_BLOCK = 576, 64


@dataclass(frozen=True, slots=True)
class Case:
    """One question, read: what each stage keeps, and for how many requests.

    block       tokens of a block
    ranks       tensor parallel ranks of a stage; `spread` of them hold each request
    requests    requests of the fullest rank; `reserved` those that it keeps recurrent state for, `dummies` slots for nobody
    own_windows the engine took the windows from the layers, and divides memory by what a sequence needs
    """

    architecture: Architecture
    workload: Workload
    args: Mapping[str, Any]
    context: int
    stored: Format
    stages: tuple[Stage, ...]
    block: int
    ranks: int
    spread: int
    requests: int
    reserved: int
    dummies: int
    own_windows: bool
    notes: tuple[str, ...]

    @property
    def most(self) -> int:
        """The most requests that a rank runs at once."""
        return self.reserved if self.args["max_batch_size"] is not None else self.requests

    @property
    def windows(self) -> tuple[int, ...]:
        """The windows of all pools: the whole context (0) first, then the longest."""
        found = {window for stage in self.stages for window in stage.windows()}
        return tuple(sorted(found, key=lambda window: -(window or self.context)))

    def held(self, window: int, context: int, requests: int) -> tuple[int, int]:
        """Blocks and tokens that the requests hold in the pool of a window; full blocks of a shared prefix once."""
        length = min(context, window or context)
        blocks = -(-length // self.block)
        shared = max(0, length - (context - min(context, self.workload.shared_prefix))) // self.block
        return shared + requests * (blocks - shared), shared * self.block + requests * (length - shared * self.block)

    def rank_bytes(self, stage: Stage, context: int, requests: int, reserved: int) -> int:
        """Bytes on one rank of a stage."""
        blocks = sum(self.held(window, context, requests)[0] * stage.token_bytes(window) for window in stage.windows())
        return blocks * self.block + stage.part_bytes * reserved

    def alone(self, context: int) -> int:
        """Bytes of one request on all devices."""
        return sum(self.rank_bytes(stage, context, 1, 1) for stage in self.stages) * self.spread


class TensorRtLlm(Engine):
    """TensorRT-LLM's PyTorch backend: paged blocks of every layer, recurrent state for the largest batch."""

    name: ClassVar[str] = "tensorrt-llm"
    title: ClassVar[str] = "TensorRT-LLM"
    version: ClassVar[str] = VERSION
    settings: ClassVar[tuple[Setting, ...]] = SETTINGS

    def plan(self, architecture: Architecture, workload: Workload) -> Plan:
        """The blocks that the asked sequences fill. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
        case = self._case(architecture, workload)
        notes, warnings = context_messages(architecture, workload, case.context)
        most, asked = case.args["max_tokens"], case.held(0, case.context, case.requests)[0] * case.block
        if most is not None and len(case.windows) == 1 and asked > most:
            warnings.append(f"max_tokens {most:,} is less than the {asked:,} tokens that are asked for at once")
        if case.requests > case.most:
            warnings.append(f"{case.requests:,} requests are more than max_batch_size lets run at once: {case.most:,}")
        one = case.alone(case.context)
        return Plan(
            engine=self.name,
            version=self.version,
            args=_in_force(case),
            kv_dtype=case.stored.name,
            context=case.context,
            lines=_lines(case),
            per_device=max(
                case.rank_bytes(stage, case.context, case.requests, case.reserved + (case.dummies if stage.parts else 0))
                for stage in case.stages
            ),
            per_sequence=one,
            per_token=sum(row.whole * layers for stage in case.stages for row, layers in stage.rows.items()),
            growth_per_token=case.alone(case.context + 1) - one,
            fixed=sum(stage.part_bytes for stage in case.stages) * case.spread,
            notes=(*notes, *case.notes),
            warnings=tuple(warnings),
        )

    def capacity(self, architecture: Architecture, workload: Workload, kv_memory: int) -> Capacity:
        """Blocks and tokens of `kv_memory` bytes of free memory on each device, of which the engine takes its fraction."""
        case = self._case(architecture, workload)
        budget = int(case.args["free_gpu_memory_fraction"] * kv_memory)
        rooms = [budget - stage.part_bytes * (case.reserved + case.dummies) for stage in case.stages]
        slots = case.reserved + case.dummies if any(stage.parts for stage in case.stages) and not v4.is_v4(architecture) else None
        if case.own_windows and len(case.windows) > 1:
            return _divided_by_need(case, rooms)
        pools = {window: _pool_tokens(case, window, rooms) for window in case.windows}
        if len(pools) == 1 and case.args["max_tokens"] is not None:
            pools = {window: min(tokens, case.args["max_tokens"]) for window, tokens in pools.items()}
        blocks = {window: max(0, tokens) // case.block for window, tokens in pools.items()}
        longest, shortest = case.windows[0], case.windows[-1]
        fits = (
            all(blocks[window] >= case.held(window, case.context, case.requests)[0] for window in blocks)
            and min(rooms) >= 0
            and case.requests <= case.most
        )
        return Capacity(
            fits=fits,
            tokens=blocks[longest] * case.block,
            blocks=blocks[longest],
            block_bytes=max(stage.token_bytes(longest) for stage in case.stages) * case.block,
            block_size=case.block,
            sliding_tokens=blocks[shortest] * case.block if len(blocks) > 1 else None,
            state_slots=slots,
            notes=_pool_notes(case, blocks),
            warnings=_too_small(case, fits=fits, rooms=rooms),
        )

    def _case(self, architecture: Architecture, workload: Workload) -> Case:
        args = self.read_args(workload.engine_args)
        if not 0 < args["free_gpu_memory_fraction"] <= 1:
            raise UsageError(
                f"free_gpu_memory_fraction {args['free_gpu_memory_fraction']:g} is not a share of the memory", "write it like 0.9"
            )
        if workload.decode_context_parallel > 1:
            raise EngineRejectsError("kvcalc knows no context parallelism of TensorRT-LLM", "leave decode context parallelism out")
        context, notes = self.context_of(architecture, workload), list[str]()
        capability = get_gpu(workload.gpu.partition(":")[0]).capability if workload.gpu else None
        stored = cache_format(architecture, workload.kv_dtype)
        model, said = model_format(architecture)
        notes += [said] if said else []
        ranks, spread = workload.tensor_parallel, 1 if args["enable_attention_dp"] else workload.tensor_parallel
        check_query_heads(architecture, spread)
        if v4.is_v4(architecture):
            if args["max_attention_window"] is not None:
                raise EngineRejectsError("DeepSeek-V4 has windows of its own", "leave max_attention_window out")
            stored = v4.v4_format(stored, workload.kv_dtype, capability)
            block = v4.v4_block(args["tokens_per_block"], stored, capability)
        else:
            _check_card(stored, capability)
            block = _block(architecture, args["tokens_per_block"], capability, notes)
        windows = read_windows(architecture, args["max_attention_window"], context)
        stages = tuple(_stages(architecture, workload, args, (stored, model), block, windows, spread))
        if not any(stage.rows for stage in stages):
            raise EngineRejectsError("TensorRT-LLM has no cache for a model without attention", "it needs at least one attention layer")
        requests = -(-workload.sequences // (ranks // spread))
        reserved = (args["max_batch_size"] or -(-requests // workload.pipeline_parallel)) * workload.pipeline_parallel
        hybrid = any(state.is_recurrent for state in architecture.states)
        notes += _notes(architecture, args, windows, hybrid=hybrid)
        dummies = (1 + int(args["enable_attention_dp"])) if hybrid else 0
        own = has_own_windows(architecture) and args["max_attention_window"] is None
        return Case(
            architecture, workload, args, context, stored, stages, block, ranks, spread, requests, reserved, dummies, own, tuple(notes)
        )


def _stages(
    architecture: Architecture,
    workload: Workload,
    args: Mapping[str, Any],
    formats: tuple[Format, Format],
    block: int,
    windows: tuple[int, ...],
    ranks: int,
) -> list[Stage]:
    stored, model = formats
    found: list[Stage] = []
    start, is_v4 = 0, v4.is_v4(architecture)
    reader = None if is_v4 else LayerReader(architecture, stored, ranks)
    for names in stages_of(architecture.layers, workload.pipeline_parallel):
        here = windows[start : start + len(names)]
        start += len(names)
        if reader is None:
            rows, parts = v4.v4_layers(architecture, names, stored, block)
        else:
            rows = reader.rows(tuple(zip(names, here, strict=True)))
            parts = read_parts(architecture, names, model, args["mamba_ssm_cache_dtype"], ranks)
        found.append(Stage(rows, parts))
    return found


def _check_card(stored: Format, capability: int | None) -> None:
    if stored.name == DS_MLA:
        raise EngineRejectsError("TensorRT-LLM stores DeepSeek-V4 only in fp8_ds_mla", "choose fp8 or auto")
    if stored.name == "nvfp4" and capability is not None and capability < BLACKWELL:
        raise EngineRejectsError("an NVFP4 cache needs a Blackwell card", "choose fp8, or another card")


def _block(architecture: Architecture, asked: int | None, capability: int | None, notes: list[str]) -> int:
    """Tokens of a block: FlashMLA on Hopper has its own."""
    latents = {buffer.width for state in architecture.states if state.kind == "latent" for buffer in state.buffers()}
    if capability == HOPPER and FLASH_MLA_WIDTH in latents:
        notes.append(f"tokens_per_block is {FLASH_MLA_BLOCK} for FlashMLA on this card, whatever was asked for")
        return FLASH_MLA_BLOCK
    return TOKENS_PER_BLOCK if asked is None else asked


def _notes(architecture: Architecture, args: Mapping[str, Any], windows: tuple[int, ...], *, hybrid: bool) -> list[str]:
    found: list[str] = []
    sliding = sum(layers for state, layers in architecture.states.items() if state.kind in ("sliding", "chunked"))
    if sliding and args["max_attention_window"] is None and not any(windows) and not has_own_windows(architecture):
        found.append(f"{sliding} sliding layers are kept in full: TensorRT-LLM gives windows only where max_attention_window is set")
    if hybrid and args["max_batch_size"] is None:
        found.append("recurrent state is kept for the sequences asked for; TensorRT-LLM keeps it for max_batch_size, 2,048 by default")
    if any(
        getattr(state, "value_head_dim", None) not in (None, getattr(state, "head_dim", None))
        for state in architecture.states
        if state.kind in ("full", "sliding")
    ):
        found.append("K and V are stored as wide as K: TensorRT-LLM has one width for both")
    return found


def _pool_tokens(case: Case, window: int, rooms: list[int]) -> int:
    """Tokens of the pool of a window: an equal share of what there is, on the stage that has room for fewest."""
    found = []
    for stage, room in zip(case.stages, rooms, strict=True):
        price, pools = stage.token_bytes(window), len(stage.windows())
        if price:
            found.append(room // price if pools == 1 else int(Fraction(room, pools) / price))
    return min(found)


def _divided_by_need(case: Case, rooms: list[int]) -> Capacity:
    """The second manager divides memory over its pools by what a sequence needs of each: sequences of the asked length count."""
    needs = [case.rank_bytes(stage, case.context, 1, 0) for stage in case.stages]
    shares = [Fraction(max(0, room), need) for room, need in zip(rooms, needs, strict=True) if need]
    concurrency = min(shares)
    fits = case.requests <= case.most and all(
        room >= case.rank_bytes(stage, case.context, case.requests, 0) for room, stage in zip(rooms, case.stages, strict=True)
    )
    return Capacity(
        fits=fits,
        tokens=int(concurrency * case.context),
        concurrency=float(concurrency),
        block_size=case.block,
        notes=(
            *_share_notes(case),
            "windows come from the model's layers, and memory is divided over their pools by what a sequence of this length needs",
        ),
        warnings=_too_small(case, fits=fits, rooms=rooms),
    )


def _pool_notes(case: Case, blocks: Mapping[int, int]) -> tuple[str, ...]:
    share = _share_notes(case)
    if len(blocks) == 1:
        return share
    each = ", ".join(f"{window or case.context:,} tokens: {count:,} blocks" for window, count in blocks.items())
    notes = [*share, f"{len(blocks)} pools in equal shares, by window: {each}"]
    if case.args["max_tokens"] is not None:
        notes.append("max_tokens says nothing where layers have different windows")
    return tuple(notes)


def _share_notes(case: Case) -> tuple[str, ...]:
    fraction = case.args["free_gpu_memory_fraction"]
    return () if fraction == 1 else (f"the cache takes {fraction:g} of the free memory (free_gpu_memory_fraction)",)


def _too_small(case: Case, *, fits: bool, rooms: list[int]) -> tuple[str, ...]:
    if fits:
        return ()
    if min(rooms) < 0:
        return (f"the memory does not hold the state of {case.reserved + case.dummies:,} requests",)
    if len(case.windows) > 1:
        return ("TensorRT-LLM shortens the windows where the pools do not hold one sequence of full length",)
    return ()


def _in_force(case: Case) -> dict[str, Any]:
    args = dict(case.args) | {"tokens_per_block": case.block}
    if any(stage.parts for stage in case.stages):
        args["max_batch_size"] = case.reserved // case.workload.pipeline_parallel
    return args


def _lines(case: Case) -> tuple[Line, ...]:
    """Rows, parts, the rest of last blocks, and the slots of nobody."""
    found: list[Line] = []
    copies = "" if case.ranks == 1 else f" x {case.ranks} ranks"
    rest = 0
    for row, layers in _sum(stage.rows for stage in case.stages).items():
        blocks, tokens = case.held(row.window, case.context, case.requests)
        rest += (blocks * case.block - tokens) * row.rank * layers
        found.append(
            Line(
                row.state,
                layers,
                row.buffer,
                row.width,
                row.format,
                min(case.context, row.window or case.context),
                tokens * row.rank * layers * case.ranks,
                f"{layers} layers x {tokens:,} tokens x {row.rank:,} B{copies}",
            )
        )
    parts = _sum(stage.parts for stage in case.stages)
    for part, layers in parts.items():
        size = layers * case.reserved * part.rank * case.ranks
        text = f"{layers} layers x {case.reserved:,} requests x {part.rank:,} B{copies}"
        found.append(Line(part.state, layers, part.buffer, part.width, part.format, part.rows, size, text, fixed=True))
    if rest:
        found.append(_padding("block", rest * case.ranks, f"the rest of each last block of {case.block} tokens", case.block))
    nobody = sum(part.rank * layers for part, layers in parts.items()) * case.dummies
    if nobody:
        found.append(_padding("slot", nobody * case.ranks, f"{case.dummies} slots for requests that pad a batch", case.dummies))
    return tuple(found)


def _padding(buffer: str, size: int, formula: str, slots: int) -> Line:
    return Line("padding", 0, buffer, 0, "", slots, size, f"{formula}: {size:,} B", fixed=buffer == "slot")


def _sum(counts: Iterable[Mapping[_Item, int]]) -> dict[_Item, int]:
    """The counts of all stages together."""
    found: dict[_Item, int] = {}
    for stage in counts:
        for item, layers in stage.items():
            found[item] = found.get(item, 0) + layers
    return found
