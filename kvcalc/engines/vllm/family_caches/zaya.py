"""Zaya, which vLLM 0.33 has no class for: its Transformers backend runs the model and caches attention alone.

K and V          of every layer, with a window or without: the backend looks for layers called sliding_attention, and Zaya has none
convolutions     nothing: a step sees the tokens of that step only
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.states import Full
from kvcalc.engines.vllm import attention, layers
from kvcalc.engines.vllm.attention import Choice
from kvcalc.engines.vllm.selection import select_backend
from kvcalc.engines.vllm.specs import FULL

if TYPE_CHECKING:
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.specs import Spec
    from kvcalc.engines.vllm.start import Kind, Start


def choose(kind: Kind, start: Start) -> Choice | None:
    """A backend for attention without a window. Raises EngineRejectsError."""
    ask = attention.ask_of(kind, start)._replace(sliding=False)
    return Choice(select_backend(ask, start.args["attention_backend"]), ask, kind.dtype)


def specs(layer: Layer) -> tuple[Spec, ...]:
    """Every layer holds every token."""
    (found,) = layers.specs(layer)
    state = layer.kind.state
    return (found if isinstance(state, Full) else found._replace(kind=FULL, block=layer.sizes.size, limit=0, padded=0),)


def notes(_start: Start) -> tuple[str, ...]:
    """What the figure leaves out."""
    return (
        "vLLM has no class for zaya: its Transformers backend serves it, with every token in every layer and without the convolutions' states",
    )
