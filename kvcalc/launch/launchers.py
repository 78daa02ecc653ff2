"""Which engine a command starts, and which of its words are that engine's own.

    vllm serve · python -m vllm.entrypoints.openai.api_server · docker run … vllm/vllm-openai:TAG
    sglang serve · python -m sglang.launch_server · … lmsysorg/sglang:TAG python3 -m sglang.launch_server
    llama-server · llama-cli · … ghcr.io/ggml-org/llama.cpp:server
    trtllm-serve · ollama serve · ollama run MODEL

What stands before it (sudo, nohup, an interpreter, a container's options) is passed over, but for `NAME=value` and `-e NAME=value`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kvcalc.core.errors import UsageError
from kvcalc.launch.words import bounded, split, until_end

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

KNOWN = (
    "vllm serve, python -m vllm.entrypoints.openai.api_server, sglang serve, python -m sglang.launch_server, llama-server, "
    "llama-cli, trtllm-serve, ollama serve, ollama run, and the container images of these"
)

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})=(.*)", re.ASCII | re.DOTALL)
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_SHELLS = frozenset({"sh", "bash", "zsh", "dash"})


class Found(NamedTuple):
    """An engine's launcher, the words behind it, and the variables before it.

    program   what of the engine is started, where that matters: "server", "cli", "serve", "run"
    folder    where the files lie that the words name; None = the working folder
    """

    engine: str
    program: str
    words: list[str]
    environment: dict[str, str]
    folder: Path | None = None


#: Program, or program and its first word → engine and program.
_PROGRAMS: dict[tuple[str, ...], tuple[str, str]] = {
    ("vllm", "serve"): ("vllm", "serve"),
    ("vllm.entrypoints.openai.api_server",): ("vllm", "api_server"),
    ("vllm.entrypoints.api_server",): ("vllm", "api_server"),
    ("sglang", "serve"): ("sglang", "serve"),
    ("sglang.launch_server",): ("sglang", "launch_server"),
    ("llama-server",): ("llama.cpp", "server"),
    ("llama-cli",): ("llama.cpp", "cli"),
    ("trtllm-serve",): ("tensorrt-llm", "serve"),
    ("ollama", "serve"): ("ollama", "serve"),
    ("ollama", "run"): ("ollama", "run"),
}
#: Part of an image's name, before its tag → engine; the tag may say which program.
_IMAGES: dict[str, tuple[str, str]] = {
    "vllm-openai": ("vllm", "api_server"),
    "lmsysorg/sglang": ("sglang", "launch_server"),
    "ggml-org/llama.cpp": ("llama.cpp", "server"),
    "ggerganov/llama.cpp": ("llama.cpp", "server"),
    "ollama/ollama": ("ollama", "serve"),
}


def find(words: Sequence[str]) -> Found:
    """The launcher among the words. Raises UsageError where there is none that kvcalc knows."""
    found = _in_a_shell(words) or _found(words) or _in_a_word(words)
    if found is None:
        raise UsageError(f"no engine's launcher is among the {len(words):,} words of the command", f"kvcalc reads {KNOWN}")
    return found


def _found(words: Sequence[str]) -> Found | None:
    """A launcher among the words themselves: of a container the one behind its image, else what the image starts."""
    images = [index for index, word in enumerate(words) if _image(word)]
    image = max((index for index in images if "/" in words[index]), default=images[0] if images else None)
    contained = image is not None and any(_base(word) in _CONTAINERS for word in words[:image])
    start = image + 1 if contained and image is not None else 0
    for index in range(start, len(words)):
        for length in (2, 1):
            program = _PROGRAMS.get(tuple(_base(word) for word in words[index : index + length]))
            if program is not None:
                return Found(*program, until_end(words[index + length :]), _environment(words[:index]))
    if image is None:
        return None
    engine, program_name = _image(words[image]) or ("", "")
    return Found(engine, program_name, until_end(words[image + 1 :]), _environment(words[:image]))


def _in_a_shell(words: Sequence[str]) -> Found | None:
    """A launcher in `bash -c "…"`."""
    for index in range(len(words) - 2):
        if _base(words[index]) in _SHELLS and re.fullmatch(r"-[a-z]{0,3}c", words[index + 1]):
            return _inside(words, index + 2)
    return None


def _in_a_word(words: Sequence[str]) -> Found | None:
    """A launcher in a word that holds a whole command: `ssh host "vllm serve …"`."""
    places = (index for index, word in enumerate(words) if len(words) > 1 and len(word.split(None, 2)) > 1)
    return next((found for place in places if (found := _inside(words, place)) is not None), None)


def _inside(words: Sequence[str], place: int) -> Found | None:
    try:
        found = _found(bounded(split(words[place])))
    except UsageError:
        return None
    return None if found is None else found._replace(environment=_environment(words[:place]) | found.environment)


def _base(word: str) -> str:
    """A program without its folder: `/opt/venv/bin/vllm` is `vllm`."""
    return word.rpartition("/")[2].removesuffix(".exe")


def _image(word: str) -> tuple[str, str] | None:
    """The engine of a container image; for llama.cpp's the tag says which program it starts."""
    if len(word) > 300 or word.startswith("-") or "=" in word:
        return None
    bare = word.partition("@")[0]
    name, _, tag = bare.rpartition(":") if ":" in bare.rpartition("/")[2] else (bare, "", "")
    found = next((program for part, program in _IMAGES.items() if name == part or name.endswith(f"/{part}")), None)
    return ("llama.cpp", "cli") if found and found[0] == "llama.cpp" and tag.startswith("light") else found


def _environment(words: Sequence[str]) -> dict[str, str]:
    """Variables set before a launcher: `NAME=value`, `-e NAME=value`, `--env=NAME=value`."""
    found: dict[str, str] = {}
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.removeprefix("--env=") if word.startswith("--env=") else word)
        if match:
            found[match[1]] = match[2]
    return found
