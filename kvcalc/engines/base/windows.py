"""How far back a layer's state reaches, for engines that tell window layers from others."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from kvcalc.core.states import Chunked, Compressed, Cross, Full, Index, Latent, Nothing, Recurrent, Shared, Sliding

if TYPE_CHECKING:
    from kvcalc.core.states import AnyState


def window_of(state: AnyState) -> int:
    """Tokens of the state's window or chunk; 0 where it keeps every token, or none."""
    match state:
        case Sliding():
            return state.window
        case Chunked():
            return state.chunk
        case Latent():
            return state.window or 0
        case Full() | Cross() | Shared() | Nothing() | Index() | Compressed() | Recurrent():
            return 0
        case _:
            assert_never(state)
