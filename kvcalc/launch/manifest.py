"""A compose file, a Kubernetes manifest, or the list under its `command:` or `args:`, read for the container that starts an engine.

    env: NAME=value …   image   entrypoint   command   args        in this order, as the container's own words

YAML and JSON, read strictly (no anchors, no tags, one document). Of several containers the one that starts an engine is taken; where
several do, one has to be chosen by hand.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError, UsageError
from kvcalc.launch.launchers import find
from kvcalc.launch.words import bounded, split
from kvcalc.sources.yaml_reader import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = ("entrypoint", "command", "args")
#: A line that no command has: a key of a manifest, or an item of a list.
_KEY = re.compile(
    r"^[ \t]*(?:-[ \t]+)?[\"']?(?:apiVersion|kind|spec|services|containers|image|command|args|entrypoint)[\"']?[ \t]*:", re.MULTILINE
)
_ITEM = re.compile(r"[ \t]*-[ \t]+\S")


def is_manifest(text: str) -> bool:
    """The text is YAML or JSON of a container rather than a command."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return text.lstrip()[:1] in ("[", "{") or _KEY.search(text) is not None or (bool(lines) and all(map(_ITEM.match, lines)))


def words_of(text: str) -> list[str]:
    """The words of the container that starts an engine. Raises UsageError where none or several do, or where the text is no YAML."""
    try:
        value = read_yaml(text, "the manifest").value
    except InvalidConfigError as error:
        raise UsageError(error.message, error.hint or "give the container's command alone") from None
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return bounded(_said(value))
    found = [words for words in _containers(value) if _starts_an_engine(words)]
    if len(found) != 1:
        count = f"{len(found)} containers of the manifest start" if found else "no container of the manifest starts"
        raise UsageError(f"{count} an engine that kvcalc knows", "give the words of one container's command")
    return found[0]


def _containers(value: Any) -> Iterator[list[str]]:
    """The words of every mapping that looks like a container, at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _containers(item)
    if not isinstance(value, dict):
        return
    parts = [part for key in _WORDS if (part := _said(value.get(key)))]
    image = [value["image"]] if isinstance(value.get("image"), str) else []
    if parts or image:
        yield bounded(
            [*_environment(value.get("env")), *_environment(value.get("environment")), *image, *(word for part in parts for word in part)]
        )
    for key, inner in value.items():
        if key not in (*_WORDS, "env", "environment"):
            yield from _containers(inner)


def _said(value: Any) -> list[str]:
    """Words as a list, or as a text that a shell would split."""
    if isinstance(value, str):
        return split(value)
    items = value if isinstance(value, list) else []
    return [str(item) for item in items if isinstance(item, str | int | float) and not isinstance(item, bool)]


def _environment(value: Any) -> list[str]:
    """`{NAME: value}`, `["NAME=value"]` and `[{name: NAME, value: value}]` as `NAME=value`."""
    if isinstance(value, dict):
        return [f"{name}={text}" for name, text in value.items() if isinstance(text, str | int | float)]
    found: list[str] = []
    for item in value if isinstance(value, list) else []:
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("value"), str | int | float):
            found.append(f"{item['name']}={item['value']}")
    return found


def _starts_an_engine(words: list[str]) -> bool:
    try:
        find(words)
    except UsageError:
        return False
    return True
