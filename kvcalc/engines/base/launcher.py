"""What starts an engine: its programs, its container images, and the variables that it reads.

An engine says this in its folder's `launcher.py`, as `LAUNCHER`; the flags behind its program are read by `read(found)` of `launch.py`.
The two stand apart so that looking for an engine among the words of a command loads none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Launcher:
    """How an engine is started.

    programs    a program, or a program and its first word → what of the engine that starts: ("vllm", "serve") → "serve";
                a Python module stands by its dotted name, as behind `python -m`
    images      part of a container image's name before its tag → what the image starts
    tags        beginning of a tag of these images → what it starts instead
    variables   how the environment variables begin that the engine reads; those that kvcalc does not read become a warning
    """

    programs: Mapping[tuple[str, ...], str]
    images: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[str, ...] = ()

    @property
    def commands(self) -> tuple[str, ...]:
        """The programs as people write them: `vllm serve`, `python -m sglang.launch_server`."""
        return tuple(f"python -m {words[0]}" if len(words) == 1 and "." in words[0] else " ".join(words) for words in self.programs)


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
