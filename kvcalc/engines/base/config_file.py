"""`--config FILE`: flags that stand in a YAML file, put among the words of the command where the engine puts them.

    key: true → --key      key: false → --no-key, where there is such      [a, b] → --key a b      {…} → --key '{…}'

Read with the bounds of every YAML that kvcalc reads; a file that is not at hand is an error, since it may change every figure.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.core.errors import InvalidConfigError, KvcalcError, UsageError
from kvcalc.sources.files import read_bytes
from kvcalc.sources.yaml_reader import LARGEST_FILE, read_yaml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcalc.engines.base.flags import Syntax
    from kvcalc.engines.base.launcher import Found

#: Words that YAML 1.1, which the engines read, takes for truth values.
_TRUE, _FALSE = ("yes", "on", "true"), ("no", "off", "false")


def with_file(found: Found, syntax: Syntax, names: Sequence[str], *, last: bool = False) -> list[str]:
    """The command's words with those of its file: behind a leading model, so that flags win, or `last`, so that the file wins.

    Raises UsageError for a file that cannot be read.
    """
    words = list(found.words)
    places = [place for place, word in enumerate(words) if word in names]
    if not places:
        return words
    if len(places) > 1 or places[0] + 1 == len(words):
        raise UsageError(f"{words[places[0]]} names {'no' if len(places) == 1 else 'more than one'} file", "name one")
    flag, path = words[places[0] : places[0] + 2]
    del words[places[0] : places[0] + 2]
    inner = _words(_mapping(flag, Path(found.folder or ".") / path), syntax)
    start = len(words) if last else int(bool(words) and not words[0].startswith("-"))
    return [*words[:start], *inner, *words[start:]]


def _mapping(flag: str, path: Path) -> dict[str, Any]:
    try:
        value = read_yaml(read_bytes(path, LARGEST_FILE), f"the file of {flag}").value
    except InvalidConfigError as error:
        raise UsageError(error.message, error.hint) from None
    except KvcalcError:
        raise UsageError(
            f"{flag}: the file that it names is not here", "it may change every figure: bring it, or leave the flag out"
        ) from None
    if not isinstance(value, dict):
        raise UsageError(f"{flag}: the file that it names holds no flags", "a mapping of flags and values")
    return value


def _words(value: dict[str, Any], syntax: Syntax, prefix: str = "--") -> list[str]:
    found: list[str] = []
    for key, item in value.items():
        word = prefix + key
        flag = syntax.flags.get(syntax.spell(word)[0])
        if flag is not None and flag.takes == "nothing" and isinstance(item, str) and item.lower() in (*_TRUE, *_FALSE):
            item = item.lower() in _TRUE  # noqa: PLW2901  what YAML 1.1 makes of it
        if flag is not None and flag.takes == "word" and isinstance(item, bool):
            found += [word, str(item).lower()]
        elif item is True:
            found.append(word)
        elif item is False:
            off = syntax.spell(f"--no-{key}")
            found += [f"--no-{key}"] if off[0] in syntax.flags and off[1] else []
        elif isinstance(item, dict) and flag is not None and flag.takes == "mapping":
            found += _words(item, syntax, f"{word}.")
        elif isinstance(item, dict):
            found += [word, json.dumps(item)]
        elif isinstance(item, list):
            items = [",".join(map(str, item))] if syntax.greedy else [str(part) for part in item]
            found += [word, *items] if item else []
        elif item is not None:
            found += [word, str(item)]
    return found
