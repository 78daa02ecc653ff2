"""Attention windows: which pool a layer's blocks come from, and how memory is divided over the pools.

no vector             one pool, every layer in full, sliding ones too; Gemma 4 only: the windows of its own layers
max_attention_window  a pattern over all layers, repeated; longer than the context means the context
one distinct window   one pool; max_tokens holds
several               a pool for each in equal shares of the memory, whatever they need; max_tokens says nothing

Source: TensorRT-LLM, _torch/pyexecutor/resource_manager.py (_validate_and_adjust_attention_windows,
calculate_max_num_blocks_for_vswa) and _util.py (_create_kv_cache_manager).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.core.states import Chunked, Sliding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.core.architecture import Architecture

#: Families whose layers differ in width, so that TensorRT-LLM takes its second manager and the windows of the layers themselves.
OWN_WINDOWS = ("gemma4",)


def has_own_windows(architecture: Architecture) -> bool:
    """The engine derives the windows from the model's layers."""
    return architecture.family.startswith(OWN_WINDOWS)


def read_windows(architecture: Architecture, given: Sequence[object] | None, context: int) -> tuple[int, ...]:
    """The window of every layer, 0 where it keeps the whole context. Raises UsageError for a vector that is none."""
    count = architecture.layers.count
    if given is None:
        own = has_own_windows(architecture)
        found = [_state_window(architecture, name) if own else 0 for name in architecture.layers.order]
    else:
        vector = [_window(value) for value in given]
        if not vector:
            raise UsageError("engine setting max_attention_window: the list is empty", "write it like 128,131072")
        found = [vector[layer % len(vector)] for layer in range(count)]
    return tuple(0 if window >= context else window for window in found)


def _window(value: object) -> int:
    try:
        found = int(str(value))
    except ValueError:
        found = 0
    if found < 1:
        raise UsageError(f"engine setting max_attention_window: {str(value)[:40]!r} is not a number of tokens", "write it like 128,131072")
    return found


def _state_window(architecture: Architecture, name: str) -> int:
    for state in architecture.layers.states[name]:
        if isinstance(state, Sliding):
            return state.window
        if isinstance(state, Chunked):
            return state.chunk
    return 0
