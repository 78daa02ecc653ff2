"""Ollama's own log: llama.cpp's lines under a server of that name."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kvcalc.engines.base.trouble import Longer
from kvcalc.engines.llamacpp.startlog import LlamaCppLog
from kvcalc.engines.llamacpp.truncation import longer

if TYPE_CHECKING:
    from kvcalc.core.architecture import Architecture

_OWN = ("OLLAMA_", "source=server.go", "source=sched.go", "source=routes.go")


class OllamaLog(LlamaCppLog):
    """Ollama, and the llama.cpp that it runs."""

    engine: ClassVar[str] = "ollama"
    planner: ClassVar[str] = "llama.cpp"
    preference: ClassVar[int] = 0
    marks: ClassVar[tuple[bytes, ...]] = (*LlamaCppLog.marks, *(word.encode() for word in _OWN))

    def __init__(self) -> None:
        super().__init__()
        self._ollama = False

    @property
    def recognised(self) -> bool:
        """Ollama's own lines stand beside the figures."""
        return self._ollama and super().recognised

    @property
    def complains(self) -> bool:
        """A prompt was cut, as Ollama's runner does it."""
        return self._truncation.cut_first

    def feed(self, line: str, number: int) -> None:
        """Note the server, then read llama.cpp's lines."""
        self._ollama = self._ollama or any(word in line for word in _OWN)
        super().feed(line, number)

    def longer(self, architecture: Architecture, context: int) -> Longer:
        """More tokens a slot."""
        _, size, slots = longer(architecture, self.seen.settings, context)
        return Longer(f"OLLAMA_CONTEXT_LENGTH={context}", ", or num_ctx in the request or the Modelfile", size, slots)


RECOGNISER = OllamaLog
