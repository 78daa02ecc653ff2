"""`cache_implementation`: what `generate` makes of a model's layers, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.states import Full, Latent
from kvcalc.core.units import clean
from kvcalc.engines.transformers.paged import read_paged
from kvcalc.engines.transformers.quantized import read_quantizer
from kvcalc.engines.transformers.stores import ITEM, Plain, Quantised
from kvcalc.engines.transformers.tensors import INT64, Rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.architecture import Architecture
    from kvcalc.core.states import AnyState
    from kvcalc.engines.transformers.paged import Paged
    from kvcalc.engines.transformers.stores import Store
    from kvcalc.engines.transformers.tensors import CacheTensor

#: The release whose paged cache was read.
PAGED_SINCE = (5, 24)
#: Model classes that make a cache of their own and take no other (`_supports_default_dynamic_cache`).
_OWN_CACHE = ("minimax", "rwkv", "xlstm", "reformer", "xlnet")
#: Static layers that reserve room for the prefill beside the window, and so depend on how long it was.
_BY_PREFILL = ("unlimited_ocr_text",)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a cache is made for: the model and the tensors of its dynamic cache, the settings in force, the moment."""

    architecture: Architecture
    tensors: dict[CacheTensor, int]
    model_type: str
    version: tuple[int, int]
    args: dict[str, Any]
    context: int
    sequences: int
    notes: list[str]
    warnings: list[str]

    @property
    def steps(self) -> int:
        """Decode steps after the prefill."""
        return self.args["decode_steps"] or 0

    def reject(self, reason: str, hint: str = "use cache_implementation=dynamic") -> EngineRejectsError:
        """The refusal of this cache for this model."""
        return EngineRejectsError(
            f"the {self.args['cache_implementation']} cache does not take {clean(self.architecture.id, 60)}: {reason}", hint
        )


def dynamic(ask: Ask) -> Store:
    """`DynamicCache`: whatever the layers ask for."""
    longest = ask.architecture.traits.longest_dense_prefill
    if longest is not None and ask.context - 1 > longest:
        ask.notes.append(
            f"block-sparse attention caches nothing of a prefill beyond {longest:,} tokens, only what is decoded after it; "
            "a decoder that is given a cache, as generate does, attends to everything and caches it"
        )
        since = Rows("since", ask.context - 1)
        return Plain({tensor._replace(rows=since): layers for tensor, layers in ask.tensors.items()}, ask.model_type)
    if any(tensor.rows.kind == "window" and tensor.rows.size < ask.context for tensor in ask.tensors):
        ask.notes.append("after a decode step; between a longer prefill and the first step, window layers hold the whole prefill")
    return Plain(ask.tensors, ask.model_type)


def static(ask: Ask) -> Store:
    """`StaticCache`: everything reserved at the first step. Raises EngineRejectsError where the context does not fit into it."""
    _refuse_own_cache(ask)
    length = ask.args["max_cache_len"]
    if any(tensor.rows.kind == "entries" for tensor in ask.tensors):
        raise ask.reject("it has no static layer for compressed attention")
    if ask.architecture.family in _BY_PREFILL:
        raise ask.reject("its layers reserve by the length of the prefill, which the question does not say")
    if length is None:
        ask.notes.append(f"max_cache_len defaulted to the context, {ask.context:,} tokens")
    elif length < ask.context and any(tensor.rows.kind == "tokens" for tensor in ask.tensors):
        raise ask.reject(
            f"max_cache_len {length:,} is less than the {ask.context:,} tokens asked for", "raise max_cache_len, or ask for fewer tokens"
        )
    reserved: dict[CacheTensor, int] = {}
    for tensor, layers in ask.tensors.items():
        # The position history has no static form: it grows beside the reserved layers.
        kept = tensor if tensor.dtype == INT64 else tensor._replace(rows=tensor.rows.reserve(length))
        reserved[kept] = reserved.get(kept, 0) + layers
    return Plain(reserved, ask.model_type)


def quantized(ask: Ask) -> Store:
    """`QuantizedCache`. Raises EngineRejectsError for layers that are not full attention, and for groups that do not come out even."""
    _refuse_own_cache(ask)
    other = next(
        (state.kind for name in ask.architecture.layers.order for state in ask.architecture.layers.states[name] if not _is_full(state)),
        None,
    )
    if other is None and any(tensor.rows.kind == "window" for tensor in ask.tensors):
        other = "sliding"
    if other is not None:
        raise ask.reject(f"every layer must be full attention, and it has {other} layers")
    if ask.architecture.traits.is_encoder_decoder:
        raise ask.reject("it is an encoder-decoder")
    quantizer = read_quantizer(ask.args, ask.version)
    if ask.steps >= ask.context:
        raise ask.reject(f"{ask.steps:,} decode steps leave no prefill in {ask.context:,} tokens", "lower decode_steps")
    for tensor in ask.tensors:
        quantizer.check_run(tensor, ask.context - ask.steps, ask.steps, ask.sequences)
    row = sum(layers * tensor.elements for tensor, layers in ask.tensors.items()) * ITEM[ask.model_type]
    text = f"after a prefill of {ask.context - ask.steps:,} tokens and {ask.steps:,} decode steps"
    if quantizer.residual > 1:
        text += f"; each further token waits in {ask.model_type}, {row:,} B, until {quantizer.residual} do"
    ask.notes.append(text)
    return Quantised(ask.tensors, ask.model_type, quantizer)


def _is_full(state: AnyState) -> bool:
    """The states of `full_attention` layers, the only ones that the quantized cache takes."""
    return isinstance(state, Full) or (isinstance(state, Latent) and state.window is None)


def _refuse_own_cache(ask: Ask) -> None:
    if ask.architecture.family in _OWN_CACHE:
        raise ask.reject("its model class makes a cache of its own")


def paged(ask: Ask) -> Paged:
    """`PagedAttentionCache` of `generate_batch`. Raises EngineRejectsError, UnsupportedArchitectureError, UsageError."""
    if ask.version < PAGED_SINCE:
        raise EngineRejectsError("kvcalc knows the paged cache of transformers 5.24 only", "ask for version=5.24")
    found = read_paged(ask.architecture, ask.model_type, ask.args)
    if ask.sequences > found.settings["max_requests_per_batch"]:
        ask.notes.append(f"max_requests_per_batch lets {found.settings['max_requests_per_batch']:,} requests run at once")
    return found


#: By the words of `cache_implementation`.
CACHES: dict[str, Callable[[Ask], Store]] = {"dynamic": dynamic, "static": static, "quantized": quantized, "paged": paged}
