"""Models of vLLM's own (vllm/models/*) whose layers keep more, or something else, than attention.py and layers.py know.

minimax_m3.py   index keys beside ordinary attention
qwen4.py        compressed index keys and a ring of raw ones; a convolution over n-gram embeddings
deepseek_v41.py windows, compressed rows of KV sources and rings of their open groups
glm5_next.py    pooled index keys and a ring of the open pool
dots3_note.py   latents as wide as those of windows
inkling.py      the last inputs of convolutions as pages of a window
zaya.py         attention alone, through the Transformers backend
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcalc.engines.vllm import attention, layers
from kvcalc.engines.vllm.families import Caches
from kvcalc.engines.vllm.family_caches import deepseek_v41, dots3_note, glm5_next, inkling, minimax_m3, qwen4, zaya

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.engines.vllm.attention import Choice
    from kvcalc.engines.vllm.layers import Layer
    from kvcalc.engines.vllm.specs import Spec
    from kvcalc.engines.vllm.start import Kind, Start


class Rule(NamedTuple):
    """How a family's layers choose a kernel and what they keep.

    block_outermost   pages of a block lie side by side in memory
    one_table         layers of kernels with different blocks share a table, so their kernels have to share a block
    least_page        bytes of a recurrent state that vLLM counts although no layer keeps it
    notes             what is assumed that the model's config does not say
    """

    choose: Callable[[Kind, Start], Choice | None]
    specs: Callable[[Layer], tuple[Spec, ...]]
    block_outermost: Callable[[Start], bool]
    one_table: bool = False
    least_page: Callable[[Start], int] = lambda _start: 0
    notes: Callable[[Start], tuple[str, ...]] = lambda _start: ()


def _never(_start: Start) -> bool:
    return False


def _kimi_notes(start: Start) -> tuple[str, ...]:
    if not (start.align and start.prefill.flash_kda):
        return ()
    return ("the KDA gate is taken as bounded (gate_lower_bound), as Kimi-K3's is: FlashKDA then hands out a state from inside a prefill",)


ORDINARY = Rule(attention.choose, layers.specs, _never)

_RULES: dict[Caches, Rule] = {
    Caches.MINIMAX_M3: Rule(minimax_m3.choose, minimax_m3.specs, _never, one_table=True),
    Caches.QWEN4: Rule(qwen4.choose, qwen4.specs, qwen4.is_outermost, least_page=qwen4.least_page, notes=qwen4.notes),
    Caches.KIMI_LINEAR: ORDINARY._replace(notes=_kimi_notes),
    Caches.DEEPSEEK_V41: Rule(deepseek_v41.choose, deepseek_v41.specs, deepseek_v41.is_outermost, notes=deepseek_v41.notes),
    Caches.DOTS3_NOTE: Rule(dots3_note.choose, dots3_note.specs, dots3_note.is_outermost),
    Caches.INKLING: Rule(inkling.choose, inkling.specs, _never),
    Caches.ZAYA: Rule(zaya.choose, zaya.specs, _never, notes=zaya.notes),
    Caches.GLM5_NEXT: Rule(glm5_next.choose, glm5_next.specs, glm5_next.is_outermost),
}


def rule_of(start: Start) -> Rule:
    """The rule of this start's family."""
    return _RULES.get(start.row.caches, ORDINARY)
