"""Architecture → the YAML that people read and edit: one line a state, the pattern in its shortest form.

    read(to_yaml(a)) says the same as `a`: equal in every field, the layers in the same order

Fields that stand at their default are left out. What the file's own `source.assumed` says is not repeated as an assumption.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kvcalc.sources.yaml_reader import plain_scalar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvcalc.core.architecture import Architecture, Expectation, Layout, Source
    from kvcalc.core.states import AnyState

_WIDTH = 140
#: Text that needs no quotes anywhere; words that other YAML readers take for truth values get them.
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+*-]*(?: [A-Za-z0-9_./@+()-]+)*", re.ASCII)
_TRUTH_ELSEWHERE = re.compile(r"(?:y|n|yes|no|on|off)", re.IGNORECASE)
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_IDENTITY = ("id", "name", "hub", "source", "license", "family", "class_name", "dtype", "max_context", "parameters", "hidden_dim")
#: The order of a state's fields on its line; any other follows in its own order.
_STATE_ORDER = (
    *("kind", "name", "window", "chunk", "ratio", "source_tokens", "shares_with"),
    *("query_heads", "kv_heads", "heads", "key_heads", "value_heads", "head_dim", "key_head_dim", "value_head_dim"),
    *("latent_dim", "rope_dim", "nope_dim", "inner_dim", "state_dim", "groups", "hidden_dim", "channels", "conv_kernel"),
    *("index_dim", "top_k", "state_dtype", "conv_dtype", "format"),
)


def to_yaml(architecture: Architecture) -> str:
    """The catalogue file of an architecture."""
    from kvcalc.sources.document import assumed_sentence

    lines: list[str] = []
    for name in _IDENTITY:
        value = getattr(architecture, name)
        if value not in (None, ""):
            lines += _entry(name, value if isinstance(value, str | int) else _fields(value), "")
    lines += ["layers:", *_layout(architecture.layers)]
    if architecture.draft is not None:
        lines += ["draft:", *_layout(architecture.draft)]
    traits = architecture.traits.given()
    if traits:
        lines += ["traits:", *itertools.chain.from_iterable(_entry(key, value, "  ") for key, value in traits.items())]
    own = [text for text in architecture.assumptions if text != assumed_sentence(architecture.source)]
    if own:
        lines += ["assumptions:", *(f"  - {_scalar(text)}" for text in own)]
    if architecture.expect:
        lines += ["expect:", *(f"  - {_flow(_fields(entry))}" for entry in architecture.expect)]
    return "\n".join(lines) + "\n"


def shortest_pattern(order: tuple[str, ...]) -> tuple[str, ...]:
    """The shortest beginning of `order` that, repeated and cut, gives `order`: six entries for the 62 layers of Gemma 3."""
    for length in range(1, len(order)):
        if all(order[index] == order[index - length] for index in range(length, len(order))):
            return order[:length]
    return order


def _layout(layout: Layout) -> list[str]:
    names = [
        name if times == 1 else f"{name}*{times}"
        for name, times in ((name, len(list(run))) for name, run in itertools.groupby(shortest_pattern(layout.order)))
    ]
    lines = [*_entry("pattern", names, "  "), f"  count: {layout.count}", "  states:"]
    width = max(len(_scalar(name)) for name in layout.states)
    for name, states in layout.states.items():
        key = f"{_scalar(name)}:"
        if len(states) == 1:
            lines.append(f"    {key:<{width + 1}} {_flow(_state(states[0]))}")
        else:
            lines += [f"    {key}", *(f"      - {_flow(_state(state))}" for state in states)]
    return lines


def _state(state: AnyState) -> dict[str, Any]:
    """A state's fields that differ from their defaults, `kind` first."""
    found = {"kind": state.kind, **_fields(state)}
    rank = {name: place for place, name in enumerate(_STATE_ORDER)}
    return dict(sorted(found.items(), key=lambda item: rank.get(item[0], len(rank))))


def _fields(part: AnyState | Expectation | Source) -> dict[str, Any]:
    """The fields that differ from their defaults; an empty mapping is one."""
    found = {field.name: (getattr(part, field.name), field.default) for field in fields(part)}
    return {name: value for name, (value, default) in found.items() if value not in (default, {})}


def _entry(key: str, value: Any, indent: str) -> list[str]:
    """`key: value` on one line; what is too long for one, over several."""
    name = f"{indent}{_scalar(key)}:"
    line = f"{name} {_flow(value)}"
    inner = f"{indent}  "
    if len(line) <= _WIDTH or not value or isinstance(value, str):
        return [line]
    if isinstance(value, list | tuple):
        return [f"{name} [", *_rows([f"{_flow(item)}," for item in value], inner), f"{indent}]"]
    return [name, *itertools.chain.from_iterable(_entry(str(step), item, inner) for step, item in value.items())]


def _rows(words: list[str], indent: str) -> Iterator[str]:
    """As many words on a row as fit."""
    row = indent
    for word in words:
        if len(row) + len(word) > _WIDTH and row.strip():
            yield row.rstrip()
            row = indent
        row += f"{word} "
    yield row.rstrip()


def _flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if hasattr(value, "items"):
        return _flow_mapping(value)
    return _scalar(value)


def _flow_mapping(value: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{_scalar(str(key))}: {_flow(inner)}" for key, inner in value.items()) + "}"


def _scalar(value: Any) -> str:
    """A scalar that reads back as itself."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"inf": ".inf", "-inf": "-.inf", "nan": "null"}.get(repr(value), repr(value))
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and isinstance(plain_scalar(text), str) and not _TRUTH_ELSEWHERE.fullmatch(text):
        return text
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    if letter in _ESCAPED:
        return _ESCAPED[letter]
    if letter.isprintable() and letter != "\ufeff":
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
