"""From an architecture and a workload to a pool of blocks: every rule of this package in the order in which vLLM applies it.

types and settings → backend of each layer → block size → spec of each layer → groups → pool
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.engines.vllm import backends, blocksize, compressed, dtypes, recurrent, settings, speculation
from kvcalc.engines.vllm.groups import group_layers
from kvcalc.engines.vllm.pool import CacheLayer, Pool, make_pool
from kvcalc.engines.vllm.specs import CHUNKED, CROSS, FULL, MLA, RECURRENT, SLIDING, SLIDING_MLA, Demand, Spec
from kvcalc.engines.vllm.support import check_pipeline, check_support
from kvcalc.errors import EngineRejectsError, UnsupportedArchitectureError
from kvcalc.formats import get_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.architecture import Architecture
    from kvcalc.engines.vllm.settings import Card, Scheduler
    from kvcalc.states import State
    from kvcalc.workload import Workload

#: Families whose latents vLLM stores as one row of all heads; others with such fields run as ordinary attention (model_arch_config_convertor.py).
MLA_FAMILIES = frozenset(
    [
        "axk1",
        "bailing_hybrid",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots3_note",
        "glm4_moe_lite",
        "glm5_next",
        "glm5_next_text",
        "glm_moe_dsa",
        "hy_v4",
        "kimi_k2",
        "kimi_linear",
        "longcat_flash",
        "pangu_ultra_moe",
    ]
)
#: Families without attention, by their class; a hybrid whose config leaves no attention layer is none of them.
ATTENTION_FREE = frozenset({"falcon_mamba", "mamba", "mamba2"})
#: Families with attention sinks, and what a config says where only its window layers have them.
SINK_FAMILIES = frozenset({"gpt_oss", "granite_swa", "granitemoe_swa", "openai_privacy_filter"})
WINDOW_SINKS = ("add_swa_attention_sink_bias", "swa_attention_sink_enabled")
#: Families that name their kernel themselves where K and V differ in width (models/mimo_v2.py).
UNEVEN_FAMILIES = frozenset({"mimo_v2", "mimo_v2_flash"})
#: Families whose model runs on one attention backend only.
ONLY_BACKEND = {"flint": "FLASHINFER"}
#: Wrappers whose image tokens see each other (is_mm_prefix_lm); Gemma 4 says so in its config.
MM_PREFIX_WRAPPERS = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
MM_PREFIX_FAMILIES = frozenset({"gemma4_text", "gemma4_unified_text", "diffusion_gemma_text"})
#: Cohere 2 sees its window and the token itself (models/commandr.py).
WIDER_WINDOWS = frozenset({"cohere2"})
#: Bytes of a packed row of sparse MLA, whatever the widths (mla_attention.py).
PACKED_ROWS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
#: Layers at each end of a model without recurrent layers that TurboQuant leaves in the model's type.
TURBOQUANT_ENDS = 2

_SKIPPED = ("shared", "none")
#: The word for all window layers among `kv_cache_dtype_skip_layers`.
_SLIDING_LAYERS = "sliding_window"


class Kind(NamedTuple):
    """A state that needs a cache, and the cache type asked for it; alike layers share one."""

    state: State
    dtype: str


class Place(NamedTuple):
    """One cache of one layer: its pipeline stage, its kind's number, whether speculation alone needs it."""

    layer: int
    stage: int
    kind: int
    draft: bool


@dataclass(slots=True)
class Start:
    """One start of the engine: what its settings and the model's config resolve to."""

    architecture: Architecture
    workload: Workload
    args: dict[str, Any]
    card: Card
    scheduler: Scheduler
    own: str
    cache: str
    kinds: tuple[Kind, ...]
    places: tuple[Place, ...]
    spec_tokens: int
    prefix_caching: bool
    notes: list[str] = field(default_factory=list)

    @property
    def tp(self) -> int:
        """Tensor parallel ranks."""
        return self.workload.tensor_parallel

    @property
    def family(self) -> str:
        """The inner model_type."""
        return self.architecture.family

    @property
    def align(self) -> bool:
        """Prefix caching keeps states of recurrent layers."""
        return self.prefix_caching and any(kind.state.is_recurrent for kind in self.kinds)

    @property
    def is_hybrid(self) -> bool:
        """Attention and recurrent layers in one model."""
        return len({state.is_recurrent for state in kept_states(self.architecture)}) > 1


def kept_states(architecture: Architecture) -> list[State]:
    """The model's own states that need a cache."""
    return [state for states in architecture.layers.states.values() for state in states if is_kept(state, architecture.family)]


def is_kept(state: State, family: str) -> bool:
    """Whether vLLM keeps a cache for this state; index keys only where it runs the layer as MLA."""
    return state.kind not in _SKIPPED and (state.kind != "index" or family in MLA_FAMILIES or family == compressed.FAMILY)


def read_start(architecture: Architecture, workload: Workload, args: dict[str, Any]) -> Start:
    """Resolve settings against the model. Raises every error that vLLM's own start would raise."""
    support_note = check_support(architecture)
    check_pipeline(architecture, workload.pipeline_parallel)
    _check_parallel(architecture, workload)
    card = settings.read_card(workload.gpu)
    own, dtype_note = dtypes.model_dtype(architecture)
    states = kept_states(architecture)
    attention = [state for state in states if _is_attention(state)]
    mla = bool(attention) and all(is_mla(state, architecture.family) for state in attention)
    cache, cache_note = dtypes.cache_dtype(workload.kv_dtype, architecture, own, card.capability, mla=mla)
    encoder_decoder = any(state.kind == "cross" for state in states)
    notes: list[str] = []
    drafts = speculation.draft_layers(architecture, args["speculative_method"], notes)
    spec_tokens = speculation.draft_tokens(args, len(drafts))
    scheduler = settings.read_scheduler(args, card, workload.pipeline_parallel, encoder_decoder=encoder_decoder)
    asked = args["enable_prefix_caching"]
    start = Start(
        architecture,
        workload,
        args,
        card,
        scheduler,
        own,
        cache,
        (),
        (),
        spec_tokens,
        prefix_caching=asked if asked is not None else not (architecture.family in ATTENTION_FREE or encoder_decoder),
        notes=notes,
    )
    start.kinds, start.places = _places(start, drafts)
    start.notes += [note for note in (support_note, dtype_note, cache_note) if note]
    if (
        any(state.kind == "latent" and not is_mla(state, architecture.family) for state in attention)
        and architecture.family != compressed.FAMILY
    ):
        start.notes.append(
            f"vLLM does not run {architecture.family} as MLA: it stores the expanded K and V of every head, and no index keys"
        )
    if workload.gpu is None:
        start.notes.append(f"no GPU given: vLLM's defaults for an API server on {card.id}")
    return start


def _check_parallel(architecture: Architecture, workload: Workload) -> None:
    tp, dcp = workload.tensor_parallel, workload.decode_context_parallel
    if tp % dcp:
        raise EngineRejectsError(f"vLLM refuses: decode context parallel size {dcp} does not divide tensor parallel size {tp}")
    for state in kept_states(architecture):
        query = getattr(state, "query_heads", None)
        if query and query % tp:
            raise EngineRejectsError(
                f"vLLM refuses: tensor parallel size {tp} does not divide the {query} attention heads", f"a divisor of {query}"
            )
        if dcp > 1:
            _check_context_parallel(state, tp, dcp)


def _check_context_parallel(state: Any, tp: int, dcp: int) -> None:
    """Decode context parallelism spreads tokens over ranks that hold the same heads: there have to be that many."""
    if state.kind in ("sliding", "chunked") or getattr(state, "window", None):
        raise EngineRejectsError("vLLM refuses decode context parallelism with sliding windows", "leave decode_context_parallel at 1")
    if state.kind != "full":
        return
    copies = tp // state.kv_heads
    if copies < dcp:
        raise EngineRejectsError(
            f"vLLM refuses decode context parallel size {dcp}: tensor parallel size {tp} holds {max(1, copies)} copies of the {state.kv_heads} KV heads",
            f"a tensor parallel size of at least {state.kv_heads * dcp}",
        )
    if state.query_heads and state.query_heads // state.kv_heads % dcp:
        raise EngineRejectsError(
            f"vLLM refuses decode context parallel size {dcp}: it does not divide the {state.query_heads // state.kv_heads} query heads a KV head"
        )


def stage_of(layers: int, stages: int) -> list[int]:
    """The pipeline stage of every layer: the remainder goes to the stages before the last (distributed/utils.py, get_pp_indices)."""
    if stages > layers:
        raise EngineRejectsError(f"pipeline parallel size {stages} is more than the model's {layers} layers", f"at most {layers}")
    sizes = [layers // stages] * stages
    for i in range(2, layers % stages + 2):
        sizes[-i] += 1
    return [stage for stage, size in enumerate(sizes) for _ in range(size)]


def _places(start: Start, drafts: Sequence[tuple[State, ...]]) -> tuple[tuple[Kind, ...], tuple[Place, ...]]:
    """Every cache of every layer, in order; draft layers follow the model's, on the last stage."""
    layout, stages = start.architecture.layers, start.workload.pipeline_parallel
    stage = stage_of(layout.count, stages)
    skipped = _skip_layers(start)
    kinds: list[Kind] = []
    numbers: dict[tuple[int, bool], int] = {}
    places: list[Place] = []

    def place(layer: int, on: int, states: tuple[State, ...], *, draft: bool) -> None:
        for state in states:
            if not is_kept(state, start.family):
                continue
            plain = bool(skipped) and (str(layer) in skipped or (state.kind == "sliding" and _SLIDING_LAYERS in skipped))
            key = (id(state), plain)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(kinds)
                kinds.append(Kind(state, dtypes.AUTO if plain else start.cache))
            places.append(Place(layer, on, number, draft))

    for layer, name in enumerate(layout.order):
        place(layer, stage[layer], layout.states[name], draft=False)
    for layer, states in enumerate(drafts, layout.count):
        place(layer, stages - 1, states, draft=True)
    return tuple(kinds), tuple(places)


# --- attention -------------------------------------------------------------------------------------------------------------------


class Heads(NamedTuple):
    """One layer's attention on one GPU: head slots, widths of K and V, and the ranks that hold the same heads."""

    kv: int
    key: int
    value: int


def rank_heads(kv_heads: int, tp: int) -> int:
    """KV heads on one GPU, at least one. Raises EngineRejectsError for a split that vLLM refuses."""
    if kv_heads % tp and tp % kv_heads:
        raise EngineRejectsError(f"vLLM refuses: tensor parallel size {tp} and {kv_heads} KV heads do not divide one another")
    return max(1, kv_heads // tp)


def is_mla(state: State, family: str) -> bool:
    """The state is stored as one latent row."""
    return state.kind == "latent" and family in MLA_FAMILIES


def heads_of(state: Any, start: Start) -> Heads:
    """Head slots and widths. A latent of a family that vLLM runs without MLA has a K and a V vector a query head, equally wide."""
    if state.kind == "latent":
        width = state.latent_dim + state.rope_dim
        if is_mla(state, start.family):
            return Heads(1, width, 0)
        if state.query_heads is None or state.nope_dim is None:
            raise UnsupportedArchitectureError(f"vLLM runs {start.family} without MLA, and its config gives no qk_nope_head_dim")
        expanded = state.nope_dim + state.rope_dim
        return Heads(rank_heads(state.query_heads, start.tp), expanded, expanded)
    return Heads(rank_heads(state.kv_heads, start.tp), state.head_dim, state.value_width)


def token_bytes(heads: Heads, dtype: str, own: str) -> int:
    """Bytes of one token in one attention layer on one GPU."""
    if heads.value == 0:
        packed = PACKED_ROWS.get(dtype)
        return packed if packed is not None else get_format(dtypes.format_of(dtype, own)).row_bytes(heads.key)
    stored = get_format(dtypes.format_of(dtype, own))
    return stored.key_bytes(heads.key, heads.kv) + stored.value_bytes(heads.value, heads.kv)


def _model_head(start: Start) -> int:
    """The head size that stands for the whole model: the widest, or the latent row."""
    return max((heads_of(kind.state, start).key for kind in start.kinds if _is_attention(kind.state)), default=0)


def _is_attention(state: State) -> bool:
    return not state.is_recurrent and state.kind not in ("index", "compressed")


def _uses_mm_prefix(start: Start) -> bool:
    traits = start.architecture.traits
    outer = traits.get("outer_model_type")
    if outer in MM_PREFIX_WRAPPERS:
        return True
    return outer is not None and start.family in MM_PREFIX_FAMILIES and traits.get("use_bidirectional_attention") == "vision"


def _has_sinks(state: State, start: Start) -> bool:
    traits = start.architecture.traits
    if start.family in SINK_FAMILIES:
        return traits.get("attention_sinks") is not False
    return state.kind == "sliding" and any(traits.get(name) is True for name in WINDOW_SINKS)


def ask_of(kind: Kind, start: Start) -> backends.Ask:
    """What this layer asks of a backend."""
    state: Any = kind.state
    heads = heads_of(state, start)
    mla = is_mla(state, start.family)
    query = getattr(state, "query_heads", None) or 0
    return backends.Ask(
        head_size=heads.key,
        cache_dtype=kind.dtype,
        capability=start.card.capability,
        value_size=heads.value,
        block_size=start.args["block_size"],
        mla=mla,
        sparse=mla and any(other.state.kind == "index" for other in start.kinds),
        sink=_has_sinks(state, start),
        mm_prefix=not mla and state.kind in ("full", "sliding") and _uses_mm_prefix(start),
        sliding=state.kind == "sliding",
        cross=state.kind == "cross",
        dcp=start.workload.decode_context_parallel > 1,
        query_heads=query // start.tp,
        nope_dim=getattr(state, "nope_dim", None) or 0,
        rope_dim=getattr(state, "rope_dim", 0),
        index_topk=int(start.architecture.traits.get("index_topk") or 0),
        softcap=bool(start.architecture.traits.get("attn_logit_softcapping")),
        fa2=start.cache.startswith("turboquant_"),
    )


@dataclass(slots=True)
class Choice:
    """The backend of one attention layer, its question, and the cache type it ends up with."""

    backend: backends.Backend
    ask: backends.Ask
    dtype: str


def choose_backends(start: Start) -> list[Choice | None]:
    """A backend for every kind of layer; None for recurrent ones. Raises EngineRejectsError."""
    return [_choose(kind, start) for kind in start.kinds]


def _choose(kind: Kind, start: Start) -> Choice | None:
    if kind.state.is_recurrent:
        return None
    if kind.state.kind == "index":
        return Choice(backends.INDEXER, backends.Ask(0, dtypes.AUTO, start.card.capability), dtypes.AUTO)
    if kind.state.kind == "chunked" and kind.dtype == dtypes.AUTO and start.cache.startswith("turboquant_"):
        raise EngineRejectsError(f"vLLM refuses a cache of {start.cache} for chunked layers that keep the model's type", "choose fp8")
    ask = ask_of(kind, start)
    if start.family in UNEVEN_FAMILIES and ask.value_size != ask.head_size:
        return Choice(backends.uneven_backend(ask), ask, kind.dtype)
    backend = backends.select_backend(ask, start.args["attention_backend"])
    if backend.name != ONLY_BACKEND.get(start.family, backend.name):
        raise EngineRejectsError(
            f"vLLM refuses {start.family} without {ONLY_BACKEND[start.family]} attention, and here chooses {backend.name}",
            "a Blackwell GPU",
        )
    return Choice(backend, ask, _packed_dtype(backend, kind.dtype))


def _packed_dtype(backend: backends.Backend, dtype: str) -> str:
    """FlashMLA's sparse kernel turns every fp8 into its own packed row (mla_attention.py)."""
    if backend is backends.FLASHMLA_SPARSE and dtype not in ("auto", "nvfp4_ds_mla"):
        return "fp8_ds_mla"
    return dtype


def _skip_layers(start: Start) -> frozenset[str]:
    listed = {str(item) for item in start.args["kv_cache_dtype_skip_layers"]}
    if start.cache.startswith("turboquant_") and not start.is_hybrid:
        count = start.architecture.layers.count
        ends = min(TURBOQUANT_ENDS, count // 2)
        listed |= {str(i) for i in (*range(ends), *range(count - ends, count))}
    return frozenset(listed)


# --- block size ------------------------------------------------------------------------------------------------------------------


def block_sizes(start: Start, choices: Sequence[Choice | None], recurrent_page: int) -> blocksize.Blocks:
    """The block size of one pipeline stage after all adjustments."""
    attention = [choice for choice in choices if choice is not None]
    given = start.args["block_size"]
    if not attention:
        return blocksize.Blocks(given or backends.DEFAULT_BLOCK)
    pairs = [(choice.backend, choice.ask) for choice in attention]
    backends.check_layouts(pairs)
    # A layer's index keys register before its latents.
    first = next((choice for choice in attention if choice.backend is backends.INDEXER), attention[0])
    # A single backend is asked with the whole model's head size.
    model_ask = first.ask._replace(head_size=max(first.ask.head_size, _model_head(start))) if first.ask.head_size else first.ask
    whole = [(choice.backend, model_ask if choice.backend is first.backend else choice.ask) for choice in attention]
    found = blocksize.Blocks(given or backends.preferred_block(whole))
    kernel = first.backend.smallest(model_ask)
    if start.is_hybrid:
        kernels = tuple({backend.smallest(ask) for backend, ask in pairs})
        found = blocksize.align_hybrid(
            found,
            kernel=kernel,
            kernels=kernels,
            token_bytes=_hybrid_token_bytes(start, first),
            recurrent_page=recurrent_page,
            mla=any(is_mla(kind.state, start.family) for kind in start.kinds),
            checkpoint=_checkpoint_step(start),
        )
    if _skip_layers(start):
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
    return found


def _model_heads(start: Start) -> Heads:
    """Heads as the whole model's config gives them: those of the first full attention."""
    attention = [kind.state for kind in start.kinds if _is_attention(kind.state)]
    heads = heads_of(next((state for state in attention if state.kind == "full"), attention[0]), start)
    return heads._replace(value=heads.key) if heads.value else heads


def _hybrid_token_bytes(start: Start, first: Choice) -> int:
    heads = _model_heads(start)
    if heads.value == 0:
        return get_format(dtypes.format_of("fp8" if first.dtype in PACKED_ROWS else first.dtype, start.own)).row_bytes(heads.key)
    return token_bytes(heads, start.cache, start.own)


def _mixed_token_bytes(start: Start, heads: Heads, backend: backends.Backend) -> int:
    """As the first layer's backend would store the cache's type: one that does not know a packed type counts a byte an element."""
    if start.cache in backend.dtypes:
        return token_bytes(heads, start.cache, start.own)
    return token_bytes(heads, "fp8", start.own)


def _checkpoint_step(start: Start) -> int:
    """Alignment of prefill checkpoints that blocks have to keep: only if every recurrent layer has one."""
    if not start.align:
        return 1
    mixers = [kind.state for kind in start.kinds if kind.state.is_recurrent]
    found = [recurrent.checkpoint_alignment(state, start.family, start.card.capability) for state in mixers]
    aligned = [value for value in found if value == recurrent.GDN_CHECKPOINT_ALIGNMENT]
    return aligned[0] if len(aligned) == len(found) else 1


# --- specs -----------------------------------------------------------------------------------------------------------------------


def recurrent_tensors(start: Start) -> list[tuple[recurrent.Tensor, ...]]:
    """The tensors of every kind of layer; none for attention."""
    types = recurrent.read_types(start.family, start.architecture.traits, start.args, start.own)
    return [recurrent.tensors(kind.state, types, start.tp, start.spec_tokens) if kind.state.is_recurrent else () for kind in start.kinds]


def build_pool(start: Start) -> Pool:
    """The pool of blocks of this start."""
    if start.family == compressed.FAMILY:
        return _compressed_pool(start)
    choices = choose_backends(start)
    tensors = recurrent_tensors(start)
    page = max((sum(tensor.bytes for tensor in item) for item in tensors), default=0)
    step = _checkpoint_step(start)
    sizes = _stage_sizes(start, choices, page)
    specs = {
        found: [
            _recurrent_spec(kind.state, item, found, start, step) if choice is None else _attention_spec(kind.state, choice, found, start)
            for kind, choice, item in zip(start.kinds, choices, tensors, strict=True)
        ]
        for found in dict.fromkeys(sizes)
    }
    layers = tuple(
        CacheLayer(place.layer, place.stage, start.kinds[place.kind].state, specs[sizes[place.stage]][place.kind], tensors[place.kind])
        for place in start.places
    )
    return _pool(start, layers, sizes[-1].size, block_outermost=False)


def _stage_sizes(start: Start, choices: Sequence[Choice | None], page: int) -> list[blocksize.Blocks]:
    """The block size of every pipeline stage: each decides it from its own layers."""
    stages = start.workload.pipeline_parallel
    if stages == 1:
        return [block_sizes(start, choices, page)]
    held = [list(dict.fromkeys(place.kind for place in start.places if place.stage == stage)) for stage in range(stages)]
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
        if not place.draft or start.kinds[place.kind].state.kind == "latent"
        for spec in specs[place.kind]
    )
    return _pool(start, layers, size, block_outermost=True)


def _recurrent_spec(state: State, tensors: tuple[recurrent.Tensor, ...], sizes: blocksize.Blocks, start: Start, step: int) -> Spec:
    alignment = recurrent.checkpoint_alignment(state, start.family, start.card.capability)
    exports = alignment is not None and (alignment == 1 or step > 1)
    return Spec(
        RECURRENT,
        block=sizes.size if start.align else 0,
        row=sum(tensor.bytes for tensor in tensors),
        shape=tuple(part for tensor in tensors for part in (tensor.rows, tensor.elements)),
        format=tensors[-1].format,
        limit=start.spec_tokens,
        padded=sizes.recurrent_page,
        checkpoint=(1, 1 if alignment == 1 else sizes.size) if exports else (0, 0),
    )


_KINDS = {"full": FULL, "sliding": SLIDING, "chunked": CHUNKED, "cross": CROSS, "latent": MLA}


def _attention_spec(state: Any, choice: Choice, sizes: blocksize.Blocks, start: Start) -> Spec:
    if state.kind == "index":
        return _index_spec(state, sizes)
    kind = _KINDS.get(state.kind)
    if kind is None:
        raise UnsupportedArchitectureError(f"kvcalc has no rule for states of kind {state.kind} of {start.family} under vLLM")
    heads = heads_of(state, start)
    if state.kind == "latent" and not is_mla(state, start.family):
        kind = FULL
    row = token_bytes(heads, choice.dtype, start.own)
    block, limit, padded = sizes.size, 0, 0
    if kind == SLIDING:
        limit = state.window + (1 if start.family in WIDER_WINDOWS else 0)
        padded = sizes.window_page
        block = choice.backend.largest_within(padded // row if padded else block, choice.ask)
    elif kind == CHUNKED:
        limit = state.chunk
    elif kind == MLA and state.window:
        kind, limit = SLIDING_MLA, state.window
    return Spec(
        kind,
        block,
        row,
        (heads.kv, heads.key, heads.value),
        dtypes.format_of(choice.dtype, start.own),
        limit=limit,
        padded=padded,
        stride=row if choice.ask.sparse else 1,
    )


def _index_spec(state: Any, sizes: blocksize.Blocks) -> Spec:
    (buffer,) = state.buffers()
    row = get_format(buffer.dtype).row_bytes(buffer.width, buffer.vectors)
    return Spec(MLA, sizes.size, row, (buffer.vectors, buffer.width, 0), buffer.dtype, role="index")


def _pool(start: Start, layers: tuple[CacheLayer, ...], size: int, *, block_outermost: bool) -> Pool:
    specs = [layer.spec for layer in layers]
    groups = group_layers(specs, block_outermost=block_outermost, merge_windows=start.args["disable_hybrid_kv_cache_manager"] is True)
    retained = speculation.retained_tokens(start.architecture, start.args["speculative_method"], start.spec_tokens)
    dcp, align, scheduler = start.workload.decode_context_parallel, start.align, start.scheduler

    def demand(context: int) -> Demand:
        return Demand(context, scheduler.in_flight(context), dcp, retained, align, scheduler.step_tokens(context))

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
