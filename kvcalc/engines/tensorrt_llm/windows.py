"""Attention windows: which pool a layer's blocks come from.

no vector             first manager: one pool, every layer in full, sliding ones too
                      second manager: the windows of the layers, where sliding and full ones are mixed; chunks are no windows
max_attention_window  a pattern over all layers, repeated; longer than the context means the context

Source: TensorRT-LLM, _torch/pyexecutor/resource_manager.py (_validate_and_adjust_attention_windows), config_utils.py
(get_layer_attention_window) and kv_cache/kv_cache_manager_v2.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.core.states import Shared, Sliding
from kvcalc.engines.tensorrt_llm.layers import owner_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.core.architecture import Architecture


def layer_windows(architecture: Architecture, given: Sequence[object] | None, *, second: bool) -> tuple[int, ...]:
    """The window of every layer, 0 where there is none. Raises UsageError for a vector that is none."""
    count = architecture.layers.count
    if given is not None:
        vector = [_window(value) for value in given]
        if not vector:
            raise UsageError("engine setting max_attention_window: the list is empty", "write it like 128,131072")
        return tuple(vector[layer % len(vector)] for layer in range(count))
    own = {name: _state_window(architecture, name) for name in architecture.layers.states} if second else {}
    found = tuple(own.get(name, 0) for name in architecture.layers.order)
    return found if len(set(found)) > 1 else (0,) * count


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
        kept = owner_of(architecture, state) if isinstance(state, Shared) else state
        if isinstance(kept, Sliding):
            return kept.window
    return 0
