"""A model as kvcalc sees it: layers in order, each with its states, and who the model is.

    Architecture ── layers: Layout ── order: ("local", "local", …, "global")        one name a layer, in order
                 │                 └─ states: {"local": (Sliding(…),), "global": (Full(…),)}
                 └─ family (the model_type that engines key their rules on), dtype, max_context, draft, traits

The order is kept because engines group by it, pipeline stages cut it, and sharing refers to it. Everything else is counted:
plans cost as much as there are different states, not as there are layers.

What comes from outside is checked against these classes by `kvcalc.sources.schema`; made in code, only what contradicts itself is
refused.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

from kvcalc.core.errors import nearest
from kvcalc.core.fields import ContradictionError, Exactly, PositiveInt, Value
from kvcalc.core.states import State
from kvcalc.core.traits import NO_TRAITS, Traits

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcalc.core.states import AnyState

#: More layers than any model has; keeps a hostile file from making a long list.
MOST_LAYERS = 4096

_REPEATED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\*([0-9]{1,4}))?", re.ASCII)


def expand(value: object) -> object:
    """`[local*5, global]` → five times local, once global. Raises ValueError for an entry that is no name."""
    if not isinstance(value, list | tuple):
        return value
    names: list[str] = []
    for item in value:
        match = _REPEATED.fullmatch(item) if isinstance(item, str) else None
        if match is None:
            raise ContradictionError(f"pattern entry {str(item)[:40]!r} is not a name, nor a name*count")
        names.extend([match[1]] * int(match[2] or 1))
        if len(names) > MOST_LAYERS:
            raise ContradictionError(f"pattern is longer than {MOST_LAYERS} layers")
    return tuple(names)


class _Pattern:
    """A layout's pattern as files write it: `name*count` for a run, at least one name."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        inner = {**handler(source), "min_length": 1}
        return {"type": "function-before", "function": {"type": "no-info", "function": expand}, "schema": inner}


class _Made:
    """States that were read one by one before, each under its own place in the file."""

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"type": "tuple", "items_schema": [{"type": "is-instance", "cls": State}], "variadic_item_index": 0}


if TYPE_CHECKING:
    States = tuple[AnyState, ...]
else:
    States = Annotated[tuple[State, ...], _Made()]


@dataclass(frozen=True, eq=False, repr=False)
class Layout(Value):
    """Layers in order: `pattern` repeated to `count`, and the states of each name.

    Raises ContradictionError where the two name different things.
    """

    pattern: Annotated[tuple[str, ...], _Pattern()]
    count: Annotated[int, Exactly(ge=1, le=MOST_LAYERS)]
    states: dict[str, States]

    def __post_init__(self) -> None:
        for name in dict.fromkeys(self.pattern):
            if name not in self.states:
                hint = nearest(name, self.states)
                raise ContradictionError(f"pattern names '{name}', which has no entry under states" + (f"; {hint}" if hint else ""))
        for name in self.states:
            if name not in self.pattern:
                raise ContradictionError(f"states.{name} is not used by the pattern")

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.pattern, self.count, tuple(self.states.items())))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The name of every layer's states, in order, `count` long."""
        times = -(-self.count // len(self.pattern))
        return (self.pattern * times)[: self.count]

    def layer(self, index: int) -> States:
        """The states of layer `index` (0-based)."""
        return self.states[self.order[index]]

    @cached_property
    def counts(self) -> dict[AnyState, int]:
        """How many layers keep each state, in order of first appearance."""
        return count_states(self, self.order)


def count_states(layout: Layout, order: tuple[str, ...]) -> dict[AnyState, int]:
    """How many of the layers named in `order` keep each state; a state twice in a layer counts twice."""
    found: dict[AnyState, int] = {}
    for name, layers in Counter(order).items():
        for state in layout.states[name]:
            found[state] = found.get(state, 0) + layers
    return found


@dataclass(frozen=True, eq=False, repr=False)
class Source(Value):
    """Where the numbers come from, and how sure each is."""

    file: str
    where: str = ""
    revision: str = ""
    read: str = ""
    #: Fields that were not read from the released file, with how they are known instead ("class default", "catalogue").
    assumed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Expectation(Value):
    """A figure that the tests hold the file to, worked by hand or measured."""

    context: PositiveInt
    bytes: PositiveInt
    sequences: PositiveInt = 1
    kv_dtype: str = "auto"
    engine: str = "ideal"
    note: str = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Architecture(Value):
    """A model: identity, layers, and the few facts that engines' rules are keyed on.

    family         the inner model_type of its config.json ("gemma3_text", "deepseek_v3")
    class_name     the Hugging Face architecture class, where known: some engines list classes, not families
    dtype          the checkpoint's own type; None if the file does not say
    draft          layers for speculation (MTP, NextN): kept only when the question asks for them
    traits         facts that a single engine needs, under the config's own names
    assumptions    what the reader filled in, sentence by sentence; printed with every answer
    """

    id: str
    name: str = ""
    hub: str = ""
    source: Source | None = None
    license: str = ""
    family: str
    class_name: str = ""
    dtype: str | None = None
    max_context: PositiveInt | None = None
    parameters: PositiveInt | None = None
    hidden_dim: PositiveInt | None = None
    layers: Layout
    draft: Layout | None = None
    traits: Traits = NO_TRAITS
    assumptions: tuple[str, ...] = ()
    expect: tuple[Expectation, ...] = ()

    def __hash__(self) -> int:
        return hash((self.id, self.family, self.dtype, self.layers))

    @property
    def states(self) -> dict[AnyState, int]:
        """How many layers keep each state."""
        return self.layers.counts

    @property
    def techniques(self) -> tuple[str, ...]:
        """The techniques in use, for `models list`: ("swa", "gqa")."""
        return tuple(dict.fromkeys(technique_of(state) for state in self.layers.counts if state.technique != "none"))


def technique_of(state: AnyState) -> str:
    """`mha`, `gqa` or `mqa` for full attention with known query heads, else the state's own technique."""
    if state.kind != "full":
        return state.technique
    if state.kv_heads == 1 and state.query_heads != 1:
        return "mqa"
    if state.query_heads is None:
        return "full"
    return "mha" if state.query_heads == state.kv_heads else "gqa"
