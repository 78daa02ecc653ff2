"""From one start to a pool of blocks: every rule of this package in the order in which vLLM applies it.

types and settings (start.py) → backend of each layer (attention.py) → block size → specs of each layer (layers.py, family_caches/) → groups → pool
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import get_format
from kvcalc.core.states import Full, Latent
from kvcalc.engines.vllm import backends, blocksize, compressed, dtypes, family_caches, recurrent, selection, speculation
from kvcalc.engines.vllm.attention import PACKED_ROWS, Heads, heads_of, model_head, token_bytes
from kvcalc.engines.vllm.families import Caches
from kvcalc.engines.vllm.groups import group_layers
from kvcalc.engines.vllm.kept import is_attention, is_mla
from kvcalc.engines.vllm.layers import Layer
from kvcalc.engines.vllm.pool import CacheLayer, Pool, make_pool
from kvcalc.engines.vllm.specs import Demand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.engines.vllm.attention import Choice
    from kvcalc.engines.vllm.start import Start


# --- block size ------------------------------------------------------------------------------------------------------------------


def block_sizes(start: Start, choices: Sequence[Choice | None], recurrent_page: int) -> blocksize.Blocks:
    """The block size of one pipeline stage after all adjustments."""
    attention = [choice for choice in choices if choice is not None]
    given = start.args["block_size"]
    if not attention:
        return blocksize.Blocks(given or backends.DEFAULT_BLOCK)
    pairs = [(choice.backend, choice.ask) for choice in attention]
    selection.check_layouts(pairs)
    # A layer's index keys register before its latents.
    first = next((choice for choice in attention if choice.backend.leads), attention[0])
    # A single backend is asked with the whole model's head size.
    model_ask = first.ask._replace(head_size=max(first.ask.head_size, model_head(start))) if first.ask.head_size else first.ask
    whole = [(choice.backend, model_ask if choice.backend is first.backend else choice.ask) for choice in attention]
    found = blocksize.Blocks(given or selection.preferred_block(whole))
    kernel = first.backend.smallest(model_ask)
    if start.is_hybrid:
        kernels = tuple({backend.smallest(ask) for backend, ask in pairs})
        found = blocksize.align_hybrid(
            found,
            kernel=kernel,
            kernels=kernels,
            token_bytes=_hybrid_token_bytes(start),
            recurrent_page=recurrent_page,
            mla=any(is_mla(kind.state, start.family) for kind in start.kinds),
            checkpoint=_checkpoint_step(start) or 1,
        )
    if start.plain_layers:
        heads = _model_heads(start)
        found = blocksize.align_mixed(
            found,
            kernel=kernel,
            token_bytes=_mixed_token_bytes(start, heads, first.backend),
            model_token_bytes=token_bytes(heads, dtypes.AUTO, start.own),
        )
    for backend, ask in whole:
        if not backend.reads(found.size, ask):
            raise EngineRejectsError(f"vLLM refuses: attention backend {backend.name} cannot read blocks of {found.size}")
    if family_caches.rule_of(start).one_table:
        selection.check_shared_kernel(whole, found.size)
    return found


def _model_heads(start: Start) -> Heads:
    """Heads as the whole model's config gives them: those of the first full attention."""
    attention = [kind.state for kind in start.kinds if is_attention(kind.state)]
    heads = heads_of(next((state for state in attention if isinstance(state, Full)), attention[0]), start)
    return heads._replace(value=heads.key) if heads.value else heads


def _hybrid_token_bytes(start: Start) -> int:
    heads = _model_heads(start)
    if heads.value == 0:
        return get_format(dtypes.format_of("fp8" if start.cache in PACKED_ROWS else start.cache, start.own)).row_bytes(heads.key)
    return token_bytes(heads, start.cache, start.own)


def _mixed_token_bytes(start: Start, heads: Heads, backend: backends.Backend) -> int:
    """As the first layer's backend would store the cache's type: one that does not know a packed type counts a byte an element."""
    if start.cache in backend.dtypes:
        return token_bytes(heads, start.cache, start.own)
    return token_bytes(heads, "fp8", start.own)


def _checkpoint_step(start: Start) -> int | None:
    """Alignment of the prefill checkpoints that blocks have to keep; None unless every recurrent layer declares one."""
    if not start.align:
        return None
    mixers = [kind.state for kind in start.kinds if kind.state.is_recurrent]
    declared = [recurrent.checkpoint_alignment(state, start.prefill) for state in mixers]
    known = [value for value in declared if value is not None]
    return math.lcm(*known) if len(known) == len(declared) else None


# --- specs -----------------------------------------------------------------------------------------------------------------------


def recurrent_tensors(start: Start) -> list[tuple[recurrent.Tensor, ...]]:
    """The tensors of every kind of layer; none for attention."""
    types = recurrent.read_types(start.family, start.architecture.traits, start.args, start.own)
    return [recurrent.tensors(kind.state, types, start.tp, start.spec_tokens) if kind.state.is_recurrent else () for kind in start.kinds]


def build_pool(start: Start) -> Pool:
    """The pool of blocks of this start."""
    if start.row.caches is Caches.DEEPSEEK_V4:
        return _compressed_pool(start)
    rule = family_caches.rule_of(start)
    choices = [rule.choose(kind, start) for kind in start.kinds]
    tensors = recurrent_tensors(start)
    page = max((sum(tensor.bytes for tensor in item) for item in tensors), default=0)
    page = max(page, rule.least_page(start))
    step = _checkpoint_step(start)
    sizes = _stage_sizes(start, choices, page)
    specs = {
        found: [
            rule.specs(Layer(kind, choice, item, found, start, step))
            for kind, choice, item in zip(start.kinds, choices, tensors, strict=True)
        ]
        for found in dict.fromkeys(sizes)
    }
    layers = tuple(
        CacheLayer(place.layer, place.stage, start.kinds[place.kind].state, spec, tensors[place.kind])
        for place in start.places
        for spec in specs[sizes[place.stage]][place.kind]
    )
    return _pool(start, layers, sizes[-1].size, block_outermost=rule.block_outermost(start))


def _stage_sizes(start: Start, choices: Sequence[Choice | None], page: int) -> list[blocksize.Blocks]:
    """The block size of every pipeline stage: each decides it from its own layers."""
    stages = start.workload.pipeline_parallel
    if stages == 1:
        return [block_sizes(start, choices, page)]
    held = [list(dict.fromkeys(place.kind for place in start.places if place.stage == stage)) for stage in range(stages)]
    wanted = {selection.layouts((choice.backend, choice.ask) for kind in kinds if (choice := choices[kind]) is not None) for kinds in held}
    if len(wanted) > 1:
        raise EngineRejectsError("vLLM refuses: its pipeline stages insist on different memory layouts", "use tensor parallelism")
    known: dict[tuple[int, ...], blocksize.Blocks] = {}
    for kinds in held:
        if tuple(kinds) not in known:
            known[tuple(kinds)] = block_sizes(start, [choices[kind] for kind in kinds], page)
    return [known[tuple(kinds)] for kinds in held]


def _compressed_pool(start: Start) -> Pool:
    size = compressed.check_block(start.args["block_size"])
    layout = compressed.read_layout(start.cache, start.args["attention_backend"], start.card.capability)
    specs = [compressed.specs(kind.state, layout) for kind in start.kinds]
    layers = tuple(
        CacheLayer(place.layer, place.stage, start.kinds[place.kind].state, spec)
        for place in start.places
        if not place.draft or isinstance(start.kinds[place.kind].state, Latent)
        for spec in specs[place.kind]
    )
    return _pool(start, layers, size, block_outermost=True)


def _pool(start: Start, layers: tuple[CacheLayer, ...], size: int, *, block_outermost: bool) -> Pool:
    specs = [layer.spec for layer in layers]
    groups = group_layers(specs, block_outermost=block_outermost, merge_windows=start.args["disable_hybrid_kv_cache_manager"] is True)
    retained = speculation.retained_tokens(start.architecture, start.args["speculative_method"], start.spec_tokens)
    dcp, align, scheduler = start.workload.decode_context_parallel, start.align, start.scheduler

    lookahead = speculation.lookahead_tokens(start.args["speculative_method"], start.spec_tokens)
    decoding = scheduler.batches * (1 + start.spec_tokens) + lookahead

    def demand(context: int) -> Demand:
        return Demand(context, scheduler.in_flight(context), dcp, retained, align, scheduler.step_tokens(context), decoding)

    return make_pool(
        layers,
        groups,
        start.workload.pipeline_parallel,
        demand=demand,
        block_size=size,
        ranks=start.tp,
        override=start.args["num_gpu_blocks_override"],
        shares_prefixes=start.prefix_caching,
        block_outermost=block_outermost,
    )
