"""A model as kvcalc sees it: layers in order, each with its states, and who the model is.

    Architecture ── layers: Layout ── order: ("local", "local", …, "global")        one name a layer, in order
                 │                 └─ states: {"local": (Sliding(…),), "global": (Full(…),)}
                 └─ family (the model_type that engines key their rules on), dtype, max_context, draft, traits

The order is kept because engines group by it, pipeline stages cut it, and sharing refers to it. Everything else is counted:
plans cost as much as there are different states, not as there are layers.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, SerializeAsAny, model_validator

from kvcalc.core.errors import nearest
from kvcalc.core.states import KINDS, State

#: More layers than any model has; keeps a hostile file from making a long list.
MOST_LAYERS = 4096

_REPEATED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\*([0-9]{1,4}))?", re.ASCII)
_FROZEN = ConfigDict(frozen=True, extra="forbid", defer_build=True, hide_input_in_errors=True)


def parse_state(value: object) -> State:
    """One state from its YAML mapping, dispatched on `kind`. Raises ValueError naming the kind or the key."""
    if isinstance(value, State):
        return value
    if not isinstance(value, dict):
        raise ValueError("a state is a mapping with a 'kind'")  # noqa: TRY004  Pydantic turns ValueError into a located message
    kind = value.get("kind")
    found = KINDS.get(kind) if isinstance(kind, str) else None
    if found is None:
        hint = nearest(str(kind), KINDS) or "known kinds: " + ", ".join(KINDS)
        raise ValueError(f"unknown kind '{str(kind)[:40]}'; {hint}")
    for key in value:
        if key not in found.model_fields:
            hint = nearest(str(key), found.model_fields) or "known keys: " + ", ".join(found.model_fields)
            raise ValueError(f"unknown key '{str(key)[:40]}'; {hint}")
    return found.model_validate(value)


def _parse_states(value: object) -> object:
    """A layer's states: one mapping, or a list of them."""
    items = value if isinstance(value, list | tuple) else (value,)
    return tuple(parse_state(item) for item in items)


def _expand(value: object) -> object:
    """`[local*5, global]` → five times local, once global."""
    if not isinstance(value, list | tuple):
        return value
    names: list[str] = []
    for item in value:
        match = _REPEATED.fullmatch(item) if isinstance(item, str) else None
        if match is None:
            raise ValueError(f"pattern entry {str(item)[:40]!r} is not a name, nor a name*count")
        names.extend([match[1]] * int(match[2] or 1))
        if len(names) > MOST_LAYERS:
            raise ValueError(f"pattern is longer than {MOST_LAYERS} layers")
    return tuple(names)


States = Annotated[tuple[SerializeAsAny[State], ...], BeforeValidator(_parse_states)]


class Layout(BaseModel):
    """Layers in order: `pattern` repeated to `count`, and the states of each name."""

    model_config = _FROZEN

    pattern: Annotated[tuple[str, ...], BeforeValidator(_expand), Field(min_length=1)]
    count: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
    states: dict[str, States]

    @model_validator(mode="after")
    def _names_are_known(self) -> Layout:
        for name in dict.fromkeys(self.pattern):
            if name not in self.states:
                hint = nearest(name, self.states)
                raise ValueError(f"pattern names '{name}', which has no entry under states" + (f"; {hint}" if hint else ""))
        for name in self.states:
            if name not in self.pattern:
                raise ValueError(f"states.{name} is not used by the pattern")
        return self

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The name of every layer's states, in order, `count` long."""
        times = -(-self.count // len(self.pattern))
        return (self.pattern * times)[: self.count]

    def layer(self, index: int) -> tuple[State, ...]:
        """The states of layer `index` (0-based)."""
        return self.states[self.order[index]]

    @cached_property
    def counts(self) -> dict[State, int]:
        """How many layers keep each state, in order of first appearance."""
        return count_states(self, self.order)


def count_states(layout: Layout, order: tuple[str, ...]) -> dict[State, int]:
    """How many of the layers named in `order` keep each state; a state twice in a layer counts twice."""
    found: dict[State, int] = {}
    for name, layers in Counter(order).items():
        for state in layout.states[name]:
            found[state] = found.get(state, 0) + layers
    return found


class Source(BaseModel):
    """Where the numbers come from, and how sure each is."""

    model_config = _FROZEN

    file: str
    where: str = ""
    revision: str = ""
    read: str = ""
    #: Fields that were not read from the released file, with how they are known instead ("class default", "catalogue").
    assumed: dict[str, str] = Field(default_factory=dict)


class Expectation(BaseModel):
    """A figure that the tests hold the file to, worked by hand or measured."""

    model_config = _FROZEN

    context: PositiveInt
    bytes: PositiveInt
    sequences: PositiveInt = 1
    kv_dtype: str = "auto"
    engine: str = "ideal"
    note: str = ""


class Architecture(BaseModel):
    """A model: identity, layers, and the few facts that engines' rules are keyed on.

    family         the inner model_type of its config.json ("gemma3_text", "deepseek_v3")
    class_name     the Hugging Face architecture class, where known: some engines list classes, not families
    dtype          the checkpoint's own type; None if the file does not say
    draft          layers for speculation (MTP, NextN): kept only when the question asks for them
    traits         facts that a single engine needs, under the config's own names (num_experts, quantization, …)
    assumptions    what the reader filled in, sentence by sentence; printed with every answer
    """

    model_config = _FROZEN

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
    traits: dict[str, Any] = Field(default_factory=dict)
    assumptions: tuple[str, ...] = ()
    expect: tuple[Expectation, ...] = ()

    @property
    def states(self) -> dict[State, int]:
        """How many layers keep each state."""
        return self.layers.counts

    @property
    def techniques(self) -> tuple[str, ...]:
        """The techniques in use, for `models list`: ("swa", "gqa")."""
        return tuple(dict.fromkeys(technique_of(state) for state in self.layers.counts if state.technique != "none"))


def technique_of(state: State) -> str:
    """`mha`, `gqa` or `mqa` for full attention with known query heads, else the state's own technique."""
    if state.technique != "full":
        return state.technique
    kv_heads, query_heads = getattr(state, "kv_heads", 0), getattr(state, "query_heads", None)
    if kv_heads == 1 and query_heads != 1:
        return "mqa"
    if query_heads is None:
        return "full"
    return "mha" if query_heads == kv_heads else "gqa"
