"""GLM-5-next: KDA, and latents that read what pooled index keys select (vLLM 0.33, models/glm5next).

    latent      one row of kv_lora_rank, without a rotary part
    index key   fp8 with a scale: one row of 132 B for `pool` tokens
    ring        bf16 key and gate of the tokens of the open pool: p x 2^k ≥ p + s rows, one block a request    s = draft tokens
    KDA         its prefill kernel hands out a state from inside a prefill: one more of each with prefix caching

The index reads blocks of 32 or 64 of its own rows, so blocks of `pool` x 32 tokens and more; pages of a block lie side by side.
GLM-5.3-Flash on four H100: blocks of 1,152, and a block id of 11 x (1,152 x 512 x 2 B + 288 x 132 B) to the next multiple of
33,792 B = 13,415,424 B.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvcalc.core.errors import EngineRejectsError
from kvcalc.core.formats import get_format
from kvcalc.core.states import Index
from kvcalc.engines.vllm import attention, dtypes, layers
from kvcalc.engines.vllm.attention import Choice
from kvcalc.engines.vllm.backends import Ask, Backend
from kvcalc.engines.vllm.specs import RING, Spec

if TYPE_CHECKING:
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.start import Kind, Start

#: Rows of a page that the paged logits kernel takes (utils/deep_gemm.py); consumer Blackwell takes the larger alone.
_PAGES = (32, 64)
_CONSUMER_BLACKWELL = 12


def choose(kind: Kind, start: Start) -> Choice | None:
    """Index keys are read in pages of pooled rows. Raises EngineRejectsError."""
    state = kind.state
    if not isinstance(state, Index):
        return attention.choose(kind, start)
    ask = Ask(0, dtypes.AUTO, start.card.capability)
    sizes = tuple(state.pool * page for page in (_PAGES[1:] if ask.major == _CONSUMER_BLACKWELL else _PAGES))
    return Choice(Backend("GLM5_NEXT_INDEXER", (), sizes=sizes, leads=True, layout=lambda _ask: "BLHNC"), ask, dtypes.AUTO)


def specs(layer: Layer) -> tuple[Spec, ...]:
    """Pooled keys, then the ring of the open pool. Raises EngineRejectsError where the ring does not divide a block."""
    state = layer.kind.state
    if not isinstance(state, Index):
        return layers.specs(layer)
    return _keys(layer, state), _ring(layer, state)


def is_outermost(start: Start) -> bool:
    """The ring insists on it."""
    return any(isinstance(kind.state, Index) for kind in start.kinds)


def _keys(layer: Layer, state: Index) -> Spec:
    found = layers.index_spec(layer)._replace(per_state=state.pool)
    # Blocks of several kernel blocks keep them whole, packed or not.
    kernel = math.gcd(max(layer.choice.backend.sizes) if layer.choice else found.block, found.block)
    return found._replace(stride=1 if kernel == found.block else found.row * (kernel // state.pool))


def _ring(layer: Layer, state: Index) -> Spec:
    pools = -(-(state.pool + layer.start.spec_tokens) // state.pool)
    rows = state.pool * (1 << (pools - 1).bit_length())
    if layer.sizes.size % rows:
        raise EngineRejectsError(
            f"vLLM refuses: the ring of {rows} tokens does not divide blocks of {layer.sizes.size}", "fewer num_speculative_tokens"
        )
    return Spec(
        RING, rows, 2 * get_format("bf16").row_bytes(state.index_dim), (1, 2 * state.index_dim, 0), "bf16", role="ring", sharded=False
    )
