"""No cache: every step reads the whole text again.

    bytes = 0
    work of T tokens = Σ t x (projections and feed-forward) = O(T² d²), and scores O(T³ d)

Token t's keys and values are computed T - t + 1 times, and come out the same each time: in a causal model nothing that is added
later changes what an earlier token is. That sameness is the whole reason why a cache is allowed.

What is easy to get wrong: it is the *reference*. A cache that is faster and says something else is not a cache. In an encoder,
where every token sees the later ones too, keys and values do change, and there is nothing to keep.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcalc.core.states.attention import Nothing
from kvcalc.lab.kv import multi_head
from kvcalc.lab.lesson import Figure, Lesson, formula, plan

if TYPE_CHECKING:
    from kvcalc.lab.frame import Decoder
    from kvcalc.lab.trial import Trial


def nothing(decoder: Decoder, trial: Trial) -> Figure:
    """The same layers with the state `none`."""
    layout = decoder.architecture().layers
    empty = replace(layout, states=dict.fromkeys(layout.states, (Nothing(),)))
    found = plan(replace(decoder.architecture(), layers=empty), trial.longest)
    return Figure(found.total, formula(found) or "nothing is kept")


LESSONS = {"no-cache": Lesson(multi_head, figure=nothing, cached=False)}
