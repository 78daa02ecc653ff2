"""The pool's blocks as lines that say what they are spent on.

all blocks of a request = the cache itself          layers x tokens (or the window) x row, one copy
                        + replication               the same rows on other tensor parallel ranks
                        + in flight                 window layers: tokens that are scheduled and not yet settled
                        + copies                    recurrent layers: states kept for prefix caching and draft tokens
                        + block rounding            to whole blocks, and the one that a window may straddle
                        + page padding              pages raised to those of other layers
                        + group padding             a block id costs as much as the widest group
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

from kvcalc.core.errors import UnsupportedArchitectureError
from kvcalc.core.formats import get_format
from kvcalc.core.plan import Line
from kvcalc.core.states import (
    Chunked,
    Compressed,
    Cross,
    Fixed,
    Full,
    GatedDeltaNet,
    Index,
    Kda,
    Latent,
    Lightning,
    Mamba1,
    Mamba2,
    Nothing,
    RgLru,
    Rwkv,
    Shared,
    ShortConv,
    Sliding,
)
from kvcalc.engines.vllm.specs import FULL_KINDS, RECURRENT, RING, Demand, Spec, decoding_tokens, held_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvcalc.core.states import AnyState
    from kvcalc.engines.vllm.pool import CacheLayer, Pool
    from kvcalc.engines.vllm.recurrent import Tensor


class Part(NamedTuple):
    """One tensor of an attention layer: its name, elements of a row and bytes of a row, one undivided copy."""

    name: str
    width: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Use:
    """Alike layers of one group: how many, and how many blocks all requests take for them."""

    state: AnyState
    spec: Spec
    tensors: tuple[Tensor, ...]
    layers: int
    blocks: int
    shared: int


class Asked(NamedTuple):
    """The question that the lines answer."""

    demand: Demand
    sequences: int
    ranks: int


#: For every group, its layers by state and spec: one of them, its spec in the group, and how many there are.
Alike = list[list[tuple["CacheLayer", Spec, int]]]


def lines(pool: Pool, alike: Alike, context: int, sequences: int, prefix: int) -> tuple[Line, ...]:
    """Every byte that `sequences` requests of `context` tokens take on all GPUs, the padding last."""
    asked = Asked(pool.demand(context), sequences, pool.ranks)
    shared = pool.shared_blocks(context, prefix)
    used = [blocks.of(sequences, same) for blocks, same in zip(pool.by_group(context), shared, strict=True)]
    uses: dict[tuple[int, Spec, int, int, int], list[Any]] = {}  # groups that are alike are worked out once
    for number, group in enumerate(alike):
        for layer, spec, layers in group:
            key = (id(layer.state), spec, layers, used[number], shared[number])
            entry = uses.setdefault(key, [layer, 0])
            entry[1] += 1
    found = [
        (line, times)
        for (_, spec, layers, blocks, same), (layer, times) in uses.items()
        for line in _use_lines(Use(layer.state, spec, layer.tensors, layers, blocks, same), asked)
    ]
    return tuple(_gather((*found, (_group_padding(pool, used), 1))))


def alike_layers(pool: Pool) -> Alike:
    """The layers of every group by state and spec."""
    found: Alike = []
    for group in pool.groups:
        counts: dict[tuple[int, int], int] = {}
        first: dict[tuple[int, int], tuple[CacheLayer, Spec]] = {}
        for number, spec in zip(group.layers, group.specs, strict=True):
            layer = pool.layers[number]
            key = (id(layer.state), id(spec))
            counts[key] = counts.get(key, 0) + 1
            first.setdefault(key, (layer, spec))
        found.append([(layer, spec, counts[key]) for key, (layer, spec) in first.items()])
    return found


def _use_lines(use: Use, asked: Asked) -> Iterable[Line]:
    rule = _recurrent_lines if use.spec.kind == RECURRENT else _attention_lines
    yield from rule(use, asked)
    spec = use.spec
    spare = spec.page - (spec.row if spec.kind == RECURRENT else spec.row * spec.slots)
    each = use.layers * spare * asked.ranks
    if spare:
        yield Line(
            "padding",
            use.layers,
            "page",
            0,
            spec.format,
            use.blocks // asked.sequences,
            use.blocks * each,
            f"{use.layers} {use.state.kind} layers x {use.blocks:,} blocks x ({spec.page:,} - {spec.page - spare:,}) B of page{_over(asked.ranks)}",
            fixed=spec.kind in (RECURRENT, RING),
        )


def _over(ranks: int) -> str:
    return f" x {ranks} ranks" if ranks > 1 else ""


def _once(sequences: int, step: int, waiting: int) -> str:
    """How tokens in flight divide between the one step and the requests that decode, where several share a step."""
    others = (waiting - step) // (sequences - 1) if sequences > 1 else 0
    if sequences == 1 or others == step:
        return ""
    return f" ({step:,} of a step, once" + (f", + {others:,} of each other sequence)" if others else " for all sequences)")


def _times(sequences: int) -> str:
    return f" x {sequences} sequences" if sequences > 1 else ""


# --- attention -------------------------------------------------------------------------------------------------------------------


def parts_of(state: AnyState, spec: Spec) -> tuple[Part, ...]:
    """The tensors of one attention layer, one undivided copy. Raises UnsupportedArchitectureError for keys of a state without heads."""
    if spec.role == "conv":
        heads, width = _whole_heads(state), spec.shape[1]
        return (Part("conv", heads * width, get_format(spec.format).row_bytes(width) * heads),)
    if spec.shape[2] == 0:
        return (Part("index" if spec.role == "index" else spec.role or "latent", spec.shape[1], spec.row),)
    heads = _whole_heads(state)
    stored = get_format(spec.format)
    key, value = spec.shape[1:]
    return (
        Part("key", heads * key, stored.key_bytes(key, heads)),
        Part("value", heads * value, stored.value_bytes(value, heads)),
    )


def _whole_heads(state: AnyState) -> int:
    """The heads of K and V over all ranks: a latent that is stored expanded has one a query head."""
    match state:
        case Full() | Sliding() | Chunked() | Cross():
            return state.kv_heads
        case Latent():
            if state.query_heads:
                return state.query_heads
        case Shared() | Nothing() | Index() | Compressed():
            pass
        case Mamba1() | Mamba2() | GatedDeltaNet() | Kda() | Lightning() | Rwkv() | ShortConv() | RgLru() | Fixed():
            pass
        case _:
            assert_never(state)
    raise UnsupportedArchitectureError(f"kvcalc does not know the heads of states of kind {state.kind} under vLLM")


def own_tokens(spec: Spec, demand: Demand) -> int:
    """Tokens that the layer can see: all, or the last ones."""
    if spec.kind == RING:
        return spec.block
    tokens = held_tokens(spec, demand) if spec.kind == "cross" else demand.context
    return min(tokens, spec.limit) if spec.limit and spec.kind not in FULL_KINDS else tokens


def _attention_lines(use: Use, asked: Asked) -> Iterable[Line]:
    spec, demand, n = use.spec, asked.demand, asked.sequences
    spread = demand.dcp if spec.sharded and spec.kind in FULL_KINDS else 1
    parts = parts_of(use.state, spec)
    whole = sum(part.bytes for part in parts)
    rank_row = spec.row * asked.ranks // spread
    own = own_tokens(spec, demand) // spec.per_state
    ring = spec.block // spec.per_state if spec.kind == RING else 0
    held = ring or -(-held_tokens(spec, demand) // spec.per_state)
    later = ring or -(-decoding_tokens(spec, demand) // spec.per_state)
    shared = use.shared * spec.slots
    rows = shared * spread + n * (own - shared * spread)
    held_rows = held + (n - 1) * (later - shared)
    seen = f"{own:,} {'rows' if spec.per_state > 1 or spec.kind == RING else 'tokens'}" + (
        " (window)" if own < demand.context and spec.limit else ""
    )
    kind = use.state.kind
    fixed = spec.kind == RING
    rows_text = f"{seen}{_times(n)}" if not shared else f"{rows:,} rows (shared prefix once)"
    for part in parts:
        yield Line(
            kind,
            use.layers,
            part.name,
            part.width,
            spec.format,
            own,
            use.layers * rows * part.bytes,
            f"{use.layers} layers x {rows_text} x {part.bytes:,} B",
            fixed=fixed,
        )
    if rank_row != whole:
        yield Line(
            kind,
            use.layers,
            "replication",
            0,
            spec.format,
            own,
            use.layers * rows * (rank_row - whole),
            f"{use.layers} layers x {rows:,} rows x ({spec.row:,} B x {asked.ranks} ranks{f' / {spread}' if spread > 1 else ''} - {whole:,} B)",
            fixed=fixed,
        )
    waiting = held_rows * spread - rows
    if waiting:
        yield Line(
            kind,
            use.layers,
            "in_flight" if spread == 1 and spec.per_state == 1 else "block_rounding",
            0,
            spec.format,
            held - own if spread == 1 else 0,
            use.layers * waiting * rank_row,
            f"{use.layers} layers x {waiting:,} tokens in flight{_once(n, held - own, waiting)} x {rank_row:,} B",
            fixed=fixed,
        )
    spare = use.blocks * spec.slots - held_rows
    if spare:
        yield Line(
            kind,
            use.layers,
            "block_rounding",
            0,
            spec.format,
            spare // n,
            use.layers * spare * spec.row * asked.ranks,
            f"{use.layers} layers x ({use.blocks:,} blocks of {spec.slots:,} - {held_rows:,}) x {spec.row:,} B{_over(asked.ranks)}",
            fixed=fixed,
        )


# --- recurrent -------------------------------------------------------------------------------------------------------------------


def _recurrent_lines(use: Use, asked: Asked) -> Iterable[Line]:
    n, kind, spec = asked.sequences, use.state.kind, use.spec
    for tensor in use.tensors:
        yield Line(
            kind,
            use.layers,
            tensor.name,
            tensor.whole,
            tensor.format,
            tensor.rows,
            use.layers * n * tensor.whole_bytes,
            f"{use.layers} layers x {tensor.whole_bytes:,} B{_times(n)}",
            fixed=True,
        )
    whole = sum(tensor.whole_bytes for tensor in use.tensors)
    if spec.row * asked.ranks != whole:
        yield Line(
            kind,
            use.layers,
            "replication",
            0,
            spec.format,
            1,
            use.layers * n * (spec.row * asked.ranks - whole),
            f"{use.layers} layers x ({spec.row:,} B{_over(asked.ranks)} - {whole:,} B){_times(n)}",
            fixed=True,
        )
    copies = use.blocks - n
    if copies:
        yield Line(
            kind,
            use.layers,
            "copies",
            0,
            spec.format,
            copies // n,
            use.layers * copies * spec.row * asked.ranks,
            f"{use.layers} layers x {copies:,} more states for prefix caching and draft tokens x {spec.row:,} B{_over(asked.ranks)}",
            fixed=True,
        )


# --- padding and sums ------------------------------------------------------------------------------------------------------------


def _group_padding(pool: Pool, used: Sequence[int]) -> Line:
    total, wasted, narrow = pool.all_devices, 0, 0
    for blocks, group in zip(used, pool.groups, strict=True):
        spare = total - sum(count * spec.page for spec, count in group.kinds.items()) * pool.ranks
        wasted += blocks * spare
        narrow += blocks if spare else 0
    text = f"{narrow:,} blocks of groups that hold less than the {total:,} B of a block id on all GPUs"
    return Line("padding", 0, "group", 0, "", 0, wasted, text)


def _gather(found: Iterable[tuple[Line, int]]) -> Iterable[Line]:
    """Lines of nothing dropped; the same buffer of several groups added up, its formula that of one group and how often it stands."""
    gathered: dict[tuple[object, ...], list[tuple[Line, int]]] = {}
    for line, times in found:
        if line.bytes:
            gathered.setdefault((line.state, line.buffer, line.width, line.format, line.slots, line.fixed), []).append((line, times))
    for group in gathered.values():
        first, count = group[0]
        if len(group) == 1 and count == 1:
            yield first
            continue
        alike: dict[str, int] = {}
        for line, times in group:
            alike[line.formula] = alike.get(line.formula, 0) + times
        formula = " + ".join(text if times == 1 else f"{times} groups x {text}" for text, times in alike.items())
        yield Line(
            first.state,
            sum(line.layers * times for line, times in group),
            first.buffer,
            first.width,
            first.format,
            first.slots,
            sum(line.bytes * times for line, times in group),
            formula,
            fixed=first.fixed,
        )


def per_token(alike: Alike) -> int:
    """What one token takes in every layer that still holds it, one copy, no rounding."""
    total = Fraction(0)
    for group in alike:
        for layer, spec, layers in group:
            if spec.kind not in (RECURRENT, RING):
                total += Fraction(layers * sum(part.bytes for part in parts_of(layer.state, spec)), spec.per_state)
    return -(-total.numerator // total.denominator)
