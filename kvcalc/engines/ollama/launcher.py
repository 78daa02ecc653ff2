"""What starts Ollama."""

from __future__ import annotations

from kvcalc.engines.base.launcher import Launcher

LAUNCHER = Launcher(
    programs={("ollama", "serve"): "serve", ("ollama", "run"): "run"},
    images={"ollama/ollama": "serve"},
)
