"""SGLang's pool of recurrent state: what a slot costs on one rank, and how many slots there are.

    slot = Σ layers   columns of the convolution in bf16  +  matrices in fp32, or what `mamba_ssm_dtype` says
    pool = (slots + 1) slots                       one is a pad

slots      --max-mamba-cache-size, else the requests where no prefix is cached, else what fits into R / (1 + R) of the memory
requests   at most slots // slots_per_request

Source: SGLang 0.5.23, configs/mamba_utils.py, mem_cache/memory_pool.py (MambaPool), mem_cache/kv_cache_configurator.py
(_handle_max_mamba_cache, _calculate_mamba_ratio).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, assert_never

from kvcalc.core.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.core.formats import FORMATS, get_format
from kvcalc.core.states import Fixed, GatedDeltaNet, Kda, Lightning, Mamba1, Mamba2, Recurrent, RgLru, Rwkv, ShortConv
from kvcalc.core.units import GIB, clean
from kvcalc.engines.sglang.pools import cut

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture
    from kvcalc.engines.sglang.server import Server

    AnyRecurrent = Mamba1 | Mamba2 | GatedDeltaNet | Kda | Lightning | Rwkv | ShortConv | RgLru | Fixed

#: Convolution columns are bf16 whatever the model's type (SGLANG_MAMBA_CONV_DTYPE).
CONV = FORMATS["bf16"]
#: The buffer of the last token ids, which all layers of a stage share.
SHARED_BUFFER = "ngram_ids"


class SlotTensor(NamedTuple):
    """One tensor of a slot in one layer: the convolution's columns, or the matrices.

    columns, rank, whole   of the convolution: past inputs; elements of one column, on one rank and in all (1 and the elements for matrices)
    priced                 SGLang's budget counts it
    """

    state: str
    buffer: str
    columns: int
    rank: int
    whole: int
    format: str
    priced: bool = True

    @property
    def bytes(self) -> int:
        """Bytes of one slot in one layer on one rank."""
        return FORMATS[self.format].row_bytes(self.rank) * self.columns


@dataclass(frozen=True, slots=True)
class Slots:
    """The parts of a slot per pipeline stage, each with its number of layers."""

    stages: tuple[dict[SlotTensor, int], ...]

    def __bool__(self) -> bool:
        return any(self.stages)

    @property
    def per_slot(self) -> int:
        """Bytes of one slot on one rank, as SGLang charges every stage: those of the stage with most recurrent layers.

        SGLang scales the sum over all layers by a float share and drops what is behind the point.
        """
        priced = [{part: layers for part, layers in stage.items() if part.priced} for stage in self.stages]
        total = sum(part.bytes * layers for stage in priced for part, layers in stage.items())
        counts = [max(stage.values(), default=0) for stage in priced]
        return int(total * (max(counts) / max(sum(counts), 1))) if len(counts) > 1 else total


def read_slots(architecture: Architecture, server: Server) -> Slots:
    """The recurrent layers of every stage. Raises UnsupportedArchitectureError, EngineRejectsError."""
    if not any(state.is_recurrent for state in architecture.states):
        return Slots(tuple({} for _ in range(server.pp)))
    if server.rule.state is None and server.rule.prefixes != "stateless":
        raise UnsupportedArchitectureError(
            f"SGLang 0.5.23 serves no recurrent model of class '{clean(server.class_name or architecture.family)}' that kvcalc knows",
            "kvcalc knows Qwen3-Next, Nemotron-H, Falcon-H1, Granite 4, LFM2, Kimi-Linear, Ling and Mamba",
        )
    stages: list[dict[SlotTensor, int]] = []
    for names in cut(architecture.layers, server.pp):
        found: Counter[SlotTensor] = Counter()
        for name, layers in Counter(names).items():
            for state in architecture.layers.states[name]:
                if isinstance(state, Fixed) and server.rule.ngram_memory:
                    found[_memory_part(state)] += layers
                elif isinstance(state, Recurrent):
                    found.update(dict.fromkeys(_parts(state, server), layers))
        stages.append({part: 1 if part.buffer == SHARED_BUFFER else layers for part, layers in found.items()})
    return Slots(tuple(stages))


def _memory_part(state: Fixed) -> SlotTensor:
    """What Qwen4-Exp's n-gram embeddings keep in every slot, whole on each rank; token ids once for all layers (ple_state_pool.py)."""
    stored = CONV.name if state.state_dtype == "model" else get_format(state.state_dtype or "fp32", "state_dtype").name
    return SlotTensor(state.kind, state.name, 1, state.elements, state.elements, stored, priced=False)


def _parts(state: AnyRecurrent, server: Server) -> tuple[SlotTensor, ...]:
    channels, heads, matrix = _shape(state, server.attn_tp)
    columns = max(0, state.conv_kernel - 1) if channels else 0
    found: list[SlotTensor] = []
    if columns:
        found.append(SlotTensor(state.kind, "conv", columns, _divided(channels, server.attn_tp, state.kind), channels, CONV.name))
    if matrix:
        rank = _divided(heads, server.attn_tp, state.kind) * matrix
        found.append(SlotTensor(state.kind, "recurrent", 1, rank, heads * matrix, _state_format(state, server)))
    return tuple(found)


def _divided(count: int, ranks: int, what: str) -> int:
    share, rest = divmod(count, ranks)
    if rest:
        raise EngineRejectsError(
            f"SGLang cannot split the {count} heads or channels of {what} over {ranks} ranks", f"choose a size that divides {count}"
        )
    return share


def _state_format(state: AnyRecurrent, server: Server) -> str:
    """fp32, unless the flag or, for the classes that read it, the config says otherwise."""
    asked = server.args["mamba_ssm_dtype"]
    rule = server.rule.state
    declared = state.state_dtype if rule is not None and rule.declared else None
    return get_format(asked or declared or "fp32", "mamba_ssm_dtype").name


def _grouped(groups: int, ranks: int) -> int:
    """Groups that do not divide are repeated until every rank has one (extra_groups_for_head_shards)."""
    return groups if groups % ranks == 0 else ranks


class _Shape(NamedTuple):
    """Channels of the convolution, heads, and elements of one head's matrix."""

    channels: int
    heads: int
    matrix: int


def _shape(state: AnyRecurrent, ranks: int) -> _Shape:
    """What SGLang's pool keeps of a mixer; the ranks matter where groups are repeated. Raises UnsupportedArchitectureError."""
    match state:
        case Mamba1():
            return _Shape(state.inner_dim, state.inner_dim, state.state_dim)
        case Mamba2():
            channels = state.heads * state.head_dim + 2 * _grouped(state.groups, ranks) * state.state_dim
            return _Shape(channels, state.heads, state.head_dim * state.state_dim)
        case GatedDeltaNet():
            channels = state.value_heads * state.value_head_dim + 2 * _grouped(state.key_heads, ranks) * state.key_head_dim
            return _Shape(channels, state.value_heads, state.value_head_dim * state.key_head_dim)
        case Kda():
            return _Shape(3 * state.heads * state.head_dim, state.heads, state.head_dim * state.head_dim)
        case Lightning():
            return _Shape(0, state.heads, state.head_dim * state.head_dim)
        case ShortConv():
            return _Shape(state.channels, 0, 0)
        case Rwkv() | RgLru() | Fixed():
            raise UnsupportedArchitectureError(f"SGLang 0.5.23 has no pool for states of kind '{state.kind}'", "choose another engine")
        case _:
            assert_never(state)


class Split(NamedTuple):
    """What is left for tokens after the state pool (GiB, as SGLang counts), and the slots of that pool."""

    rest: float
    slots: int


def split_memory(slots: Slots, server: Server, memory: float) -> Split:
    """`memory` GiB between state and tokens, with SGLang's own arithmetic in floating point.

    with D draft tokens, the state after each of them is kept too: D x (requests + 1) slots
    """
    per_slot, args, drafts = slots.per_slot, server.args, server.draft_tokens
    per_request = server.slots_per_request
    requested = server.requests or 1
    if args["max_mamba_cache_size"] is not None:
        count = args["max_mamba_cache_size"] // server.attn_dp
        if drafts:
            memory -= per_slot * (min(requested, count // per_request) + 1) * drafts / GIB
    elif not server.radix and server.requests is not None:
        count = server.requests
        if drafts:
            memory -= per_slot * (count + 1) * drafts / GIB
    else:
        ratio = args["mamba_full_memory_ratio"]
        budget = memory * ratio / (1 + ratio) * GIB
        if drafts:
            count = int((budget - per_slot * (1 + drafts)) // (per_slot * (1 + drafts / per_request)))
            memory -= per_slot * (min(requested, count // per_request) + 1) * drafts / GIB
        else:
            count = int((budget - per_slot) // per_slot)
    return Split(memory - (count + 1) * per_slot / GIB, count)


def intermediate_bytes(part: SlotTensor, server: Server) -> int:
    """Bytes that one request keeps for the verification of draft tokens, in one layer on one rank.

    Matrices once a draft token. Columns overlap: D + K - 2 of them hold D windows of K - 1; KDA keeps each window.
    """
    drafts = server.draft_tokens
    if part.buffer != "conv":
        return part.bytes * drafts
    per_column = part.bytes // part.columns
    return per_column * (part.columns * drafts if part.state == "kda" else drafts + part.columns - 1)
