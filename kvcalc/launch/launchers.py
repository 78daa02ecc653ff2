"""Which engine a command starts, and which of its words are that engine's own.

    PROGRAM flags · python -m MODULE flags · docker run … IMAGE:TAG flags · IMAGE:TAG PROGRAM flags

Each engine names its programs, modules and images in its folder's launcher.py. What stands before it (sudo, nohup, an interpreter, a container's options) is passed over, but for `NAME=value` and `-e NAME=value`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvcalc.core.errors import UsageError
from kvcalc.engines.base.launcher import Found
from kvcalc.engines.registry import module, names
from kvcalc.launch.words import bounded, split, until_end

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcalc.engines.base.launcher import Launcher

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})=(.*)", re.ASCII | re.DOTALL)
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})


def launchers() -> Mapping[str, Launcher]:
    """Every engine that can be started by a command → what starts it."""
    return {name: own.LAUNCHER for name in names() if (own := module(name, "launcher")) is not None}


def _programs() -> Mapping[tuple[str, ...], tuple[str, str]]:
    """Program, or program and its first word → engine, and what of it starts."""
    return {words: (name, program) for name, launcher in launchers().items() for words, program in launcher.programs.items()}


def known() -> str:
    """The commands that kvcalc reads, for people."""
    return ", ".join(command for launcher in launchers().values() for command in launcher.commands) + ", and the container images of these"


def find(words: Sequence[str]) -> Found:
    """The launcher among the words. Raises UsageError where there is none that kvcalc knows."""
    found = _in_a_shell(words) or _found(words) or _in_a_word(words)
    if found is None:
        raise UsageError(f"no engine's launcher is among the {len(words):,} words of the command", f"kvcalc reads {known()}")
    return found


def _found(words: Sequence[str]) -> Found | None:
    """A launcher among the words themselves: of a container the one behind its image, else what the image starts."""
    images = [index for index, word in enumerate(words) if _image(word)]
    image = max((index for index in images if "/" in words[index]), default=images[0] if images else None)
    contained = image is not None and any(_base(word) in _CONTAINERS for word in words[:image])
    start = image + 1 if contained and image is not None else 0
    programs = _programs()
    for index in range(start, len(words)):
        for length in (2, 1):
            program = programs.get(tuple(_base(word) for word in words[index : index + length]))
            if program is not None:
                return Found(*program, _own(words[index + length :]), _environment(words[:index]))
    if image is None:
        return None
    engine, program_name = _image(words[image]) or ("", "")
    return Found(engine, program_name, _own(words[image + 1 :]), _environment(words[:image]))


def _own(words: Sequence[str]) -> list[str]:
    """The words that belong to a launcher. Raises UsageError where a second one is started behind them: neither is passed over."""
    found = until_end(words)
    if _found(words[len(found) :]) is not None:
        raise UsageError(
            "the command starts two servers, and only one can be meant", "ask for each by itself: a budget, or a call, for one"
        )
    return found


def _in_a_shell(words: Sequence[str]) -> Found | None:
    """A launcher in `bash -c "…"`."""
    for index in range(len(words) - 2):
        if _base(words[index]) in _SHELLS and re.fullmatch(r"-[a-z]{0,3}c", words[index + 1]):
            return _inside(words, index + 2)
    return None


def _in_a_word(words: Sequence[str]) -> Found | None:
    """A launcher in a word that holds a whole command, as behind `ssh host`."""
    places = (index for index, word in enumerate(words) if len(words) > 1 and len(word.split(None, 2)) > 1)
    return next((found for place in places if (found := _inside(words, place)) is not None), None)


def _inside(words: Sequence[str], place: int) -> Found | None:
    try:
        inner = bounded(split(words[place]))
    except UsageError:
        return None
    found = _found(inner)
    return None if found is None else found._replace(environment=_environment(words[:place]) | found.environment)


def _base(word: str) -> str:
    """A program without its folder: `/opt/venv/bin/serve` is `serve`."""
    return word.rpartition("/")[2].removesuffix(".exe")


def _image(word: str) -> tuple[str, str] | None:
    """The engine of a container image and what it starts, which its tag may say."""
    if len(word) > 300 or word.startswith("-") or "=" in word:
        return None
    bare = word.partition("@")[0]
    name, _, tag = bare.rpartition(":") if ":" in bare.rpartition("/")[2] else (bare, "", "")
    for engine, launcher in launchers().items():
        for part, program in launcher.images.items():
            if name == part or name.endswith(f"/{part}"):
                return engine, next((other for beginning, other in launcher.tags.items() if tag.startswith(beginning)), program)
    return None


def _environment(words: Sequence[str]) -> dict[str, str]:
    """Variables set before a launcher: `NAME=value`, `-e NAME=value`, `--env=NAME=value`."""
    found: dict[str, str] = {}
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.removeprefix("--env=") if word.startswith("--env=") else word)
        if match:
            found[match[1]] = match[2]
    return found
