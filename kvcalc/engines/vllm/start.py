"""One start of the engine: the settings and the model's config resolved against each other, and every cache that the layers need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcalc.core.errors import EngineRejectsError, UsageError
from kvcalc.core.states import Chunked, Cross, Full, Index, Latent, Sliding
from kvcalc.core.units import clean
from kvcalc.engines.vllm import compressed, dtypes, recurrent, settings, speculation
from kvcalc.engines.vllm.families import Caches, family_of
from kvcalc.engines.vllm.kept import is_attention, is_kept, is_mla, kept_states
from kvcalc.engines.vllm.selection import get_backend
from kvcalc.engines.vllm.support import check_pipeline, check_support

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState
    from kvcalc.core.workload import Workload
    from kvcalc.engines.vllm.families import Family
    from kvcalc.engines.vllm.settings import Card, Scheduler

#: Layers at each end of a model without recurrent layers that TurboQuant leaves in the model's type.
TURBOQUANT_ENDS = 2
#: The word for all window layers among `kv_cache_dtype_skip_layers`.
_SLIDING_LAYERS = "sliding_window"


#: Backends that only one family has (compressed.py, family_caches/deepseek_v41.py).
OWN_BACKENDS = compressed.BACKENDS | {"FLASHMLA_SPARSE_DSV41", "FLASHINFER_MLA_SPARSE_DSV41", "FLASHMLA_MEGA_ATTN_DSV41"}


class Kind(NamedTuple):
    """A state that needs a cache, the cache type asked for it, and whether index keys stand beside it; alike layers share one."""

    state: AnyState
    dtype: str
    indexed: bool = False


class Place(NamedTuple):
    """One cache of one layer: its pipeline stage, its kind's number, whether speculation alone needs it."""

    layer: int
    stage: int
    kind: int
    draft: bool


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the engine: what its settings and the model's config resolve to.

    own           the model's type
    cache         `--kv-cache-dtype` in force
    kinds         every kind of cache that its layers need, and `places` where each stands
    plain_layers  numbers, and the word for windows, of layers that keep the model's type
    spec_tokens   draft tokens of a step
    """

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
    plain_layers: frozenset[str]
    notes: tuple[str, ...]

    @property
    def tp(self) -> int:
        """Tensor parallel ranks."""
        return self.workload.tensor_parallel

    @property
    def family(self) -> str:
        """The inner model_type."""
        return self.architecture.family

    @property
    def row(self) -> Family:
        """What vLLM does with this family."""
        return family_of(self.architecture.family)

    @property
    def align(self) -> bool:
        """Prefix caching keeps states of recurrent layers."""
        return self.prefix_caching and any(kind.state.is_recurrent for kind in self.kinds)

    @property
    def prefill(self) -> recurrent.Prefill:
        """What decides the kernels of a prefill."""
        return recurrent.Prefill(self.family, self.card.capability, self.own, recurrent.has_flash_kda(self.architecture))

    @property
    def is_hybrid(self) -> bool:
        """Attention and recurrent layers in one model."""
        return is_hybrid(self.architecture)


def read_start(architecture: Architecture, workload: Workload, args: dict[str, Any]) -> Start:
    """Resolve settings against the model. Raises every error that vLLM's own start would raise."""
    _check_names(architecture, args)
    support_note = check_support(architecture)
    check_pipeline(architecture, workload.pipeline_parallel)
    _check_parallel(architecture, workload)
    card = settings.read_card(workload.gpu)
    own, dtype_note = dtypes.model_dtype(architecture)
    row, states = family_of(architecture.family), kept_states(architecture)
    attention = [state for state in states if is_attention(state)]
    mla = bool(attention) and all(is_mla(state, architecture.family) for state in attention)
    cache, cache_note = dtypes.cache_dtype(workload.kv_dtype, architecture, own, card.capability, mla=mla)
    encoder_decoder = any(isinstance(state, Cross) for state in states)
    notes: list[str] = []
    drafts = speculation.draft_layers(architecture, args["speculative_method"], notes)
    spec_tokens = speculation.draft_tokens(args, len(drafts))
    asked = args["enable_prefix_caching"]
    plain = skip_layers(architecture, args["kv_cache_dtype_skip_layers"], cache)
    kinds, places = _places(architecture, drafts, workload.pipeline_parallel, cache, plain)
    notes += [note for note in (support_note, dtype_note, cache_note) if note]
    if (
        any(isinstance(state, Latent) and not is_mla(state, architecture.family) for state in attention)
        and row.caches is not Caches.DEEPSEEK_V4
    ):
        notes.append(f"vLLM does not run {architecture.family} as MLA: it stores the expanded K and V of every head, and no index keys")
    if workload.gpu is None:
        notes.append(f"no GPU given: vLLM's defaults for an API server on {card.id}")
    return Start(
        architecture,
        workload,
        args,
        card,
        settings.read_scheduler(args, card, workload.pipeline_parallel, encoder_decoder=encoder_decoder),
        own,
        cache,
        kinds,
        places,
        spec_tokens,
        asked if asked is not None else not (row.attention_free or encoder_decoder),
        plain,
        tuple(notes),
    )


def _check_names(architecture: Architecture, args: Mapping[str, Any]) -> None:
    """Raise UsageError for a backend or a layer that does not exist, also where the model would never look it up."""
    backend, last = args["attention_backend"], architecture.layers.count + (architecture.draft.count if architecture.draft else 0) - 1
    if backend is not None and backend.strip().upper() not in OWN_BACKENDS:
        get_backend(backend)
    for item in args["kv_cache_dtype_skip_layers"]:
        text = str(item)
        if text != _SLIDING_LAYERS and not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= last):
            raise UsageError(
                f"engine setting kv_cache_dtype_skip_layers: {clean(repr(item), 40)} is no layer of this model",
                f"numbers from 0 to {last}, or {_SLIDING_LAYERS}",
            )


def _check_parallel(architecture: Architecture, workload: Workload) -> None:
    tp, dcp = workload.tensor_parallel, workload.decode_context_parallel
    if tp % dcp:
        raise EngineRejectsError(f"vLLM refuses: decode context parallel size {dcp} does not divide tensor parallel size {tp}")
    if family_of(architecture.family).shares_rows and workload.pipeline_parallel > 1:
        _check_sharing(architecture, workload.pipeline_parallel)
    for state in kept_states(architecture):
        query = getattr(state, "query_heads", None)
        if query and query % tp:
            raise EngineRejectsError(
                f"vLLM refuses: tensor parallel size {tp} does not divide the {query} attention heads", f"a divisor of {query}"
            )
        if dcp > 1:
            _check_context_parallel(state, architecture.family, tp, dcp)


def _check_sharing(architecture: Architecture, stages: int) -> None:
    """Readers of DeepSeek-V4.1's compressed rows find their source on their own stage."""
    stage, layout = stage_of(architecture.layers.count, stages), architecture.layers
    for layer, name in enumerate(layout.order):
        for state in layout.states[name]:
            source = getattr(state, "shares_with", None)
            if isinstance(source, int) and stage[source] != stage[layer]:
                raise EngineRejectsError(
                    f"vLLM refuses pipeline parallel size {stages}: layer {layer} reads the rows of layer {source}, on another stage",
                    "use tensor parallelism",
                )


def _check_context_parallel(state: AnyState, family: str, tp: int, dcp: int) -> None:
    """Decode context parallelism spreads tokens over ranks that hold the same heads: there have to be that many (config/model.py).

    A latent row stands on every rank; latents of a family without MLA are stored as the K and V of every query head.
    """
    if isinstance(state, (Sliding, Chunked)) or (isinstance(state, Latent) and state.window):
        raise EngineRejectsError("vLLM refuses decode context parallelism with sliding windows", "leave decode_context_parallel at 1")
    if not isinstance(state, (Full, Latent)) or is_mla(state, family):
        return
    heads = state.kv_heads if isinstance(state, Full) else state.query_heads
    if not heads:
        return
    copies = tp // heads
    if copies < dcp:
        raise EngineRejectsError(
            f"vLLM refuses decode context parallel size {dcp}: tensor parallel size {tp} holds {max(1, copies)} copies of the {heads} KV heads",
            f"a tensor parallel size of at least {heads * dcp}",
        )
    if state.query_heads and state.query_heads // heads % dcp:
        raise EngineRejectsError(
            f"vLLM refuses decode context parallel size {dcp}: it does not divide the {state.query_heads // heads} query heads a KV head"
        )


def stage_of(layers: int, stages: int) -> list[int]:
    """The pipeline stage of every layer: the remainder goes to the stages before the last (distributed/utils.py, get_pp_indices)."""
    if stages > layers:
        raise EngineRejectsError(f"pipeline parallel size {stages} is more than the model's {layers} layers", f"at most {layers}")
    sizes = [layers // stages] * stages
    for i in range(2, layers % stages + 2):
        sizes[-i] += 1
    return [stage for stage, size in enumerate(sizes) for _ in range(size)]


def _places(
    architecture: Architecture, drafts: Sequence[tuple[AnyState, ...]], stages: int, cache: str, plain_layers: frozenset[str]
) -> tuple[tuple[Kind, ...], tuple[Place, ...]]:
    """Every cache of every layer, in order; draft layers follow the model's, on the last stage."""
    layout = architecture.layers
    stage = stage_of(layout.count, stages)
    kinds: list[Kind] = []
    numbers: dict[tuple[int, bool, bool], int] = {}
    places: list[Place] = []

    def place(layer: int, on: int, states: tuple[AnyState, ...], *, draft: bool) -> None:
        indexed = any(isinstance(state, Index) for state in states)
        for state in states:
            if not is_kept(state, architecture.family):
                continue
            plain = bool(plain_layers) and (str(layer) in plain_layers or (isinstance(state, Sliding) and _SLIDING_LAYERS in plain_layers))
            key = (id(state), plain, indexed)
            number = numbers.get(key)
            if number is None:
                number = numbers[key] = len(kinds)
                kinds.append(Kind(state, dtypes.AUTO if plain else cache, indexed))
            places.append(Place(layer, on, number, draft))

    for layer, name in enumerate(layout.order):
        place(layer, stage[layer], layout.states[name], draft=False)
    for layer, states in enumerate(drafts, layout.count):
        place(layer, stages - 1, states, draft=True)
    return tuple(kinds), tuple(places)


def is_hybrid(architecture: Architecture) -> bool:
    """Attention and recurrent layers in one model."""
    return len({state.is_recurrent for state in kept_states(architecture)}) > 1


def skip_layers(architecture: Architecture, asked: Sequence[object], cache: str) -> frozenset[str]:
    """Numbers, and the word for windows, of layers that keep the model's type: those asked for, and the ends under TurboQuant."""
    listed = {str(item) for item in asked}
    if cache.startswith("turboquant_") and not is_hybrid(architecture):
        count = architecture.layers.count
        ends = min(TURBOQUANT_ENDS, count // 2)
        listed |= {str(i) for i in (*range(ends), *range(count - ends, count))}
    return frozenset(listed)
