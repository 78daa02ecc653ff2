"""What Ollama leaves of a card: as the llama.cpp that it runs."""

from __future__ import annotations

from kvcalc.engines.llamacpp.memory import SHARE

__all__ = ["SHARE"]
